package builtin

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/bcc94042/instar/providers/group"
	"github.com/bcc94042/instar/providers/process/cgroup"
)

// Limits bound each process of a program. A zero is no limit; none can be above what this process may have.
type Limits struct {
	Files         int   // that are open
	Memory        int64 // bytes of private memory that can be written
	File          int64 // bytes of a file that is written
	NoPrivileges  bool  // it becomes no other user by a program that would allow it, such as sudo; where the system can
	NoMemoryDumps bool  // it leaves no file with its memory when it crashes
	Apart         bool  // it has shared memory, semaphores and message queues of its own, which end with the last of its processes, and a host name; see [CanApart]
	Processes     int   // and threads, that its user has; not of root
	User          int   // that it becomes, with the group of that number alone; this server's when 0

	Temporary string // a directory that it makes for its user alone, where that is its TMPDIR

	// From is a file with further ones, as JSON, for one process of a program of which others have others, and with the Groups that it enters before all of them; relative to the working
	// directory. That there is none is fine.
	From string `json:"-"`
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
	add("processes", int64(l.Processes))
	add("user", int64(l.User))
	if l.From != "" {
		args = append(args, "-from="+l.From)
	}
	if l.Temporary != "" {
		args = append(args, "-temporary="+l.Temporary)
	}
	if l.NoPrivileges {
		args = append(args, "-no-privileges")
	}
	if l.NoMemoryDumps {
		args = append(args, "-no-memory-dumps")
	}
	if l.Apart {
		args = append(args, "-apart")
	}
	return args
}

// limits reads them from arguments, and returns the groups to enter, and the rest.
func limits(args []string) (l Limits, groups []cgroup.Group, rest []string, err error) {
	f := flag.NewFlagSet("exec", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.IntVar(&l.Files, "files", 0, "")
	f.Int64Var(&l.Memory, "memory", 0, "")
	f.Int64Var(&l.File, "file", 0, "")
	f.IntVar(&l.Processes, "processes", 0, "")
	f.IntVar(&l.User, "user", 0, "")
	f.StringVar(&l.From, "from", "", "")
	f.StringVar(&l.Temporary, "temporary", "", "")
	f.BoolVar(&l.NoPrivileges, "no-privileges", false, "")
	f.BoolVar(&l.NoMemoryDumps, "no-memory-dumps", false, "")
	f.BoolVar(&l.Apart, "apart", false, "")
	if err = f.Parse(args); err != nil || l.From == "" {
		return l, nil, f.Args(), err
	}
	raw, err := os.ReadFile(l.From) // #nosec G304 -- of the server, for this process
	switch {
	case errors.Is(err, os.ErrNotExist):
		err = nil
	case err == nil:
		var has struct{ Groups []cgroup.Group }
		err = errors.Join(json.Unmarshal(raw, &l), json.Unmarshal(raw, &has))
		groups = has.Groups
	}
	return l, groups, f.Args(), err
}

// apply bounds this process. The calling thread is the one that becomes the program.
func (l Limits) apply() error {
	for resource, value := range map[int]int64{syscall.RLIMIT_NOFILE: int64(l.Files), syscall.RLIMIT_DATA: l.Memory, syscall.RLIMIT_FSIZE: l.File, unix.RLIMIT_NPROC: int64(l.Processes)} {
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
	if l.Apart {
		if err := apart(); err != nil {
			return err
		}
	}
	if l.User > 0 {
		if err := asUser(l.User); err != nil {
			return err
		}
	}
	if l.NoPrivileges {
		return os.NewSyscallError("prctl", group.NoNewPrivileges())
	}
	return nil
}

// asUser makes this process one of a user, and of nothing else.
func asUser(user int) error {
	err := os.NewSyscallError("setgroups", syscall.Setgroups(nil))
	if err == nil {
		err = os.NewSyscallError("setgid", syscall.Setgid(user))
	}
	if err == nil {
		err = os.NewSyscallError("setuid", syscall.Setuid(user))
	}
	return err
}

// become replaces this process by the command in args, behind its limits. exec keeps the process id, so LISTEN_PID, without which
// sd_listen_fds(3) ignores passed sockets, is right.
func become(args []string) error {
	l, groups, args, err := limits(args)
	if err != nil {
		return err
	}
	if len(args) == 0 {
		return errors.New("no command")
	}
	if err := os.Setenv("LISTEN_PID", strconv.Itoa(os.Getpid())); err != nil {
		return err
	}
	for _, g := range groups { // as long as it may
		if err := g.Enter(); err != nil {
			return fmt.Errorf("cannot enter the group that limits %s: %w", args[0], err)
		}
	}
	runtime.LockOSThread() // what cannot be set for all threads is set for this one
	if err := l.apply(); err != nil {
		return fmt.Errorf("cannot limit %s: %w", args[0], err)
	}
	if l.Temporary != "" && os.Getenv("TMPDIR") == l.Temporary { // by its user, who may have put a link there
		if err := os.MkdirAll(l.Temporary, 0o700); err != nil { // it may have a file of that name
			fmt.Fprintf(os.Stderr, "%s has no TMPDIR of its own: %v\n", args[0], err)
			if err := os.Unsetenv("TMPDIR"); err != nil {
				return err
			}
		}
	}
	// #nosec G204 -- the command of a template of the configuration
	if err := syscall.Exec(args[0], args, os.Environ()); err != nil {
		return fmt.Errorf("cannot run %s: %w", args[0], err)
	}
	return nil
}
