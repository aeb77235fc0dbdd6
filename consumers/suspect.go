package consumers

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/streams"
)

// A command that ends the process each time, by a fatal error or by taking all memory, would be taken again for ever: no
// count of deliveries survives. So a process that finds commands waiting writes down, before each batch of them, with which command it
// began and how far it has come, and takes that back when all of them have ended. What is done and still in the stream comes again at the
// next start, so the one that kills need not be in the first batch. When several processes in a row have died in the midst of what one of
// them had begun, that is taken one at a time, and each command is gone from the stream before the next one is begun: the one that kills is the
// first soon, and when that has begun often enough it is given up.
//
// An effect whose provider ends the process is bounded by the same notes: see suspect_task.go.
const (
	suspectAfter = 3 // processes that died with what was begun
	suspectDead  = suspectAfter + maxFailures
)

// turn is taken by whoever of this process begins what several processes have died with, be it a command or a task: one is begun at a time, so
// that nothing is counted that others have ended the process beside.
var turn = make(chan struct{}, 1)

// suspect is what the last process of a consumer found waiting, kept in the bucket of owners.
type suspect struct {
	Seq    uint64    `json:"seq"`            // of the first message that was waiting
	Time   time.Time `json:"time"`           // when the stream took it
	UpTo   uint64    `json:"upTo,omitempty"` // the last that was begun
	Starts int       `json:"starts"`         // processes that began with it and did not come through, and those before that died up to it
	By     string    `json:"by"`             // the process
}

// note is where a consumer writes down what it begins with.
type note struct {
	d       *Deps
	name    string
	process string        // tells this process from those before it
	life    time.Duration // 0 is for ever
}

// before is what the processes before wrote down of a message. Those that died behind one that has ended since may have died of
// this one: they count, but not towards its end.
func (n note) before(ctx context.Context, seq uint64, at time.Time) (suspect, error) {
	bucket := n.d.Names.Bucket(streams.OwnersBucket)
	stored, err := streams.Last(ctx, n.d.NC, kv.StreamOf(bucket), kv.SubjectOf(bucket, suspectKey+n.name))
	if err != nil {
		return suspect{}, fmt.Errorf("cannot look up what %s began with: %w", n.name, err)
	}
	var s suspect
	if stored == nil || json.Unmarshal(stored.Data, &s) != nil {
		return suspect{Seq: seq, Time: at}, nil
	}
	switch {
	case s.Seq == seq && s.Time.Equal(at):
		return s, nil
	case s.Seq < seq && seq <= s.UpTo && !at.Before(s.Time):
		s.Seq, s.Time, s.Starts = seq, at, min(s.Starts, suspectAfter)
		return s, nil
	}
	return suspect{Seq: seq, Time: at}, nil
}

// startsBy is how many processes will have begun with it when this one has.
func (s *suspect) startsBy(process string) int {
	if s.By == process {
		return s.Starts
	}
	return s.Starts + 1
}

// begins writes down what this process begins with, and counts the process.
func (n note) begins(ctx context.Context, s *suspect) error {
	s.Starts, s.By = s.startsBy(n.process), n.process
	if err := n.keep(ctx, s, n.life); err != nil {
		return fmt.Errorf("cannot write down what %s begins with: %w", n.name, err)
	}
	return nil
}

func (n note) keep(ctx context.Context, s *suspect, life time.Duration) error {
	data, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return n.write(ctx, data, life)
}

// survived takes the note back: this process lives, whatever became of what it began. What failed for a reason that lies in the
// environment comes again and counts for nothing.
func (n note) survived(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), streams.ReadWithin)
	defer cancel()
	if err := n.write(ctx, nil, time.Minute); err != nil {
		return fmt.Errorf("cannot take back what %s began with: %w", n.name, err)
	}
	return nil
}

func (n note) write(ctx context.Context, data []byte, life time.Duration) error {
	w := kv.Write(n.d.Names.Bucket(streams.OwnersBucket), suspectKey+n.name, data)
	if life > 0 {
		streams.Keep(w.Msg, life)
	}
	return n.d.Appender.Append(ctx, []streams.Write{w})[0].Err
}

func (p *partition) note() note { return note{d: &p.e.Deps, name: p.name, process: p.e.process} }

// examine is called before each batch, until all that was found waiting has ended.
func (p *partition) examine(ctx context.Context, batch []delivery) error {
	first, last := batch[0], batch[len(batch)-1]
	if p.begun == nil {
		if first.seq > p.found.lastSeq { // it was not there when the process before died
			p.through = true
			return nil
		}
		before, err := p.note().before(ctx, first.seq, first.time)
		if err != nil {
			return err
		}
		begun := before
		p.before, p.begun = before, &begun
	}
	alone := p.begun.UpTo
	suspected := p.begun.Seq == first.seq && p.begun.startsBy(p.e.process) > suspectAfter
	if suspected {
		p.e.Log.Warn("several processes have ended in the midst of the same commands; they are taken one at a time", "partition", p.n, "seq", first.seq, "upTo", alone, "processes", p.begun.startsBy(p.e.process))
		if err := p.takeTurn(ctx); err != nil {
			return err
		}
		p.alone = alone
	}
	p.begun.UpTo = max(p.begun.UpTo, last.seq)
	if err := p.note().begins(ctx, p.begun); err != nil {
		return err
	}
	if !suspected {
		return nil
	}
	if p.broom != nil { // what is done must not come again
		p.broom.refused = true
	}
	if p.begun.Starts > suspectDead {
		p.failures[first.seq] = maxFailures
	}
	return nil
}

// turnFor is how long a suspected command is waited for by others: one that kills does so at once, and one that hangs would keep all
// of them until the process is ended for that.
const turnFor = 10 * time.Second

// takeTurn waits until nothing else that is suspected is under way in this process, and begins the time of one command.
func (p *partition) takeTurn(ctx context.Context) error {
	if p.turn != nil && p.turn.Stop() {
		p.turn.Reset(p.turnFor())
		return nil
	}
	select {
	case p.e.turn <- struct{}{}:
		p.turn = time.AfterFunc(p.turnFor(), func() { <-p.e.turn })
		return nil
	case <-p.leave:
		return errLeft
	case <-ctx.Done():
		return ctx.Err()
	}
}

// endTurn lets others begin.
func (p *partition) endTurn() {
	if p.turn != nil && p.turn.Stop() {
		<-p.e.turn
	}
	p.turn = nil
}

func (p *partition) turnFor() time.Duration { return cmp.Or(p.e.turnFor, turnFor) }

// comeThrough takes the note back when a batch was the last of what was found waiting.
func (p *partition) comeThrough(ctx context.Context, last delivery) error {
	if p.through || last.pending > 0 && last.seq < p.found.lastSeq {
		return nil
	}
	if err := p.settled(); err != nil {
		return err
	}
	if err := p.note().survived(ctx); err != nil {
		return err
	}
	p.through, p.begun = true, nil
	if p.alone > 0 && p.broom != nil {
		p.broom.refused = false
	}
	return nil
}

// turnBack is for a loop that ends before it has come through: this process lives, so it counts for nothing. What those before it have
// left stands.
func (p *partition) turnBack(ctx context.Context) error {
	defer p.endTurn() // others may have died of what it has begun
	if p.begun == nil {
		return nil
	}
	p.begun = nil
	if p.before.Starts == 0 {
		return p.note().survived(ctx)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), streams.ReadWithin)
	defer cancel()
	if err := p.note().keep(ctx, &p.before, 0); err != nil {
		return fmt.Errorf("cannot take back what %s began with: %w", p.name, err)
	}
	return nil
}

// inTurn processes a batch: all of it, or up to the command alone one at a time, each to its end.
func (p *partition) inTurn(ctx context.Context, batch []delivery) error {
	if !p.through {
		if err := p.examine(ctx, batch); err != nil {
			return err
		}
	}
	last := batch[len(batch)-1]
	for len(batch) > 0 && batch[0].seq <= p.alone {
		if err := p.takeTurn(ctx); err != nil {
			return err
		}
		if err := p.process(ctx, batch[:1]); err != nil {
			return err
		}
		if err := p.settled(); err != nil {
			return err
		}
		batch = batch[1:]
	}
	if len(batch) > 0 {
		if err := p.process(ctx, batch); err != nil {
			return err
		}
	}
	if err := p.comeThrough(ctx, last); err != nil {
		return err
	}
	if p.through || last.seq >= p.alone {
		p.endTurn()
	}
	return nil
}
