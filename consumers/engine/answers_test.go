package engine

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/consumers/consumertest"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/service"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/embedded"
	"github.com/bcc94042/instar/streams/publish"
)

func (w *world) raw(cmd publish.Command) *nats.Msg {
	w.T.Helper()
	ctx, cancel := context.WithTimeout(w.Ctx, 20*time.Second)
	defer cancel()
	m, err := w.Commands.AskMsg(ctx, cmd, nil)
	require.NoError(w.T, err)
	return m
}

// Any number of senders of one entity get the answer of then, byte for byte: at once, and after a restart that forgot which
// ids the stream had seen, whatever the entity has taken since.
func TestAKeyIsAnsweredOnce(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, consumertest.Things).start()
	w.Ask(consumertest.ToThing("a", "create", ""))
	const n = 150
	commands := make([]publish.Command, n)
	answers := make([]string, n)
	var all sync.WaitGroup
	for i := range commands {
		commands[i] = consumertest.ToThing("a", []string{"add", "add", "idle", "explode"}[i%4], "")
		if commands[i].Name == "add" {
			commands[i].Body = fmt.Appendf(nil, `{"n":%d}`, 1-2*(i%2)) // every second one is refused
		}
		commands[i].ID = fmt.Sprintf("%d of many", i)
		all.Go(func() { answers[i] = string(w.raw(commands[i]).Data) })
	}
	all.Wait()
	sum, version := w.Sum("a"), w.version("a")
	again := func(when string) {
		t.Helper()
		for i, cmd := range commands {
			m := w.raw(cmd)
			require.Equal(t, answers[i], string(m.Data), when)
			require.True(t, streams.Replayed(m), when)
		}
		require.Equal(t, sum, w.Sum("a"), when)
		require.Equal(t, version, w.version("a"), when)
	}
	again("at once")
	events := len(w.Events("thing", "default.a"))
	w.Ask(consumertest.ToThing("a", "add", `{"n":1}`))
	sum, version = sum+1, version+1
	w.Stop()
	w.Empty(streams.CommandStream) // and what it has seen
	w.start()
	again("after a restart")
	w.Eventually("its event", func() bool { return len(w.Events("thing", "default.a")) > events })
	require.Len(t, w.Events("thing", "default.a"), events+1, "a refusal is told once")
	other := commands[0]
	other.Body = []byte(`{"n":77}`)
	refused := w.Ask(other)
	require.Equal(t, machines.CodeKeyReused, refused.Refusal.Code)
	require.False(t, refused.Replayed, "it is no answer of then")
}

// The owner dies between the write of the value and that of the answer: the value has it.
func TestAKeyWhoseAnswerWasNotKeptYet(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, consumertest.Things).start()
	w.Ask(consumertest.ToThing("a", "create", ""))
	cmd := consumertest.ToThing("a", "add", `{"n":1}`)
	cmd.ID = "once"
	first := w.raw(cmd)
	w.Stop()
	bucket, err := w.JS.Stream(w.Ctx, "KV_"+streams.IdempotencyBucket)
	require.NoError(t, err)
	require.NoError(t, bucket.Purge(w.Ctx))
	w.Empty(streams.CommandStream)
	w.start()
	second := w.raw(cmd)
	require.Equal(t, string(first.Data), string(second.Data))
	require.True(t, streams.Replayed(second))
	require.Equal(t, 1, w.Sum("a"))
}

// The event of a refusal could not be stored when its owner died: its answer is not kept then, or whoever takes the command again would repeat it and tell nobody.
func TestARefusalThatWasNotToldYet(t *testing.T) {
	t.Parallel()
	w, n := noted(t, consumertest.Things)
	w.start()
	w.Ask(consumertest.ToThing("a", "create", ""))
	w.Eventually("the birth is told", func() bool { return len(w.Events("thing", "default.a")) == 1 })
	events, err := w.JS.Stream(w.Ctx, streams.EventStream)
	require.NoError(t, err)
	full := events.CachedInfo().Config
	full.MaxMsgs, full.Discard = 1, jetstream.DiscardNew
	_, err = w.JS.UpdateStream(w.Ctx, full)
	require.NoError(t, err)
	cmd := consumertest.ToThing("a", "add", `{"n":-1}`)
	cmd.ID = "once"
	require.Equal(t, machines.Refused, w.Ask(cmd).Outcome)
	w.Eventually("the partition has failed and taken it again", func() bool { return n.Count("restarted") > 1 })
	require.Empty(t, w.Stream("KV_"+streams.IdempotencyBucket, "$KV.idempotency."+streams.AnswerKey("thing", "default.a", "once")))
	full.MaxMsgs, full.Discard = -1, jetstream.DiscardOld
	_, err = w.JS.UpdateStream(w.Ctx, full)
	require.NoError(t, err)
	w.Eventually("the refusal is told", func() bool { return len(w.Events("thing", "default.a")) == 2 })
	w.Eventually("its answer is kept", func() bool {
		return len(w.Stream("KV_"+streams.IdempotencyBucket, "$KV.idempotency."+streams.AnswerKey("thing", "default.a", "once"))) == 1
	})
}

// What nobody chose a key for costs no answer that is kept, and what was kept ends by itself.
func TestWhatIsKeptAndForHowLong(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, consumertest.Things).start()
	w.Ask(consumertest.ToThing("a", "create", ""))
	w.withWorkers()
	keyed := consumertest.ToThing("a", "work", `{"how":"x"}`)
	keyed.ID = "mine"
	w.Ask(keyed)
	w.Reaches("a", "open")
	kept := w.Stream("KV_"+streams.IdempotencyBucket, ">")
	require.Len(t, kept, 1)
	require.Equal(t, "$KV.idempotency."+streams.AnswerKey("thing", "default.a", "mine"), kept[0].Subject)
	s, err := w.JS.Stream(w.Ctx, "KV_"+streams.IdempotencyBucket)
	require.NoError(t, err)
	require.Equal(t, 24*time.Hour, s.CachedInfo().Config.MaxAge)
	require.Equal(t, jetstream.FileStorage, s.CachedInfo().Config.Storage)
}

func (w *world) version(id string) uint64 {
	e, _ := w.Entity(consumertest.Things, "default."+id)
	return e.Version
}

// More commands wait for one entity than one commit takes, and one of them is sent again behind all of them: it is not
// applied twice.
func TestAKeyThatIsRepeatedWithinABatch(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, consumertest.Things).start()
	w.Ask(consumertest.ToThing("a", "create", ""))
	w.Stop()
	id := streams.CommandID("thing", "default.a", "once")
	w.bare("a", "add", `{"n":1000}`, streams.HeaderID, id)
	for range 240 {
		w.bare("a", "add", `{"n":1}`, streams.HeaderReason, strings.Repeat("r", 250))
	}
	w.bare("a", "add", `{"n":1000}`, streams.HeaderLookup, id, streams.HeaderID, streams.CommandID("thing", "default.a", streams.MadeUpID("x")))
	w.bare("a", "add", `{"n":5}`)
	w.start()
	w.Eventually("all are taken", func() bool { return w.Sum("a") >= 1245 })
	require.Equal(t, 1245, w.Sum("a"))
}

// The answer cannot be kept while its bucket takes nothing, and the entity goes on after a restart: the key is not forgotten.
func TestAKeyWhoseAnswerCannotBeKeptForLong(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, consumertest.Things).start()
	w.Ask(consumertest.ToThing("a", "create", ""))
	bucket := "KV_" + streams.IdempotencyBucket
	s, err := w.JS.Stream(w.Ctx, bucket)
	require.NoError(t, err)
	full := s.CachedInfo().Config
	full.MaxBytes = 1 // DiscardNew: it takes nothing
	_, err = w.JS.UpdateStream(w.Ctx, full)
	require.NoError(t, err)
	cmd := consumertest.ToThing("a", "add", `{"n":1000}`)
	cmd.ID = "once"
	first := w.raw(cmd) // it is answered when its value is written
	w.Stop()
	w.start()
	w.bare("a", "add", `{"n":1}`)
	w.Eventually("the next is applied", func() bool { return w.Sum("a") == 1001 })
	full.MaxBytes = -1
	_, err = w.JS.UpdateStream(w.Ctx, full)
	require.NoError(t, err)
	w.Eventually("the answer is kept", func() bool { return len(w.Stream(bucket, ">")) == 1 })
	second := w.raw(cmd)
	require.Equal(t, string(first.Data), string(second.Data))
	require.Equal(t, 1001, w.Sum("a"))
}

// A command that was parked, repaired and put back is the same as its sender's repetition of it.
func TestAParkedCommandThatIsPutBackAndRepeated(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, consumertest.Things).start()
	w.Ask(consumertest.ToThing("a", "create", ""))
	bucket, err := w.JS.KeyValue(w.Ctx, "things")
	require.NoError(t, err)
	good, err := bucket.Get(w.Ctx, "default.a")
	require.NoError(t, err)
	w.Stop()
	w.Empty(streams.CommandStream) // it may not have been acked
	_, err = bucket.Put(w.Ctx, "default.a", []byte("{"))
	require.NoError(t, err)
	w.start()
	cmd := consumertest.ToThing("a", "add", `{"n":1000}`)
	cmd.ID = "once"
	require.Equal(t, machines.CodeParked, w.Ask(cmd).Refusal.Code)
	_, err = bucket.Put(w.Ctx, "default.a", good.Value())
	require.NoError(t, err)
	letters, err := w.DeadLetters().List(w.Ctx, 0, 10)
	require.NoError(t, err)
	require.Len(t, letters, 1)
	require.NoError(t, w.DeadLetters().Redrive(w.Ctx, letters[0].Seq))
	w.Eventually("it is applied", func() bool { return w.Sum("a") == 1000 })
	require.Equal(t, machines.Applied, w.Ask(cmd).Outcome)
	require.Equal(t, 1000, w.Sum("a"))
}

// A key is bound to all that decides what the command does: the revision that was expected, too. It is looked at first.
func TestAKeyWithAnExpectedRevision(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, consumertest.Things).start()
	add := func(id, expect string) machines.Answer {
		cmd := consumertest.ToThing("a", "add", `{"n":1}`)
		cmd.ID, cmd.Expect = id, expect
		return w.Ask(cmd)
	}
	code := func(a machines.Answer) string {
		if a.Refusal == nil {
			return a.Outcome
		}
		return a.Refusal.Code
	}
	require.Equal(t, machines.CodePrecondition, code(add("early", "*")))
	at := w.Ask(consumertest.ToThing("a", "create", "")).Revision
	for _, expect := range []string{fmt.Sprint(at), fmt.Sprintf("7777,%d", at+1), "*"} {
		first := add("key "+expect, expect)
		require.Equal(t, machines.Applied, code(first), expect)
		again := add("key "+expect, expect)
		require.True(t, again.Replayed)
		again.Replayed = false
		require.Equal(t, first, again)
		require.Equal(t, machines.CodeKeyReused, code(add("key "+expect, "")))
		w.Eventually("its answer is kept", func() bool { return len(w.Stream("KV_idempotency", ">")) > 0 })
	}
	require.Equal(t, 3, w.Sum("a"))
	require.Equal(t, machines.CodePrecondition, code(add("late", fmt.Sprint(at))))
	require.Equal(t, machines.CodeKeyReused, code(add("late", fmt.Sprint(at+3))))
	require.Equal(t, machines.CodePrecondition, code(add("", "1,2")))
	require.Equal(t, machines.CodeValidation, code(add("", "1,,2")))
	require.Equal(t, machines.CodePrecondition, code(add("early", "*")), "it did not exist then")
}

// The value falls back: who repeats what it has lost is not told that it happened, but has it applied; what it still has is
// answered as then. That later transitions happened is told by the events, or by the answers alone, also where somebody has had the last
// one forgotten.
func TestAKeyOfALostTransition(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string][]string{"EventsTell": nil, "AnswersTell": {streams.EventStream}, "EarlierAnswersTell": {streams.EventStream}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, n := noted(t, consumertest.Things)
			w.start()
			add := func(id, body string) publish.Command {
				cmd := consumertest.ToThing("a", "add", body)
				cmd.ID = id
				return cmd
			}
			w.Ask(consumertest.ToThing("a", "create", ""))
			first := w.Ask(add("first", `{"n":1}`))
			bucket, err := w.JS.KeyValue(w.Ctx, "things")
			require.NoError(t, err)
			older, err := bucket.Get(w.Ctx, "default.a")
			require.NoError(t, err)
			lost := w.Ask(add("lost", `{"n":10}`))
			require.NotNil(t, w.Ask(add("refused", `{"n":-1}`)).Refusal)
			w.Eventually("the answers", func() bool { return len(w.Stream("KV_idempotency", ">")) == 3 })
			w.Stop()
			if name == "EarlierAnswersTell" {
				require.NoError(t, w.Bucket(streams.IdempotencyBucket).Purge(w.Ctx, streams.AnswerKey("thing", "default.a", "refused")))
			}
			_, err = bucket.Put(w.Ctx, "default.a", older.Value())
			require.NoError(t, err)
			w.Empty(append(lose, streams.CommandStream)...)
			w.start()

			again := w.Ask(add("lost", `{"n":10}`))
			require.False(t, again.Replayed)
			require.Equal(t, machines.Applied, again.Outcome)
			require.Greater(t, again.Version, lost.Version, "no version is given out twice")
			require.Equal(t, 11, w.Sum("a"))
			require.Equal(t, 1, n.Count("reconciled thing value-older"))
			kept := w.Ask(add("first", `{"n":1}`))
			require.True(t, kept.Replayed)
			require.Equal(t, first.Version, kept.Version)
			require.False(t, w.Ask(add("refused", `{"n":-1}`)).Replayed, "it is refused in the state of now")
			w.Stop()
			w.Empty(streams.CommandStream)
			w.start()
			require.True(t, w.Ask(add("lost", `{"n":10}`)).Replayed, "the second time it is kept")
			require.Equal(t, 11, w.Sum("a"))
		})
	}
}

// A key that nobody has used costs no question where the server is in the process, and one elsewhere.
func TestWhatAKeyCosts(t *testing.T) {
	t.Parallel()
	for _, known := range []bool{true, false} {
		t.Run(fmt.Sprintf("known %t", known), func(t *testing.T) {
			t.Parallel()
			w := setup(t, embedded.Interval, consumertest.Things)
			if !known {
				w.Deps.Lacks = nil
			}
			w.start()
			w.Ask(consumertest.ToThing("a", "create", ""))
			var mu sync.Mutex
			var asked []string
			sub, err := w.NC.Subscribe("$JS.API.STREAM.*.>", func(m *nats.Msg) {
				mu.Lock()
				defer mu.Unlock()
				asked = append(asked, strings.TrimPrefix(m.Subject, "$JS.API.STREAM."))
			})
			require.NoError(t, err)
			defer func() { require.NoError(t, sub.Unsubscribe()) }()
			require.NoError(t, w.NC.Flush())
			const keys = 20
			for n := range keys {
				cmd := consumertest.ToThing("a", "add", `{"n":1}`)
				cmd.ID = fmt.Sprint("key", n)
				require.Equal(t, machines.Applied, w.Ask(cmd).Outcome)
			}
			require.NoError(t, w.NC.Flush())
			w.Eventually("all questions", func() bool {
				mu.Lock()
				defer mu.Unlock()
				return known || len(asked) >= keys
			})
			mu.Lock()
			defer mu.Unlock()
			if known {
				require.Less(t, len(asked), keys/2, "others ask, too: %s", asked)
			} else {
				require.Less(t, len(asked), keys+keys/2, "a slow answer is asked for again: %s", asked)
			}
		})
	}
}

// However many commands with keys a service has taken, its value has the outcomes of the last write only, and stays small.
func TestAValueDoesNotGrowByKeys(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, service.Machine).start()
	require.Equal(t, machines.Applied, w.Ask(createCommand("a")).Outcome)
	for n := range 40 {
		cmd := publish.Command{Machine: "service", Key: "default.a", Name: "label", ID: fmt.Sprintf("client-%d", n), Body: fmt.Appendf(nil, `{"labels":{"team":"%d"}}`, n)}
		require.Equal(t, machines.Applied, w.Ask(cmd).Outcome)
	}
	e, _ := w.Entity(service.Machine, "default.a")
	require.Len(t, e.Commands, 1)
	stored := w.Stream("KV_services", ">")
	require.Len(t, stored, 1)
	require.Less(t, len(stored[0].Data), 1536)
}

// An owner that has read a value and then stood still, while another one has committed, finds answers that the value which it has read
// does not know. They are not lost, and it takes none of them away.
func TestAnOwnerThatStoodStillTakesNoAnswersAway(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, consumertest.Things).start()
	read := w.Ask(consumertest.ToThing("a", "create", ""))
	add := consumertest.ToThing("a", "add", `{"n":1}`)
	add.ID = "once"
	w.Ask(add)
	w.Ask(consumertest.ToThing("a", "add", `{"n":10}`)) // the value does not have the outcome any more
	w.Eventually("its answer is kept", func() bool { return len(w.Stream("KV_idempotency", ">")) == 1 })
	it := &item{addr: streams.Address{Machine: "thing", Key: "default.a"}, machine: consumertest.Things}
	it.answer.Namespace, it.answer.ID = "default", "a"
	s := new(partition).newCached(it)
	s.revision = read.Revision
	p := &partition{e: w.engine}
	require.ErrorIs(t, p.forgetLostAnswers(w.Ctx, s, read.Version), publish.ErrConflict)
	w.Stop()
	w.Empty(streams.CommandStream)
	w.start()
	require.True(t, w.Ask(add).Replayed)
	require.Equal(t, 11, w.Sum("a"))
}

// The value is gone: whoever repeats the command that created it has it created.
func TestTheKeyOfALostBirth(t *testing.T) {
	t.Parallel()
	w, n := noted(t, consumertest.Things)
	w.start()
	create := consumertest.ToThing("a", "create", "")
	create.ID = "birth"
	w.Ask(create)
	w.Ask(consumertest.ToThing("a", "add", `{"n":1}`))
	w.Eventually("its events", func() bool { return len(w.Events("thing", "default.a")) == 2 })
	w.Stop()
	w.Empty("KV_things", streams.CommandStream)
	w.start()
	for range 3 { // that it is lost is told once, though a refusal follows it among the events
		require.Equal(t, machines.CodeNotFound, w.Ask(consumertest.ToThing("a", "idle", "")).Refusal.Code)
		w.Eventually("it is told", func() bool { return n.Count("reconciled thing value-lost") == 1 })
		w.Stop()
		w.start()
	}
	require.Equal(t, 1, n.Count("reconciled thing value-lost"))
	a := w.Ask(create)
	require.False(t, a.Replayed)
	require.Equal(t, machines.Applied, a.Outcome)
	require.EqualValues(t, 3, a.Version)
}
