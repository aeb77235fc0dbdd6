package engine

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/bcc94042/instar/consumers"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/publish"
)

// toDeadLetters makes a dead letter of what a stream will never take, so that its entity does not wait for it for ever: the deadline of its state ends that.
func (p *partition) toDeadLetters(ctx context.Context, m *nats.Msg, why error) error {
	addr, _ := p.e.Names.ParseEffect(m.Subject) // a timer stays "unknown"
	dead := p.e.DeadLetters().Message(publish.DeadLetter{
		Consumer: p.name, Machine: addr.Machine, Key: addr.Key, Subject: m.Subject, Reason: consumers.Clip(why.Error(), consumers.MaxReason), Tries: 1, Header: m.Header, Body: m.Data,
	}, "dead/"+p.name+"/"+streams.Header(m.Header, streams.HeaderID)+m.Subject)
	if r := p.e.Appender.Append(ctx, []publish.Write{{Stream: p.e.Names.Stream(streams.DeadStream), Msg: dead}})[0]; r.Err != nil {
		return fmt.Errorf("cannot keep what %s refuses as a dead letter: %w", m.Subject, r.Err)
	}
	p.e.Log.Error("a message was rejected permanently; moving it to the dead letters", "subject", m.Subject, "error", why)
	p.e.Meter.DeadLetter(p.name)
	return nil
}

func (it *item) deadLetterID(consumer string) string {
	return fmt.Sprintf("dead/%s/%d/%d", consumer, it.seq, it.time.UnixNano())
}

// hasDeadLetter reports whether a command that was given up before has its dead letter already.
func (p *partition) hasDeadLetter(ctx context.Context, it *item) (bool, error) {
	if !it.again {
		return false, nil
	}
	stored, err := streams.Last(ctx, p.e.NC, p.e.Names.Stream(streams.DeadStream), p.e.Names.Dead(p.name, it.addr.Machine, it.addr.Key))
	if err != nil || stored == nil {
		return false, err
	}
	return streams.Header(stored.Headers(), streams.HeaderID) == it.deadLetterID(p.name), nil
}

func (p *partition) deadLetterOf(it *item) publish.Write {
	m := p.e.DeadLetters().Message(publish.DeadLetter{
		Consumer: p.name, Machine: it.addr.Machine, Key: it.addr.Key, Subject: it.msg.Subject(), Reason: consumers.Clip(it.deadLetter, consumers.MaxReason), Tries: int(it.delivered), Header: it.msg.Headers(), Body: it.msg.Data(),
		Untaken: it.parked() && it.keyed(),
	}, it.deadLetterID(p.name))
	return publish.Write{Stream: p.e.Names.Stream(streams.DeadStream), Msg: m}
}
