package core

// A stream: its configuration, its log, the ids that it remembers and its consumers. Whatever takes messages out goes through gone, which tells the
// consumers; limits are kept after each store.

import (
	"math"
	"slices"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/bcc94042/instar/internal/simulation/model/consumer"
	"github.com/bcc94042/instar/internal/simulation/model/store"
)

// Stream is a stream.
type Stream struct {
	c       *Core
	cfg     server.StreamConfig
	created time.Time
	log     *store.Log
	lastID  string // of the last message
	ack     []byte // how an answer to a publish begins

	ids   map[string]seen
	order []*consumer.Consumer // as they were created

	consumers map[string]*consumer.Consumer
	transform *store.Transform
	republish *store.Transform

	schedules map[string]*schedule // by subject
	armed     int64                // when schedules are looked at next; 0 is not at all
	lives     []life               // of messages that expire, a heap by time
	batches   map[string]*batch
	fast      map[string]*fastBatch

	synced  uint64         // the last message that is on disk for certain
	syncAt  int64          // when everything will be; 0 where it is
	removed []*store.Entry // since the last sync
	taken   uint64         // how many ever came into it
	group   group          // of replicas
}

// seen is where a message id was stored, and when.
type seen struct {
	seq uint64
	ts  int64
}

// life is when a message expires.
type life struct {
	at  int64
	seq uint64
}

const never = int64(math.MaxInt64)

func (s *Stream) size(subject string, header, data []byte) uint64 {
	n := uint64(len(subject) + len(header) + len(data))
	switch {
	case s.cfg.Storage == server.MemoryStorage:
		return n + 16
	case len(header) > 0:
		return n + 34
	}
	return n + 30
}

// state is what the stream says of itself.
func (s *Stream) state(details bool) server.StreamState {
	l := s.log
	st := server.StreamState{
		Msgs: l.N, Bytes: l.Bytes, FirstSeq: l.First, LastSeq: l.Last, NumSubjects: len(l.Subjects), Consumers: len(s.order),
		FirstTime: When(l.FirstTS), LastTime: When(l.LastTS),
	}
	if l.Last >= l.First && l.First > 0 {
		st.NumDeleted = int(l.Last - l.First + 1 - l.N)
	}
	if details && st.NumDeleted > 0 {
		for seq := l.First; seq <= l.Last; seq++ {
			if l.At(seq) == nil {
				st.Deleted = append(st.Deleted, seq)
			}
		}
	}
	return st
}

// When is a time in nanoseconds as time; 0 is the zero one.
func When(ts int64) time.Time {
	if ts == 0 {
		return time.Time{}
	}
	return time.Unix(0, ts).UTC()
}

// known is where an id was stored within the window.
func (s *Stream) known(id string) (seen, bool) {
	k, ok := s.ids[id]
	if ok && s.c.wall()-k.ts >= int64(s.cfg.Duplicates) {
		delete(s.ids, id)
		return seen{}, false
	}
	return k, ok
}

func (s *Stream) remember(id string, seq uint64, ts int64) {
	if id == "" || s.cfg.Duplicates <= 0 {
		return
	}
	if len(s.ids) > 1<<12 && len(s.ids)&(len(s.ids)-1) == 0 { // forget those past the window now and then
		for k, v := range s.ids {
			if ts-v.ts >= int64(s.cfg.Duplicates) {
				delete(s.ids, k)
			}
		}
	}
	s.ids[id] = seen{seq, ts}
}

// store appends a message and keeps to the limits. The message is within them already where the stream discards new ones.
func (s *Stream) store(subject string, header, data []byte, ttl int64) *store.Entry {
	e := &store.Entry{TS: s.stamp(), Subject: subject, Header: header, Data: data, Size: s.size(subject, header, data)}
	s.log.Append(e)
	if per := s.cfg.MaxMsgsPer; per > 0 {
		for x := s.log.Subjects[subject]; x != nil && int64(len(x.Seqs)) > per; x = s.log.Subjects[subject] {
			s.Drop(x.Seqs[0])
		}
	}
	for s.cfg.Discard == server.DiscardOld && s.over() {
		s.Drop(s.log.First)
	}
	if ttl > 0 {
		e.Expires = e.TS + ttl*int64(time.Second)
		s.lives = pushLife(s.lives, life{e.Expires, e.Seq})
	}
	s.schedule(e)
	s.written()
	return e
}

// stamp is the time of the next message. Where the clock was set back, it is before that of the last one.
func (s *Stream) stamp() int64 { return s.c.wall() }

// over reports whether the stream has more than it may.
func (s *Stream) over() bool {
	l := s.log
	return l.N > 0 && (s.cfg.MaxMsgs > 0 && l.N > uint64(s.cfg.MaxMsgs) || s.cfg.MaxBytes > 0 && l.Bytes > uint64(s.cfg.MaxBytes))
}

// refuses is why a stream that discards new messages does not take one, or nil.
func (s *Stream) refuses(subject string, header, data []byte) error {
	if s.cfg.Discard != server.DiscardNew {
		return nil
	}
	l := s.log
	x := l.Subjects[subject]
	at := s.cfg.MaxMsgsPer > 0 && x != nil && int64(len(x.Seqs)) >= s.cfg.MaxMsgsPer
	if at && s.cfg.DiscardNewPer && store.Value(header, store.HeaderRollup) == "" {
		return server.ErrMaxMsgsPerSubject
	}
	if s.cfg.MaxMsgs > 0 && l.N >= uint64(s.cfg.MaxMsgs) && !at {
		return server.ErrMaxMsgs
	}
	size := s.size(subject, header, data)
	if s.cfg.MaxBytes > 0 && l.Bytes+size > uint64(s.cfg.MaxBytes) && (!at || l.At(x.Seqs[0]).Size < size) {
		return server.ErrMaxBytes
	}
	return nil
}

// Drop takes one message out and tells the consumers.
func (s *Stream) Drop(seq uint64) bool {
	e := s.log.Remove(seq)
	if e == nil {
		return false
	}
	s.unschedule(e)
	s.tookOut(e)
	for _, o := range slices.Clone(s.order) {
		o.Removed(e)
	}
	return true
}

// Purge takes messages out: all under a filter (empty is all), before a sequence (0 is any), but the last so many. It returns how many.
func (s *Stream) Purge(filter string, before, keep uint64) uint64 {
	l := s.log
	var gone []*store.Entry
	single := "" // a purge of one message is the removal of a message; of this subject
	all := filter == "" || filter == ">"
	switch {
	case before == 1:
	case all && before > 1:
		gone = s.compact(before)
	case all && keep == 0:
		gone = s.compact(l.Last + 1)
		l.FirstTS = 0
	default:
		under := filter
		if all {
			under = ">"
		}
		first, last, n := l.Bounds(under)
		most := n - min(keep, n)
		if before > 0 {
			last, most = before-1, n
		}
		for seq := max(first, l.First); seq <= min(last, l.Last) && uint64(len(gone)) < most; seq++ {
			if e := l.At(seq); e != nil && store.Match(under, e.Subject) {
				l.Remove(seq)
				gone = append(gone, e)
			}
		}
		if len(gone) == 1 {
			single = gone[0].Subject
			if s.cfg.Storage == server.FileStorage { // whose store tells of the filter instead
				single = under
			}
		}
	}
	s.purged(filter, gone, single)
	return uint64(len(gone))
}

// tookOut notes that a message is gone, which is not on disk yet.
func (s *Stream) tookOut(e *store.Entry) {
	if s.c.o.SyncEvery > 0 || s.told() {
		s.taken++
		s.removed = append(s.removed, e)
	}
	s.written()
}

// compact takes everything before a sequence out.
func (s *Stream) compact(before uint64) (gone []*store.Entry) {
	l := s.log
	if l.First > before {
		return nil
	}
	for seq := max(l.First, l.First); seq <= l.Last && seq < before; seq++ {
		if e := l.Remove(seq); e != nil {
			gone = append(gone, e)
		}
	}
	if before > l.Last {
		l.Skip(before)
	}
	return gone
}

// purged tells the consumers what a purge has taken out.
func (s *Stream) purged(filter string, gone []*store.Entry, single string) {
	l := s.log
	for _, e := range gone {
		s.unschedule(e)
		s.tookOut(e)
	}
	if single != "" {
		e := *gone[0]
		e.Subject = single
		for _, o := range slices.Clone(s.order) {
			o.Removed(&e)
		}
	} else if len(gone) > 0 {
		for _, o := range s.order {
			o.Recount()
			o.ForgetRedelivered(l.First)
		}
	}
	first := l.First
	if filter != "" {
		first, _, _ = l.Bounds(filter)
		if filter == ">" {
			first = l.First
		}
	}
	for _, o := range slices.Clone(s.order) {
		start, wider := first, false
		does := filter == "" || o.Under(filter)
		switch {
		case !does && store.MatchAny(o.Filters(), filter):
			does, wider, start = true, true, l.First
		case does && filter != "" && !o.Within(filter):
			wider, start = true, l.First
		}
		if does {
			o.Purge(start, l.Last, wider)
		}
	}
}

// nextTimer is when the stream has something to do by itself.
func (s *Stream) nextTimer() int64 {
	next := never
	if len(s.lives) > 0 {
		next = s.lives[0].at + int64(s.c.behind)
	}
	if s.cfg.MaxAge > 0 && s.log.N > 0 {
		next = min(next, s.log.At(s.log.First).TS+int64(s.cfg.MaxAge+s.c.behind))
	}
	if s.armed > 0 && !s.Silent() { // without a leader nobody looks at the schedules; the next one does
		next = min(next, s.armed)
	}
	if s.syncAt > 0 {
		next = min(next, s.syncAt)
	}
	for _, b := range s.batches {
		next = min(next, b.until)
	}
	for _, b := range s.fast {
		next = min(next, b.until)
	}
	return next
}

// fire does what is due.
func (s *Stream) fire() {
	now := s.c.nanos()
	for len(s.lives) > 0 && s.lives[0].at <= s.c.wall() {
		l := s.lives[0]
		s.lives = popLife(s.lives)
		if e := s.log.At(l.seq); e != nil && e.Expires == l.at {
			s.Drop(l.seq)
		}
	}
	for s.cfg.MaxAge > 0 && s.log.N > 0 && s.log.At(s.log.First).TS+int64(s.cfg.MaxAge) <= s.c.wall() {
		s.Drop(s.log.First)
	}
	if s.syncAt > 0 && s.syncAt <= now {
		s.sync()
	}
	s.abandon(now)
	s.fireSchedules()
}

// Log has the messages.
func (s *Stream) Log() *store.Log { return s.log }

// Config is the configuration.
func (s *Stream) Config() *server.StreamConfig { return &s.cfg }

// Consumers are those of the stream, as they were made.
func (s *Stream) Consumers() []*consumer.Consumer { return s.order }

// Consumer is one by its name, or nil.
func (s *Stream) Consumer(name string) *consumer.Consumer { return s.consumers[name] }
