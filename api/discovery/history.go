package discovery

// Answers as of a moment in the past. Catalog.At (ask.go) calls History.At, which reads the events of the service from the stream EVENTS up to that moment (read, take)
// and folds them into instances, doing to their data what the machine did (fold, change); a snapshot of these answers the query. Nothing is kept between two questions.

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/instance"
	"github.com/bcc94042/instar/streams"
)

// Moment is a point in the past: a time, or the event of a sequence in EVENTS.
type Moment struct {
	Time     time.Time
	Sequence uint64 // counts when it is not 0
}

// AsOf says what an answer about the past was built from.
type AsOf struct {
	Time     time.Time `json:"time,omitzero" doc:"The requested time, or that of the last event"`
	Sequence uint64    `json:"sequence" doc:"Sequence of the service's last event up to then; 0 if there was none"`
	Events   int       `json:"events" doc:"Number of events read"`
}

// ErrTooLong says that a service has too many events for an answer about its past.
var ErrTooLong = errors.New("discovery: too many events")

// History answers questions about the past. It reaches as far back as the events, which are kept for years.
type History struct {
	JS    jetstream.JetStream
	Names streams.Names
	Most  int // events that are read for one answer; 0 is 500,000
}

// At answers as the catalog would have answered at a moment: with the instances as the events up to then left them, and
// with the weights of then. Index and Changed, which are revisions of the bucket, are 0.
func (h History) At(ctx context.Context, q Query, at Moment) (Result, AsOf, error) {
	past := past{until: at, all: map[string]*entry{}}
	if err := h.read(ctx, h.Names.EventsOf(Machine, q.Namespace+"."+q.Service), &past); err != nil {
		return Result{}, AsOf{}, fmt.Errorf("discovery: cannot read what happened to %s.%s: %w", q.Namespace, q.Service, err)
	}
	if at.Sequence == 0 {
		past.of.Time = at.Time.UTC()
	}
	sn := picture(q.Namespace, q.Service, past.instances(q.Namespace, q.Service), past.of.Time)
	for _, e := range past.all {
		sn.Protected = sn.Protected || e.rec.Data.Protected && e.rec.State != instance.Deregistered
	}
	return Result{Endpoints: q.pick(sn), Protected: sn.Protected, Known: past.of.Events > 0}, past.of, nil
}

// read folds all events of a filter, through a consumer of its own that is deleted afterwards.
func (h History) read(ctx context.Context, filter string, p *past) error {
	stream := h.Names.Stream(streams.EventStream)
	cons, err := h.JS.CreateConsumer(ctx, stream, jetstream.ConsumerConfig{
		FilterSubject: filter, DeliverPolicy: jetstream.DeliverAllPolicy, AckPolicy: jetstream.AckNonePolicy,
		MaxDeliver: 1, MemoryStorage: true, Replicas: 1, InactiveThreshold: 10 * time.Second,
	})
	if err != nil {
		return err
	}
	info := cons.CachedInfo()
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		_ = h.JS.DeleteConsumer(ctx, stream, info.Name) // the server removes it by itself otherwise
	}()
	for left := info.NumPending; left > 0 && !p.over; {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		came, err := streams.Fetch(ctx, cons, int(min(left, 1000)), func(msg jetstream.Msg) error { return p.take(h.Names, msg) }) // bounded
		if err != nil {
			return err
		}
		if came == 0 {
			return context.DeadlineExceeded
		}
		if left -= min(left, uint64(came)); p.of.Events > cmp.Or(h.Most, 500_000) { // it counts
			return ErrTooLong
		}
	}
	return nil
}

// past is the state that the events up to a moment add up to.
type past struct {
	until Moment
	all   map[string]*entry // by id
	of    AsOf
	over  bool
}

func (p *past) instances(namespace, service string) []entry {
	var list []entry
	for _, id := range slices.Sorted(maps.Keys(p.all)) {
		e := p.all[id]
		e.rec.Namespace, e.rec.Service = namespace, service
		list = append(list, *e)
	}
	return list
}

// told is what events of instances carry, as far as it decides who is found.
type told struct {
	NodeAddress string            `json:"nodeAddress"`
	Payload     map[string]string `json:"payload"`
	Zone        string            `json:"zone"`
	Version     string            `json:"version"`
	Tags        []string          `json:"tags"`
	Weight      *int              `json:"weight"` // of a registration, of a report, of a pin
	Policy      instance.Policy   `json:"policy"`
	Since       time.Time         `json:"since"`
	Until       time.Time         `json:"until"`
	Reason      string            `json:"reason"`
	By          string            `json:"by"`
	Evidence    struct {
		Weight *int `json:"weight"`
	} `json:"evidence"`
}

// take folds one event. Events of several instances may be stored in another order than they happened in, those of one
// instance never are. So the first event after the moment does not end the reading.
func (p *past) take(names streams.Names, msg jetstream.Msg) error {
	meta, err := msg.Metadata()
	if err != nil {
		return err
	}
	seq := meta.Sequence.Stream
	if p.until.Sequence != 0 && seq > p.until.Sequence {
		p.over = true
		return nil
	}
	a, err := names.ParseEvent(msg.Subject(), true)
	if err != nil {
		return nil // not the event of an instance
	}
	var ev struct {
		machines.Event
		Data json.RawMessage `json:"data"`
	}
	if json.Unmarshal(msg.Data(), &ev) != nil {
		return nil
	}
	if p.until.Sequence == 0 && ev.Time.After(p.until.Time) {
		return nil
	}
	p.of.Sequence, p.of.Time = seq, ev.Time.UTC()
	p.of.Events++
	p.fold(a, &ev.Event, ev.Data, seq)
	return nil
}

func (p *past) fold(a streams.Address, ev *machines.Event, data json.RawMessage, seq uint64) {
	typ := a.Last
	if ev.To == machines.None || typ == machines.EventRefused || typ == machines.EventDead {
		return // nothing changed
	}
	_, _, id, _ := streams.SplitKey(a.Key) // it was parsed
	e := p.all[id]
	if e == nil {
		e = &entry{rec: &instance.Record{ID: id, Data: instance.Known{Terms: new(instance.Terms)}}}
		p.all[id] = e
	}
	r := e.rec
	if ev.From != ev.To || typ == instance.EventRegistered {
		r.Since = ev.Time.UTC()
	}
	r.State, r.Generation, r.Version, e.revision = ev.To, ev.Generation, ev.Version, seq
	var t told
	if len(data) > 0 && json.Unmarshal(data, &t) != nil {
		return // only its state is known
	}
	t.change(typ, &r.Data)
}

// change does to the data what the machine did to it.
func (t *told) change(typ string, d *instance.Known) {
	switch typ {
	case instance.EventRegistered:
		before := *d
		*d = instance.Known{
			NodeAddress: t.NodeAddress, Payload: t.Payload, Zone: t.Zone, Version: t.Version, Tags: t.Tags, Terms: &instance.Terms{Policy: t.Policy},
			Maintenance: before.Maintenance, Pinned: before.Pinned, Protected: before.Protected,
		}
		if t.Weight != nil {
			d.Weight = *t.Weight
		}
	case instance.EventWarming:
		d.WarmSince = t.Since
	case instance.EventHealthy, instance.EventDeregistered:
		d.WarmSince = time.Time{}
	case instance.EventWeightReported:
		d.Reported = t.Weight
	case instance.EventWeightPinned:
		d.Pinned = t.Weight
	case instance.EventMaintenanceBegun:
		d.Maintenance = &instance.Maintenance{Reason: t.Reason, Until: t.Until, By: t.By}
	case instance.EventMaintenanceEnded:
		d.Maintenance = nil
	case instance.EventProtected:
		d.Protected = true
	case instance.EventUnprotected:
		d.Protected = false
	}
	if t.Evidence.Weight != nil { // whatever was decided from it
		d.Reported = t.Evidence.Weight
	}
}
