package simulated

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/service"
	"github.com/bcc94042/instar/providers"
)

// Observe tells how far the object is by now.
func (g *Gateway) Observe(ctx context.Context, req providers.ObserveRequest) (service.Observation, error) {
	if err := g.enter(ctx, req.Key()); err != nil {
		return service.Observation{}, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	o := g.objects[req.Key()]
	if o != nil {
		g.expire(o)
	}
	if o == nil || o.gone {
		return service.Observation{}, providers.Errorf(providers.NotFound, "there is no service %s", req.Key())
	}
	o.looks++
	generation := o.generation()
	observed := o.observed(g.now())
	if g.befalls(req.Key(), Stale) != nil {
		observed = min(observed, generation-1)
	}
	out := service.Observation{ResourceVersion: strconv.Itoa(o.writes), At: g.now(), Snapshot: service.Snapshot{
		Exists: true, UID: o.uid, Generation: int64(generation), ObservedGeneration: int64(observed),
		SpecHash: o.revisions[generation-1].hash, URL: "http://" + req.Name + "." + req.Namespace + ".simulated.invalid",
	}}
	o.status(&out.Snapshot, observed, g.now())
	g.spoil(req.Key(), o, &out.Snapshot)
	return out, nil
}

// observed is the newest generation that the simulated controller has seen.
func (o *object) observed(now time.Time) int {
	n := 0
	for i, r := range o.revisions {
		if now.Sub(r.at) >= r.plan.observe {
			n = i + 1
		}
	}
	return n
}

// The conditions that matter, as Knative calls them.
func condition(typ string, status machines.Status, reason string) service.ObservedCondition {
	return service.ObservedCondition{Type: typ, Status: status, Reason: reason}
}

// status fills in what the controller says of the generations up to observed.
func (o *object) status(s *service.Snapshot, observed int, now time.Time) {
	if observed == 0 {
		return
	}
	for i, r := range o.revisions[:observed] {
		ready, reason := r.healthy(now, o.replacedAt(i, observed))
		s.Revisions = append(s.Revisions, service.ObservedRevision{Name: r.name, Hash: r.hash, Ready: ready, Reason: reason})
		if ready == machines.True {
			s.LatestReady = r.name
			if i < observed-1 || r.routed(now) {
				s.Serving = r.name
			}
		}
	}
	latest := o.revisions[observed-1]
	s.LatestCreated = latest.name
	failed := ""
	for _, r := range s.Revisions {
		if r.Ready == machines.False {
			failed = r.Name
		}
	}
	s.Revisions = slices.DeleteFunc(s.Revisions, func(r service.ObservedRevision) bool { // what was replaced is gone
		return !slices.Contains([]string{s.LatestCreated, s.LatestReady, s.Serving, failed}, r.Name)
	})
	routes := condition("RoutesReady", machines.Unknown, "RevisionMissing")
	s.Route = machines.Unknown
	if s.Serving != "" {
		s.Traffic = []service.Traffic{{Revision: s.Serving, Percent: 100}}
		routes, s.Route = condition("RoutesReady", machines.True, ""), machines.True
	}
	ready, reason := latest.healthy(now, nil)
	configurations := condition("ConfigurationsReady", ready, reason)
	switch {
	case ready == machines.False:
		s.Ready, s.Reason = machines.False, service.ReasonRevisionFailed
		configurations.Reason = s.Reason
	case ready == machines.Unknown:
		s.Ready, s.Reason = machines.Unknown, reason
	case s.Serving != latest.name:
		s.Ready, s.Reason = machines.Unknown, "IngressNotConfigured"
		routes = condition("RoutesReady", machines.Unknown, s.Reason)
	default:
		s.Ready = machines.True
		latest.flap(s, now)
	}
	s.Conditions = []service.ObservedCondition{configurations, condition("Ready", s.Ready, s.Reason), routes}
}

// replacedAt is when the next generation was observed, if it was: from then on nothing becomes of revision i.
func (o *object) replacedAt(i, observed int) *time.Time {
	if i+1 >= observed {
		return nil
	}
	next := o.revisions[i+1]
	at := next.at.Add(next.plan.observe)
	return &at
}

// healthy is the state of a revision by itself.
func (r *revision) healthy(now time.Time, until *time.Time) (machines.Status, string) {
	if until != nil && until.Before(now) {
		now = *until
	}
	switch {
	case r.plan.behaviour == neverReady || now.Sub(r.at) < r.plan.ready+r.plan.observe:
		return machines.Unknown, "Deploying"
	case r.plan.behaviour == fail:
		return machines.False, service.ReasonExited
	}
	return machines.True, ""
}

func (r *revision) routed(now time.Time) bool {
	return now.Sub(r.at) >= r.plan.observe+r.plan.ready+r.plan.route
}

// flap makes every second period of a flapping revision unhealthy.
func (r *revision) flap(s *service.Snapshot, now time.Time) {
	up := now.Sub(r.at) - r.plan.observe - r.plan.ready - r.plan.route
	if r.plan.behaviour == flapping && (up/r.plan.period)%2 == 1 {
		s.Ready, s.Reason, s.Route = machines.False, "Unhealthy", machines.False
	}
}

// spoil does what the script says to the observation.
func (g *Gateway) spoil(key string, o *object, s *service.Snapshot) {
	switch {
	case o.deleted != nil:
		s.Ready, s.Reason, s.Route = machines.Unknown, "Terminating", machines.Unknown
	case g.befalls(key, NeverReady) != nil:
		s.Ready, s.Reason, s.Route = machines.Unknown, "Deploying", machines.Unknown
	case g.befalls(key, Flapping) != nil && o.looks%2 == 0:
		s.Ready, s.Reason, s.Route = machines.False, "Unhealthy", machines.False
	default:
		return
	}
	for i := range s.Conditions {
		if s.Conditions[i].Type == "Ready" {
			s.Conditions[i] = condition("Ready", s.Ready, s.Reason)
		}
	}
}
