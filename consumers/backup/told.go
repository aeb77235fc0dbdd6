package backup

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/bcc94042/instar/consumers"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/publish"
)

// message stores one of a stream that tells, unless it is an event that is newer than the value of its entity.
func (r *restorer) message(ctx context.Context, m *Message) error {
	msg := &nats.Msg{Subject: m.Subject, Header: plain(m.Header), Data: m.Data}
	left, mortal := r.left(m)
	if mortal {
		if left <= 0 {
			return nil
		}
		streams.Keep(msg, left)
	}
	for _, c := range r.consumers {
		if !c.placed && m.Seq > c.Floor {
			if err := r.flush(ctx); err != nil { // what is stored together may change its order
				return err
			}
			if err := r.place(ctx, c); err != nil {
				return err
			}
		}
	}
	if r.in.at.Stream != r.s.Plan.Names.Stream(streams.EventStream) {
		return r.append(ctx, publish.Write{Stream: r.in.at.Stream, Msg: msg}, nil)
	}
	of, key := r.teller(m.Subject)
	if of != nil && r.newer(of, key, m) {
		r.done.Newer++
		return nil
	}
	if mortal {
		r.lives[time.Now().Add(max(left.Truncate(time.Second), time.Second)).Unix()]++ // see streams.Keep
	}
	if of == nil {
		return r.append(ctx, publish.Write{Stream: r.in.at.Stream, Msg: msg}, nil)
	}
	r.done.Events++
	return r.event(ctx, r.s.Plan.Names.EventsOf(of.Name, key), msg)
}

// left is how much longer a message lives that has an end.
func (r *restorer) left(m *Message) (left time.Duration, mortal bool) {
	ttl, err := time.ParseDuration(m.Header.Get("Nats-TTL"))
	return ttl - r.now.Sub(m.Time), err == nil
}

// teller is the entity that an event is of; no machine is nobody's.
func (r *restorer) teller(subject string) (*machines.Machine, string) {
	for _, of := range r.s.Machines {
		if a, err := r.s.Plan.Names.ParseEvent(subject, of.Parent != ""); err == nil && a.Machine == of.Name {
			return of, a.Key
		}
	}
	return nil, ""
}

// newer reports whether an event is of a transition that the value of its entity does not have, and notes how far the stream has told of it.
func (r *restorer) newer(of *machines.Machine, key string, m *Message) bool {
	known, id := r.known[of.Name+"/"+key], streams.Header(m.Header, streams.HeaderID)
	version := consumers.EventVersion(of.Name, key, id, m.Data)
	if known == nil { // purged before, or born since
		known = &entity{absent: true}
		r.known[of.Name+"/"+key] = known
	}
	if known.absent && !r.since(m) {
		known.version = max(known.version, version)
	}
	if version > known.version { // what is refused before a birth is of none
		return true
	}
	delete(known.untold, id)
	if version, n, ok := streams.NumberOf(of.Name, key, id); ok && known.last.before(place{version, n}) {
		known.last = place{version, n}
	}
	return false
}

// events are those of an outbox.
func (e *entity) events(of *machines.Machine, key string, outbox []machines.Message) (events []machines.Message) {
	for _, o := range outbox {
		if o.Kind != machines.KindEvent {
			continue
		}
		if events = append(events, o); o.Refusal != 0 { // it counts
			if e.untold == nil {
				e.untold = map[string]bool{}
			}
			e.untold[o.ID(of.Name, key)] = true
		}
	}
	return events
}

// since reports whether a message was stored after the backup had begun.
func (r *restorer) since(m *Message) bool {
	if end, ok := r.in.head.Ends[r.in.at.Stream]; ok { // clocks may be set back
		return m.Seq > end
	}
	return m.Time.After(r.in.head.At)
}

// count finds out what of the events the stream has let go before their life ended.
func (r *restorer) count(ctx context.Context) error {
	events, err := streams.Led(ctx, r.s.JS, r.s.Plan.Names.Stream(streams.EventStream))
	if err != nil {
		return fmt.Errorf("cannot count the events: %w", err)
	}
	has := events.CachedInfo().State
	r.done.Gone = int(has.LastSeq + 1 - r.first - has.Msgs) // it counts
	for end, events := range r.lives {
		if end <= time.Now().Unix() {
			r.done.Gone -= events
		}
	}
	r.done.Gone = max(r.done.Gone, 0) // one whose life has just ended may still be there
	return nil
}
