//go:build linux

package process

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/bcc94042/instar/internal/ownfile"
	"github.com/bcc94042/instar/providers/process/logfile"
)

// forwarderName is the name of the pseudo-revision of a forwarder. No revision can have it: theirs end in digits.
const forwarderName = "forwarder"

// records is how many revisions are remembered that do not run.
const records = 5

// unit is one service. Its loop brings what runs in line with what is wanted, whenever something changed.
type unit struct {
	gateway *Gateway
	key     string
	dir     string
	log     *slog.Logger

	kick chan struct{} // holds a token when there is something to do

	mu     sync.Mutex
	state  *state
	socket *socket
	moving bool            // a revision of the same socket still answers beside the serving one
	aimed  string          // what the forwarder was told last
	left   string          // why the end cannot be completed; tried again, and empty while it is not known
	copies *sync.WaitGroup // the supervisors of this life
}

func (g *Gateway) newUnit(s *state) *unit {
	key := s.Namespace + "." + s.Name
	return &unit{
		gateway: g, key: key, state: s, dir: filepath.Join(g.config.Dir, key),
		log: g.config.Log.With("service", key), kick: make(chan struct{}, 1),
	}
}

// home is the directory of the service's own.
func (u *unit) home() string { return u.gateway.Home(u.state.Namespace, u.state.Name) }

// temporary is what its programs may lose, in its home.
func (u *unit) temporary() string { return filepath.Join(u.home(), "tmp") }

// Home is the directory of a service with a template that gives it one, whether it is there or not.
func (g *Gateway) Home(namespace, name string) string {
	return filepath.Join(g.config.Dir, namespace+"."+name, "home")
}

// Self is the command that runs builtin.Main in a new process, with a path that is absolute.
func (g *Gateway) Self() []string { return slices.Clone(g.config.Self) }

// wake lets the loop look again.
func (u *unit) wake() {
	select {
	case u.kick <- struct{}{}:
	default:
	}
}

// change does something to the state under the lock, stores it, and lets everybody know.
func (u *unit) change(do func()) {
	u.mu.Lock()
	do()
	err := u.save()
	u.mu.Unlock()
	if err != nil { // the next change stores it, and what runs is found by its owner mark
		u.log.Error("cannot store the state", "error", err)
	}
	u.wake()
	u.gateway.notify(u.key)
}

// save stores the state. The lock is held.
func (u *unit) save() error {
	u.state.Schema = stateSchema
	u.state.Writes++
	raw, err := json.MarshalIndent(u.state, "", "  ")
	if err != nil {
		return err
	}
	return ownfile.Replace(filepath.Join(u.dir, "state.json"), raw)
}

// run is the loop of a service: until ctx ends, or until nothing of the service is left. It waits for all
// supervisors, and these leave their processes running.
func (u *unit) run(ctx context.Context) {
	copies := new(sync.WaitGroup)
	defer copies.Wait()
	u.mu.Lock()
	u.copies = copies
	u.mu.Unlock()
	u.resume(ctx)
	u.settle(ctx)
	for {
		wait, over := u.reconcile(ctx)
		if over {
			return
		}
		timer := time.NewTimer(wait)
		select {
		case <-u.kick:
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
		timer.Stop()
	}
}

// resume supervises what is there already. What had served before is left to [unit.settle].
func (u *unit) resume(ctx context.Context) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, r := range u.state.Revisions {
		if r.Phase == retired || r.Phase == failed {
			r.Copies = slices.DeleteFunc(r.Copies, func(c *copied) bool { return c.Process == nil })
		}
		for _, c := range r.Copies {
			u.supervising(ctx, r, c)
		}
	}
	if u.state.Forwarder != nil {
		u.supervising(ctx, forwarder(), u.state.Forwarder)
	}
}

// supervising starts the supervisor of a copy. The lock is held.
func (u *unit) supervising(ctx context.Context, r *revision, c *copied) {
	c.quit = make(chan struct{})
	u.copies.Go(func() {
		u.supervise(ctx, r, c)
		if ctx.Err() == nil {
			u.change(func() { u.forget(r, c) })
		}
	})
}

// forget drops a copy that has ended for good. The lock is held.
func (u *unit) forget(r *revision, c *copied) {
	u.gateway.ports.Drop(c)
	if u.state.Forwarder == c {
		u.state.Forwarder = nil
	}
	var left []*copied
	for _, other := range r.Copies {
		if other != c {
			left = append(left, other)
		}
	}
	r.Copies = left
}

// reconcile does the next things that are due, and says how long to wait when nothing changes.
func (u *unit) reconcile(ctx context.Context) (wait time.Duration, over bool) {
	u.mu.Lock()
	deleting := u.state.Deleting
	behind := u.state.Observed < u.state.Generation
	u.mu.Unlock()
	switch {
	case deleting:
		return time.Second, u.finish()
	case behind:
		u.change(func() { u.begin(ctx) })
	}
	u.judge()
	if err := u.route(ctx); err != nil && ctx.Err() == nil {
		u.log.Warn("cannot switch", "error", err)
		return 100 * time.Millisecond, false
	}
	u.tidy()
	return u.patience(), false
}

// finish ends everything, and reports whether nothing is left.
func (u *unit) finish() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	all := u.state.all()
	for _, c := range all {
		c.end(u.state.Force)
	}
	if len(all) > 0 {
		return false
	}
	if err := u.bury(); err != nil {
		u.left = err.Error()
		u.log.Error("cannot complete the end of a service", "error", err)
		u.gateway.notify(u.key)
		return false
	}
	u.gateway.notify(u.key)
	return true
}

// begin makes the revision of the newest generation, in place of one that has not become healthy. The lock is held.
func (u *unit) begin(ctx context.Context) {
	s := u.state
	for _, r := range s.Revisions {
		if r.Phase == starting {
			r.retire("Superseded", "a newer specification came before it was healthy")
		}
	}
	s.Created++
	r := &revision{
		Name: fmt.Sprintf("%s-%05d", s.Name, s.Created), Generation: s.Generation, Hash: s.Hash, Spec: s.Spec,
		Socket: u.gateway.config.Templates[s.Spec.Image].Socket, Phase: starting, Began: time.Now(),
	}
	for range max(1, s.Spec.Scale.Min) {
		r.Copies = append(r.Copies, &copied{})
	}
	s.Revisions = append(s.Revisions, r)
	s.Observed = s.Generation
	for _, c := range r.Copies {
		u.supervising(ctx, r, c)
	}
}

// retire gives a revision up. The lock of the unit is held.
func (r *revision) retire(reason, message string) {
	r.Phase, r.Reason, r.Message = retired, reason, message
	r.end()
}

// end ends the copies. The lock of the unit is held.
func (r *revision) end() {
	for _, c := range r.Copies {
		c.end(false)
	}
}

// judge gives up a new revision that has had its chances.
func (u *unit) judge() {
	u.mu.Lock()
	r := u.state.latest()
	if r == nil || r.Phase != starting {
		u.mu.Unlock()
		return
	}
	reason, message := r.verdict(u.gateway.config.Crashes, time.Now())
	u.mu.Unlock()
	if reason == "" {
		return
	}
	u.change(func() {
		r.retire(reason, message)
		r.Phase = failed
		u.log.Warn("revision failed", "revision", r.Name, "reason", reason, "message", message)
	})
}

// tidy forgets old revisions, and bounds logs.
func (u *unit) tidy() {
	u.mu.Lock()
	var kept []*revision
	var names []string
	idle := 0
	for i := len(u.state.Revisions) - 1; i >= 0; i-- {
		r := u.state.Revisions[i]
		runs := len(r.Copies) > 0
		if !runs && r.Phase != serving && r.Phase != starting {
			idle++
			if r.Phase == retired && r.Reason == reasonReplaced || idle > records {
				logfile.Remove(u.logPath(r.Name))
				continue
			}
		}
		if runs {
			names = append(names, r.Name)
		}
		kept = append([]*revision{r}, kept...)
	}
	u.state.Revisions = kept
	if u.state.Forwarder != nil {
		names = append(names, forwarderName)
	}
	u.mu.Unlock()
	u.trimLogs(names)
}

// patience is the time until the loop looks without being asked to.
func (u *unit) patience() time.Duration {
	u.mu.Lock()
	defer u.mu.Unlock()
	wait := time.Second
	if r := u.state.latest(); r != nil && r.Phase == starting {
		wait = min(wait, max(0, time.Until(r.deadline())))
	}
	return wait
}
