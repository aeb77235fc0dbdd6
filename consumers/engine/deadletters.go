package engine

import (
	"context"
	"fmt"

	"github.com/bcc94042/instar/consumers"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/publish"
)

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
	return publish.Write{Stream: p.e.Names.Stream(streams.DeadStream), Msg: p.e.DeadLetters().Message(publish.DeadLetter{
		Consumer: p.name, Machine: it.addr.Machine, Key: it.addr.Key, Subject: it.msg.Subject(), Reason: consumers.Clip(it.deadLetter, consumers.MaxReason), Tries: int(it.delivered), Header: it.msg.Headers(), Body: it.msg.Data(),
		Untaken: it.parked() && it.keyed(),
	}, it.deadLetterID(p.name))}
}
