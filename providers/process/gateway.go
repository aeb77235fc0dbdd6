//go:build linux

package process

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"

	"github.com/bcc94042/instar/internal/ownfile"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/providers"
	"github.com/bcc94042/instar/providers/process/child"
	"github.com/bcc94042/instar/providers/process/ports"
)

// Gateway runs services as local processes. [Open] makes one.
type Gateway struct {
	config Config
	owner  string // marks the processes that were started for this directory
	lock   *os.File

	ctx    context.Context // of all loops; ended by Close
	cancel context.CancelFunc
	loops  sync.WaitGroup

	ports ports.Given

	mu       sync.Mutex
	closed   bool
	units    map[string]*unit
	watchers map[*watcher]struct{}
}

var (
	_ providers.Gateway  = (*Gateway)(nil)
	_ providers.Notifier = (*Gateway)(nil)
)

// Open takes up what an earlier gateway of the same directory left running, and supervises it until [Gateway.Close].
// It fails when another one has the directory.
func Open(c Config) (*Gateway, error) {
	c, err := c.complete()
	if err != nil {
		return nil, err
	}
	g := &Gateway{config: c, ports: ports.Given{First: c.Ports.First, Last: c.Ports.Last}, units: map[string]*unit{}, watchers: map[*watcher]struct{}{}}
	if err := g.claim(); err != nil {
		return nil, err
	}
	if err := g.readopt(); err != nil {
		return nil, errors.Join(err, g.lock.Close())
	}
	g.ctx, g.cancel = context.WithCancel(context.Background())
	for _, u := range g.units {
		g.begin(u)
	}
	return g, nil
}

// claim makes the directory ours, and reads or chooses the mark of its processes.
func (g *Gateway) claim() error {
	if err := os.MkdirAll(g.config.Dir, 0o700); err != nil {
		return fmt.Errorf("cannot make the directory of services: %w", err)
	}
	if err := os.MkdirAll(g.config.Sites, 0o700); err != nil {
		return fmt.Errorf("cannot make the directory of sites: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(g.config.Dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("cannot lock the directory of services: %w", err)
	}
	if err := exclude(lock); err != nil {
		return errors.Join(fmt.Errorf("another control plane has the directory %s: %w", g.config.Dir, err), lock.Close())
	}
	g.lock = lock
	path := filepath.Join(g.config.Dir, "owner")
	raw, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		raw = []byte(uuid.NewString())
		err = ownfile.Replace(path, raw)
	}
	if err != nil {
		return errors.Join(err, lock.Close())
	}
	g.owner = strings.TrimSpace(string(raw))
	return nil
}

// exclude locks a file. It tries for a moment, because a process that was just being started when its control plane
// was killed still holds the lock until its exec.
func exclude(lock *os.File) error {
	raw, err := lock.SyscallConn()
	if err != nil {
		return err
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for try := 1; ; try++ {
		var held error
		if err := raw.Control(func(fd uintptr) { held = unix.Flock(int(fd), unix.LOCK_EX|unix.LOCK_NB) }); err != nil {
			return err
		}
		if held == nil || try == 20 {
			return held
		}
		<-tick.C
	}
}

// readopt takes up the processes that still run and are the same ones, and the public sockets that they hold.
func (g *Gateway) readopt() error {
	states, err := load(g.config.Dir)
	if err != nil {
		return err
	}
	var known []*child.Process
	for _, s := range states {
		u := g.newUnit(s)
		g.units[u.key] = u
		if slices.ContainsFunc(s.Revisions, func(r *revision) bool { return r.Socket == "" }) {
			u.change(func() { // before the configuration changes once more
				for _, r := range s.Revisions {
					r.Socket = cmp.Or(r.Socket, g.config.Earlier, g.config.Templates[r.Spec.Image].Socket)
				}
			})
		}
		for _, c := range s.all() {
			if c.Process == nil {
				continue
			}
			if !c.Process.Adopt() {
				c.Process, c.Address = nil, ""
				continue
			}
			known = append(known, c.Process)
			g.ports.Put(c.Address, c)
			u.log.Info("process adopted", "pid", c.Process.PID)
		}
		g.ports.Put(fmt.Sprint(":", s.Port), u) // also that of a copy which listens on it by itself
		u.takeBack()
	}
	lost, err := child.EndStrays(g.owner, known)
	for _, pid := range lost {
		g.config.Log.Warn("killed a process that is none of a service", "pid", pid)
	}
	return err
}

// takeBack gets the public socket from a process that holds it, or at least a second socket on the same port.
func (u *unit) takeBack() {
	holders := u.holders()
	for _, p := range holders {
		s, err := u.gateway.recover(p, u.state.Port)
		if err == nil {
			u.socket = s
			return
		}
		u.log.Warn("cannot take the public socket back", "pid", p.PID, "error", err)
	}
	switch {
	case u.state.Gone:
		return
	case len(holders) == 0: // the port is free, and nobody else should take it
		if s, err := u.listen(u.state.Port); err == nil {
			u.socket = s
		}
		return // else it is bound when the first process starts
	}
	s, err := listenBeside(u.gateway.config.Host, u.state.Port)
	if err != nil {
		u.log.Error("cannot bind beside the public socket", "error", err)
		return
	}
	u.socket = s
}

// holders are the adopted processes that have the public socket; first those that accept on it now.
func (u *unit) holders() []*child.Process {
	var first, others []*child.Process
	if f := u.state.Forwarder; f != nil && f.Process != nil {
		first = append(first, f.Process)
	}
	for _, r := range u.state.Revisions {
		for _, c := range r.Copies {
			switch {
			case c.Process == nil || !u.shared(r):
			case r.Phase == serving:
				first = append(first, c.Process)
			default:
				others = append(others, c.Process)
			}
		}
	}
	return append(first, others...)
}

// inherit lets connections wait in the socket of this control plane where no process but that of c, which ends, has another one that could not be taken back. The lock is held.
func (u *unit) inherit(c *copied) {
	if u.socket == nil || u.state.Deleting || slices.ContainsFunc(u.holders(), func(p *child.Process) bool { return p != c.Process && !p.Own() }) {
		return
	}
	if err := u.socket.listen(); err != nil {
		u.log.Error("connections are refused until the next process has begun", "error", err)
	}
}

func (g *Gateway) recover(p *child.Process, port int) (*socket, error) {
	if g.config.noPidfd {
		return nil, unix.EPERM
	}
	return recoverSocket(p, port)
}

// publicSocket is the public socket, opened if it is not.
func (u *unit) publicSocket() (*socket, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.socket == nil {
		s, err := u.listen(u.state.Port)
		if err != nil {
			return nil, err
		}
		u.socket, u.state.Port = s, s.port
	}
	return u.socket, nil
}

// begin runs the loop of a service.
func (g *Gateway) begin(u *unit) {
	if !u.state.Gone {
		g.loops.Go(func() { u.run(g.ctx) })
	}
}

// Close ends the supervision. The processes run on, so that a new control plane takes them up and no connection is
// refused meanwhile; with stopChildren they are ended first, and the services are started anew by the next [Open].
func (g *Gateway) Close(stopChildren bool) error {
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		return nil
	}
	g.closed = true
	units := make([]*unit, 0, len(g.units))
	for _, u := range g.units {
		units = append(units, u)
	}
	g.mu.Unlock()
	g.cancel()
	g.loops.Wait()
	var stopping sync.WaitGroup
	for _, u := range units {
		if stopChildren {
			stopping.Go(u.stopAll)
		}
	}
	stopping.Wait()
	for _, u := range units {
		if u.socket != nil {
			u.socket.close()
		}
	}
	return g.lock.Close()
}

// Capabilities tells what this gateway can do.
func (g *Gateway) Capabilities() providers.Capabilities {
	return providers.Capabilities{
		Gateway: "process", Watch: true, Revisions: true, Scale: true, Route: true, Defaults: true,
		Images: g.config.images(),
	}
}

// watcher is one call of Watch.
type watcher struct {
	mu   sync.Mutex
	keys map[string]struct{}
	kick chan struct{}
}

// Watch tells of every change of a service, several in a row maybe as one.
func (g *Gateway) Watch(ctx context.Context, notify func(key string)) error {
	w := &watcher{keys: map[string]struct{}{}, kick: make(chan struct{}, 1)}
	g.mu.Lock()
	g.watchers[w] = struct{}{}
	g.mu.Unlock()
	defer func() {
		g.mu.Lock()
		delete(g.watchers, w)
		g.mu.Unlock()
	}()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-w.kick:
		}
		w.mu.Lock()
		keys := w.keys
		w.keys = map[string]struct{}{}
		w.mu.Unlock()
		for key := range keys {
			notify(key)
		}
	}
}

func (g *Gateway) notify(key string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for w := range g.watchers {
		w.mu.Lock()
		w.keys[key] = struct{}{}
		w.mu.Unlock()
		select {
		case w.kick <- struct{}{}:
		default:
		}
	}
}

// unit of a service, made as an empty one when there is none and create is set.
func (g *Gateway) unit(namespace, name string, create bool) (*unit, error) {
	key := machines.Key(namespace, "", name)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil, providers.Errorf(providers.Unavailable, "the gateway is closed")
	}
	u := g.units[key]
	if u == nil && create {
		u = g.newUnit(&state{Namespace: namespace, Name: name, Gone: true})
		g.units[key] = u
	}
	return u, nil
}
