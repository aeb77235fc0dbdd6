//go:build linux

package process

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bcc94042/instar/providers/process/builtin"
	"github.com/bcc94042/instar/providers/process/child"
	"github.com/bcc94042/instar/providers/process/logfile"
	"github.com/bcc94042/instar/providers/process/probe"
)

// How soon a process that was never healthy is probed again.
const eager = 25 * time.Millisecond

// health is what is known of a copy now; it is not stored. The unit's lock guards it.
type health struct {
	ready   bool      // by the last probes
	since   time.Time // of ready
	fails   int       // probes in a row
	crashes int       // in a row
	active  bool      // accepts on the public socket
	last    string    // how it ended, or why it is not healthy

	quit chan struct{} // closed to end it
	stop sync.Once     // of quit
	kill bool          // without grace
}

// end asks the supervisor of the copy to end it. The unit's lock is held.
func (c *copied) end(force bool) {
	c.kill = c.kill || force
	if c.quit != nil {
		c.stop.Do(func() { close(c.quit) })
	}
}

// supervise keeps one copy of a revision running until it is asked to end it, or leaves it running when ctx ends.
func (u *unit) supervise(ctx context.Context, r *revision, c *copied) {
	for {
		p := c.Process // only this goroutine changes it
		if p == nil && c.quits() {
			return
		}
		if p == nil {
			var err error
			if p, err = u.launch(r, c); err != nil {
				u.crashed(r, c, err.Error())
			}
		}
		if p != nil {
			ended, why := u.attend(ctx, r, c, p)
			if !ended {
				return
			}
			u.crashed(r, c, cmp.Or(why, p.Exit().String()+u.lastWords(r.Name)))
		}
		u.mu.Lock()
		wait := min(u.gateway.config.Backoff<<min(max(c.crashes-1, 0), 16), u.gateway.config.BackoffCap)
		u.mu.Unlock()
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
			continue
		case <-c.quit:
		case <-ctx.Done():
		}
		timer.Stop()
		return
	}
}

// crashed notes that a copy has no process, unless that was wanted.
func (u *unit) crashed(r *revision, c *copied, how string) {
	u.change(func() {
		u.pardon(c)
		u.inherit(c)
		c.Process, c.Address, c.ready, c.active, c.fails = nil, "", false, false, 0
		if c.quits() {
			return
		}
		c.crashes++
		c.last = how
		u.log.Warn("process ended", "revision", r.Name, "how", how, "crashes", c.crashes)
	})
}

// pardon forgets earlier crashes of a copy that was healthy for long. The lock is held.
func (u *unit) pardon(c *copied) {
	if stable := 20 * u.gateway.config.Backoff; c.ready && time.Since(c.since) > stable {
		c.crashes = 0
	}
}

// attend watches and probes one process until it has ended, and ends it when the copy is to quit, or hangs: then it says so. It reports false
// when the control plane ends and the process runs on.
func (u *unit) attend(ctx context.Context, r *revision, c *copied, p *child.Process) (ended bool, why string) {
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		if err := p.Watch(ctx.Done()); err != nil {
			u.log.Error("a process was not followed to its end", "pid", p.PID, "error", err)
		}
	}()
	defer func() { <-watched }()
	life, cancel := context.WithCancel(ctx)
	defer cancel()
	var probing sync.WaitGroup
	hung := make(chan string, 1)
	probing.Go(func() {
		if last := u.examine(life, r, c); last != "" {
			hung <- last
		}
	})
	defer probing.Wait()
	defer cancel()
	select {
	case <-p.Gone():
		return true, ""
	case <-ctx.Done():
		return false, ""
	case <-c.quit:
	case last := <-hung:
		why = "ended, as it was not healthy for " + u.hung(r).String() + ": " + last
		u.mu.Lock()
		u.inherit(c)
		u.mu.Unlock()
	}
	return u.terminate(ctx, c, p), why
}

// hung is for how long a process of a revision may be unhealthy that serves; 0 is for ever.
func (u *unit) hung(r *revision) time.Duration { return u.gateway.config.Templates[r.Spec.Image].Hung }

// terminate ends a process: SIGTERM, and SIGKILL after the grace.
func (u *unit) terminate(ctx context.Context, c *copied, p *child.Process) bool {
	grace := u.gateway.config.Grace
	u.mu.Lock()
	if c.kill {
		grace = 0
	}
	u.mu.Unlock()
	p.Signal(syscall.SIGTERM)
	timer := time.NewTimer(grace)
	defer timer.Stop()
	for {
		select {
		case <-p.Gone():
			return true
		case <-ctx.Done():
			return false
		case <-timer.C:
			p.Signal(syscall.SIGKILL)
		}
	}
}

// examine probes a copy until ctx ends, and notes what it finds. It returns before, with what the last probe has found, when the copy hangs.
func (u *unit) examine(ctx context.Context, r *revision, c *copied) (last string) {
	limits := probe.PatienceOf(r.Spec.Probe)
	address := u.addressOf(c)
	answered, quiet := false, &quiet{last: time.Now()}
	for {
		err := probe.Ask(ctx, r.Spec.Probe, address)
		if ctx.Err() != nil {
			return ""
		}
		answered = answered || err == nil
		silence := quiet.probed(time.Now(), err == nil, limits.Period+limits.Timeout)
		healthy := u.probed(c, err, limits.Failures)
		if most := u.patient(r, c, answered); most > 0 && !healthy && silence > most {
			return probe.Plain(err)
		}
		wait := limits.Period
		if !healthy {
			wait = min(eager, limits.Period)
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ""
		}
	}
}

// patient is for how long a copy may answer nothing; 0 is for ever. One that has not answered since it was launched gets twice as long after each crash, up to 32 times: a machine that has
// just started may be slower than it was when the revision was deployed. A revision that does not serve yet has its own limit.
func (u *unit) patient(r *revision, c *copied, answered bool) time.Duration {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case r.Phase != serving:
		return 0
	case answered:
		return u.hung(r)
	}
	return u.hung(r) << min(c.crashes, 5)
}

// quiet is how long probes have had no answer. Between two that failed, what a probe takes at most is counted, and no more: the rest is a standstill, of the machine or of this program.
type quiet struct {
	last  time.Time // a probe has ended, or the process began
	lasts time.Duration
}

func (q *quiet) probed(now time.Time, answered bool, most time.Duration) time.Duration {
	q.lasts += min(now.Sub(q.last), most)
	if q.last = now; answered {
		q.lasts = 0
	}
	return q.lasts
}

// probed notes the outcome of a probe, and reports whether the copy counts as healthy.
func (u *unit) probed(c *copied, err error, failures int) bool {
	u.mu.Lock()
	was := c.ready
	if err == nil {
		c.fails = 0
		if !c.ready {
			c.ready, c.since, c.last = true, time.Now(), ""
		}
	} else {
		c.fails++
		c.last = probe.Plain(err)
		u.pardon(c)
		c.ready = c.ready && c.fails < failures
	}
	now := c.ready
	u.mu.Unlock()
	if was != now {
		u.wake()
		u.gateway.notify(u.key)
	}
	return now
}

func (u *unit) addressOf(c *copied) string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return c.Address
}

// launch starts a process for a copy, and writes down which.
func (u *unit) launch(r *revision, c *copied) (*child.Process, error) {
	t, err := u.templateOf(r)
	if err != nil {
		return nil, err
	}
	private, err := u.private(t, c)
	if err != nil {
		return nil, err
	}
	defer private.close()
	cmd := child.Command{Args: t.Command, Dir: t.Dir}
	port, files, err := u.sockets(t, private)
	if err != nil {
		return nil, err
	}
	cmd.Env = append(u.environment(t, r, port), listenEnv(t)...)
	secret := ""
	if r.Name == forwarderName { // what all processes have would let each steer it
		secret = rand.Text()
		cmd.Env = append(cmd.Env, "INSTAR_SECRET="+secret)
	}
	if t.Home {
		cmd.Dir, err = u.home(), os.MkdirAll(u.home(), 0o700)
	}
	if err != nil {
		return nil, err
	}
	cmd.Dir = cmp.Or(cmd.Dir, "/")
	p, err := u.spawn(r, cmd, files)
	if err != nil {
		return nil, err
	}
	u.change(func() {
		c.Process, c.Secret = p, secret
		c.Address = net.JoinHostPort("127.0.0.1", strconv.Itoa(private.port))
		if t.Socket == SocketPublic {
			c.Address = net.JoinHostPort(u.gateway.config.Host, strconv.Itoa(port))
		}
		u.log.Info("process started", "revision", r.Name, "pid", p.PID)
	})
	return p, nil
}

// spawn starts a process with /dev/null, the log, and its sockets.
func (u *unit) spawn(r *revision, cmd child.Command, sockets []int) (*child.Process, error) {
	log, err := logfile.Open(u.logPath(r.Name))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	null, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(null)
	cmd.Files = append([]int{null, int(log.Fd()), int(log.Fd())}, sockets...)
	return child.Start(cmd)
}

// private is the socket on which a copy is probed; none where the program makes it, on the port that is given it.
func (u *unit) private(t Template, c *copied) (*socket, error) {
	if t.Socket != SocketPort {
		return bind("127.0.0.1", 0, false)
	}
	port, err := u.gateway.ports.Take(c)
	return &socket{fd: -1, port: port}, err
}

// sockets are the descriptors that a process of the template gets, and the port that it is told.
func (u *unit) sockets(t Template, private *socket) (port int, files []int, err error) {
	switch t.Socket {
	case SocketPort:
		return private.port, nil, nil
	case SocketFD:
		// Nobody shares this one, so it is handed over as systemd does it: in blocking mode.
		if err := unix.SetNonblock(private.fd, false); err != nil {
			return 0, nil, err
		}
		return private.port, []int{private.fd}, unix.Listen(private.fd, backlog)
	}
	public, err := u.publicSocket()
	if err != nil {
		return 0, nil, err
	}
	if t.Socket == SocketPublic { // as systemd does it
		return public.port, []int{public.fd}, errors.Join(unix.SetNonblock(public.fd, false), public.listen())
	}
	return public.port, []int{public.fd, private.fd}, unix.Listen(private.fd, backlog)
}

// listenEnv tells a process about its sockets.
func listenEnv(t Template) []string {
	switch t.Socket {
	case SocketShared:
		return []string{"LISTEN_FDS=2", "LISTEN_FDNAMES=public:private"}
	case SocketFD, SocketPublic:
		return []string{"LISTEN_FDS=1", "LISTEN_FDNAMES=public"}
	}
	return nil
}

// templateOf is the program of a revision.
func (u *unit) templateOf(r *revision) (Template, error) {
	if r.Name == forwarderName {
		return u.gateway.config.builtin("forward"), nil
	}
	t, ok := u.gateway.config.Templates[r.Spec.Image]
	if !ok {
		return t, fmt.Errorf("the template %q is no longer configured", r.Spec.Image)
	}
	if t.Home {
		t.Limits.Temporary = u.temporary()
	}
	if t.Socket = r.Socket; t.Socket == SocketFD || t.Socket == SocketPublic || t.Limits != (builtin.Limits{}) {
		t.Command = slices.Concat(u.gateway.config.Self, []string{"exec"}, t.Limits.Args(), t.Command)
	}
	return t, nil
}
