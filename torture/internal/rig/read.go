package rig

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/internal/wait"
	"github.com/bcc94042/instar/torture/internal/check"
)

// far is when a deadline is no reason to wait: entities that are to stay on their way have one further off.
const far = 90 * time.Second

// Reader reads the streams by a connection of its own, as any client of NATS could.
type Reader struct {
	nc *nats.Conn
	js jetstream.JetStream
}

// OpenReader connects to a NATS server and stays connected over its restarts.
func OpenReader(url string) (*Reader, error) {
	nc, err := nats.Connect(url, nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond), nats.ReconnectBufSize(-1), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	if err != nil {
		return nil, fmt.Errorf("cannot connect to NATS: %w", err)
	}
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(3*time.Second))
	return &Reader{nc, js}, err
}

// Close disconnects.
func (r *Reader) Close() { r.nc.Close() }

// NC is the connection.
func (r *Reader) NC() *nats.Conn { return r.nc }

// JS is JetStream on the connection.
func (r *Reader) JS() jetstream.JetStream { return r.js }

// Settle waits until nothing is under way and reads everything. What cannot come to rest in that time is an error; what
// was read last is returned beside it.
func (r *Reader) Settle(ctx context.Context, most time.Duration) (*check.History, error) {
	end := time.Now().Add(most)
	for {
		last := time.Now().After(end)
		h, why := r.read(ctx, last)
		if why == "" {
			return h, nil
		}
		if last {
			return h, fmt.Errorf("it did not come to rest within %s: %s", most, why)
		}
		if !wait.For(ctx, 250*time.Millisecond) {
			return h, ctx.Err()
		}
	}
}

// read reads everything, or, unless told otherwise, only as much as shows that something is under way. why says what.
func (r *Reader) read(ctx context.Context, whole bool) (h *check.History, why string) {
	before, err := r.marks(ctx)
	if err != nil {
		return nil, err.Error()
	}
	h = &check.History{Values: map[string]check.Value{}, Schedules: map[string]time.Time{}, Read: time.Now()}
	for _, step := range []func(context.Context, *check.History) error{r.commands, r.effects, r.values} {
		if err := step(ctx, h); err != nil {
			return h, err.Error()
		}
	}
	if why = moving(h); why != "" && !whole {
		return h, why
	}
	for _, step := range []func(context.Context, *check.History) error{r.events, r.letters} {
		if err := step(ctx, h); err != nil {
			return h, err.Error()
		}
	}
	after, err := r.marks(ctx)
	switch {
	case err != nil:
		why = err.Error()
	case why == "" && !maps.Equal(before, after):
		why = "the streams move"
	}
	return h, why
}

// moving says what is under way.
func moving(h *check.History) string {
	if len(h.Pending) > 0 {
		return fmt.Sprintf("%d commands wait, such as %s", len(h.Pending), h.Pending[0])
	}
	if len(h.Effects) > 0 {
		return fmt.Sprintf("%d effects wait, such as %s", len(h.Effects), h.Effects[0])
	}
	for key, v := range h.Values {
		if len(v.Effects) > 0 {
			return fmt.Sprintf("%s waits for %d effects", key, len(v.Effects))
		}
		if check.Transitional(v.State) && v.Timers["deadline"].At.Before(h.Read.Add(far)) {
			return key + " is still " + v.State
		}
	}
	return ""
}

func (r *Reader) marks(ctx context.Context) (map[string]uint64, error) {
	marks := map[string]uint64{}
	for _, name := range []string{"KV_services", "EVENTS", "EFFECTS", "DEAD_LETTERS"} {
		s, err := r.js.Stream(ctx, name)
		if err != nil {
			return nil, fmt.Errorf("cannot look at stream %s: %w", name, err)
		}
		marks[name] = s.CachedInfo().State.LastSeq
	}
	return marks, nil
}

// all reads what a stream holds.
func (r *Reader) all(ctx context.Context, stream string, each func(*jetstream.RawStreamMsg, time.Time) error) error {
	s, err := r.js.Stream(ctx, stream)
	if err != nil {
		return fmt.Errorf("cannot look at stream %s: %w", stream, err)
	}
	if s.CachedInfo().State.Msgs == 0 {
		return nil
	}
	cons, err := s.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverAllPolicy})
	if err != nil {
		return fmt.Errorf("cannot read stream %s: %w", stream, err)
	}
	it, err := cons.Messages(jetstream.PullMaxMessages(1000))
	if err != nil {
		return fmt.Errorf("cannot read stream %s: %w", stream, err)
	}
	defer it.Stop()
	stop := context.AfterFunc(ctx, it.Stop)
	defer stop()
	for {
		m, err := it.Next()
		if err != nil {
			return fmt.Errorf("cannot read stream %s: %w", stream, err)
		}
		meta, err := m.Metadata()
		if err != nil {
			return err
		}
		raw := &jetstream.RawStreamMsg{Subject: m.Subject(), Sequence: meta.Sequence.Stream, Header: m.Headers(), Data: m.Data()}
		if err := each(raw, meta.Timestamp); err != nil {
			return err
		}
		if meta.NumPending == 0 {
			return nil
		}
	}
}

// work lists what a work queue holds, message by message: it admits no second consumer.
func (r *Reader) work(ctx context.Context, stream string, each func(*jetstream.RawStreamMsg)) error {
	s, err := r.js.Stream(ctx, stream)
	if err != nil {
		return fmt.Errorf("cannot look at stream %s: %w", stream, err)
	}
	for seq := uint64(1); ; {
		m, err := s.GetMsg(ctx, seq, jetstream.WithGetMsgSubject(">"))
		if err != nil {
			if errors.Is(err, jetstream.ErrMsgNotFound) {
				return nil
			}
			return fmt.Errorf("cannot read stream %s: %w", stream, err)
		}
		each(m)
		seq = m.Sequence + 1
	}
}

func (r *Reader) commands(ctx context.Context, h *check.History) error {
	return r.work(ctx, "COMMANDS", func(m *jetstream.RawStreamMsg) {
		rest, ok := strings.CutPrefix(m.Subject, "instar.timer."+check.Machine+".")
		if !ok && strings.HasPrefix(m.Subject, "instar.timer.") {
			return // of another machine, which may run on
		}
		if !ok {
			h.Pending = append(h.Pending, m.Subject)
			return
		}
		at, err := time.Parse("@at "+time.RFC3339Nano, m.Header.Get("Nats-Schedule"))
		if i := strings.LastIndexByte(rest, '.'); err == nil && i > 0 {
			h.Schedules[rest[:i]+"/"+rest[i+1:]] = at
		}
	})
}

func (r *Reader) effects(ctx context.Context, h *check.History) error {
	return r.work(ctx, "EFFECTS", func(m *jetstream.RawStreamMsg) { h.Effects = append(h.Effects, m.Subject) })
}

func (r *Reader) letters(ctx context.Context, h *check.History) error {
	return r.work(ctx, "DEAD_LETTERS", func(m *jetstream.RawStreamMsg) {
		h.Letters = append(h.Letters, m.Header.Get("Instar-Dead-Subject")+" because "+m.Header.Get("Instar-Dead-Reason"))
	})
}

func (r *Reader) values(ctx context.Context, h *check.History) error {
	return r.all(ctx, "KV_services", func(m *jetstream.RawStreamMsg, _ time.Time) error {
		v := check.Value{Revision: m.Sequence, Raw: m.Data}
		key := strings.TrimPrefix(m.Subject, "$KV.services.")
		if err := json.Unmarshal(m.Data, &v); err != nil {
			v.State = "unreadable: " + err.Error()
		}
		h.Values[key] = v
		return nil
	})
}

func (r *Reader) events(ctx context.Context, h *check.History) error {
	return r.all(ctx, "EVENTS", func(m *jetstream.RawStreamMsg, _ time.Time) error {
		if !strings.HasPrefix(m.Subject, "instar.evt."+check.Machine+".") {
			return nil
		}
		e := check.Event{Seq: m.Sequence, Subject: m.Subject, ID: m.Header.Get(nats.MsgIdHdr), Key: first(m.Header["ce-subject"]), Type: first(m.Header["ce-type"])}
		if err := json.Unmarshal(m.Data, &e.Body); err != nil {
			e.Type = "unreadable: " + err.Error()
		}
		h.Events = append(h.Events, e)
		return nil
	})
}

func first(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}
