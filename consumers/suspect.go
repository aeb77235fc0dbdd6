package consumers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/bcc94042/instar/streams"
)

// A command that ends the process each time, by a fatal error or by taking all memory, would be taken again for ever: no
// count of deliveries survives. So a process that finds commands waiting writes down, before it begins, which one is the
// first, and takes that back when it has come through. One at which several processes in a row have died is suspected: the commands that were waiting with it are
// taken one at a time, so that the one that kills is the first soon, and when that has begun often enough it is given up.
const (
	suspectAfter = 3 // processes that died with the same command first
	suspectDead  = suspectAfter + maxFailures
)

// suspect is what a partition's last process found waiting, kept in the bucket of owners.
type suspect struct {
	Seq    uint64    `json:"seq"`  // of the first command that was waiting
	Time   time.Time `json:"time"` // when the stream took it
	UpTo   uint64    `json:"upTo"` // the last that was taken together with it
	Starts int       `json:"starts"`
	By     string    `json:"by"` // the process
}

// examine is called with the first batch of a process. It reports up to which command each is to be taken alone.
func (p *partition) examine(ctx context.Context, batch []delivery) (alone uint64, err error) {
	first := batch[0]
	if first.time.After(p.found.opened) { // it was not there when the process before died
		return 0, nil
	}
	bucket := p.e.Names.Bucket(streams.OwnersBucket)
	subject := "$KV." + bucket + "." + suspectKey + p.name
	stored, err := lastMessage(ctx, p.e.JS, "KV_"+bucket, subject)
	if err != nil {
		return 0, fmt.Errorf("cannot look up what partition %d began with: %w", p.n, err)
	}
	now := suspect{Seq: first.seq, Time: first.time, UpTo: batch[len(batch)-1].seq, Starts: 1, By: p.e.process}
	var before suspect
	if stored != nil && json.Unmarshal(stored.Data, &before) == nil && before.Seq == now.Seq && before.Time.Equal(now.Time) {
		now.UpTo, now.Starts = max(now.UpTo, before.UpTo), before.Starts
		if before.By != now.By {
			now.Starts++
		}
	}
	data, err := json.Marshal(now)
	if err != nil {
		return 0, err
	}
	m := &nats.Msg{Subject: subject, Data: data}
	if r := p.e.Appender.Append(ctx, []streams.Write{{Stream: "KV_" + bucket, Msg: m}})[0]; r.Err != nil {
		return 0, fmt.Errorf("cannot write down what partition %d begins with: %w", p.n, r.Err)
	}
	p.noted = true
	if now.Starts <= suspectAfter {
		return 0, nil
	}
	p.e.Log.Warn("several processes have ended with the same command waiting; what waits with it is taken one at a time", "partition", p.n, "seq", first.seq, "processes", now.Starts)
	if now.Starts > suspectDead {
		p.failures[first.seq] = maxFailures
	}
	return now.UpTo, nil
}

// cleared takes the note back: this process lives, whatever became of the commands. What failed for a reason that lies in the
// environment comes again and counts for nothing.
func (p *partition) cleared(ctx context.Context) error {
	if !p.noted {
		return nil
	}
	p.noted = false
	bucket := p.e.Names.Bucket(streams.OwnersBucket)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readWithin)
	defer cancel()
	m := &nats.Msg{Subject: "$KV." + bucket + "." + suspectKey + p.name}
	if r := p.e.Appender.Append(ctx, []streams.Write{{Stream: "KV_" + bucket, Msg: m}})[0]; r.Err != nil {
		return fmt.Errorf("cannot take back what partition %d began with: %w", p.n, r.Err)
	}
	return nil
}

// inTurn processes a batch: all of it, or up to the command alone one at a time, each to its end.
func (p *partition) inTurn(ctx context.Context, batch []delivery) (err error) {
	if !p.examined {
		alone, err := p.examine(ctx, batch)
		if err != nil {
			return err
		}
		p.examined, p.alone = true, alone
		if alone > 0 && p.broom != nil { // what is done must not come again
			p.broom.refused = true
		}
		defer func() { err = errors.Join(err, p.cleared(ctx)) }()
	}
	for len(batch) > 0 && batch[0].seq <= p.alone {
		if err := p.process(ctx, batch[:1]); err != nil {
			return err
		}
		if err := p.settled(); err != nil {
			return err
		}
		batch = batch[1:]
	}
	if len(batch) == 0 {
		return nil
	}
	return p.process(ctx, batch)
}
