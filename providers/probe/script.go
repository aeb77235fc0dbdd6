package probe

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/bcc94042/instar/machines/instance"
)

// script runs a program, without a shell, in a process group of its own that ends with it. Exit code 0 passes.
func (p *Prober) script(ctx context.Context, t *instance.Target, address string) (success, error) {
	if !p.Scripts {
		return success{}, fail(instance.FailedForbidden, "checks of type script are not enabled in the configuration")
	}
	if len(t.Check.Command) == 0 {
		return success{}, fail(instance.FailedConfig, "the check has no command")
	}
	var out bounded
	cmd := exec.CommandContext(ctx, t.Check.Command[0], t.Check.Command[1:]...) // #nosec G204 -- what the configuration allows
	cmd.Stdout, cmd.Stderr, cmd.Dir = &out, &out, os.TempDir()
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "INSTAR_INSTANCE=" + t.Key, "INSTAR_ADDRESS=" + address}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	end := func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.Cancel, cmd.WaitDelay = end, 100*time.Millisecond
	if err := cmd.Start(); err != nil {
		return success{}, fail(instance.FailedConfig, "cannot start: %v", err)
	}
	// Whatever it left behind ends before it is reaped: until then its id is nobody else's.
	awaitEnd(cmd.Process.Pid)
	_ = end() // it may be gone already
	err := cmd.Wait()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return success{}, ctx.Err()
	case errors.As(err, &exit):
		return success{}, &failure{class: instance.FailedExit, status: exit.ExitCode(), text: exit.String() + ": " + string(out)}
	}
	return success{output: string(out)}, nil
}

// bounded keeps the beginning of what is written, and takes the rest.
type bounded []byte

func (b *bounded) Write(p []byte) (int, error) {
	*b = append(*b, p[:min(len(p), 4*MaxOutput-len(*b))]...)
	return len(p), nil
}
