package watch

// One feed for all watches that want the same. fanout.run takes what waits in the queues of the indexes, at most frameSize at once, writes each
// change once, and wakes the readers; while they read, newer changes take the places of those that wait. How fast it goes is bounded
// by a budget of all fan-outs (pace.go), so that watches cannot take the processors from commands. What was sent is in
// the log (log.go) until all readers have it; a slow one finds the newest of each entity there.

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bcc94042/instar/api/entities"
	"github.com/bcc94042/instar/api/sse"
	"github.com/bcc94042/instar/internal/panics"
	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/kv/index"
)

const (
	quiet    = 250 * time.Millisecond // after which the readers are told the revision up to which they have everything
	Waiting  = 4096                   // entities whose changes may wait for a slow client
	MostKeys = 16 * Waiting           // and for all clients of a feed

	WaitingBytes = index.WaitingBytes // of the texts of changes that wait for slow clients of a feed; the last frame is a small part of it
	frameSize    = 64 << 10           // what a reader is sent at once
	few          = 16                 // changes that are taken together
)

// fanouts are those that have readers.
type fanouts struct {
	mu      sync.Mutex
	open    map[string]*fanout
	budget  budget
	encoded atomic.Uint64 // changes that were written
}

// fanout is what all watches have in common that want the same.
type fanout struct {
	s      *Service
	kind   string
	all    []*watched // as of what was sent; guarded by log.mu
	queues []*index.Queue
	wake   chan struct{} // there are changes
	kick   chan struct{} // a reader has everything
	stop   context.CancelFunc
	done   chan struct{}
	turn   int
	seats  int // guarded by fanouts.mu

	log
}

// kindOf names what is wanted.
func kindOf(all []*watched) string {
	var b strings.Builder
	for _, one := range all {
		fmt.Fprintf(&b, "%s %t %q %q %q %q\n", one.m.Name, one.ofAll, one.filter.Key, one.filter.Prefix, one.filter.Namespace, one.filter.States)
	}
	return b.String()
}

// join adds a reader to the fan-out of what is wanted. It is sent every change that comes from now on, and has to leave.
func (s *Service) join(all []*watched) *reader {
	kind := kindOf(all)
	s.fanouts.mu.Lock()
	defer s.fanouts.mu.Unlock()
	f := s.fanouts.open[kind]
	if f == nil {
		f = s.newFanout(kind, all)
		s.fanouts.open[kind] = f
	}
	f.seats++
	bound := min(f.seats*Waiting, MostKeys)
	for _, q := range f.queues {
		q.Bound(bound)
	}
	return f.log.join(all)
}

// leave takes a reader away, and the fan-out with the last one.
func (s *Service) leave(r *reader) {
	f := r.f
	f.log.leave(r)
	s.fanouts.mu.Lock()
	f.seats--
	last := f.seats == 0
	if last && s.fanouts.open[f.kind] == f {
		delete(s.fanouts.open, f.kind)
	}
	s.fanouts.mu.Unlock()
	if last {
		f.stop()
		<-f.done
	}
}

// forget lets the next reader begin another fan-out, as this one has lost changes.
func (s *Service) forget(f *fanout) {
	s.fanouts.mu.Lock()
	defer s.fanouts.mu.Unlock()
	if s.fanouts.open[f.kind] == f {
		delete(s.fanouts.open, f.kind)
	}
}

func (s *Service) newFanout(kind string, all []*watched) *fanout {
	ctx, stop := context.WithCancel(context.Background())
	f := &fanout{s: s, kind: kind, wake: make(chan struct{}, 1), kick: make(chan struct{}, 1), stop: stop, done: make(chan struct{})}
	f.log = log{f: f, readers: map[*reader]struct{}{}, newest: map[name]*event{}}
	for _, one := range all {
		q := s.store.Index(one.m.Name).Queue(one.filter, Waiting, f.wake)
		f.queues = append(f.queues, q)
		f.all = append(f.all, &watched{m: one.m, ofAll: one.ofAll, filter: one.filter, mark: q.Revision})
	}
	f.log.marks = marksOf(f.all)
	go f.run(ctx)
	return f
}

func (f *fanout) run(ctx context.Context) {
	defer close(f.done)
	defer func() {
		for _, q := range f.queues {
			q.Close()
		}
	}()
	calm, beat, breath := time.NewTimer(quiet), time.NewTicker(sse.Heartbeat), time.NewTimer(0)
	defer calm.Stop()
	defer beat.Stop()
	defer breath.Stop()
	<-breath.C
	for {
		settle := false
		select {
		case <-f.wake:
		case <-calm.C:
			settle = true
		case <-beat.C:
			settle = true
		case <-ctx.Done():
			return
		}
		if !f.idle(ctx) {
			return
		}
		changes, sent, more, err := f.take(settle)
		if err != nil {
			f.s.forget(f)
			f.lose()
			return
		}
		if more {
			f.signal()
		}
		if changes > 0 {
			calm.Reset(quiet)
		}
		if sent > 0 && !f.rouse(ctx, breath, sent) {
			return
		}
	}
}

func (f *fanout) signal() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// idle waits until a reader has everything that was sent: as long as none has, changes wait in the queue, where newer ones take their places.
func (f *fanout) idle(ctx context.Context) bool {
	for f.busy() {
		select {
		case <-f.kick:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// take sends what waits, up to the size of a frame, and says how much that was. When it is to settle and nothing waits, it sends the revisions
// up to which everything was sent.
func (f *fanout) take(settle bool) (changes, sent int, more bool, err error) {
	var events []*event
	marks, size := make([]uint64, len(f.queues)), 0
	f.turn++
	for n := range f.queues {
		i := (f.turn + n) % len(f.queues) // each is the first in its turn
		q := f.queues[i]
		for full := true; full && !more; more = full && size >= frameSize {
			room, took := max(frameSize-size, 1), 0 // a frame has one value more than it has room for at most
			changes, revision, err := q.Take(few, room)
			if err != nil {
				return 0, 0, false, err
			}
			for _, c := range changes {
				e := f.s.encode(f.all[i], i, c)
				events, size, took = append(events, e), size+len(e.text), took+len(c.Value)
			}
			marks[i], full = revision, len(changes) == few || took >= room
		}
	}
	return len(events), f.publish(events, marks, settle), more, nil
}

// rouse wakes the readers, as fast as the budget allows, and rests for a moment.
func (f *fanout) rouse(ctx context.Context, breath *time.Timer, sent int) bool {
	readers, owed := f.list(), 0
	begun := time.Now()
	for i, r := range readers {
		r.signal()
		if owed += sent + perWrite; owed < slice && i < len(readers)-1 {
			continue
		}
		if !pause(ctx, breath, f.s.fanouts.budget.spend(owed)) {
			return false
		}
		owed = 0
	}
	return pause(ctx, breath, pace-time.Since(begun))
}

// encode writes a change as an event; its text is the same for all fan-outs.
func (s *Service) encode(one *watched, of int, c index.Change) *event {
	e := &event{of: of, key: c.Item.Key, told: witnessOf(&c.Item), rev: c.Item.Revision}
	if c.Deleted {
		e.told = deletedWitness(&c.Item)
	}
	e.text = c.Text.Of(func() []byte {
		s.fanouts.encoded.Add(1)
		what, data := s.eventOf(one, c)
		text, err := json.Marshal(data) // one line
		if err != nil {
			return nil // it cannot fail
		}
		return slices.Concat([]byte("event: "+what+"\ndata: "), text, []byte("\n\n"))
	})
	return e
}

// decode reads a value. A machine that panics over it, as in an upcast, must not end the fan-out of all.
func (s *Service) decode(one *watched, c index.Change) (e *entities.Entity, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = panics.Error("upcast", r)
		}
	}()
	return s.store.Decode(one.m, c.Item.Key, kv.Entry[json.RawMessage]{Value: c.Value, Revision: c.Item.Revision})
}

// eventOf is one change as clients see it.
func (s *Service) eventOf(one *watched, c index.Change) (what string, data any) {
	if c.Deleted {
		return "deleted", struct {
			Machine  string `json:"machine"`
			Key      string `json:"key"`
			Revision uint64 `json:"revision"`
		}{one.m.Name, c.Item.Key, c.Item.Revision}
	}
	e, err := s.decode(one, c)
	if err != nil {
		return "parked", struct {
			Machine string        `json:"machine"`
			Item    entities.Item `json:"item"`
		}{one.m.Name, entities.ItemOf(index.Item{Key: c.Item.Key, Revision: c.Item.Revision, UpdatedAt: c.Item.UpdatedAt, Problem: "parked"})}
	}
	return "entity", e
}
