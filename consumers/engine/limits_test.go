package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/consumers"
	"github.com/bcc94042/instar/consumers/consumertest"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/embedded"
)

// bare publishes a command as anybody with the permission may, with whatever headers.
func (w *world) bare(id, name, body string, headers ...string) {
	w.T.Helper()
	m := &nats.Msg{Subject: w.Names.Command("thing", "default."+id, name), Data: []byte(body), Header: nats.Header{}}
	for i := 0; i+1 < len(headers); i += 2 {
		m.Header[headers[i]] = []string{headers[i+1]}
	}
	_, err := w.JS.PublishMsg(w.Ctx, m)
	require.NoError(w.T, err)
}

// A sender that names another place than an inbox for its answer gets none, and the place is left alone.
func TestAnswersGoToInboxesOnly(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, consumertest.Things).speculating().start()
	w.Ask(consumertest.ToThing("a", "create", ""))
	for _, reply := range []string{"$KV.things.default.a", "instar.evt.thing.default.a.thing.added", "$JS.API.STREAM.PURGE.EVENTS", strings.Repeat("x", 5000), "_INBOX.*", "_INBOX.>", "_INBOX. x", "_INBOX." + strings.Repeat("y", 4090)} {
		w.bare("a", "add", `{"n":1}`, streams.HeaderReply, reply)
	}
	w.Eventually("all are applied", func() bool { return w.Sum("a") == 8 })
	require.True(t, w.NC.IsConnected())
	w.CheckStory("a")
}

// Whatever is too large for an answer, an event or a letter is cut; the partition goes on.
func TestWhatIsTooLargeIsCut(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, consumertest.Things).start()
	w.Ask(consumertest.ToThing("a", "create", ""))
	huge := strings.Repeat("‹", 60_000)
	refused := w.Ask(consumertest.ToThing("a", "add", `{"`+huge+`":1}`))
	require.Equal(t, machines.CodeValidation, refused.Refusal.Code)
	require.Less(t, len(refused.Refusal.Message), 2*consumers.MaxWords)
	w.bare("a", "add", `{"n":1}`, streams.HeaderTrace, strings.Repeat("a", 60_000))
	w.bare("a", "add", `{"n":1}`, streams.HeaderActor, strings.Repeat("b", 60_000))
	w.bare("a", "add", `{"n":1}`, streams.HeaderID, strings.Repeat("c", 60_000))
	w.bare("a", "poison", "", streams.HeaderReason, strings.Repeat("d", 60_000))
	_, err := w.JS.Publish(w.Ctx, "instar.cmd.nope.default.a.add", []byte(strings.Repeat("e", 1<<20-200)))
	require.NoError(t, err)
	w.Eventually("all are taken", func() bool { return w.Sum("a") == 2 })
	w.Eventually("three letters", func() bool {
		letters, err := w.DeadLetters().List(w.Ctx, 0, 10)
		return err == nil && len(letters) == 3
	})
	letters, err := w.DeadLetters().List(w.Ctx, 0, 10)
	require.NoError(t, err)
	for _, l := range letters {
		if l.Machine == "nope" {
			require.ErrorIs(t, w.DeadLetters().Redrive(w.Ctx, l.Seq), streams.ErrSubject, "only its beginning is there")
		}
	}
	w.CheckStory("a")
}

// A power loss may cost COMMANDS its last messages, and their sequences are given out again: what comes under them
// was not taken before.
func TestSequencesThatAreGivenOutAgain(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, consumertest.Things).start()
	w.Ask(consumertest.ToThing("a", "create", ""))
	for range 5 {
		w.Ask(consumertest.ToThing("a", "add", `{"n":1}`))
	}
	w.Stop()
	s, err := w.JS.Stream(w.Ctx, streams.CommandStream)
	require.NoError(t, err)
	config := s.CachedInfo().Config
	require.NoError(t, w.JS.DeleteStream(w.Ctx, streams.CommandStream))
	_, err = w.JS.CreateStream(w.Ctx, config)
	require.NoError(t, err)
	w.start()
	for i := range 7 {
		a := w.Ask(consumertest.ToThing("a", "add", fmt.Sprintf(`{"n":%d}`, 10)))
		require.Equal(t, machines.Applied, a.Outcome, i)
	}
	require.Equal(t, 75, w.Sum("a"))
	w.CheckStory("a")
}

// More commands of one entity than it remembers arrive at once: each is answered for what it was.
func TestMoreThanTheRingAtOnce(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, consumertest.Things)
	_, err := w.Commands.Send(w.Ctx, consumertest.ToThing("a", "create", ""))
	require.NoError(t, err)
	inbox := w.NC.NewInbox()
	answers, err := w.NC.SubscribeSync(inbox)
	require.NoError(t, err)
	const n = 3 * maxRecent
	for i := range n {
		w.bare("a", "add", `{"n":1}`, streams.HeaderReply, inbox, streams.HeaderID, streams.CommandID("thing", "default.a", fmt.Sprint(i)))
	}
	w.start()
	for range n {
		m, err := answers.NextMsg(10 * time.Second)
		require.NoError(t, err)
		require.Contains(t, string(m.Data), `"outcome":"applied"`)
	}
	require.Equal(t, n, w.Sum("a"))
	w.CheckStory("a")
}

// A parked entity takes commands again as soon as its value is repaired.
func TestARepairedValueIsTaken(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, consumertest.Things).start()
	w.Ask(consumertest.ToThing("a", "create", ""))
	bucket, err := w.JS.KeyValue(w.Ctx, "things")
	require.NoError(t, err)
	good, err := bucket.Get(w.Ctx, "default.a")
	require.NoError(t, err)
	w.Stop()
	_, err = bucket.Put(w.Ctx, "default.a", []byte("{"))
	require.NoError(t, err)
	w.start()
	require.Equal(t, machines.CodeParked, w.Ask(consumertest.ToThing("a", "add", `{"n":1}`)).Refusal.Code)
	_, err = bucket.Put(w.Ctx, "default.a", good.Value())
	require.NoError(t, err)
	require.Equal(t, machines.Applied, w.Ask(consumertest.ToThing("a", "add", `{"n":1}`)).Outcome)
	w.CheckStory("a")
}

// A parked entity is repaired by a command: once, by whoever knows what is stored, with a value that can be used. The old value is kept in the event,
// no version is given out twice, and what the entity waits for is made again.
func TestAParkedValueIsRepaired(t *testing.T) {
	t.Parallel()
	w, n := noted(t, consumertest.Things)
	w.start()
	w.Ask(consumertest.ToThing("a", "create", ""))
	bucket, err := w.JS.KeyValue(w.Ctx, "things")
	require.NoError(t, err)
	good, err := bucket.Get(w.Ctx, "default.a")
	require.NoError(t, err)
	w.Ask(consumertest.ToThing("a", "add", `{"n":1}`))
	w.Eventually("its events", func() bool { return len(w.Events("thing", "default.a")) == 2 })
	repair := func(revision uint64, value string) machines.Answer {
		body, err := json.Marshal(map[string]any{"revision": revision, "value": json.RawMessage(value)})
		require.NoError(t, err)
		return w.Ask(consumertest.ToThing("a", machines.CommandRepair, string(body)))
	}
	require.Equal(t, machines.CodeGuard, repair(2, string(good.Value())).Refusal.Code, "it is not parked")
	w.Stop()
	broken, err := bucket.Put(w.Ctx, "default.a", []byte(`{"schema":7,"old":true}`))
	require.NoError(t, err)
	w.start()
	require.Equal(t, machines.CodeParked, w.Ask(consumertest.ToThing("a", "add", `{"n":1}`)).Refusal.Code)
	other := strings.Replace(string(good.Value()), `"id":"a"`, `"id":"b"`, 1)
	for _, c := range []struct {
		revision    uint64
		value, code string
	}{{broken, `{"schema":7}`, machines.CodeValidation}, {broken, other, machines.CodeValidation}, {broken, `[]`, machines.CodeValidation}, {broken - 1, string(good.Value()), machines.CodePrecondition}} {
		require.Equal(t, c.code, repair(c.revision, c.value).Refusal.Code, c.value)
	}
	require.Equal(t, machines.CodeParked, w.Ask(consumertest.ToThing("a", "add", `{"n":1}`)).Refusal.Code)
	wide := fmt.Sprintf(`{"schema":7,"old":%q}`, strings.Repeat("<", 200<<10))
	broken, err = bucket.Put(w.Ctx, "default.a", []byte(wide))
	require.NoError(t, err)
	require.Equal(t, machines.CodeGuard, repair(broken, string(good.Value())).Refusal.Code, "an event could not keep it")
	broken, err = bucket.Put(w.Ctx, "default.a", []byte(`{"schema":7,"old":true}`))
	require.NoError(t, err)
	expecting := func(revision string) machines.Answer {
		body, err := json.Marshal(map[string]any{"revision": broken, "value": json.RawMessage(good.Value())})
		require.NoError(t, err)
		cmd := consumertest.ToThing("a", machines.CommandRepair, string(body))
		cmd.Expect, cmd.ID = revision, "its-key"
		return w.Ask(cmd)
	}
	require.Equal(t, machines.CodePrecondition, expecting("999").Refusal.Code)
	still, err := bucket.Get(w.Ctx, "default.a")
	require.NoError(t, err)
	require.Equal(t, broken, still.Revision(), "what is refused changes nothing")
	require.Equal(t, machines.CodeNotFound, w.Ask(consumertest.ToThing("nobody", machines.CommandRepair, `{"revision":1,"value":{}}`)).Refusal.Code)
	a := expecting(fmt.Sprint(broken))
	require.Equal(t, machines.Applied, a.Outcome)
	require.Equal(t, a.Version, expecting(fmt.Sprint(broken)).Version, "under its key it is answered as then")
	require.EqualValues(t, 3, a.Version, "above that of every event")
	require.Equal(t, machines.CodeGuard, repair(broken, string(good.Value())).Refusal.Code, "once")
	require.Equal(t, machines.Applied, w.Ask(consumertest.ToThing("a", "add", `{"n":5}`)).Outcome)
	require.Equal(t, 5, w.Sum("a"))
	w.Eventually("its events", func() bool { return len(w.Events("thing", "default.a")) == 6 })
	events := w.Stream(streams.EventStream, "instar.evt.thing.default.a."+machines.EventReconciled)
	require.Len(t, events, 1)
	require.Contains(t, string(events[0].Data), `"problem":"repaired"`)
	require.Contains(t, string(events[0].Data), `"replaced":{"schema":7,"old":true}`)
	require.Zero(t, n.Count("reconciled"), "nothing was lost")
	ids := map[string]bool{}
	for _, m := range w.Stream(streams.EventStream, "instar.evt.thing.default.a.>") {
		require.False(t, ids[m.Header.Get("ce-id")])
		ids[m.Header.Get("ce-id")] = true
	}
}

// A refusal that nothing remembers is told when it cannot come again: until then it may be decided anew.
func TestParkedIsAnsweredWhenItCannotComeAgain(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, consumertest.Things).start()
	w.Ask(consumertest.ToThing("a", "create", ""))
	beside := "b"
	for n := 0; streams.Partition("thing", "default."+beside) != streams.Partition("thing", "default.a"); n++ {
		beside = fmt.Sprintf("b%d", n)
	}
	bucket, err := w.JS.KeyValue(w.Ctx, "things")
	require.NoError(t, err)
	_, err = bucket.Put(w.Ctx, "default."+beside, []byte("{"))
	require.NoError(t, err)
	for n := range 5 {
		inbox := w.NC.NewInbox()
		answers, err := w.NC.SubscribeSync(inbox)
		require.NoError(t, err)
		forged := nats.NewMsg(w.Names.Event("thing", "default.a", "thing.added"))
		forged.Header.Set(streams.HeaderID, fmt.Sprintf("thing/default.a/%d/0", 9000+n))
		_, err = w.JS.PublishMsg(w.Ctx, forged) // the end of the next batch fails, after its commit point
		require.NoError(t, err)
		w.bare("a", "add", `{"n":1}`)
		w.bare(beside, "add", `{"n":1}`, streams.HeaderReply, inbox, streams.HeaderID, streams.CommandID("thing", "default."+beside, fmt.Sprint("parked-", n)))
		m, err := answers.NextMsg(10 * time.Second)
		require.NoError(t, err)
		require.Contains(t, string(m.Data), machines.CodeParked)
		w.Ask(consumertest.ToThing("a", "add", `{"n":1}`)) // behind them: the batch is over
		require.NoError(t, w.NC.Flush())
		more, _, err := answers.Pending()
		require.NoError(t, err)
		require.Zero(t, more)
		require.NoError(t, answers.Unsubscribe())
	}
	require.Equal(t, 10, w.Sum("a"))
}

// What a stream will never take, such as an effect that is too large, a timer for a year that the server cannot read or a message
// under what is no subject, becomes a dead letter; the partition goes on.
func TestWhatAStreamNeverTakesIsBuried(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, consumertest.Things).start()
	w.Ask(consumertest.ToThing("a", "create", ""))
	p := &partition{e: w.engine, name: "p00"}
	s := &cachedEntity{m: consumertest.Things, key: "default.b"}
	for i, m := range []machines.Message{
		{Kind: machines.KindEffect, Name: "work", Body: []byte(`"` + strings.Repeat("x", 1<<20+1) + `"`)},
		{Kind: machines.KindEffect, Name: "x y"},
		{Kind: machines.KindTimer, Name: "deadline", At: time.Date(20_000, 1, 1, 0, 0, 0, 0, time.UTC), Body: []byte(`{"timer":"deadline","armed":2}`)},
		{Kind: machines.KindTimer, Name: "a..b", At: time.Now().Add(time.Hour)},
		{Kind: machines.KindTimer, Name: strings.Repeat("c", 5000), At: time.Now().Add(time.Hour)},
		{Kind: machines.KindEvent, Name: ""},
		{Kind: machines.KindEvent, Name: strings.Repeat("c", 100_000)},
	} {
		m.Version = uint64(i + 1)
		s.transient = append(s.transient, m, machines.Message{Kind: machines.KindEvent, Name: "thing.added", Version: m.Version, N: 1})
	}
	ctx, cancel := context.WithTimeout(w.Ctx, 20*time.Second)
	defer cancel()
	require.NoError(t, p.publish(ctx, []*cachedEntity{s}, nil))
	letters, err := w.DeadLetters().List(w.Ctx, 0, 10)
	require.NoError(t, err)
	require.Len(t, letters, 7)
	require.Len(t, w.Stream(streams.EventStream, w.Names.EventsOf("thing", s.key)), 7)
}
