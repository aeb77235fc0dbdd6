package program

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/bcc94042/instar/providers"
	"github.com/bcc94042/instar/providers/group"
	"github.com/bcc94042/instar/providers/runner/child"
)

// childName is that of the process between the server and a program: it is the parent of whatever the program leaves behind, also in sessions of their own, and ends all of it.
const childName = "exec"

func init() { child.Do(childName, supervise) }

// start is what that process is told, and end what it answers.
type start struct {
	Path   string
	Args   []string
	Dir    string
	Env    []string
	Limits group.Limits
	Grace  time.Duration
	As     *User
}

type end struct {
	Code   int
	Signal syscall.Signal // that has ended the program
}

// User is whom a program runs as, without other groups.
type User struct{ UID, GID uint32 }

// clearing is how long it may take to end what a program has left behind.
const clearing = 10 * time.Second

func supervise(ctx context.Context, s start) (end, error) {
	adopts, err := group.Adopt()
	if err != nil {
		return end{}, fmt.Errorf("cannot become the parent of what a program leaves behind: %w", err)
	}
	cmd := &group.Command{Path: s.Path, Args: s.Args, Dir: s.Dir, Env: s.Env, Stdout: os.Stdout, Stderr: os.Stderr, Limits: s.Limits, Grace: s.Grace}
	if s.As != nil {
		cmd.As = &syscall.Credential{Uid: s.As.UID, Gid: s.As.GID}
		if err := group.NoNewPrivileges(); err != nil {
			return end{}, fmt.Errorf("cannot keep a program from becoming another user: %w", err)
		}
	}
	err = cmd.Run(ctx)
	if adopts {
		soon, cancel := context.WithTimeout(context.WithoutCancel(ctx), clearing)
		defer cancel()
		if left := group.EndAdopted(soon); left != nil {
			return end{}, providers.Errorf(providers.Internal, "what the program has left behind did not end within %s", clearing)
		}
	}
	var exit *exec.ExitError
	switch {
	case err == nil:
		return end{}, nil
	case !errors.As(err, &exit):
		return end{}, providers.Errorf(providers.Invalid, "%v", err)
	}
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return end{Signal: status.Signal()}, nil
	}
	return end{Code: exit.ExitCode()}, nil
}
