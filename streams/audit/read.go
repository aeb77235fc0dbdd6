package audit

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/streams"
)

// Part is the part of a chain that is to be read: up to Limit records behind the one with the sequence After, and of these those of Tenant (empty is all of them).
type Part struct {
	Class  string
	After  uint64
	Since  time.Time // where After is 0, what has happened before need not be read
	Tenant string
	Limit  int
}

// Line is a record as it was written. What cannot be parsed has the time of its message.
type Line struct {
	Class  string
	Record Record
	Text   []byte // JSON; a string with what was written where that is none
	At     uint64 // sequence of its message
}

// clocks is how much the clocks of those who write may differ.
const clocks = time.Hour

// Read reads a part of the chain of a class, says where the chain ends, and whether there is more behind what was read. It fails where not all that there is came before ctx ended.
func Read(ctx context.Context, js jetstream.JetStream, names streams.Names, p Part) (all []Line, end ChainEnd, more bool, err error) {
	s, err := js.Stream(ctx, names.AuditStream(p.Class))
	if err != nil {
		return nil, end, false, err
	}
	state := s.CachedInfo().State
	end = ChainEnd{Sequence: state.LastSeq, At: state.LastTime.UTC(), Life: LifeOf(s.CachedInfo().Config)}
	subject := names.Audits(p.Class)
	if p.Tenant != "" {
		subject = names.Audit(p.Class, "*", "*."+p.Tenant+".*")
	}
	cfg := jetstream.ConsumerConfig{
		FilterSubjects: []string{subject}, DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: p.After + 1,
		AckPolicy: jetstream.AckNonePolicy, MaxDeliver: 1, MemoryStorage: true, Replicas: 1, InactiveThreshold: 10 * time.Second,
	}
	if p.After == 0 && !p.Since.IsZero() {
		begin := p.Since.Add(-clocks) // nothing is recorded before it has happened
		cfg.DeliverPolicy, cfg.OptStartSeq, cfg.OptStartTime = jetstream.DeliverByStartTimePolicy, 0, &begin
	}
	cons, err := s.CreateConsumer(ctx, cfg)
	if err != nil {
		return nil, end, false, err
	}
	info := cons.CachedInfo()
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		_ = s.DeleteConsumer(ctx, info.Name) // or the server does
	}()
	want := int(min(uint64(p.Limit), info.NumPending))
	if want == 0 {
		return nil, end, false, nil
	}
	_, err = streams.Fetch(ctx, cons, want, func(msg jetstream.Msg) error {
		l, err := line(p.Class, msg)
		all = append(all, l)
		return err
	})
	if err == nil && len(all) < want {
		err = context.DeadlineExceeded
	}
	return all, end, info.NumPending > uint64(want), err
}

func line(class string, msg jetstream.Msg) (Line, error) {
	meta, err := msg.Metadata()
	if err != nil {
		return Line{}, err
	}
	r, err := Parse(msg.Data())
	if err != nil && !errors.Is(err, ErrChanged) { // whoever reads is to see what was changed
		r.RecordedAt, r.Timestamp = meta.Timestamp, meta.Timestamp
	}
	text := msg.Data()
	if !json.Valid(text) {
		text, _ = json.Marshal(string(text)) // a string always marshals
	}
	return Line{class, r, text, meta.Sequence.Stream}, nil
}
