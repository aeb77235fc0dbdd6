package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// superuser is who the cluster belongs to; the name of a role, not of a user of the machine.
const superuser = "instar"

// Options configure [Start]. Only Dir has no default.
type Options struct {
	Dir         string            // of the cluster, its socket and its password; created
	Port        int               // on 127.0.0.1; a free one when 0
	Config      map[string]string // settings beside the defaults of Postgres, such as max_connections
	KeepRunning bool              // the server outlives this process; the next Start adopts it
	LogTo       io.Writer         // what the server says; nothing when nil. With KeepRunning it goes to <Dir>/log
	Bin         string            // directory of initdb and postgres; found when empty
}

// Cluster is a running server. Its methods may be called by several goroutines at a time.
type Cluster struct {
	options  Options
	bin      string
	owner    *owner // nil when this process is not root
	password string
	lock     *os.File

	mu      sync.Mutex
	port    int
	sockets string // directory of the socket; empty when its path would be too long
	server  server // nil when stopped
}

// server is a postmaster, a child of ours or an adopted one.
type server interface {
	signal(os.Signal) error
	gone() <-chan struct{}
	pid() int
	said() string // its last words
}

// Start makes the cluster if there is none in the directory, starts its server, and returns when that takes connections.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	c := &Cluster{options: o}
	if err := c.prepare(); err != nil {
		return nil, fmt.Errorf("postgres in %s: %w", o.Dir, err)
	}
	err := c.initialise(ctx)
	if err == nil {
		err = c.Restart(ctx)
	}
	if err != nil {
		_ = c.lock.Close()
		return nil, fmt.Errorf("postgres in %s: %w", c.options.Dir, err)
	}
	return c, nil
}

// prepare finds what is needed and takes the directory.
func (c *Cluster) prepare() error {
	if c.options.Dir == "" {
		return errors.New("no directory")
	}
	dir, err := filepath.Abs(c.options.Dir)
	if err != nil {
		return err
	}
	c.options.Dir = dir
	if c.bin, err = binaries(c.options.Bin, c.data()); err != nil {
		return err
	}
	if c.owner, err = otherThanRoot(); err != nil {
		return err
	}
	if err := c.owner.mkdir(dir); err != nil {
		return err
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil { // so do the processes of a server see it
		return err
	}
	c.options.Dir = dir
	if err := c.owner.own(dir); err != nil {
		return err
	}
	if err := c.owner.reaches(dir); err != nil {
		return err
	}
	c.port, c.sockets = c.options.Port, dir
	if len(filepath.Join(dir, ".s.PGSQL.65535")) > 107 { // sockaddr_un
		c.sockets = ""
	}
	c.lock, err = take(filepath.Join(dir, "lock"))
	return err
}

func (c *Cluster) data() string { return filepath.Join(c.options.Dir, "data") }

// Restart starts the server, on the port that it had, after it was stopped or killed. A running server is stopped first.
func (c *Cluster) Restart(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.server != nil {
		if err := c.stop(ctx); err != nil {
			return err
		}
	}
	if adopted, err := c.leftOver(ctx); err != nil || adopted {
		return err
	}
	if err := c.clear(0); err != nil {
		return err
	}
	for try := 0; ; try++ {
		port := c.port
		if port == 0 {
			free, err := freePort()
			if err != nil {
				return err
			}
			port = free
		}
		err := c.launch(ctx, port)
		if err == nil || c.port != 0 || try == 3 || ctx.Err() != nil { // else somebody else may have got the port
			return err
		}
	}
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// Stop ends the server by a fast shutdown (open transactions are rolled back), waits for it, and gives the directory
// free. It stops an adopted server, too. The cluster is of no use afterwards.
func (c *Cluster) Stop(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var err error
	if c.server != nil {
		err = c.stop(ctx)
	}
	return errors.Join(err, c.lock.Close())
}

// stop ends the server; after 20 s of fast shutdown by an immediate one. The lock is held.
func (c *Cluster) stop(ctx context.Context) error {
	if err := shutdown(ctx, c.server); err != nil {
		return err
	}
	c.server = nil
	return nil
}

func shutdown(ctx context.Context, s server) error {
	for _, step := range []struct {
		signal os.Signal
		wait   time.Duration
	}{{fast, 20 * time.Second}, {immediate, 10 * time.Second}} {
		if err := s.signal(step.signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("cannot stop the server: %w", err)
		}
		select {
		case <-s.gone():
			return nil
		case <-time.After(step.wait):
		case <-ctx.Done():
			return fmt.Errorf("the server has not stopped: %w", ctx.Err())
		}
	}
	return fmt.Errorf("the server (process %d) does not stop: %s", s.pid(), s.said())
}

// Kill is kill -9 of the server and of all its processes, as the out-of-memory killer does it. Restart brings it back.
func (c *Cluster) Kill() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.server == nil {
		return errors.New("postgres: the server does not run")
	}
	if err := c.server.signal(os.Kill); err != nil {
		return fmt.Errorf("postgres: cannot kill the server: %w", err)
	}
	<-c.server.gone()
	c.server = nil
	return c.clear(syscall.SIGKILL)
}

// clear waits until no process of a server that has gone works on the data any more, or sends them a signal, too. They
// notice the end of their parent by themselves, but not in the middle of a query.
func (c *Cluster) clear(signal syscall.Signal) error {
	for deadline := time.Now().Add(10 * time.Second); ; {
		left := within(c.data())
		if len(left) == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("processes %v of an earlier server still work on %s: end them", left, c.data())
		}
		for _, pid := range left {
			if signal != 0 {
				_ = syscall.Kill(pid, signal) // it may have gone by itself
			}
		}
		<-time.After(2 * time.Millisecond) // they are no children of ours: nobody tells
	}
}

// DSN is the address of a database for the superuser, over loopback. It contains the password.
func (c *Cluster) DSN(database string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dsn(database)
}

func (c *Cluster) dsn(database string) string {
	u := url.URL{
		Scheme: "postgres", User: url.UserPassword(superuser, c.password), Path: "/" + database,
		Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(c.port)), RawQuery: "sslmode=disable",
	}
	return u.String()
}

// Port is where the server listens on 127.0.0.1.
func (c *Cluster) Port() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.port
}

// Socket is the directory of the server's Unix socket, or empty when its path would have been too long for one.
func (c *Cluster) Socket() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sockets
}

// PID is the process of the server, 0 when it does not run.
func (c *Cluster) PID() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.server == nil {
		return 0
	}
	return c.server.pid()
}

// Gone is closed when the server has ended, which was started last; nil when it was stopped.
func (c *Cluster) Gone() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.server == nil {
		return nil
	}
	return c.server.gone()
}

// Bin is where the programs of this cluster's version are: psql, pg_dump and the like, as far as they are installed.
func (c *Cluster) Bin() string { return c.bin }
