package engine

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/consumers/bulkack"
	"github.com/bcc94042/instar/consumers/consumertest"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/embedded"
	"github.com/bcc94042/instar/streams/publish"
)

// Where each write is fsynced, what is done leaves the stream all the same, and nothing else does.
func TestWhatIsDoneIsSwept(t *testing.T) {
	t.Parallel()
	w := setup(t, consumertest.EachWrite, consumertest.Things).speculating().start()
	w.Ask(consumertest.ToThing("a", "create", ""))
	var all sync.WaitGroup
	for n := range 2 * bulkack.After {
		all.Go(func() {
			w.Ask(publish.Command{Machine: "thing", Key: "default.a", Name: "add", ID: fmt.Sprint(n), Body: []byte(`{"n":1}`)})
		})
	}
	all.Wait()
	require.Equal(t, 2*bulkack.After, w.Sum("a"))
	w.Ask(consumertest.ToThing("b", "create", ""))
	w.Ask(consumertest.ToThing("b", "work", `{"how":"well"}`)) // arms a timer in the same stream; nobody performs the work
	w.Eventually("an empty stream", func() bool { return len(w.Stream(streams.CommandStream, "instar.in.>")) == 0 })
	w.Eventually("the timer fires", func() bool { e, _ := w.Entity(consumertest.Things, "default.b"); return e.State == "broken" })
}

// An owner that dies before it sweeps leaves what it has done to the next one, which knows it.
func TestWhatWasNotSweptIsKnown(t *testing.T) {
	t.Parallel()
	w := setup(t, consumertest.EachWrite, consumertest.Things)
	nc, err := streams.Connect(streams.ConnectOptions{Server: w.Server, Name: "first"})
	require.NoError(t, err)
	defer nc.Close()
	first := &Engine{Deps: w.Deps}
	first.NC = nc // over which it sweeps; what it writes goes over the other one
	ctx, cancel := context.WithCancel(w.Ctx)
	var running sync.WaitGroup
	running.Go(func() { _ = first.Run(ctx) })
	w.Ask(consumertest.ToThing("a", "create", ""))
	for n := range 10 {
		w.Ask(publish.Command{Machine: "thing", Key: "default.a", Name: "add", ID: fmt.Sprint(n), Body: []byte(`{"n":1}`)})
	}
	nc.Close()
	cancel()
	running.Wait()
	before := len(w.Stream(streams.CommandStream, "instar.in.>"))
	w.start()
	w.Ask(consumertest.ToThing("a", "add", `{"n":1}`))
	w.Eventually("an empty stream", func() bool { return len(w.Stream(streams.CommandStream, "instar.in.>")) == 0 })
	t.Logf("%d commands came again", before)
	require.Equal(t, 11, w.Sum("a"))
	w.CheckStory("a")
}

// What only memory knows leaves the stream at once: if somebody wrote the value by hand, a refused command that came again
// might be taken after all. So there is a time when a refusal is gone, and what was applied before it is not.
func TestARefusalIsNotKeptForTheSweep(t *testing.T) {
	t.Parallel()
	w := setup(t, consumertest.EachWrite, consumertest.Things).start()
	w.Ask(consumertest.ToThing("a", "create", ""))
	w.Eventually("a refusal that is gone before the sweep", func() bool {
		w.Ask(consumertest.ToThing("a", "add", `{"n":1}`))
		refused := w.Ask(publish.Command{Machine: "thing", Key: "default.a", Name: "add", Expect: "1000000", Body: []byte(`{"n":10}`)})
		require.Equal(t, machines.CodePrecondition, refused.Refusal.Code)
		applied, kept := 0, 0
		for _, m := range w.Stream(streams.CommandStream, "instar.in.>") {
			if m.Header.Get(streams.HeaderExpect) == "" {
				applied++
			} else {
				kept++
			}
		}
		return applied > 0 && kept == 0
	})
	w.Eventually("an empty stream", func() bool { return len(w.Stream(streams.CommandStream, "instar.in.>")) == 0 })
}

// Somebody breaks a value by hand. What was taken before is not taken for what nobody can process.
func TestWhatWasTakenIsNoDeadLetter(t *testing.T) {
	t.Parallel()
	w := setup(t, consumertest.EachWrite, consumertest.Things).start()
	w.Ask(consumertest.ToThing("a", "create", ""))
	w.Ask(consumertest.ToThing("a", "add", `{"n":1}`))
	_, err := w.JS.Publish(w.Ctx, "$KV.things.default.a", []byte("broken"))
	require.NoError(t, err)
	refused := w.Ask(consumertest.ToThing("a", "add", `{"n":1}`)) // after a conflict
	require.Equal(t, machines.CodeParked, refused.Refusal.Code)
	w.Eventually("an empty stream", func() bool { return len(w.Stream(streams.CommandStream, "instar.in.>")) == 0 })
	letters, err := w.DeadLetters().List(w.Ctx, 0, 10)
	require.NoError(t, err)
	require.Len(t, letters, 1)
}

// While the disk syncs, acks wait, and nothing else does: not even a further command of the same entity.
func TestNoCommandWaitsForAcks(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, consumertest.Things)
	var disk sync.RWMutex // Lock is held by a sync that hangs
	w.Deps.Acking = disk.RLocker()
	w.start()
	w.Ask(consumertest.ToThing("a", "create", ""))
	waiting := func() int { return len(w.Stream(streams.CommandStream, "instar.in.>")) }
	w.Eventually("an empty stream", func() bool { return waiting() == 0 })
	disk.Lock()
	const n = 10
	answered := make(chan int)
	go func() {
		for range n {
			w.Ask(consumertest.ToThing("a", "add", `{"n":1}`))
		}
		w.Ask(consumertest.ToThing("b", "create", ""))
		answered <- waiting()
	}()
	select {
	case stored := <-answered:
		require.Equal(t, n+1, stored, "nothing is acked from before the values are synced until the commands are")
	case <-time.After(10 * time.Second):
		t.Error("a command waits for the disk")
	}
	disk.Unlock()
	w.Eventually("an empty stream", func() bool { return waiting() == 0 })
	require.Equal(t, n, w.Sum("a"))
	w.CheckStory("a")
}

// What has no commit is told when its command is on disk: else a loss of power would leave neither the command nor what tells of it, and who repeats it is answered otherwise.
func TestWhatHasNoCommitIsToldWhenItsCommandIsSynced(t *testing.T) {
	t.Parallel()
	for command, outcome := range map[string]string{"create": machines.Refused, "idle": machines.Unchanged} {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			toldWhenSynced(t, command, outcome)
		})
	}
}

func toldWhenSynced(t *testing.T, command, outcome string) {
	w := setup(t, embedded.OS, consumertest.Things)
	synced := make(chan func(error), 1) // the syncs of COMMANDS that the engine waits for
	appender, err := publish.NewAppender(w.NC, publish.AppenderOptions{Sync: func(stream string, done func(error)) {
		if stream == streams.CommandStream {
			synced <- done
			return
		}
		done(nil)
	}})
	require.NoError(t, err)
	t.Cleanup(appender.Close)
	w.Deps.Appender = appender
	w.start()
	w.Ask(consumertest.ToThing("a", "create", ""))
	answers := make(chan machines.Answer, 1)
	go func() { answers <- w.Ask(consumertest.ToThing("a", command, "")) }()
	var done func(error)
	select {
	case done = <-synced:
	case a := <-answers:
		t.Fatalf("it is told before its command is synced: %s", a.Outcome)
	}
	select {
	case <-answers:
		t.Error("it is told before its command is synced")
	case <-time.After(50 * time.Millisecond): // no longer than that: an answer that comes later is seen as right
	}
	done(nil)
	require.Equal(t, outcome, (<-answers).Outcome)
}

// It is not told earlier where another entity of its batch cannot be written.
func TestARefusalBesideAFailedWriteWaitsToo(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.OS, consumertest.Things).start()
	other := w.neighbour("a")
	for _, id := range []string{"a", other} {
		w.Ask(consumertest.ToThing(id, "create", ""))
	}
	w.Eventually("acks", func() bool { return len(w.Stream(streams.CommandStream, "instar.in.>")) == 0 })
	w.Stop()
	bucket, err := w.JS.Stream(w.Ctx, "KV_things")
	require.NoError(t, err)
	config := bucket.CachedInfo().Config
	config.MaxMsgSize = 100
	_, err = w.JS.UpdateStream(w.Ctx, config)
	require.NoError(t, err)
	_, err = w.Commands.Send(w.Ctx, consumertest.ToThing(other, "add", `{"n":1}`))
	require.NoError(t, err)
	answers := make(chan machines.Answer, 1)
	w.Running.Go(func() {
		if a, err := w.TryAsk(consumertest.ToThing("a", "create", "")); err == nil {
			answers <- a
		}
	})
	w.Eventually("both are stored", func() bool { return len(w.Stream(streams.CommandStream, "instar.in.>")) == 2 })
	appender, err := publish.NewAppender(w.NC, publish.AppenderOptions{Sync: func(stream string, done func(error)) {
		if stream != streams.CommandStream { // which is never on disk
			done(nil)
		}
	}})
	require.NoError(t, err)
	t.Cleanup(appender.Close)
	w.Deps.Appender = appender
	n := w.Noted()
	w.start()
	w.Eventually("the batch fails", func() bool { return n.Count("restarted p") > 0 })
	require.NoError(t, w.NC.Flush()) // what was told has come
	select {
	case a := <-answers:
		t.Errorf("it is told before its command is synced: %s %v", a.Outcome, a.Refusal)
	case <-time.After(200 * time.Millisecond): // as above
	}
}

// The ack of a refused command is lost, and it comes again when the stream has forgotten the id of its event: it is not told a second time.
func TestARefusalIsToldOnceWhenItsAckIsLost(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.OS, consumertest.Things)
	events, err := w.JS.Stream(w.Ctx, streams.EventStream)
	require.NoError(t, err)
	config := events.CachedInfo().Config
	config.Duplicates = 100 * time.Millisecond
	_, err = w.JS.UpdateStream(w.Ctx, config)
	require.NoError(t, err)
	consumer := fmt.Sprintf("p%02d", streams.Partition("thing", "default.a"))
	var decided atomic.Int32
	appender, err := publish.NewAppender(w.NC, publish.AppenderOptions{Sync: func(stream string, done func(error)) {
		if stream != streams.CommandStream { // which a refusal waits for, between its decision and its event
			done(nil)
			return
		}
		go func() {
			if decided.Add(1) == 1 {
				assert.NoError(t, w.JS.DeleteConsumer(w.Ctx, streams.CommandStream, consumer))
			} else {
				time.Sleep(2 * config.Duplicates) // which is what is waited for: the stream forgets
			}
			done(nil)
		}()
	}})
	require.NoError(t, err)
	t.Cleanup(appender.Close)
	w.Deps.Appender = appender
	w.start()
	w.Ask(consumertest.ToThing("a", "create", ""))
	require.Equal(t, machines.Refused, w.Ask(consumertest.ToThing("a", "create", "")).Outcome)
	w.Eventually("it comes again, and is acked", func() bool { return decided.Load() == 2 && len(w.Stream(streams.CommandStream, "instar.in.>")) == 0 })
	w.Told("thing", "default.a", "1 thing.created", "1 command.refused")
}
