package claim

// All lanes of mode claim, under one lease. Run, called by relay (run.go), waits for the lease (await), opens the session (open.go), and starts up to three lanes (lane.go);
// pause holds them up when the lease is to be checked or a marker is due, and before it writes the marker, flush marks everything published as sent. Run ends with the first lane
// that fails, or when all have drained.

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bcc94042/instar/internal/wait"
	"github.com/bcc94042/instar/streams/outbox"
	"github.com/bcc94042/instar/streams/outbox/relay/control"
	"github.com/bcc94042/instar/streams/outbox/relay/session"
	"github.com/bcc94042/instar/streams/outbox/relay/shard"
	"github.com/bcc94042/instar/streams/outbox/relay/sink"
)

// errDrained says that nothing is left to be published.
var errDrained = errors.New("drained")

// Lanes publish rows that have a state. One relay is active at a time. Each of its lanes has a part of the shards, so that one can claim while another publishes. A marker is
// written only when all that was stored before it is marked as sent, so what a session has stored and could not mark is found behind the marker.
type Lanes struct {
	Control *control.Control
	Config  outbox.Config
	Node    string
	Store   *outbox.Store
	Shards  *shard.Set // one, of all rows
	Parts   int        // shards of the rows

	gate  chan struct{} // a token for each lane that has something under way; all are taken while none may have
	press chan struct{} // likewise, for the one that publishes
	lanes []*lane
}

// maxLanes is how many lanes there are; the publishing is one.
const maxLanes = 3

// Run waits for the lease, then runs the lanes until ctx ends or one of them fails; it returns nil when it was asked to drain, and they have. If it can, it writes a last marker
// that says that the session has ended.
func (e *Lanes) Run(ctx context.Context) error {
	if err := e.await(ctx); err != nil {
		return err
	}
	err := e.open(ctx)
	if err == nil {
		err = e.openLanes(ctx)
	}
	defer e.closeLanes()
	if err == nil {
		err = e.runLanes(ctx)
	}
	switch {
	case errors.Is(err, errDrained):
		e.leave(ctx)
		return nil
	case ctx.Err() != nil && !errors.Is(err, sink.ErrUnknown):
		e.leave(ctx)
	case errors.Is(err, sink.ErrFenced):
		e.Shards.Yield(context.WithoutCancel(ctx))
	}
	return err
}

// await asks for the one shard until it is held or ctx ends.
func (e *Lanes) await(ctx context.Context) error {
	for {
		if _, err := e.Shards.Tend(ctx); err != nil {
			return err
		}
		if e.Shards.Held() > 0 {
			return nil
		}
		if !wait.For(ctx, min(e.Config.Poll, time.Second)) {
			return ctx.Err()
		}
	}
}

// openLanes spreads the shards over lanes. Each has a connection of its own for as long as it runs, so that a crash of the
// database, which may undo marks, does not go unnoticed.
func (e *Lanes) openLanes(ctx context.Context) error {
	most := max(1, int(e.Store.Pool.Config().MaxConns)-1) // one is for everything else
	n := min(maxLanes, e.Parts, most)
	e.gate, e.press = make(chan struct{}, n), make(chan struct{}, 1)
	for i := range n {
		l := &lane{e: e, wake: make(chan struct{}, 1), worker: outbox.Worker{Store: e.Store, Name: e.Node}}
		if err := l.worker.Open(ctx); err != nil {
			return err
		}
		e.lanes = append(e.lanes, l)
		for part := i; part < e.Parts; part += n {
			l.shards = append(l.shards, part)
		}
	}
	return nil
}

func (e *Lanes) closeLanes() {
	for _, l := range e.lanes {
		l.worker.Close()
	}
}

// runLanes returns when all lanes have ended: with the gravest error, or when all are drained.
func (e *Lanes) runLanes(ctx context.Context) error {
	ended := make(chan error, len(e.lanes))
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, l := range e.lanes {
		go func() { ended <- l.run(inner) }()
	}
	tick := time.NewTicker(min(e.Config.Poll, time.Second))
	defer tick.Stop()
	var first error
	for left := len(e.lanes); left > 0; {
		_, _, changed := e.Control.Switches()
		select {
		case err := <-ended:
			left--
			first = graver(first, err)
			if !errors.Is(err, errDrained) {
				cancel()
			}
			continue
		case <-e.Control.Woken():
		case <-changed:
		case <-tick.C:
			first = graver(first, e.pause(inner, cancel))
			continue
		}
		for _, l := range e.lanes {
			select {
			case l.wake <- struct{}{}:
			default:
			}
		}
	}
	return first
}

// pause stops the lanes for a moment, to check the lease, and to write the marker when it is due. When it fails, none of them takes another step: the lease, and the session with
// it, may be lost.
func (e *Lanes) pause(ctx context.Context, cancel func()) (err error) {
	for range cap(e.gate) {
		e.gate <- struct{}{}
	}
	defer func() {
		for range cap(e.gate) {
			<-e.gate
		}
	}()
	defer func() {
		if err != nil {
			cancel()
		}
	}()
	if _, err := e.Shards.Tend(ctx); err != nil {
		return err
	}
	s := e.Shards.Session(0)
	if s == nil {
		return fmt.Errorf("%w: the lease was lost", sink.ErrFenced)
	}
	e.Control.Stands(e.Shards.Sessions())
	due := e.Shards.Due()
	if len(due) == 0 {
		return nil
	}
	if err := e.flush(ctx); err != nil {
		return err
	}
	if err := e.advance(ctx, s); err != nil {
		return err
	}
	if _, err := e.Shards.Opener.Publish(context.WithoutCancel(ctx), nil, due); err != nil {
		return err
	}
	return e.Shards.Opener.Note(ctx, s)
}

// advance makes the position that of the next marker. All that is stored is marked as sent.
func (e *Lanes) advance(ctx context.Context, s *session.Session) error {
	at, err := e.sentUpTo(ctx)
	if err == nil && at > s.Pos {
		s.Pos = at
	}
	return err
}

// flush marks what was published, for good: a marker covers only what no crash of the database can undo.
func (e *Lanes) flush(ctx context.Context) error {
	if len(e.lanes) == 0 {
		return nil
	}
	for _, l := range e.lanes {
		if err := l.mark(ctx); err != nil {
			return err
		}
	}
	return e.lanes[0].worker.Flush(ctx)
}

// leave marks what was published, and writes a marker that says that nothing is under way.
func (e *Lanes) leave(ctx context.Context) {
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	err := e.flush(stop)
	if s := e.Shards.Session(0); err == nil && s != nil {
		if err = e.advance(stop, s); err == nil {
			err = errors.Join(e.Shards.Finish(ctx), e.Shards.Opener.Note(stop, s))
		}
	}
	if err != nil {
		e.Control.Log.Warn("the next relay has to read back", "error", err)
	}
}
