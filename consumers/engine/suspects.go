package engine

import (
	"context"

	"github.com/bcc94042/instar/consumers"
	"github.com/bcc94042/instar/consumers/poison"
)

// A process that finds commands waiting writes down, before each batch of them, with which command it began and how far it has come, and takes that back when all of them have
// ended. What is done and still in the stream comes again at the next start, so the one that kills need not be in the first batch. When several processes in a row have died in
// the midst of what one of them had begun, that is taken one at a time, and each command is gone from the stream before the next one is begun: the one that kills is the first
// soon, and when that has begun often enough it is given up.

func (p *partition) note() poison.Note {
	return poison.Note{Deps: &p.e.Deps, Name: p.name, Process: p.e.process}
}

// examine is called before each batch, until all that was found waiting has ended.
func (p *partition) examine(ctx context.Context, batch []delivery) error {
	first, last := batch[0], batch[len(batch)-1]
	if p.begun == nil {
		if first.seq > p.found.LastSeq { // it was not there when the process before died
			p.recovered = true
			return nil
		}
		before, err := p.note().Before(ctx, first.seq, first.time)
		if err != nil {
			return err
		}
		begun := before
		p.before, p.begun = before, &begun
	}
	alone := p.begun.UpTo
	suspected := p.begun.Seq == first.seq && p.begun.StartsBy(p.e.process) > poison.Suspected
	if suspected {
		p.e.Log.Warn("several processes crashed while processing the same commands; processing them one at a time", "partition", p.n, "seq", first.seq, "upTo", alone, "processes", p.begun.StartsBy(p.e.process))
		if err := p.takeTurn(ctx); err != nil {
			return err
		}
		p.alone = alone
	}
	p.begun.UpTo = max(p.begun.UpTo, last.seq)
	if err := p.note().Begins(ctx, p.begun); err != nil {
		return err
	}
	if !suspected {
		return nil
	}
	if err := p.awaitFinished(); err != nil {
		return err
	}
	p.acker.Pause() // what is done must not come again
	if p.begun.Starts > poison.GivenUp {
		p.failures[first.seq] = consumers.MaxTries
	}
	return nil
}

// takeTurn waits until nothing else that is suspected is under way in this process, and begins the time of one command.
func (p *partition) takeTurn(ctx context.Context) error {
	taken, err := p.turn.Take(ctx, p.leave)
	if err == nil && !taken {
		err = errLeft
	}
	return err
}

// clearNote takes the note back when a batch was the last of what was found waiting.
func (p *partition) clearNote(ctx context.Context, last delivery) error {
	if p.recovered || last.pending > 0 && last.seq < p.found.LastSeq {
		return nil
	}
	if err := p.awaitFinished(); err != nil {
		return err
	}
	if err := p.note().Survived(ctx); err != nil {
		return err
	}
	p.recovered, p.begun = true, nil
	p.acker.Resume()
	return nil
}

// withdrawNote is for a loop that ends before it has come through: this process lives, so it counts for nothing. What those before it have left stands.
func (p *partition) withdrawNote(ctx context.Context) error {
	defer p.turn.End() // others may have died of what it has begun
	if p.begun == nil {
		return nil
	}
	p.begun = nil
	return p.note().Withdraw(ctx, &p.before)
}
