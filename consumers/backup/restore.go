package backup

// From the file to new streams. Restore, called by server/backup.go, checks the head, creates the streams of the plan (Plan.Begin), and takes the file line by line (read.go):
// line passes each message to the function for the kind of its section, which adapts it to fresh versions and sequences and adds it to a batch, and flush stores the batch
// (store.go). After the last section emit.go publishes what the entities still have to send, the result is counted (told.go), and Plan.Finish releases the streams.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"

	"github.com/bcc94042/instar/consumers"
	"github.com/bcc94042/instar/consumers/answers"
	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/publish"
)

// Restored is what a restore has made.
type Restored struct {
	Head     Head
	End      End
	Entities int // with Parked
	Parked   int // whose value this program cannot use
	Events   int
	Gone     int // messages of the stream of events that it removed again before their life ended, having no room for all of them
	Newer    int // events that were left out, because they are newer than the value of their entity
	Commands int // that no entity has taken
	Timers   int
	Tasks    int

	Consumers int // of others that could not be made; the log says why

	Above uint64 // new versions, sequences and revisions are above it
	Begun bool   // it has made streams, or may have
}

// Restore creates the streams of the plan, none of which may exist, and fills them from a backup. What it leaves behind when it fails is not used by any server: see
// [streams.ErrUnfinished].
func (s *Store) Restore(ctx context.Context, from io.Reader) (Restored, error) {
	in, err := open(from)
	if err != nil {
		return Restored{}, err
	}
	defer in.close()
	r := &restorer{s: s, in: in, known: map[string]*entity{}, marks: map[string][]mark{}, open: map[string]*publish.Chain{}, ends: map[string]uint64{}, lives: map[int64]int{}, acked: map[string]acked{}, now: time.Now().UTC(), told: time.Now()}
	if err := r.all(ctx); err != nil {
		return r.done, fmt.Errorf("backup: cannot restore: %w", err)
	}
	return r.done, nil
}

type restorer struct {
	s    *Store
	in   *reader
	now  time.Time
	done Restored

	first uint64 // sequence of each stream that is made
	fresh fresh
	above uint64

	known map[string]*entity // by machine and key
	marks map[string][]mark  // of commands that wait, by machine and key

	consumers []*resumed // of the section under way
	batch     []publish.Write
	stored    []func(seq uint64) // what to do with the sequence of each write; nil is nothing
	chains    []*publish.Chain   // of events: each names the one before it of its entity
	open      map[string]*publish.Chain
	ends      map[string]uint64 // sequence of the last event, by what matches those of its entity
	messages  int
	size      int
	told      time.Time        // of how far it is
	lives     map[int64]int    // of messages that have an end: how many end in which second
	top       uint64           // the highest sequence that was stored in the section under way
	acked     map[string]acked // by stream
}

// entity is what the restore has to know of one.
type entity struct {
	version uint64          // that the backup has
	last    place           // of the last event that the stream has of it
	untold  map[string]bool // ids of events of its outbox that have no place, such as those of refusals, and that the stream was not found to have
	absent  bool            // it has no value
}

// place is the position of an event among those of its entity.
type place struct{ version, n uint64 }

func (p place) before(o place) bool {
	return p.version < o.version || p.version == o.version && p.n < o.n
}

// mark is a command that was not acknowledged: its sequence then and now, and whether its entity has taken it nevertheless.
type mark struct {
	then, now uint64
	taken     bool
}

func (r *restorer) all(ctx context.Context) error {
	p, h := r.s.Plan, r.in.head
	if names := (streams.Names{Prefix: h.Prefix}); names.StoredAll() != p.Names.StoredAll() {
		return fmt.Errorf("the backup is of subjects below %q, this installation is of %q: set nats.prefix", h.Prefix, p.Names.Prefix)
	}
	if err := r.fits(h); err != nil {
		return err
	}
	r.fresh = fresh{h.At, r.now}
	r.first = r.fresh.above(h.Last) + 1
	if r.first > 1<<53 {
		return fmt.Errorf("the backup is of %s, and its sequences would be above 2^53: does the clock go right?", h.At.Format(time.RFC3339))
	}
	others := slices.DeleteFunc(slices.Clone(h.Others), func(name string) bool { return slices.Contains(r.s.Without, name) })
	mark := r.now.Format(time.RFC3339) + " " + nuid.Next()
	if err := r.s.Await(ctx, func(ctx context.Context) error {
		err := p.Begin(ctx, r.s.JS, r.first, mark, others)
		r.done.Begun = r.done.Begun || err == nil || errors.Is(err, streams.ErrUnfinished) && !errors.Is(err, streams.ErrOccupied)
		return err
	}); err != nil {
		return err
	}
	r.done.Head = h
	for {
		l, err := r.in.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = r.line(ctx, l)
		}
		if err != nil {
			return err
		}
	}
	if err := r.close(ctx); err != nil {
		return err
	}
	r.done.End = r.in.end
	for _, m := range r.s.Machines {
		if err := r.emit(ctx, m); err != nil {
			return err
		}
	}
	for _, marks := range r.marks {
		for _, c := range marks {
			if !c.taken {
				r.done.Commands++
			}
		}
	}
	if err := errors.Join(steady(ctx, r.kept), steady(ctx, r.count)); err != nil {
		return err
	}
	r.done.Above = max(r.above, r.first)
	return steady(ctx, func(ctx context.Context) error { return p.Finish(ctx, r.s.JS, r.done.Above) })
}

func (r *restorer) line(ctx context.Context, l *line) error {
	if l.Section != nil {
		if err := r.close(ctx); err != nil {
			return err
		}
		return r.section(ctx, l.Section)
	}
	m := l.Message
	if m == nil {
		return fmt.Errorf("the backup has a part of a snapshot in the section %s: somebody has changed it", r.in.at.Stream)
	}
	if r.in.at.Kind == KindCommands {
		return r.command(ctx, m)
	}
	if err := r.below(m); err != nil {
		return err
	}
	switch r.in.at.Kind {
	case KindBucket:
		return r.value(ctx, m)
	case KindAnswers:
		return r.answer(ctx, m)
	case KindEntities:
		return r.entity(ctx, m)
	case KindMessages:
		return r.message(ctx, m)
	}
	return nil // planned has seen to it that there are no others
}

// close ends a section: consumers that had processed all of it continue behind it.
func (r *restorer) close(ctx context.Context) error {
	if err := r.flush(ctx); err != nil {
		return err
	}
	for _, c := range r.consumers {
		if !c.placed {
			if err := r.place(ctx, c); err != nil {
				return err
			}
		}
	}
	r.consumers = nil
	return nil
}

// section begins one. A snapshot is read to its end at once.
func (r *restorer) section(ctx context.Context, s *Section) error {
	if err := r.planned(s); err != nil {
		return err
	}
	if s.Kind == KindSnapshot {
		return r.snapshot(ctx, s)
	}
	r.top = r.first - 1
	for _, c := range s.Consumers {
		more := &resumed{Consumer: c, stream: s.Stream}
		r.consumers = append(r.consumers, more)
		if s.Kind != KindMessages { // all values are new ones
			r.s.Log.Warn("a durable consumer of a bucket starts over at the first value", "stream", s.Stream, "consumer", c.Config.Durable)
			if err := r.place(ctx, more); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *restorer) machine(name string) *machines.Machine {
	for _, m := range r.s.Machines {
		if m.Name == name {
			return m
		}
	}
	return nil
}

// append adds one message to those that are stored together.
func (r *restorer) append(ctx context.Context, w publish.Write, stored func(uint64)) error {
	r.batch, r.stored = append(r.batch, w), append(r.stored, stored)
	return r.added(ctx, w.Msg)
}

// event adds one to those of its entity, which the filter matches.
func (r *restorer) event(ctx context.Context, filter string, m *nats.Msg) error {
	c := r.open[filter]
	if c == nil {
		c = &publish.Chain{Filter: filter, Last: r.ends[filter]}
		r.open[filter] = c
		r.chains = append(r.chains, c)
	}
	c.Msgs = append(c.Msgs, m)
	return r.added(ctx, m)
}

func (r *restorer) added(ctx context.Context, m *nats.Msg) error {
	r.messages++
	if r.size += len(m.Data); r.messages < 512 && r.size < 4<<20 {
		return nil
	}
	return r.flush(ctx)
}

func (r *restorer) flush(ctx context.Context) error {
	results, err := r.write(ctx)
	if err != nil {
		return err
	}
	for i, result := range results {
		r.top = max(r.top, result.Seq)
		if r.stored[i] != nil {
			r.stored[i](result.Seq)
		}
	}
	if err := r.link(ctx); err != nil {
		return err
	}
	for _, c := range r.chains {
		r.ends[c.Filter] = c.Last
		r.top = max(r.top, c.Last)
	}
	r.batch, r.stored, r.chains, r.messages, r.size = r.batch[:0], r.stored[:0], r.chains[:0], 0, 0
	clear(r.open)
	r.tell()
	return nil
}

// value stores one of a bucket, unless it is the mark of one that was deleted.
func (r *restorer) value(ctx context.Context, m *Message) error {
	if m.Header.Get("KV-Operation") != "" {
		return nil
	}
	return r.append(ctx, publish.Write{Stream: r.in.at.Stream, Msg: &nats.Msg{Subject: m.Subject, Header: plain(m.Header), Data: m.Data}}, nil)
}

// answer stores one to a key of a sender, unless the value of its entity is older than that.
func (r *restorer) answer(ctx context.Context, m *Message) error {
	tokens := strings.Split(m.Subject, ".") // $KV, bucket, machine, key, digest
	if len(tokens) > 4 {
		version := answers.Version(m.Data)
		known := r.known[tokens[2]+"/"+strings.Join(tokens[3:len(tokens)-1], ".")]
		if known == nil && version > 0 && r.since(m) || known != nil && version > known.version {
			return nil
		}
	}
	return r.value(ctx, m)
}

// command stores one that waits. Values say up to which sequence they have taken their commands, so the sequence is translated.
func (r *restorer) command(ctx context.Context, m *Message) error {
	a, err := r.s.Plan.Names.ParseStored(m.Subject)
	if err != nil {
		r.s.Log.Warn("a pending command is left out", "subject", m.Subject, "error", err)
		return nil
	}
	id := a.Machine + "/" + a.Key
	return r.append(ctx, publish.Write{Stream: r.in.at.Stream, Msg: &nats.Msg{Subject: m.Subject, Header: plain(m.Header), Data: m.Data}}, func(seq uint64) {
		r.marks[id] = append(r.marks[id], mark{then: m.Seq, now: seq})
	})
}

// entity stores the value of one at a version that was never given out, with the event that says so. If it comes twice, the second value is the newer one. What remains of one
// that was dropped stays that, for what is left of its life, and tells nobody: it only goes on above all versions.
func (r *restorer) entity(ctx context.Context, m *Message) error {
	dropped := m.Header.Get("KV-Operation") != ""
	left, mortal := r.left(m)
	if dropped && (len(m.Data) == 0 || mortal && left <= 0) {
		return nil
	}
	of := r.machine(r.in.at.Machine)
	bucket, key, _ := streams.BucketKey(m.Subject)
	if _, _, _, err := streams.SplitKey(key); err != nil {
		return fmt.Errorf("the backup has a value under %q: %w", key, err)
	}
	id := of.Name + "/" + key
	if r.known[id] == nil {
		r.done.Entities++
	}
	write := kv.Write(bucket, key, m.Data)
	if dropped {
		if !mortal { // all that this program writes are
			left = streams.LifeOf(string(machines.ClassState))
		}
		write = kv.Drop(bucket, key, m.Data, left)
	}
	e, err := of.DecodeAt(key, m.Data)
	if err != nil {
		r.done.Parked++
		r.known[id] = &entity{version: math.MaxUint64}
		r.s.Log.Warn("a value cannot be read; restoring it unchanged, its entity is parked", "machine", of.Name, "key", key, "error", err)
		return r.append(ctx, write, nil)
	}
	known := &entity{version: e.Version}
	r.known[id] = known
	in := machines.Input{Command: machines.CommandReconcile, Time: r.now, Actor: "restore", Reason: "restored from the backup of " + r.in.head.At.Format(time.RFC3339)}
	data := map[string]any{"problem": consumers.ProblemRestored, "version": e.Version, "backup": r.in.head.At}
	next, event, err := of.Reconciled(e, r.fresh.above(e.Version), in, data)
	if err != nil {
		return err
	}
	r.above = max(r.above, next.Version)
	next.Mark, next.LastEvent = 0, 0
	next.MarkedAt = time.Time{}
	for i := range r.marks[id] {
		if c := &r.marks[id][i]; c.then <= e.Mark {
			next.Mark = max(next.Mark, c.now)
			c.taken = true
		}
	}
	next.Commands = slices.Clone(e.Commands)
	for i := range next.Commands {
		o := &next.Commands[i]
		if o.Revision == 0 && o.State != machines.None { // it was that of the value, which gets another one
			o.Revision = m.Seq
		}
		if n := slices.IndexFunc(r.marks[id], func(c mark) bool { return c.then == o.Seq }); n >= 0 { // it comes again, and may have to be told yet
			o.Seq = r.marks[id][n].now
		}
	}
	next.Outbox = known.events(of, key, e.Outbox)
	if dropped {
		next.Data, next.UpdatedAt = nil, e.UpdatedAt
	} else {
		next.Outbox = append(next.Outbox, event)
	}
	if write.Msg.Data, err = next.AppendJSON(nil); err != nil {
		return fmt.Errorf("cannot write %s: %w", id, err)
	}
	return r.append(ctx, write, nil)
}
