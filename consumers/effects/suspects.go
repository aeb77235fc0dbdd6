package effects

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/consumers/poison"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
)

// A provider that ends the process each time is found as a command that does so (see package poison). Tasks are done beside each
// other, so each has a note of its own; and only those have one that a process may have been doing when it died: a task
// that was delivered before, or that was there before this process and is one of the first, where the consumer died, too. One that
// was begun by several processes which died is suspected, and done when nothing else that is suspected is, task or command: those that
// died beside the one that kills come through then, and that one alone is given up.

// noteLife is how long a note of a task is kept that nobody takes back, because the task has gone another way.
const noteLife = 24 * time.Hour

var errUnwanted = errors.New("nobody waits for the task any more")

// longTurn is how long a suspected task is done alone: there are some that take hours.
const longTurn = time.Minute

// look finds out, once, which tasks are older than this process.
func (k *kind) look(ctx context.Context) error {
	if k.looked {
		return nil
	}
	info, err := streams.Info(ctx, k.w.NC, k.w.Names.Stream(streams.EffectStream))
	if err != nil {
		return fmt.Errorf("cannot look at the effects: %w", err)
	}
	k.found, k.looked = info.State.LastSeq, true
	return nil
}

// mayHaveKilled reports whether a process may have died with a task: the one before, or another one beside this one, which a task that is delivered again may come from.
func (k *kind) mayHaveKilled(meta *jetstream.MsgMetadata) bool {
	if meta.NumDelivered > 1 {
		return true
	}
	return meta.Sequence.Stream <= k.found && k.early.Add(1) <= int64(k.most)
}

// examine is called before a task is performed, and survived when that has come to its end. That there is a why says that the task is
// to be given up instead.
// It fails with errUnwanted when nobody waits for the task any more, once it may be done.
func (k *kind) examine(ctx context.Context, m jetstream.Msg, t *machines.Task) (survived func() error, why string, err error) {
	meta, err := m.Metadata()
	if err != nil {
		return nil, "", err
	}
	if !k.mayHaveKilled(meta) {
		return func() error { return nil }, "", nil
	}
	n := poison.Note{Deps: &k.w.Deps, Name: fmt.Sprintf("%s.%d", k.name, meta.Sequence.Stream), Process: k.w.process, Life: noteLife}
	s, err := n.Before(ctx, meta.Sequence.Stream, meta.Timestamp)
	if err != nil {
		return nil, "", err
	}
	if s.Starts >= poison.GivenUp && s.By != n.Process {
		return func() error { return n.Survived(ctx) }, fmt.Sprintf("%d processes have ended while they did it", s.Starts), nil
	}
	free := func() {}
	if s.Starts >= poison.Suspected {
		k.w.Log.Warn("several processes crashed while performing a task; it is performed when no other such task runs", "worker", k.name, "subject", m.Subject(), "processes", s.Starts)
		if err := k.takeTurn(ctx); err != nil {
			return nil, "", err
		}
		free = sync.OnceFunc(func() { <-k.w.Turn; <-k.w.queue })
		time.AfterFunc(longTurn, free)
		if wanted, err := k.wanted(ctx, t); err == nil && !wanted {
			free()
			return nil, "", cmp.Or(n.Survived(ctx), errUnwanted)
		}
	}
	survived = func() error {
		defer free()
		return n.Survived(ctx)
	}
	if err := n.Begins(ctx, &s); err != nil {
		return nil, "", errors.Join(err, survived()) // it may be written all the same
	}
	return survived, "", nil
}

// takeTurn waits until no other suspected task is under way, and then until no suspected command is: those wait for one task at
// most.
func (k *kind) takeTurn(ctx context.Context) error {
	if err := hold(ctx, k.w.queue); err != nil {
		return err
	}
	err := hold(ctx, k.w.Turn)
	if err != nil {
		<-k.w.queue
	}
	return err
}

func hold(ctx context.Context, turn chan struct{}) error {
	select {
	case turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
