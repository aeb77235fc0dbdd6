//go:build linux

package process

import (
	"context"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/service"
	"github.com/bcc94042/instar/providers"
	"github.com/bcc94042/instar/providers/process/probe"
)

// Observe tells what runs, and asks through the public address whether it answers.
func (g *Gateway) Observe(ctx context.Context, req providers.ObserveRequest) (service.Observation, error) {
	if err := req.Check(ctx); err != nil {
		return service.Observation{}, err
	}
	u, err := g.unit(req.Namespace, req.Name, false)
	if err != nil {
		return service.Observation{}, err
	}
	if u == nil {
		return service.Observation{}, providers.Errorf(providers.NotFound, "there is no service %s", req.Key())
	}
	u.mu.Lock()
	gone := u.state.Gone
	o := u.observation()
	serves := u.state.revision(u.state.Serving)
	u.mu.Unlock()
	if gone {
		return service.Observation{}, providers.Errorf(providers.NotFound, "there is no service %s", req.Key())
	}
	o.Route = machines.Unknown
	if serves != nil && o.Ready != machines.Unknown {
		o.Route = machines.False
		if probe.Ask(ctx, serves.Spec.Probe, o.URL[len("http://"):]) == nil {
			o.Route = machines.True
		}
	}
	return o, ctx.Err()
}

// verdictOf is one condition without its type.
type verdictOf struct {
	status          machines.Status
	reason, message string
}

func (v verdictOf) as(typ string) service.ObservedCondition {
	return service.ObservedCondition{Type: typ, Status: v.status, Reason: v.reason, Message: v.message}
}

// observation without the probe of the route. The lock is held.
func (u *unit) observation() service.Observation {
	s := u.state
	o := service.Observation{ResourceVersion: strconv.FormatUint(s.Writes, 10), At: time.Now()}
	o.Snapshot = service.Snapshot{
		Exists: true, UID: s.UID, Generation: s.Generation, ObservedGeneration: s.Observed, SpecHash: s.Hash,
		Serving: s.Serving, LatestReady: s.Serving,
	}
	if s.Serving != "" { // before, connections are taken by the kernel and answered by nobody
		o.URL = u.url()
	}
	for _, r := range s.Revisions {
		v := u.revisionStatus(r)
		o.Revisions = append(o.Revisions, service.ObservedRevision{Name: r.Name, Hash: r.Hash, Ready: v.status, Reason: v.reason})
	}
	if s.Serving != "" {
		o.Traffic = []service.Traffic{{Revision: s.Serving, Percent: 100}}
	}
	latest := s.latest()
	if latest == nil {
		return o
	}
	o.LatestCreated = latest.Name
	configurations, routes := u.configurations(latest), u.routes()
	ready := routes
	if configurations.status != machines.True {
		ready = configurations
	}
	switch {
	case s.Deleting && u.left != "":
		ready = verdictOf{machines.False, ReasonNotRemoved, u.left}
	case s.Deleting:
		ready = verdictOf{machines.Unknown, "Terminating", "the processes are ending"}
	}
	o.Ready, o.Reason, o.Message = ready.status, ready.reason, ready.message
	o.Conditions = []service.ObservedCondition{
		configurations.as("ConfigurationsReady"), ready.as("Ready"), routes.as("RoutesReady"),
	}
	return o
}

// configurations: is the newest revision one that works.
func (u *unit) configurations(latest *revision) verdictOf {
	switch latest.Phase {
	case starting:
		return verdictOf{machines.Unknown, reasonStarting, "revision " + latest.Name + " is starting"}
	case failed:
		text := "revision " + latest.Name + " failed: " + latest.Reason + ": " + latest.Message
		return verdictOf{machines.False, service.ReasonRevisionFailed, text}
	}
	return verdictOf{status: machines.True}
}

// routes: do the public connections reach something that works.
func (u *unit) routes() verdictOf {
	r := u.state.revision(u.state.Serving)
	if r == nil {
		return verdictOf{machines.Unknown, "RevisionMissing", "no revision has become healthy"}
	}
	v := u.revisionStatus(r)
	if v.status == machines.True && u.moving {
		return verdictOf{machines.Unknown, "TrafficMoving", "the revision before still answers some connections"}
	}
	if f := u.state.Forwarder; v.status == machines.True && !u.shared(r) && (f == nil || !f.ready) {
		return verdictOf{machines.Unknown, "IngressNotConfigured", "the forwarder is starting"}
	}
	return v
}

// revisionStatus: one healthy copy is enough to answer.
func (u *unit) revisionStatus(r *revision) verdictOf {
	switch r.Phase {
	case starting:
		return verdictOf{status: machines.Unknown, reason: reasonStarting}
	case failed:
		return verdictOf{machines.False, r.Reason, r.Message}
	case retired:
		return verdictOf{status: machines.Unknown, reason: "Retired"}
	}
	if slices.ContainsFunc(r.Copies, func(c *copied) bool { return c.ready }) {
		return verdictOf{status: machines.True}
	}
	for _, c := range r.Copies {
		switch {
		case c.crashes >= u.gateway.config.Crashes:
			return verdictOf{machines.False, service.ReasonExited, c.last + "; it is being restarted"}
		case c.Process == nil:
			return verdictOf{machines.Unknown, "Restarting", c.last}
		case c.fails >= probe.PatienceOf(r.Spec.Probe).Failures:
			return verdictOf{machines.False, "Unhealthy", c.last}
		}
	}
	return verdictOf{machines.Unknown, "Probing", "no probe was answered yet"}
}

// stopAll ends the processes of a service that nobody supervises any more.
func (u *unit) stopAll() {
	ctx, cancel := context.WithTimeout(context.Background(), u.gateway.config.Grace)
	defer cancel()
	for _, c := range u.state.all() {
		p := c.Process
		if p == nil || !p.Adopt() {
			continue
		}
		watched := make(chan error, 1)
		go func() { watched <- p.Watch(nil) }()
		p.Signal(syscall.SIGTERM)
		select {
		case <-p.Gone():
		case <-ctx.Done():
			p.Signal(syscall.SIGKILL)
		}
		if err := <-watched; err != nil {
			u.log.Error("cannot stop a process", "pid", p.PID, "error", err)
		}
	}
}
