//go:build linux

package process

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bcc94042/instar/machines/service"
	"github.com/bcc94042/instar/providers/process/probe"
)

// Reasons of revisions.
const (
	reasonReplaced = "Replaced" // by a healthy newer one
	reasonStarting = "Deploying"
)

// forwarder is the pseudo-revision of a forwarder process.
func forwarder() *revision {
	return &revision{Name: forwarderName, Phase: serving, Spec: service.Spec{Probe: service.Probe{Path: "/-/ready"}}}
}

func (r *revision) deadline() time.Time { return r.Began.Add(probe.PatienceOf(r.Spec.Probe).Startup) }

// verdict is why a new revision has to be given up; empty while it has not.
func (r *revision) verdict(crashes int, now time.Time) (reason, message string) {
	last := ""
	for _, c := range r.Copies {
		if c.crashes >= crashes {
			return service.ReasonExited, c.last
		}
		if !c.ready && c.last != "" {
			last = ": " + c.last
		}
	}
	if now.After(r.deadline()) && !r.healthy() {
		return service.ReasonProbeFailed, "not healthy after " + probe.PatienceOf(r.Spec.Probe).Startup.String() + last
	}
	return "", ""
}

// healthy reports whether every copy is.
func (r *revision) healthy() bool {
	return len(r.Copies) > 0 && !slices.ContainsFunc(r.Copies, func(c *copied) bool { return !c.ready })
}

// shared reports whether the processes of the revision accept on the public socket themselves.
func (u *unit) shared(r *revision) bool {
	return r.Socket == SocketShared || r.Socket == SocketPublic
}

// route gives the public connections to the newest healthy revision, and keeps them there.
func (u *unit) route(ctx context.Context) error {
	u.mu.Lock()
	now := u.state.revision(u.state.Serving)
	next := u.state.latest()
	if next == nil || next.Phase != starting || !next.healthy() {
		next = nil
	}
	target := now
	if next != nil {
		target = next
	}
	u.mu.Unlock()
	if target == nil {
		return nil
	}
	done, err := u.direct(ctx, target)
	if err != nil || !done || next == nil {
		return err
	}
	u.change(func() { u.promote(next, now) })
	u.settle(ctx)
	return nil
}

// direct makes the copies of a revision take the public connections. It reports false while that needs time.
func (u *unit) direct(ctx context.Context, r *revision) (bool, error) {
	if r.Socket == SocketPublic { // they accept from their start
		return true, nil
	}
	if u.shared(r) {
		u.mu.Lock()
		copies := slices.Clone(r.Copies)
		u.mu.Unlock()
		return u.activate(ctx, copies)
	}
	u.mu.Lock()
	f := u.state.Forwarder
	if f == nil || f.quits() {
		if f == nil {
			f = &copied{}
			u.state.Forwarder = f
			u.supervising(ctx, forwarder(), f)
		}
		u.mu.Unlock()
		return false, nil
	}
	ready := f.ready
	targets := r.targets()
	u.mu.Unlock()
	if !ready {
		return false, nil
	}
	return u.steer(ctx, f, targets)
}

// quits reports whether the copy was asked to end.
func (c *copied) quits() bool {
	select {
	case <-c.quit:
		return true
	default:
		return false
	}
}

// targets are the addresses of the healthy copies, or of all when none is.
func (r *revision) targets() []string {
	var healthy, all []string
	for _, c := range r.Copies {
		if c.Address == "" {
			continue
		}
		all = append(all, c.Address)
		if c.ready {
			healthy = append(healthy, c.Address)
		}
	}
	if len(healthy) > 0 {
		return healthy
	}
	return all
}

// promote makes a revision the serving one. The lock is held.
func (u *unit) promote(next, before *revision) {
	next.Phase, next.Reason, next.Message = serving, "", ""
	u.state.Serving = next.Name
	if before != nil {
		before.Phase, before.Reason = retired, reasonReplaced
		u.moving = u.shared(before)
	}
	u.log.Info("revision serves", "revision", next.Name)
}

// settle ends what served before, a moment after new connections go elsewhere: first a forwarder that is no longer
// needed, and when it accepts nothing more, what it passed connections on to.
func (u *unit) settle(ctx context.Context) {
	if !u.superfluous() {
		return
	}
	if !u.pause(ctx) {
		return // whoever adopts the processes ends them
	}
	u.mu.Lock()
	now := u.state.revision(u.state.Serving)
	idle := u.state.Forwarder != nil && now != nil && u.shared(now)
	if idle {
		u.state.Forwarder.end(false)
	}
	u.mu.Unlock()
	if idle && !u.pause(ctx) {
		return
	}
	u.mu.Lock()
	for _, r := range u.state.Revisions {
		if r.Phase == retired || r.Phase == failed {
			r.end()
		}
	}
	moving := u.moving
	u.mu.Unlock()
	if moving && u.pause(ctx) { // what was told to end accepts nothing more by now
		u.change(func() { u.moving = false })
	}
}

// superfluous reports whether something runs that is needed no more.
func (u *unit) superfluous() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, r := range u.state.Revisions {
		if len(r.Copies) > 0 && (r.Phase == retired || r.Phase == failed) {
			return true
		}
	}
	now := u.state.revision(u.state.Serving)
	return u.state.Forwarder != nil && now != nil && u.shared(now)
}

// pause waits for Config.Settle, and reports whether ctx lasted as long.
func (u *unit) pause(ctx context.Context) bool {
	timer := time.NewTimer(u.gateway.config.Settle)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// url is where the service is reached.
func (u *unit) url() string {
	host := u.gateway.config.Host
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	return "http://" + host + ":" + strconv.Itoa(u.state.Port)
}
