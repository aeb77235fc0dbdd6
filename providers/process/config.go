package process

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"github.com/bcc94042/instar/providers/process/builtin"
)

// ReasonNotRemoved is why a service is not ready that is to be gone: its processes have ended, and something of it cannot be removed. It is tried
// again every second.
const ReasonNotRemoved = "NotRemoved"

// How a template's program gets its socket; see the package's documentation.
const (
	SocketShared = "shared"
	SocketFD     = "fd"
	SocketPort   = "port"
	SocketPublic = "public"
)

// Template is a program that services may run.
type Template struct {
	Command []string          // the program and its arguments; the program is looked up in PATH once, by Open
	Env     map[string]string // below the request's environment
	Dir     string            // working directory; / when empty
	Socket  string            // SocketShared, SocketFD, SocketPort or SocketPublic; SocketFD when empty
	Home    bool              // each service has a directory of its own, which ends with it: its HOME, its working directory instead of Dir, and with its own TMPDIR
	Limits  builtin.Limits    // of each process
	Hung    time.Duration     // a process that serves, and has not been healthy for so long, is ended and started anew, or 2, 4 … 32 times as long when it never was since its start; never when 0
}

// Ports is a range, with both its ends.
type Ports struct{ First, Last int }

// Log is the file that a revision of a service writes to. It is emptied when it has grown, and goes elsewhere or away with the service; who has it open reads on.
type Log struct {
	Namespace, Name string
	Life            string // of the service, from the request that began it
	Path            string
	Ending          bool // the service is being deleted
}

// Config is what [Open] needs. Only Dir has no default.
type Config struct {
	Dir        string                                    // state and logs; created, readable by the owner only
	Host       string                                    // IP address of the public sockets; 127.0.0.1 when empty
	Ports      Ports                                     // of the public sockets for which a request names none; the system chooses when it is zero
	Sites      string                                    // what the template static serves, by namespace; <Dir>/sites when empty
	Templates  map[string]Template                       // besides, or instead of, hello and static
	Earlier    string                                    // how revisions get their socket of which an earlier program did not note it; as of their template when empty
	NoBuiltins bool                                      // leaves hello and static out
	Self       []string                                  // runs builtin.Main in a new process; this executable with "run-template" when empty
	Grace      time.Duration                             // between SIGTERM and SIGKILL; 10 s when 0
	Settle     time.Duration                             // between new connections going elsewhere and SIGTERM; 200 ms when 0
	Backoff    time.Duration                             // before the first restart, doubled for each further one; 250 ms when 0
	BackoffCap time.Duration                             // 30 s when 0
	Crashes    int                                       // in a row, that make a revision failed; 3 when 0
	Logs       func(namespace, name string) (dir string) // in place of which the logs of a service that ends are kept; nil removes them with it
	LogBytes   int64                                     // per log file, of which each revision has at most two; 1 MiB when 0
	Log        *slog.Logger

	noPidfd bool // in tests: as if the kernel forbade pidfd_getfd
}

var templateName = regexp.MustCompile(`^[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?$`)

// complete fills in the defaults and checks the rest.
func (c Config) complete() (Config, error) {
	if c.Dir == "" {
		return c, errors.New("process: no directory")
	}
	dir, err := filepath.Abs(c.Dir)
	if err != nil {
		return c, fmt.Errorf("process: directory: %w", err)
	}
	c.Dir = dir
	c.Host = cmp.Or(c.Host, "127.0.0.1")
	if _, err := netip.ParseAddr(c.Host); err != nil {
		return c, fmt.Errorf("process: host %q is not an IP address", c.Host)
	}
	if c.Sites, err = filepath.Abs(cmp.Or(c.Sites, filepath.Join(dir, "sites"))); err != nil { // processes run elsewhere
		return c, fmt.Errorf("process: sites: %w", err)
	}
	if p := c.Ports; p != (Ports{}) && (p.First < 1 || p.Last < p.First || p.Last > 65535) {
		return c, fmt.Errorf("process: the ports from %d to %d are no range", p.First, p.Last)
	}
	c.Grace, c.Settle = cmp.Or(c.Grace, 10*time.Second), cmp.Or(c.Settle, 200*time.Millisecond)
	c.Backoff, c.BackoffCap = cmp.Or(c.Backoff, 250*time.Millisecond), cmp.Or(c.BackoffCap, 30*time.Second)
	c.Crashes, c.LogBytes = cmp.Or(c.Crashes, 3), cmp.Or(c.LogBytes, 1<<20)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if len(c.Self) == 0 {
		self, err := os.Executable()
		if err != nil {
			return c, fmt.Errorf("process: cannot find this program: %w", err)
		}
		c.Self = []string{self, "run-template"}
	}
	if c.Self, err = absolute(c.Self); err != nil {
		return c, fmt.Errorf("process: self: %w", err)
	}
	c.Templates, err = c.templates()
	return c, err
}

// templates are the configured ones, checked, and the built-in ones.
func (c Config) templates() (map[string]Template, error) {
	all := map[string]Template{}
	if !c.NoBuiltins {
		for _, name := range builtin.Names() {
			all[name] = c.builtin(name)
		}
	}
	for name, t := range c.Templates {
		if !templateName.MatchString(name) {
			return nil, fmt.Errorf("process: %q is no name for a template", name)
		}
		t.Socket = cmp.Or(t.Socket, SocketFD)
		if !slices.Contains([]string{SocketShared, SocketFD, SocketPort, SocketPublic}, t.Socket) {
			return nil, fmt.Errorf("process: template %s: socket %q is none of shared, fd, port and public", name, t.Socket)
		}
		if len(t.Command) == 0 {
			return nil, fmt.Errorf("process: template %s has no command", name)
		}
		var err error
		if t.Command, err = absolute(t.Command); err != nil {
			return nil, fmt.Errorf("process: template %s: %w", name, err)
		}
		all[name] = t
	}
	return all, nil
}

// absolute finds the program of a command once, so that it is the same one at each start.
func absolute(command []string) ([]string, error) {
	program, err := exec.LookPath(command[0])
	if err == nil {
		program, err = filepath.Abs(program)
	}
	return append([]string{program}, command[1:]...), err
}

// builtin is the template of a program of this binary.
func (c Config) builtin(name string) Template {
	return Template{Command: append(slices.Clone(c.Self), name), Socket: SocketShared}
}

func (c Config) images() []string { return slices.Sorted(maps.Keys(c.Templates)) }
