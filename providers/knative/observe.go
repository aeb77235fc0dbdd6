package knative

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/service"
	"github.com/bcc94042/instar/providers"
)

// Terminating is the reason of what is being deleted.
const Terminating = "Terminating"

// Observe reads the object. One that is not ours is not there, nor one that was handed over and that nobody has applied to.
func (g *Gateway) Observe(ctx context.Context, req providers.ObserveRequest) (service.Observation, error) {
	o, err := g.own(ctx, &req.Request)
	if err != nil {
		return service.Observation{}, err
	}
	return o.observation(), nil
}

// own is the object of a request; it fails with NotFound where that is not ours.
func (g *Gateway) own(ctx context.Context, req *providers.Request) (*object, error) {
	if err := req.Check(ctx); err != nil {
		return nil, err
	}
	c, end := g.call(ctx, req)
	defer end()
	o, err := c.get()
	if err != nil {
		return nil, err
	}
	if handedOver := o.of() == "" && o.life() == ""; !o.ours(g.config.Owner) || handedOver || o.of() != "" && o.of() != req.Key() {
		return nil, providers.Errorf(providers.NotFound, "the Knative service %s/%s is not that of %s", c.space, c.name, req.Key())
	}
	return o, nil
}

// observation is what the object tells; nothing is judged. Whether the conditions are about the specification that it
// has now is for the reader to see from the two generations.
func (o *object) observation() service.Observation {
	s := &o.Status
	seen := service.Observation{ResourceVersion: o.Metadata.ResourceVersion, At: time.Now(), Snapshot: service.Snapshot{
		Exists: true, UID: o.Metadata.UID, Generation: o.Metadata.Generation, ObservedGeneration: s.ObservedGeneration,
		SpecHash: o.Metadata.Annotations[markHash], URL: s.URL, LatestCreated: s.LatestCreated, LatestReady: s.LatestReady,
		Traffic: o.traffic(), Fields: o.drift(), Route: machines.Unknown,
	}}
	for _, c := range s.Conditions {
		seen.Conditions = append(seen.Conditions, service.ObservedCondition{Type: c.Type, Status: c.Status, Reason: c.Reason, Message: c.Message})
	}
	ready := o.condition("Ready")
	if o.Metadata.DeletionTimestamp != "" {
		ready = condition{Status: machines.Unknown, Reason: Terminating, Message: "the Knative service is being deleted"}
	}
	seen.Ready, seen.Reason, seen.Message = ready.Status, ready.Reason, ready.Message
	if len(seen.Traffic) > 0 {
		seen.Serving = slices.MaxFunc(seen.Traffic, func(a, b service.Traffic) int { return cmp.Compare(a.Percent, b.Percent) }).Revision
	}
	seen.Revisions = o.revisions()
	return seen
}

// condition of that type; an empty one when the controller has not written it yet.
func (o *object) condition(typ string) condition {
	for _, c := range o.Status.Conditions {
		if c.Type == typ {
			return c
		}
	}
	return condition{}
}

// traffic is the share of each revision, which may be the sum of several targets.
func (o *object) traffic() []service.Traffic {
	share := map[string]int{}
	for _, t := range o.Status.Traffic {
		if t.RevisionName != "" && t.Percent > 0 {
			share[t.RevisionName] += int(t.Percent)
		}
	}
	var all []service.Traffic
	for _, revision := range slices.Sorted(maps.Keys(share)) {
		all = append(all, service.Traffic{Revision: revision, Percent: share[revision]})
	}
	return all
}

// revisions are the two that the status names: the last one that became ready, and the newest.
func (o *object) revisions() []service.ObservedRevision {
	var all []service.ObservedRevision
	s := &o.Status
	if s.LatestReady != "" && s.LatestReady != s.LatestCreated {
		all = append(all, service.ObservedRevision{Name: s.LatestReady, Ready: machines.True})
	}
	if s.LatestCreated == "" {
		return all
	}
	newest := service.ObservedRevision{Name: s.LatestCreated, Ready: machines.Unknown}
	if s.ObservedGeneration == o.Metadata.Generation {
		newest.Hash = o.Spec.Template.Metadata.Annotations[markHash]
	}
	c := o.condition("ConfigurationsReady")
	switch {
	case s.LatestReady == s.LatestCreated:
		newest.Ready = machines.True
	case c.Status == machines.False:
		newest.Ready, newest.Reason = c.Status, c.Reason
	}
	return append(all, newest)
}

// drift compares what the object wants with what was applied. That somebody else changed it is seen here, although the
// hash is still the one that was applied.
func (o *object) drift() map[string]service.FieldDiff {
	applied := map[string]string{}
	if json.Unmarshal([]byte(o.Metadata.Annotations[markFields]), &applied) != nil {
		return map[string]service.FieldDiff{markFields: {Want: "what instar applied", Got: "(unreadable)"}}
	}
	got := o.fields()
	diff := map[string]service.FieldDiff{}
	for name, v := range applied {
		if got[name] != v {
			diff[name] = service.FieldDiff{Want: show(name, v), Got: show(name, got[name])}
		}
	}
	for name, v := range got {
		if _, ok := applied[name]; !ok {
			diff[name] = service.FieldDiff{Got: show(name, v)}
		}
	}
	if len(diff) == 0 {
		return nil
	}
	return diff
}

// show hides what may tell of a secret.
func show(name, v string) string {
	if v != "" && strings.HasPrefix(name, "env.") {
		return "(a value with the hash " + v + ")"
	}
	return v
}
