package backup

// How a restore stores what it has put together: flush (restore.go) hands over single messages (write) and the events of entities (link). What a lost connection leaves open is sent again when it is back, and
// the server still has what it had acknowledged (resume, kept); where a chain of events stands then is looked up (realign).

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/internal/wait"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/publish"
)

// write stores the messages of the batch. What a lost connection leaves open is sent again: values replace themselves, and of all else the stream
// knows the id.
func (r *restorer) write(ctx context.Context) ([]publish.Result, error) {
	results, open := make([]publish.Result, len(r.batch)), make([]int, len(r.batch))
	for i := range open {
		open[i] = i
	}
	for began := time.Now(); len(open) > 0; {
		todo, batch := open, make([]publish.Write, len(open))
		for n, i := range todo {
			batch[n] = r.batch[i]
		}
		open = nil
		for n, result := range r.s.Appender.Append(ctx, batch) {
			i := todo[n]
			results[i] = result
			switch {
			case result.Err == nil && result.Duplicate:
				r.ack(r.batch[i].Stream, result.Seq, 0)
			case result.Err == nil:
				r.ack(r.batch[i].Stream, result.Seq, 1)
			case !lost(result.Err) || time.Since(began) > silence:
				return nil, fmt.Errorf("cannot store %s: %w", r.batch[i].Msg.Subject, result.Err)
			default:
				open = append(open, i)
			}
		}
		if len(open) > 0 {
			if err := r.resume(ctx); err != nil {
				return nil, err
			}
		}
	}
	return results, nil
}

// link stores the events. Where the stream says that an entity's last event is another one than thought, it is looked up: its bound, or the end of its life, has
// removed the one before, or a connection was lost with the answer.
func (r *restorer) link(ctx context.Context) error {
	stream := r.s.Plan.Names.Stream(streams.EventStream)
	for began, left := time.Now(), r.chains; len(left) > 0; {
		had := make([]int, len(left))
		for i, c := range left {
			had[i] = c.New
		}
		r.s.Appender.AppendChains(ctx, stream, left)
		for i, c := range left {
			r.ack(stream, c.Last, c.New-had[i])
		}
		var again []*publish.Chain
		gone := false
		for _, c := range left {
			if c.Err == nil {
				continue
			}
			if !lost(c.Err) && !errors.Is(c.Err, publish.ErrConflict) || time.Since(began) > silence {
				return fmt.Errorf("cannot store %s: %w", c.Msgs[c.Done].Subject, c.Err)
			}
			if lost(c.Err) && !gone {
				gone = true
				if err := r.resume(ctx); err != nil {
					return err
				}
			}
			if err := steady(ctx, func(ctx context.Context) error { return r.realign(ctx, c) }); err != nil {
				return err
			}
			again = append(again, c)
		}
		left = again
	}
	return nil
}

// acked is what a stream has acknowledged: up to which sequence, and how many messages that it did not have before.
type acked struct{ last, messages uint64 }

func (r *restorer) ack(stream string, seq uint64, more int) {
	a := r.acked[stream]
	r.acked[stream] = acked{max(a.last, seq), a.messages + uint64(more)}
}

// resume waits for a connection that was lost, and sees that what was acknowledged before is there.
func (r *restorer) resume(ctx context.Context) error {
	if err := pause(ctx); err != nil {
		return err
	}
	return steady(ctx, r.kept)
}

// ErrForgotten says that a server has lost messages which it had acknowledged, as by a loss of power. Nothing tells which ones, so the restore has to begin anew, where nothing is.
var ErrForgotten = errors.New("the server has lost what it had acknowledged, as by a loss of power: restore once more, where nothing is")

// kept fails where a stream ends before what it has acknowledged, or has given out fewer sequences than it has acknowledged messages: what was lost has been made up for by others since. Each message has one of its own;
// what takes one beside them (a schedule that is due, a value that was sent again) hides a loss, and makes none up.
func (r *restorer) kept(ctx context.Context) error {
	for stream, a := range r.acked {
		s, err := streams.Led(ctx, r.s.JS, stream)
		if err != nil {
			return fmt.Errorf("cannot see what stream %s has: %w", stream, err)
		}
		if has := s.CachedInfo().State.LastSeq; has < max(a.last, r.first-1+a.messages) {
			return fmt.Errorf("stream %s ends at %d, and had acknowledged %d messages from %d on, up to %d: %w", stream, has, a.messages, r.first, a.last, ErrForgotten)
		}
	}
	return nil
}

// realign finds out where a chain stands: behind one of its own messages, or behind what the stream still has.
func (r *restorer) realign(ctx context.Context, c *publish.Chain) error {
	stream := r.s.Plan.Names.Stream(streams.EventStream)
	events, err := r.s.JS.Stream(ctx, stream)
	if err != nil {
		return fmt.Errorf("cannot look at stream %s: %w", stream, err)
	}
	m, err := events.GetLastMsgForSubject(ctx, c.Filter)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		c.Err, c.Last = nil, 0
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot find the last event of %s: %w", c.Filter, err)
	}
	c.Err, c.Last = nil, m.Sequence
	id := streams.Header(m.Header, streams.HeaderID)
	c.Done += 1 + slices.IndexFunc(c.Msgs[c.Done:], func(own *nats.Msg) bool { return id != "" && streams.Header(own.Header, streams.HeaderID) == id })
	return nil
}

// answered is how long a server may take to answer before it is asked again: what was lost on its way is not answered however long it is waited for.
const answered = 10 * time.Second

// steady asks a server, for what may be asked for twice, until it answers: a connection that is lost is back within moments, or a member that leads is replaced.
func steady(ctx context.Context, ask func(context.Context) error) error {
	for began := time.Now(); ; {
		once, cancel := context.WithTimeout(ctx, answered)
		err := ask(once)
		cancel()
		if err == nil || !lost(err) || time.Since(began) > silence {
			return err
		}
		if err := pause(ctx); err != nil {
			return err
		}
	}
}

// lost reports whether it may succeed another time: nobody has refused it, so the connection was not there, or took the answer with it.
func lost(err error) bool {
	var refused *publish.RefusedError
	var api *jetstream.APIError
	if errors.As(err, &api) {
		return api.ErrorCode == leaderless
	}
	return !errors.As(err, &refused) && !publish.Permanent(err) && !errors.Is(err, ErrForgotten) && !errors.Is(err, nats.ErrConnectionClosed) && !errors.Is(err, publish.ErrClosed)
}

const leaderless = 10008 // what a cluster without a leader answers

// pause is as long as a connection takes to be back.
func pause(ctx context.Context) error { return wait.Pause(ctx, 100*time.Millisecond) }

// tell says every now and then how far the restore is.
func (r *restorer) tell() {
	if time.Since(r.told) < cmp.Or(r.s.every, 10*time.Second) {
		return
	}
	r.told = time.Now()
	r.s.Log.Info("restoring", "entities", r.done.Entities, "events", r.done.Events, "tasks", r.done.Tasks, "timers", r.done.Timers, "for", r.told.Sub(r.now).Round(time.Second))
}
