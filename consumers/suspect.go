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
//
// An effect whose provider ends the process is bounded by the same notes: see suspect_task.go.
const (
	suspectAfter = 3 // processes that died with the same command first
	suspectDead  = suspectAfter + maxFailures
)

// suspect is what the last process of a consumer found waiting, kept in the bucket of owners.
type suspect struct {
	Seq    uint64    `json:"seq"`            // of the first message that was waiting
	Time   time.Time `json:"time"`           // when the stream took it
	UpTo   uint64    `json:"upTo,omitempty"` // the last that was taken together with it
	Starts int       `json:"starts"`         // processes that began with it and did not come through
	By     string    `json:"by"`             // the process
}

// note is where a consumer writes down what it begins with.
type note struct {
	d       *Deps
	name    string
	process string        // tells this process from those before it
	life    time.Duration // 0 is for ever
}

// before is what the processes before wrote down of a message; none of them began with one that it did not count.
func (n note) before(ctx context.Context, seq uint64, at time.Time) (suspect, error) {
	bucket := n.d.Names.Bucket(streams.OwnersBucket)
	stored, err := lastMessage(ctx, n.d.JS, "KV_"+bucket, "$KV."+bucket+"."+suspectKey+n.name)
	if err != nil {
		return suspect{}, fmt.Errorf("cannot look up what %s began with: %w", n.name, err)
	}
	var s suspect
	if stored != nil && json.Unmarshal(stored.Data, &s) == nil && s.Seq == seq && s.Time.Equal(at) {
		return s, nil
	}
	return suspect{Seq: seq, Time: at}, nil
}

// begins writes down what this process begins with, and counts the process.
func (n note) begins(ctx context.Context, s *suspect) error {
	if s.By != n.process {
		s.Starts, s.By = s.Starts+1, n.process
	}
	data, err := json.Marshal(s)
	if err == nil {
		err = n.write(ctx, data, n.life)
	}
	if err != nil {
		return fmt.Errorf("cannot write down what %s begins with: %w", n.name, err)
	}
	return nil
}

// survived takes the note back: this process lives, whatever became of what it began. What failed for a reason that lies in the
// environment comes again and counts for nothing.
func (n note) survived(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readWithin)
	defer cancel()
	if err := n.write(ctx, nil, time.Minute); err != nil {
		return fmt.Errorf("cannot take back what %s began with: %w", n.name, err)
	}
	return nil
}

func (n note) write(ctx context.Context, data []byte, life time.Duration) error {
	bucket := n.d.Names.Bucket(streams.OwnersBucket)
	m := &nats.Msg{Subject: "$KV." + bucket + "." + suspectKey + n.name, Data: data, Header: nats.Header{}}
	if life > 0 {
		streams.Keep(m, life)
	}
	return n.d.Appender.Append(ctx, []streams.Write{{Stream: "KV_" + bucket, Msg: m}})[0].Err
}

func (p *partition) note() note { return note{d: &p.e.Deps, name: p.name, process: p.e.process} }

// examine is called with the first batch of a process. It reports up to which command each is to be taken alone.
func (p *partition) examine(ctx context.Context, batch []delivery) (alone uint64, err error) {
	first := batch[0]
	if first.seq > p.found.lastSeq { // it was not there when the process before died
		return 0, nil
	}
	now, err := p.note().before(ctx, first.seq, first.time)
	if err != nil {
		return 0, err
	}
	now.UpTo = max(now.UpTo, batch[len(batch)-1].seq)
	if err := p.note().begins(ctx, &now); err != nil {
		return 0, err
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

// cleared takes the note back, if there is one.
func (p *partition) cleared(ctx context.Context) error {
	if !p.noted {
		return nil
	}
	p.noted = false
	return p.note().survived(ctx)
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
