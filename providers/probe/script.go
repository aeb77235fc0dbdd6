package probe

import (
	"context"
	"errors"
	"os"
	"os/exec"

	"github.com/bcc94042/instar/machines/instance"
	"github.com/bcc94042/instar/providers/group"
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
	err := (&group.Command{
		Path: t.Check.Command[0], Args: t.Check.Command[1:], Dir: os.TempDir(), Stdout: &out, Stderr: &out,
		Env: []string{"PATH=" + os.Getenv("PATH"), "INSTAR_INSTANCE=" + t.Key, "INSTAR_ADDRESS=" + address},
	}).Run(ctx)
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return success{}, ctx.Err()
	case errors.As(err, &exit):
		return success{}, &failure{class: instance.FailedExit, status: exit.ExitCode(), text: exit.String() + ": " + string(out)}
	case err != nil:
		return success{}, fail(instance.FailedConfig, "%v", err)
	}
	return success{output: string(out)}, nil
}

// bounded keeps the beginning of what is written, and takes the rest.
type bounded []byte

func (b *bounded) Write(p []byte) (int, error) {
	*b = append(*b, p[:min(len(p), 4*MaxOutput-len(*b))]...)
	return len(p), nil
}
