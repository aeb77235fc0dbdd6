package effects

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/consumers/consumertest"
	"github.com/bcc94042/instar/internal/panics"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/embedded"
)

func TestEffects(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, consumertest.Things).start()
	k := w.withWorkers()
	for _, how := range []string{"well", "second", "never", "invalid", "hang", "panic", "large", "unwritable", "wrong", "verbose"} {
		w.Ask(consumertest.ToThing(how, "create", ""))
		w.Ask(consumertest.ToThing(how, "work", `{"how":"`+how+`"}`))
	}
	require.Equal(t, "worked", w.Reaches("well", "open").Data.(*consumertest.Thing).Text)
	require.Equal(t, "worked", w.Reaches("second", "open").Data.(*consumertest.Thing).Text)
	w.Told("thing", "default.second", "1 thing.created", "2 thing.working", "3 effect.retrying", "4 effect.retried", "5 thing.worked")
	require.Equal(t, "no such work", w.Reaches("invalid", "broken").LastError.Message)
	require.Equal(t, "not today", w.Reaches("never", "broken").LastError.Message)
	require.Equal(t, "result-too-large", w.Reaches("large", "broken").LastError.Code)
	require.Equal(t, "result-invalid", w.Reaches("wrong", "broken").LastError.Code)
	require.Equal(t, "result-unwritable", w.Reaches("unwritable", "broken").LastError.Code)
	require.Len(t, w.Reaches("verbose", "broken").LastError.Message, machines.MaxFailure+len("…"))
	w.Reaches("hang", "broken") // by its deadline
	w.Reaches("panic", "broken")
	k.Mu.Lock()
	defer k.Mu.Unlock()
	require.Equal(t, 3, k.Tries["default.never"])
	require.Equal(t, 3, k.Tries["default.wrong"], "an engine of a later release may know the form")
	for _, how := range []string{"invalid", "large", "unwritable", "verbose"} {
		require.Equal(t, 1, k.Tries["default."+how], how)
	}
	require.Positive(t, panics.Counts()["effect"])
}

func TestUnwantedAndUnreadableEffects(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, consumertest.Things).start()
	k := w.withWorkers()
	w.Ask(consumertest.ToThing("a", "create", ""))
	stale, err := json.Marshal(machines.Task{Machine: "thing", Namespace: "default", ID: "a", Effect: "work", Attempt: "work-99-1"})
	require.NoError(t, err)
	_, err = w.JS.Publish(w.Ctx, "instar.fx.thing.work.default.a", stale)
	require.NoError(t, err)
	_, err = w.JS.Publish(w.Ctx, "instar.fx.thing.work.default.a", []byte("{"))
	require.NoError(t, err)
	w.Eventually("the unreadable one is buried, both are gone", func() bool {
		letters, err := w.DeadLetters().List(w.Ctx, 0, 10)
		return err == nil && len(letters) == 1 && len(w.Stream(streams.EffectStream, "instar.fx.>")) == 0
	})
	k.Mu.Lock()
	defer k.Mu.Unlock()
	require.Empty(t, k.Tries)
}

// held is a performer that says when it has a task, and ends it when it is told to.
type held struct{ begun, end chan struct{} }

func (h held) Perform(ctx context.Context, _ machines.Task) machines.Result {
	h.begun <- struct{}{}
	select {
	case <-h.end:
	case <-ctx.Done():
	}
	return machines.Result{Data: consumertest.WorkBody{How: "worked"}}
}

// Somebody who may publish commands of another entity, and read what is under way for this one, cannot have its result taken
// for a repetition: the stream compares ids on all subjects, and drops what it has seen.
func TestNobodyTakesTheIDOfAResult(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, consumertest.Things).start()
	work := held{make(chan struct{}), make(chan struct{})}
	w.Also((&Workers{Deps: w.Deps, Performer: ByMachine{"thing": work}.Of}).Run)
	w.Ask(consumertest.ToThing("a", "create", ""))
	w.Ask(consumertest.ToThing("a", "work", `{"how":"x"}`))
	<-work.begun
	e, _ := w.Entity(consumertest.Things, "default.a")
	attempt := e.Effects["work"].ID
	for _, id := range []string{attempt, attempt + "-done", attempt + "-failed", "work-2-1-done"} {
		foreign := &nats.Msg{Subject: "instar.cmd.thing.other.x.create", Header: nats.Header{streams.HeaderID: {"thing/default.a/" + id}}}
		_, err := w.JS.PublishMsg(w.Ctx, foreign)
		require.NoError(t, err)
	}
	close(work.end)
	require.Equal(t, "worked", w.Reaches("a", "open").Data.(*consumertest.Thing).Text)
}

// A worker that dies between the result and the ack does its task again or finds that nobody waits; a result that comes twice,
// under another id, is refused by its attempt.
func TestAResultThatComesTwiceIsTakenOnce(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, consumertest.Things).start()
	w.Ask(consumertest.ToThing("a", "create", ""))
	w.Ask(consumertest.ToThing("a", "work", `{"how":"x"}`))
	e, _ := w.Entity(consumertest.Things, "default.a")
	k := &kind{w: &Workers{Deps: w.WithDefaults()}, m: consumertest.Things, fx: consumertest.Things.Effects[0]}
	task := machines.Task{Machine: "thing", Namespace: "default", ID: "a", Effect: "work", Attempt: e.Effects["work"].ID}
	for i, want := range []string{machines.Applied, machines.Refused} {
		cmd, err := k.report(&task, machines.Result{Data: consumertest.WorkBody{How: "worked"}}, "")
		require.NoError(t, err)
		require.Equal(t, want, w.Ask(cmd).Outcome, i)
	}
	w.Told("thing", "default.a", "1 thing.created", "2 thing.working", "3 thing.worked", "3 command.refused")
}

// Nobody waits for the task of an entity that was deleted, of which its bucket keeps a marker.
func TestADeletedEntityWantsNothing(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, consumertest.Things)
	for _, id := range []string{"never", "purged", "deleted"} {
		key := "default." + id
		switch id {
		case "purged":
			require.NoError(t, w.Bucket("things").Purge(w.Ctx, key))
		case "deleted":
			require.NoError(t, w.Bucket("things").Delete(w.Ctx, key))
		}
		wanted, err := (&kind{w: &Workers{Deps: w.Deps}, m: consumertest.Things}).wanted(w.Ctx, &machines.Task{Machine: "thing", Namespace: "default", ID: id, Effect: "work"})
		require.NoError(t, err)
		require.False(t, wanted)
	}
}
