package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sort"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/bcc94042/instar/internal/pdeathsig"
)

// What Postgres understands.
const (
	fast      = syscall.SIGINT  // rolls back what is open
	immediate = syscall.SIGQUIT // recovers at the next start
)

// patience is how long a server may take to start; recovery after a kill is part of it.
const patience = 2 * time.Minute

// child is a server that this process has started.
type child struct {
	cmd   *exec.Cmd
	ended chan struct{}
	tail  *tail
}

func (c *child) signal(s os.Signal) error { return c.cmd.Process.Signal(s) }
func (c *child) gone() <-chan struct{}    { return c.ended }
func (c *child) pid() int                 { return c.cmd.Process.Pid }
func (c *child) said() string             { return c.tail.String() }

// launch starts the server on the port and waits until it takes connections. The lock is held.
func (c *Cluster) launch(ctx context.Context, port int) error {
	cmd := exec.Command(filepath.Join(c.bin, "postgres"), c.arguments(port)...) // #nosec G204 -- what was found is run
	cmd.Dir, cmd.Env = c.options.Dir, environment()
	cmd.WaitDelay = 5 * time.Second                                                         // a killed server's processes hold its output a moment longer
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: c.owner.credential(), Setpgid: true} // Ctrl-C is for us
	s := &child{cmd: cmd, ended: make(chan struct{}), tail: &tail{}}
	if c.options.KeepRunning {
		cmd.SysProcAttr.Setpgid, cmd.SysProcAttr.Setsid = false, true
		log, err := os.OpenFile(filepath.Join(c.options.Dir, "log"), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
		if err != nil {
			return err
		}
		defer log.Close()
		cmd.Stdout, cmd.Stderr = log, log
	} else {
		pdeathsig.Set(cmd.SysProcAttr, fast)
		cmd.Stderr = s.tail
		if c.options.LogTo != nil {
			cmd.Stderr = io.MultiWriter(s.tail, c.options.LogTo)
		}
		cmd.Stdout = cmd.Stderr
	}
	if err := s.start(); err != nil {
		return fmt.Errorf("cannot start the server: %w", err)
	}
	before := c.port
	c.port, c.server = port, s
	if err := c.ready(ctx); err != nil {
		err = errors.Join(err, shutdown(context.WithoutCancel(ctx), s))
		c.port, c.server = before, nil
		return err
	}
	return nil
}

func (c *Cluster) arguments(port int) []string {
	args := []string{"-D", c.data(), "-c", "listen_addresses=127.0.0.1", "-c", "port=" + strconv.Itoa(port), "-c", "unix_socket_directories=" + c.sockets}
	names := make([]string, 0, len(c.options.Config))
	for name := range c.options.Config {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		args = append(args, "-c", name+"="+c.options.Config[name])
	}
	return args
}

// start runs the process. The thread that starts it stays until it has ended: the kernel sends the signal of a parent's
// death when the thread ends that was the parent.
func (c *child) start() error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := c.cmd.Start()
		started <- err
		if err == nil {
			_ = c.cmd.Wait() // how it ended is in its last words
			close(c.ended)
		}
	}()
	return <-started
}

// ready waits until the server takes connections.
func (c *Cluster) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		err := c.ping(ctx)
		if err == nil {
			return nil
		}
		var refused *pgconn.PgError
		if errors.As(err, &refused) && refused.Code != "57P03" { // it starts up; anything else will not become better
			return fmt.Errorf("the server refuses: %w", err)
		}
		select {
		case <-c.server.gone():
			return fmt.Errorf("the server has ended: %s", c.server.said())
		case <-ctx.Done():
			return fmt.Errorf("the server does not take connections: %w: %s", err, c.server.said())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (c *Cluster) ping(ctx context.Context) error {
	conn, err := pgconn.Connect(ctx, c.dsn("postgres"))
	if err != nil {
		return err
	}
	return conn.Close(ctx)
}

// tail keeps the last 4 KiB of what was written.
type tail struct {
	mu   sync.Mutex
	text []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	if over := len(t.text) - 4096; over > 0 {
		t.text = append(t.text[:0], t.text[over:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.text)
}
