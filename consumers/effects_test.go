package consumers

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/internal/panics"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
)

// worker performs the effects of things as their text says.
type worker struct {
	mu    sync.Mutex
	tries map[string]int // by key
}

func (k *worker) Perform(ctx context.Context, t machines.Task) machines.Result {
	k.mu.Lock()
	k.tries[t.Key()]++
	try := k.tries[t.Key()]
	k.mu.Unlock()
	var b workBody
	if err := json.Unmarshal(t.Data, &b); err != nil {
		return machines.Result{Failure: &machines.Failure{Code: "invalid", Message: err.Error()}}
	}
	switch b.How {
	case "invalid":
		return machines.Result{Failure: &machines.Failure{Code: "invalid", Message: "no such work"}}
	case "second":
		if try < 2 {
			return machines.Result{Failure: &machines.Failure{Code: "unavailable", Message: "not now", Retryable: true}}
		}
	case "never":
		return machines.Result{Failure: &machines.Failure{Code: "unavailable", Message: "not today", Retryable: true}}
	case "hang":
		<-context.WithoutCancel(ctx).Done() // for ever
	case "panic":
		panic("worker")
	case "large":
		return machines.Result{Data: workBody{How: strings.Repeat("x", 300<<10)}}
	case "unwritable":
		return machines.Result{Data: make(chan int)}
	case "verbose":
		return machines.Result{Failure: &machines.Failure{Code: "invalid", Message: strings.Repeat("x", 2<<20)}}
	}
	return machines.Result{Data: workBody{How: "worked"}}
}

func (w *world) withWorkers() *worker {
	k := &worker{tries: map[string]int{}}
	workers := &Workers{Deps: w.Deps, Performers: map[string]Performer{"thing": k}}
	w.also(workers.Run)
	return k
}

func (w *world) reaches(id, state string) machines.Entity {
	w.t.Helper()
	var e machines.Entity
	w.eventually(id+" is "+state, func() bool { e, _ = w.entity(thingMachine, "default."+id); return e.State == state })
	return e
}

func TestEffects(t *testing.T) {
	t.Parallel()
	w := setup(t, streams.Interval, thingMachine).start()
	k := w.withWorkers()
	for _, how := range []string{"well", "second", "never", "invalid", "hang", "panic", "large", "unwritable", "verbose"} {
		w.ask(toThing(how, "create", ""))
		w.ask(toThing(how, "work", `{"how":"`+how+`"}`))
	}
	require.Equal(t, "worked", w.reaches("well", "open").Data.(*thing).Text)
	require.Equal(t, "worked", w.reaches("second", "open").Data.(*thing).Text)
	require.Equal(t, []string{
		"1 thing.created", "2 thing.working", "3 effect.retrying", "4 effect.retried", "5 thing.worked",
	}, w.events("thing", "default.second"))
	require.Equal(t, "no such work", w.reaches("invalid", "broken").LastError.Message)
	require.Equal(t, "not today", w.reaches("never", "broken").LastError.Message)
	require.Equal(t, "result-too-large", w.reaches("large", "broken").LastError.Code)
	require.Equal(t, "result-unwritable", w.reaches("unwritable", "broken").LastError.Code)
	require.Len(t, w.reaches("verbose", "broken").LastError.Message, machines.MaxFailure+len("…"))
	w.reaches("hang", "broken") // by its deadline
	w.reaches("panic", "broken")
	k.mu.Lock()
	defer k.mu.Unlock()
	require.Equal(t, 3, k.tries["default.never"])
	for _, how := range []string{"invalid", "large", "unwritable", "verbose"} {
		require.Equal(t, 1, k.tries["default."+how], how)
	}
	require.Positive(t, panics.Counts()["effect"])
}

func TestUnwantedAndUnreadableEffects(t *testing.T) {
	t.Parallel()
	w := setup(t, streams.Interval, thingMachine).start()
	k := w.withWorkers()
	w.ask(toThing("a", "create", ""))
	stale, err := json.Marshal(machines.Task{Machine: "thing", Namespace: "default", ID: "a", Effect: "work", Attempt: "work-99-1"})
	require.NoError(t, err)
	_, err = w.JS.Publish(w.ctx, "instar.fx.thing.work.default.a", stale)
	require.NoError(t, err)
	_, err = w.JS.Publish(w.ctx, "instar.fx.thing.work.default.a", []byte("{"))
	require.NoError(t, err)
	w.eventually("the unreadable one is buried, both are gone", func() bool {
		letters, err := w.dead().List(w.ctx, 0, 10)
		return err == nil && len(letters) == 1 && len(w.stream(streams.EffectStream, "instar.fx.>")) == 0
	})
	k.mu.Lock()
	defer k.mu.Unlock()
	require.Empty(t, k.tries)
}

func TestTimersSurviveTheEngine(t *testing.T) {
	t.Parallel()
	w := setup(t, streams.Interval, thingMachine).start()
	w.ask(toThing("a", "create", ""))
	w.ask(toThing("a", "work", `{"how":"nobody works"}`))
	e, _ := w.entity(thingMachine, "default.a")
	require.Contains(t, e.Timers, "deadline")
	w.stop()
	require.NoError(t, w.server.Restart())
	w.eventually("the connection is back", w.NC.IsConnected)
	w.start()
	w.reaches("a", "broken")
	w.checkStory("a")
}

// A timer that fires before its time, by the clock of the stream, is not taken: it is armed again and ends the state when
// its time has come.
func TestATimerThatFiresEarlyIsArmedAgain(t *testing.T) {
	t.Parallel()
	w := setup(t, streams.Interval, thingMachine).start()
	w.ask(toThing("a", "create", ""))
	w.ask(toThing("a", "work", `{"how":"nobody works"}`))
	e, _ := w.entity(thingMachine, "default.a")
	deadline := e.Timers["deadline"]
	subject := w.Names.Timer("thing", "default.a", "deadline")
	commands, err := w.JS.Stream(w.ctx, streams.CommandStream)
	require.NoError(t, err)
	w.eventually("the schedule", func() bool { return len(w.stream(streams.CommandStream, subject)) == 1 })
	require.NoError(t, commands.Purge(w.ctx, jetstream.WithPurgeSubject(subject))) // as the server does when it fires

	body, err := json.Marshal(machines.Elapsed{Timer: "deadline", Armed: deadline.Armed})
	require.NoError(t, err)
	answer := w.ask(toThing("a", machines.CommandElapsed, string(body)))
	require.Equal(t, machines.Ignored, answer.Outcome)
	require.Equal(t, "working", answer.State)
	require.False(t, w.reaches("a", "broken").UpdatedAt.Before(deadline.At))
	w.checkStory("a")
}

// An outdated schedule that fires makes the server purge its subject, with a newer schedule if one was just stored.
func TestNewerTimerSurvivesTheFiringOfAnOlderOne(t *testing.T) {
	t.Parallel()
	w := setup(t, streams.Interval).start()
	w.ask(createCommand("a"))
	commands, err := w.JS.Stream(w.ctx, streams.CommandStream)
	require.NoError(t, err)
	subject := w.Names.Timer("service", "default.a", "deadline")
	var armed *jetstream.RawStreamMsg
	w.eventually("the schedule", func() bool { armed, err = commands.GetLastMsgForSubject(w.ctx, subject); return err == nil })
	require.NoError(t, commands.Purge(w.ctx, jetstream.WithPurgeSubject(subject)))

	answer := w.ask(streams.Command{Machine: "service", Key: "default.a", Name: machines.CommandElapsed, Body: []byte(`{"timer":"deadline","armed":0}`)})
	require.Equal(t, machines.Ignored, answer.Outcome)
	w.eventually("the schedule again", func() bool {
		again, err := commands.GetLastMsgForSubject(w.ctx, subject)
		return err == nil && again.Header.Get("Nats-Schedule") == armed.Header.Get("Nats-Schedule") && string(again.Data) == string(armed.Data)
	})
}

// held is a performer that says when it has a task, and ends it when it is told to.
type held struct{ begun, end chan struct{} }

func (h held) Perform(ctx context.Context, _ machines.Task) machines.Result {
	h.begun <- struct{}{}
	select {
	case <-h.end:
	case <-ctx.Done():
	}
	return machines.Result{Data: workBody{How: "worked"}}
}

// Somebody who may publish commands of another entity, and read what is under way for this one, cannot have its result taken
// for a repetition: the stream compares ids on all subjects, and drops what it has seen.
func TestNobodyTakesTheIDOfAResult(t *testing.T) {
	t.Parallel()
	w := setup(t, streams.Interval, thingMachine).start()
	work := held{make(chan struct{}), make(chan struct{})}
	w.also((&Workers{Deps: w.Deps, Performers: map[string]Performer{"thing": work}}).Run)
	w.ask(toThing("a", "create", ""))
	w.ask(toThing("a", "work", `{"how":"x"}`))
	<-work.begun
	e, _ := w.entity(thingMachine, "default.a")
	attempt := e.Effects["work"].ID
	for _, id := range []string{attempt, attempt + "-done", attempt + "-failed", "work-2-1-done"} {
		foreign := &nats.Msg{Subject: "instar.cmd.thing.other.x.create", Header: nats.Header{streams.HeaderID: {"thing/default.a/" + id}}}
		_, err := w.JS.PublishMsg(w.ctx, foreign)
		require.NoError(t, err)
	}
	close(work.end)
	require.Equal(t, "worked", w.reaches("a", "open").Data.(*thing).Text)
}

// A worker that dies between the result and the ack does its task again or finds that nobody waits; a result that comes twice,
// under another id, is refused by its attempt.
func TestAResultThatComesTwiceIsTakenOnce(t *testing.T) {
	t.Parallel()
	w := setup(t, streams.Interval, thingMachine).start()
	w.ask(toThing("a", "create", ""))
	w.ask(toThing("a", "work", `{"how":"x"}`))
	e, _ := w.entity(thingMachine, "default.a")
	k := &kind{w: &Workers{Deps: w.withDefaults()}, m: thingMachine, fx: thingMachine.Effects[0]}
	task := machines.Task{Machine: "thing", Namespace: "default", ID: "a", Effect: "work", Attempt: e.Effects["work"].ID}
	for i, want := range []string{machines.Applied, machines.Refused} {
		cmd, err := k.report(&task, machines.Result{Data: workBody{How: "worked"}}, "")
		require.NoError(t, err)
		require.Equal(t, want, w.ask(cmd).Outcome, i)
	}
	w.eventually("its events", func() bool { return len(w.events("thing", "default.a")) == 4 })
	require.Equal(t, []string{"1 thing.created", "2 thing.working", "3 thing.worked", "3 command.refused"}, w.events("thing", "default.a"))
}

// The schedules of an entity that has ended do not lie in the stream until they fire.
func TestAnEndCancelsTheTimers(t *testing.T) {
	t.Parallel()
	w := setup(t, streams.Interval, thingMachine).start()
	w.ask(toThing("a", "create", ""))
	w.ask(toThing("a", "work", `{"how":"x"}`))
	w.eventually("its schedule", func() bool { return len(w.stream(streams.CommandStream, "instar.timer.>")) == 1 })
	e, _ := w.entity(thingMachine, "default.a")
	w.ask(streams.Command{Machine: "thing", Key: "default.a", Name: "done", Body: fmt.Appendf(nil, `{"attempt":%q,"data":{"how":"x"}}`, e.Effects["work"].ID)})
	w.ask(toThing("a", "close", ""))
	w.eventually("no schedule", func() bool { return len(w.stream(streams.CommandStream, "instar.timer.>")) == 0 })
	require.Less(t, time.Since(e.UpdatedAt), 2*time.Second, "before it would have fired")
}
