package builtin

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"syscall"

	"github.com/bcc94042/instar/providers/group"
)

// Limits bound each process of a program. A zero is no limit; none can be above what this process may have.
type Limits struct {
	Files         int   // that are open
	Memory        int64 // bytes of private memory that can be written
	File          int64 // bytes of a file that is written
	NoPrivileges  bool  // it becomes no other user by a program that would allow it, such as sudo; where the system can
	NoMemoryDumps bool  // it leaves no file with its memory when it crashes
}

// Args are the limits for the program exec.
func (l Limits) Args() []string {
	var args []string
	add := func(name string, value int64) {
		if value > 0 {
			args = append(args, fmt.Sprintf("-%s=%d", name, value))
		}
	}
	add("files", int64(l.Files))
	add("memory", l.Memory)
	add("file", l.File)
	if l.NoPrivileges {
		args = append(args, "-no-privileges")
	}
	if l.NoMemoryDumps {
		args = append(args, "-no-memory-dumps")
	}
	return args
}

// limits reads them from arguments, and returns the rest.
func limits(args []string) (l Limits, rest []string, err error) {
	f := flag.NewFlagSet("exec", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.IntVar(&l.Files, "files", 0, "")
	f.Int64Var(&l.Memory, "memory", 0, "")
	f.Int64Var(&l.File, "file", 0, "")
	f.BoolVar(&l.NoPrivileges, "no-privileges", false, "")
	f.BoolVar(&l.NoMemoryDumps, "no-memory-dumps", false, "")
	err = f.Parse(args)
	return l, f.Args(), err
}

// apply bounds this process. The calling thread is the one that becomes the program.
func (l Limits) apply() error {
	for resource, value := range map[int]int64{syscall.RLIMIT_NOFILE: int64(l.Files), syscall.RLIMIT_DATA: l.Memory, syscall.RLIMIT_FSIZE: l.File} {
		if value <= 0 {
			continue
		}
		var own syscall.Rlimit
		if err := syscall.Getrlimit(resource, &own); err != nil {
			return os.NewSyscallError("getrlimit", err)
		}
		most := min(uint64(value), own.Max)
		if err := syscall.Setrlimit(resource, &syscall.Rlimit{Cur: most, Max: most}); err != nil {
			return os.NewSyscallError("setrlimit", err)
		}
	}
	if l.NoMemoryDumps {
		if err := syscall.Setrlimit(syscall.RLIMIT_CORE, &syscall.Rlimit{}); err != nil {
			return os.NewSyscallError("setrlimit", err)
		}
	}
	if l.NoPrivileges {
		return os.NewSyscallError("prctl", group.NoNewPrivileges())
	}
	return nil
}

// become replaces this process by the command in args, behind its limits. exec keeps the process id, so LISTEN_PID, without which
// sd_listen_fds(3) ignores passed sockets, is right.
func become(args []string) error {
	l, args, err := limits(args)
	if err != nil {
		return err
	}
	if len(args) == 0 {
		return errors.New("no command")
	}
	if err := os.Setenv("LISTEN_PID", strconv.Itoa(os.Getpid())); err != nil {
		return err
	}
	runtime.LockOSThread() // what cannot be set for all threads is set for this one
	if err := l.apply(); err != nil {
		return fmt.Errorf("cannot limit %s: %w", args[0], err)
	}
	// #nosec G204 -- the command of a template of the configuration
	if err := syscall.Exec(args[0], args, os.Environ()); err != nil {
		return fmt.Errorf("cannot run %s: %w", args[0], err)
	}
	return nil
}
