package consumer

// A consumer: which messages it has delivered and which of them are not acked. It has its state twice, as the server has: what its leader works with,
// and what is saved (saved.go), which consumer info shows and a restart begins with. Delivery is in deliver.go, acks are in ack.go.

import (
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/bcc94042/instar/internal/simulation/model/store"
)

// Consumer is one consumer of a stream.
type Consumer struct {
	s       Stream
	e       Env
	cfg     server.ConsumerConfig
	name    string
	created time.Time
	filters []string
	hears   []string // what it is told of; see matches
	prefix  string   // of the subjects of acks

	next, dnext     uint64 // sequences of the next delivery: in the stream, and its own
	floor, dfloor   uint64 // acks: everything up to here
	pending         map[uint64]*pending
	tries           map[uint64]uint64 // redeliveries, by sequence
	again           []uint64          // to be delivered again
	left            int64             // messages that are still to be delivered for the first time
	counted         uint64            // the last message that left knows of from counting
	last            []uint64          // for last per subject: those that come first
	resume          uint64            // after them
	lastAt, ackedAt time.Time
	saved           saved // by the leader
	agreed          saved // by its replicas

	waiting []*pull
	seen    time.Time // the last pull
	active  bool      // push: somebody listens

	resumes  int64 // when a pause ends; 0 without one
	check    int64 // when pending is looked at; 0 not at all
	idle     int64 // when it goes if nobody uses it; 0 never
	patience time.Duration
	beat     int64 // push: the next heartbeat

	flow     flowState
	gone     bool
	signaled bool // there may be something to deliver again
}

// pending is a delivery that is not acked.
type pending struct {
	dseq uint64
	ts   int64 // when its wait begins
}

// Stored tells of new messages.
func (o *Consumer) Stored(all ...*store.Entry) {
	some := false
	for _, e := range all {
		n := o.matches(e.Subject)
		if e.Seq > o.counted {
			o.left += n
		}
		some = some || n > 0 && e.Seq >= o.next
	}
	if some {
		o.Run()
	}
}

// Removed tells of a message that is gone from the stream.
func (o *Consumer) Removed(e *store.Entry) {
	n := o.matches(e.Subject)
	if n == 0 {
		return
	}
	if e.Seq >= o.next && store.MatchAny(o.filters, e.Subject) {
		o.left -= n
	}
	if p := o.pending[e.Seq]; p != nil {
		seq, dseq, tries := e.Seq, p.dseq, o.deliveries(e.Seq)
		o.e.Later(func() {
			o.terminate(seq, dseq, tries, reasonRemoved, "")
			o.RunSignaled()
		})
	} else if _, ok := o.tries[e.Seq]; ok {
		delete(o.tries, e.Seq)
		o.saveAck(0, e.Seq)
	}
}

// matches is how often a consumer is told of a message: once for each filter that it lies under. A consumer that an update has left without filters is
// told of none: it learns of new messages when it is asked for them.
func (o *Consumer) matches(subject string) (n int64) {
	for _, f := range o.hears {
		if store.Match(f, subject) {
			n++
		}
	}
	return n
}

// Recount counts what is left anew.
func (o *Consumer) Recount() {
	o.left = int64(o.s.Log().Count(o.filters, o.next, o.cfg.DeliverPolicy == server.DeliverLastPerSubject))
	o.counted = o.s.Log().Last
}

func (o *Consumer) numLeft() uint64 { return uint64(max(o.left, 0)) }

func (o *Consumer) pull() bool { return o.cfg.DeliverSubject == "" }

// Under reports whether a subject, which may have wildcards, is a filter of the consumer or wider than one.
func (o *Consumer) Under(subject string) bool {
	return slices.ContainsFunc(o.filters, func(f string) bool { return f == subject || store.Match(subject, f) })
}

// Within reports whether all filters lie under a subject.
func (o *Consumer) Within(subject string) bool {
	return len(o.filters) > 0 && !slices.ContainsFunc(o.filters, func(f string) bool { return !store.Match(subject, f) })
}

func (o *Consumer) ForgetRedelivered(below uint64) {
	if below == 0 {
		return
	}
	for seq := range o.tries {
		if seq < below {
			delete(o.tries, seq)
			o.unqueue(seq)
		}
	}
	for _, v := range o.stores() {
		maps.DeleteFunc(v.tries, func(seq, _ uint64) bool { return seq < below })
	}
}

// Purge moves the consumer past what a purge has taken out.
func (o *Consumer) Purge(start, last uint64, wider bool) {
	if start == 0 && !wider {
		start = last + 1
	}
	o.next = max(o.next, start)
	if o.floor < start {
		o.floor = start - 1
		for _, seq := range slices.Sorted(maps.Keys(o.pending)) {
			if seq <= o.floor || wider && o.s.Log().At(seq) == nil {
				p := o.pending[seq]
				o.dfloor = max(o.dfloor, p.dseq)
				o.dnext = max(o.dnext, o.dfloor)
				delete(o.pending, seq)
				delete(o.tries, seq)
				if o.s.Replicated() { // replicas are told, and agree after the leader has saved what it has
					defer o.saveAck(p.dseq, seq)
				} else {
					o.saveAck(p.dseq, seq)
				}
			}
		}
	}
	if len(o.pending) == 0 {
		clear(o.tries)
		o.dfloor, o.floor = o.dnext-1, o.next-1
	}
	o.again = slices.DeleteFunc(o.again, func(seq uint64) bool { return seq < o.next })
	o.saved.update(o)
}

// start sets where the consumer begins.
func (o *Consumer) start() {
	l := o.s.Log()
	switch o.cfg.DeliverPolicy {
	case server.DeliverAll:
		o.next = l.First
	case server.DeliverLast:
		o.next = l.Last
		for i, f := range o.filters {
			if i == 0 {
				o.next = 0
			}
			_, last, _ := l.Bounds(f)
			o.next = max(o.next, last)
		}
	case server.DeliverLastPerSubject:
		o.startLast()
	case server.DeliverNew:
		o.next = l.Last + 1
	case server.DeliverByStartSequence:
		o.next = o.cfg.OptStartSeq
	case server.DeliverByStartTime:
		o.startTime()
	}
	switch {
	case l.First == 0 && o.cfg.OptStartSeq == 0:
		o.next = 1
	case o.next > l.Last && o.cfg.OptStartSeq == 0:
		o.next = l.Last + 1
	case o.next < l.First:
		o.next = l.First
	}
	o.dnext, o.dfloor, o.floor = 1, 0, o.next-1
	o.saved = saved{delivered: pair{0, o.next - 1}, floor: pair{0, o.next - 1}}
	if o.s.Replicated() { // replicas are told what a new consumer skips, and not that it is as good as acked
		o.saved.floor = pair{}
	}
	o.agreed = o.saved
}

func (o *Consumer) startLast() {
	l := o.s.Log()
	if o.s.Config().MaxMsgsPer == 1 {
		o.next = l.First
		return
	}
	for _, f := range o.filters {
		l.Each(f, func(x *store.Index) { o.last = append(o.last, x.Seqs[len(x.Seqs)-1]) })
	}
	slices.Sort(o.last)
	o.resume, o.next = l.Last, l.Last
	if len(o.last) > 0 {
		o.next = o.last[0]
	}
	if o.next >= o.resume {
		o.last = nil // nothing is skipped
	}
}

// startTime is the first message of a time, or a later one that is the first under a filter.
func (o *Consumer) startTime() {
	l := o.s.Log()
	o.next = l.Since(o.cfg.OptStartTime.UnixNano())
	if len(o.filters) == 0 {
		return
	}
	nearest := l.Last
	for _, f := range o.filters {
		if first, _, _ := l.Bounds(f); first >= o.next && first < nearest {
			nearest = first
		}
	}
	if nearest > o.next && nearest < l.Last {
		o.next = nearest
	}
}

// Reset begins anew at a sequence; 0 is after the ack floor. It is the sequence that is next.
func (o *Consumer) Reset(seq uint64) uint64 {
	if seq == 0 {
		seq = o.floor + 1
	}
	seq = max(seq, 1)
	recount := o.next != seq || len(o.pending) > 0
	if recount && seq == o.floor+1 && (o.cfg.AckPolicy == server.AckAll || o.cfg.AckPolicy == server.AckFlowControl) {
		o.left += int64(len(o.pending))
		recount = false
	}
	clear(o.pending)
	clear(o.tries)
	o.again = nil
	o.next, o.dnext, o.floor, o.dfloor = seq, 1, seq-1, 0
	o.lastAt, o.ackedAt = time.Time{}, time.Time{}
	o.saved = saved{delivered: pair{0, seq - 1}, floor: pair{0, seq - 1}}
	o.agreed = o.saved
	if recount {
		o.Recount()
	}
	return seq
}

// Info is what the consumer says of itself.
func (o *Consumer) Info() *server.ConsumerInfo {
	l := o.s.Log()
	if o.next > l.Last {
		o.left = 0
	} else if o.left > 0 {
		o.left = int64(min(uint64(o.left), l.N, l.Last-o.next+1))
	}
	cfg := o.cfg
	cfg.Metadata = maps.Clone(cfg.Metadata)
	if cfg.Metadata == nil {
		cfg.Metadata = map[string]string{}
	}
	store.Dynamic(cfg.Metadata)
	i := &server.ConsumerInfo{
		Stream: o.s.Config().Name, Name: o.name, Created: o.created, Config: &cfg, TimeStamp: o.e.Now().UTC(),
		Delivered:     server.SequenceInfo{Consumer: o.saved.delivered.consumer, Stream: o.saved.delivered.stream},
		AckFloor:      server.SequenceInfo{Consumer: o.saved.floor.consumer, Stream: o.saved.floor.stream},
		NumAckPending: len(o.pending), NumRedelivered: len(o.tries), NumPending: o.numLeft(), PushBound: !o.pull() && o.active,
	}
	if o.inMemory() && o.saved.delivered == (pair{}) { // a store in memory does not say where it begins
		i.Delivered = server.SequenceInfo{Consumer: o.dnext - 1, Stream: o.next - 1}
	}
	if o.cfg.MaxDeliver == 1 {
		i.NumRedelivered = 0
	}
	if p := o.cfg.PauseUntil; p != nil {
		if i.Paused = o.e.Now().Before(*p); i.Paused {
			i.PauseRemaining = p.Sub(o.e.Now())
		}
	}
	if !o.lastAt.IsZero() {
		at := o.lastAt.UTC()
		i.Delivered.Last = &at
	}
	if !o.ackedAt.IsZero() {
		at := o.ackedAt.UTC()
		i.AckFloor.Last = &at
	}
	if o.pull() {
		o.serveWaiting(false)
		i.NumWaiting = len(o.waiting)
	}
	i.Cluster = o.s.Cluster()
	return i
}

func (o *Consumer) inMemory() bool {
	return o.cfg.MemoryStorage || o.s.Config().Storage == server.MemoryStorage
}

// Interested follows whether somebody listens on the subject of a push consumer.
func (o *Consumer) Interested() {
	is := o.e.Listening(o.cfg.DeliverSubject) // a subscription with wildcards gets messages, but does not start them
	was := o.active
	o.active = is
	switch {
	case is:
		o.idle = 0
	case o.patience > 0 && o.idle == 0:
		o.idle = o.now() + int64(o.patience)
	}
	if is && !was {
		o.Run()
	}
}
