package audit

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/consumers"
	"github.com/bcc94042/instar/consumers/consumertest"
	"github.com/bcc94042/instar/consumers/engine"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/audit"
	"github.com/bcc94042/instar/streams/embedded"
	"github.com/bcc94042/instar/streams/publish"
)

func TestMain(m *testing.M) { consumertest.Main(m) }

// world has an engine, and the streams of an audit.
func world(t *testing.T) *consumertest.World {
	t.Helper()
	w := consumertest.New(t, embedded.Interval, consumertest.Things)
	for _, class := range streams.Classes {
		_, err := w.JS.CreateStream(w.Ctx, audit.Stream(w.Names, class, 1))
		require.NoError(t, err)
	}
	w.Run((&engine.Engine{Deps: w.Deps, Indexes: w.Indexes}).Run)
	return w
}

// records runs a recorder until there are so many records, and stops it.
func record(w *consumertest.World, until int) {
	ctx, stop := context.WithCancel(w.Ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = (&Recorder{Deps: w.Deps, Machine: consumertest.Things}).Run(ctx) // ends with the context
	}()
	w.Eventually(fmt.Sprintf("%d records", until), func() bool {
		n := uint64(0)
		for _, class := range streams.Classes {
			info, err := streams.Info(ctx, w.NC, w.Names.AuditStream(class))
			if err != nil {
				return false
			}
			n += info.State.Msgs
		}
		events, err := w.JS.Consumer(ctx, streams.EventStream, Consumer("thing"))
		return n >= uint64(until) && err == nil && events.CachedInfo().NumPending == 0 && events.CachedInfo().NumAckPending == 0
	})
	stop()
	<-done
}

// all are the records by the ids of their events. Their chains are whole.
func all(w *consumertest.World) map[string]audit.Record {
	w.T.Helper()
	list := map[string]audit.Record{}
	for _, class := range streams.Classes {
		c := audit.Chain{Class: class}
		for _, m := range w.Stream(w.Names.AuditStream(class), ">") {
			r, err := c.Next(m.Data, time.Now())
			require.NoError(w.T, err)
			require.Equal(w.T, m.Sequence, r.Sequence)
			require.NotContains(w.T, list, r.EventID, "one record of an event")
			list[r.EventID] = r
		}
	}
	return list
}

func (r *Recorder) open(w *consumertest.World) {
	w.T.Helper()
	r.Deps = r.WithDefaults()
	r.Chains, r.last = new(Chains), map[string]place{}
	r.feed = consumers.Feed{Machine: r.Machine, Name: Consumer(r.Machine.Name), Batch: batch, Subjects: []string{r.Names.Event("thing", "*.*", ">")}}
	require.NoError(w.T, r.feed.Open(w.Ctx, &r.Deps))
}

// What no event tells has one record, however often it is noted, and the events that were recorded before it are not recorded again.
func TestWhatNoEventTellsIsNoted(t *testing.T) {
	t.Parallel()
	w := world(t)
	w.Ask(consumertest.ToThing("b", "create", ""))
	record(w, 1)
	before, chains := all(w), new(Chains)
	rec := audit.Record{
		Class: "state", EventID: "dropped-q_b", EventType: "thing.dropped", Timestamp: time.Now().UTC(), Actor: audit.RecordActor{Type: audit.Scheduler, ID: "sweep"},
		Target: audit.RecordTarget{Machine: "thing", SessionID: "default.b"}, Result: audit.RecordResult{Success: true},
	}
	require.NoError(t, Note(w.Ctx, w.Deps, chains, rec))
	require.NoError(t, Note(w.Ctx, w.Deps, new(Chains), rec), "another node")
	got := all(w)
	require.Len(t, got, len(before)+1)
	require.Equal(t, "thing.dropped", got["dropped-q_b"].EventType)
	require.NoError(t, w.JS.DeleteConsumer(w.Ctx, streams.EventStream, Consumer("thing")))
	w.Ask(consumertest.ToThing("b", "add", `{"n":1}`))
	record(w, len(before)+2)
	require.Len(t, all(w), len(before)+2)
	rec.EventID = "dropped-q_c"
	require.NoError(t, Note(w.Ctx, w.Deps, chains, rec), "what it knew of the chain is old")
	require.Len(t, all(w), len(before)+3)
}

func TestEachEventHasOneRecord(t *testing.T) {
	t.Parallel()
	w := world(t)
	for _, id := range []string{"a", "b"} {
		w.Ask(consumertest.ToThing(id, "create", ""))
		w.Ask(consumertest.ToThing(id, "add", `{"n":1}`))
	}
	require.Equal(t, machines.Refused, w.Ask(consumertest.ToThing("a", "done", `{}`)).Outcome)
	w.Ask(publish.Command{Machine: "thing", Key: "default.b", Name: "close", Actor: "alice", Reason: "tired"})
	record(w, 6)
	events := w.Stream(streams.EventStream, w.Names.Under("evt"))
	got := all(w)
	require.Len(t, got, len(events))
	for _, m := range events {
		require.Contains(t, got, streams.Header(m.Header, streams.HeaderID))
	}
	closed := got["thing/default.b/3/0"]
	require.Equal(t, audit.Record{
		Class: "state", Sequence: closed.Sequence, Previous: closed.Previous, PreviousAt: closed.PreviousAt, RecordedAt: closed.RecordedAt, Hash: closed.Hash, Timestamp: closed.Timestamp,
		EventID: "thing/default.b/3/0", EventType: "thing.closed", Actor: audit.RecordActor{Type: audit.User, ID: "alice"}, Reason: "tired", Command: "close",
		Target: audit.RecordTarget{Machine: "thing", SessionID: "default.b"}, Change: &audit.RecordChange{From: "open", To: "closed"}, Result: audit.RecordResult{Success: true},
	}, closed)
	for id, r := range got {
		if r.EventType == machines.EventRefused {
			require.Equal(t, "error", r.Class)
			require.False(t, r.Result.Success)
			require.NotEmpty(t, r.Result.Error.Message, id)
		}
	}

	// The process has ended before the consumer knew what is recorded; and all events have other sequences.
	require.NoError(t, w.JS.DeleteConsumer(w.Ctx, streams.EventStream, Consumer("thing")))
	w.Ask(consumertest.ToThing("a", "add", `{"n":2}`))
	record(w, 7)
	require.Len(t, all(w), len(events)+1)
	w.Stop()
	s, err := w.JS.Stream(w.Ctx, streams.EventStream)
	require.NoError(t, err)
	config := s.CachedInfo().Config
	config.FirstSeq = 1000 // as after a restore
	stored := w.Stream(streams.EventStream, w.Names.Under("evt"))
	require.NoError(t, w.JS.DeleteStream(w.Ctx, streams.EventStream))
	_, err = w.JS.CreateStream(w.Ctx, config)
	require.NoError(t, err)
	for _, m := range stored {
		again := &nats.Msg{Subject: m.Subject, Header: m.Header, Data: m.Data}
		streams.Unexpect(again)
		w.Publish(again)
	}
	record(w, 7)
	got = all(w)
	refused := 0
	for _, r := range got {
		if r.EventType == machines.EventRefused {
			refused++
		}
	}
	require.Len(t, got, len(events)+1)
	require.Equal(t, 1, refused)
}

// One that was taken over from writes nothing more: what it would append follows another record.
func TestWhoWasTakenOverFromAppendsNothing(t *testing.T) {
	t.Parallel()
	w := world(t)
	w.Ask(consumertest.ToThing("a", "create", ""))
	old := &Recorder{Deps: w.Deps, Machine: consumertest.Things}
	old.open(w)
	events, err := old.feed.Next(w.Ctx)
	require.NoError(t, err)
	require.NoError(t, old.add(w.Ctx, &events[0]))
	record(w, 1)
	_, err = old.append(w.Ctx)
	require.ErrorIs(t, err, publish.ErrConflict)
	require.Len(t, all(w), 1)
}

// A record that somebody has removed is missed by whoever verifies: the next one does not fill the gap.
func TestTheChainGoesOnBehindWhatWasRemoved(t *testing.T) {
	t.Parallel()
	w := world(t)
	config := audit.Stream(w.Names, "state", 1)
	require.NoError(t, w.JS.DeleteStream(w.Ctx, config.Name))
	config.DenyDelete, config.DenyPurge = false, false // or nobody could
	s, err := w.JS.CreateStream(w.Ctx, config)
	require.NoError(t, err)
	w.Ask(consumertest.ToThing("a", "create", ""))
	w.Ask(consumertest.ToThing("a", "add", `{"n":1}`))
	record(w, 2)
	require.NoError(t, s.DeleteMsg(w.Ctx, 2))
	w.Ask(consumertest.ToThing("a", "add", `{"n":1}`))
	record(w, 2)
	c := audit.Chain{Class: "state"}
	msgs := w.Stream(config.Name, ">")
	_, err = c.Next(msgs[0].Data, time.Now())
	require.NoError(t, err)
	_, err = c.Next(msgs[1].Data, time.Now())
	require.ErrorContains(t, err, "record 2: it is missing; the next one is 3")

	require.NoError(t, s.Purge(w.Ctx))
	w.Ask(consumertest.ToThing("a", "add", `{"n":1}`))
	record(w, 1)
	c = audit.Chain{Class: "state"}
	_, err = c.Next(w.Stream(config.Name, ">")[0].Data, time.Now())
	require.ErrorContains(t, err, "record 3: it was removed before its time", "also where nothing was left")
}

// A recorder that has seen the end of the stream before another one appended, and the last record after that, appends nothing: its record would be elsewhere than it says.
func TestARecordIsStoredWhereItSaysOrNotAtAll(t *testing.T) {
	t.Parallel()
	w := world(t)
	w.Ask(consumertest.ToThing("a", "create", ""))
	late := &Recorder{Deps: w.Deps, Machine: consumertest.Things}
	late.open(w)
	events, err := late.feed.Next(w.Ctx)
	require.NoError(t, err)
	require.NoError(t, late.add(w.Ctx, &events[0]))
	record(w, 1)
	late.Chains.heads["state"].last = 1
	_, err = late.append(w.Ctx)
	require.ErrorIs(t, err, publish.ErrConflict)
	require.Len(t, all(w), 1)
}

// happens appends an event that no engine has made.
func happens(w *consumertest.World, id, typ string, at time.Time) {
	w.Publish(&nats.Msg{Subject: w.Names.Event("thing", "default.a", typ), Data: []byte(`{}`), Header: nats.Header{
		streams.HeaderID: {"thing/default.a/" + id}, "ce-type": {typ}, "ce-time": {at.Format(time.RFC3339Nano)},
	}})
}

// The last record is about an event without a number, after the times of events fell: what it is about does not say which events before have a record.
func TestAnEventHasOneRecordWhateverWasRecordedLast(t *testing.T) {
	t.Parallel()
	w := world(t)
	began := time.Now().Add(-time.Hour).UTC()
	happens(w, "1/0", "thing.broken", began.Add(10*time.Minute))
	happens(w, "2/0", "thing.broken", began.Add(5*time.Minute))
	happens(w, "refused/7/8", machines.EventRefused, began.Add(6*time.Minute))
	record(w, 3)
	require.Len(t, all(w), 3)
	require.NoError(t, w.JS.DeleteConsumer(w.Ctx, streams.EventStream, Consumer("thing"))) // as after a kill: all come again
	record(w, 3)
	require.Len(t, all(w), 3)

	w.Stop()
	s, err := w.JS.Stream(w.Ctx, streams.EventStream)
	require.NoError(t, err)
	config := s.CachedInfo().Config
	config.FirstSeq = 1000 // as after a restore
	require.NoError(t, w.JS.DeleteStream(w.Ctx, streams.EventStream))
	_, err = w.JS.CreateStream(w.Ctx, config)
	require.NoError(t, err)
	happens(w, "1/0", "thing.broken", began.Add(10*time.Minute))
	happens(w, "2/0", "thing.broken", began.Add(5*time.Minute))
	happens(w, "refused/7/8", machines.EventRefused, began.Add(6*time.Minute))
	record(w, 3)
	require.Len(t, all(w), 3)
	happens(w, "refused/1009/8", machines.EventRefused, began.Add(6*time.Minute)) // not that which is recorded
	record(w, 4)
	require.Len(t, all(w), 4)
}

func TestRecordsTellWhoAndWhetherItWentWell(t *testing.T) {
	t.Parallel()
	m := consumertest.Things
	require.Equal(t, audit.RecordActor{Type: audit.User, ID: "ann"}, actorOf(m, "close", "ann"))
	require.Equal(t, audit.RecordActor{Type: audit.User, ID: "unnamed"}, actorOf(m, "close", ""), "a user who does not say who he is")
	require.Equal(t, audit.RecordActor{Type: audit.Scheduler, ID: "timer"}, actorOf(m, "late", ""))
	require.Equal(t, audit.RecordActor{Type: audit.System, ID: "provider"}, actorOf(m, "done", "provider"))
	require.Equal(t, audit.RecordResult{Success: true}, resultOf(m, "state", "thing.moved", []byte(`{"from":"open","to":"working"}`)))
	require.Equal(t, audit.RecordResult{Error: &audit.RecordError{Code: "thing.moved", Message: "its state is broken"}}, resultOf(m, "state", "thing.moved", []byte(`{"from":"working","to":"broken"}`)))
}
