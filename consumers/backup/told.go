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
	known := r.known[of.Name+"/"+key]
	if known == nil { // purged before, or born since
		return m.Time.After(r.in.head.At)
	}
	id := streams.Header(m.Header, streams.HeaderID)
	if consumers.EventVersion(of.Name, key, id, m.Data) > known.version {
		return true
	}
	if version, n, ok := streams.NumberOf(of.Name, key, id); ok && known.last.before(place{version, n}) {
		known.last = place{version, n}
	}
	return false
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
