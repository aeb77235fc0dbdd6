package engine

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/consumers/answers"
	"github.com/bcc94042/instar/consumers/consumertest"
	"github.com/bcc94042/instar/internal/lockedbuffer"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/embedded"
	"github.com/bcc94042/instar/streams/publish"
)

// What a bucket keeps of a key that was deleted is no value: purging it is the way out where a value cannot be repaired.
func TestADeletedValueIsAbsent(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, consumertest.Things).start()
	things, answers := w.Bucket("things"), w.Bucket(streams.IdempotencyBucket)
	for id, remove := range map[string]func(string) error{
		"purged":  func(key string) error { return things.Purge(w.Ctx, key) },
		"deleted": func(key string) error { return things.Delete(w.Ctx, key) },
	} {
		key := "default." + id
		w.Ask(consumertest.ToThing(id, "create", ""))
		_, err := things.Put(w.Ctx, key, []byte("{no json"))
		require.NoError(t, err)
		require.Equal(t, machines.CodeParked, w.Ask(consumertest.ToThing(id, "add", `{"n":1}`)).Refusal.Code, id)
		require.NoError(t, remove(key))
		a := w.Ask(consumertest.ToThing(id, "add", `{"n":1}`))
		require.Equal(t, machines.CodeNotFound, a.Refusal.Code, id)
		require.Zero(t, a.Revision, "of no value")
		require.Equal(t, machines.CodeNotFound, w.Ask(consumertest.ToThing(id, machines.CommandRepair, `{"revision":1,"value":{}}`)).Refusal.Code, id)
		create := consumertest.ToThing(id, "create", "")
		create.Expect = "*"
		require.Equal(t, machines.CodePrecondition, w.Ask(create).Refusal.Code, id)
		create.Expect = "0"
		a = w.Ask(create)
		require.Equal(t, machines.Applied, a.Outcome, "%s: %v", id, a.Refusal)
		require.EqualValues(t, 2, a.Version, "above that of every event")

		add := consumertest.ToThing(id, "add", `{"n":1}`)
		add.ID = "key"
		w.Ask(add)
		w.Ask(consumertest.ToThing(id, "add", `{"n":1}`))
		require.NoError(t, answers.Purge(w.Ctx, streams.AnswerKey("thing", key, "key")))
		w.Stop()
		w.start()
		require.Equal(t, machines.Applied, w.Ask(add).Outcome, "somebody has had its answer forgotten")
		require.Equal(t, 3, w.Sum(id))
	}
}

// stored is what the bucket has of a thing.
func (w *world) stored(id string) jetstream.KeyValueEntry {
	w.T.Helper()
	e, err := w.Bucket("things").Get(w.Ctx, "default."+id)
	require.NoError(w.T, err)
	return e
}

// broken makes the value of a thing one that cannot be used, and returns its revision.
func (w *world) broken(id string) uint64 {
	w.T.Helper()
	revision, err := w.Bucket("things").Put(w.Ctx, "default."+id, []byte(`{"schema":7}`))
	require.NoError(w.T, err)
	return revision
}

func repairOf(id string, revision uint64, value string) publish.Command {
	return consumertest.ToThing(id, machines.CommandRepair, fmt.Sprintf(`{"revision":%d,"value":%s}`, revision, value))
}

func under(key string, cmd publish.Command) publish.Command {
	cmd.ID = key
	return cmd
}

// A repair that is refused changes nothing: neither the value nor the answers under keys, and nothing is told of it.
func TestARepairThatIsRefusedChangesNothing(t *testing.T) {
	t.Parallel()
	w, n := noted(t, consumertest.Things)
	var told lockedbuffer.Buffer
	w.Log = slog.New(slog.NewTextHandler(&told, nil))
	w.start()
	w.Ask(consumertest.ToThing("a", "create", ""))
	first := string(w.stored("a").Value())
	add := under("key", consumertest.ToThing("a", "add", `{"n":1}`))
	require.Equal(t, machines.Applied, w.Ask(add).Outcome)
	second := string(w.stored("a").Value())
	revision := w.broken("a")
	require.Equal(t, machines.CodeParked, w.Ask(consumertest.ToThing("a", "add", `{"n":1}`)).Refusal.Code)
	stops := n.Count("restarted")
	wide := func(n int) string {
		return strings.Replace(first, `"sum":0`, fmt.Sprintf(`"sum":0,"text":"%s"`, strings.Repeat("<", n)), 1)
	}
	for what, value := range map[string]string{
		"no state":                             strings.Replace(first, `"state":"open",`, "", 1),
		"a version that wraps":                 strings.Replace(first, `"version":1,`, `"version":18446744073709551615,`, 1),
		"a version without a successor":        strings.Replace(first, `"version":1,`, `"version":9007199254740990,`, 1),
		"a generation that wraps":              strings.Replace(first, `"generation":0,`, `"generation":18446744073709551615,`, 1),
		"more than a stream takes":             wide(200 << 10),
		"more with the task that it waits for": with(wide(120<<10), `"effects":{"work":{"id":"x","try":1,"since":"2026-01-02T03:04:05Z"}}`),
		"an event of no name":                  with(first, `"outbox":[{"kind":"event","name":"x y","version":9}]`),
		"a timer of no name":                   with(first, `"timers":{"a..b":{"at":"2036-01-02T03:04:05Z","armed":1}}`),
	} {
		require.NotEqual(t, first, value, what)
		a := w.Ask(repairOf("a", revision, value))
		require.Equal(t, machines.Refused, a.Outcome, what)
		require.Equal(t, machines.CodeValidation, a.Refusal.Code, what)
		require.Equal(t, "value", a.Refusal.Fields[0].Field)
		require.Equal(t, []string{machines.CommandRepair}, a.Refusal.Allowed)
	}
	malformed := repairOf("a", revision, second)
	malformed.Expect = "7;8"
	require.Equal(t, machines.CodeValidation, w.Ask(malformed).Refusal.Code)
	a := w.Ask(under("key", repairOf("a", revision, second)))
	require.Equal(t, machines.CodeKeyReused, a.Refusal.Code, "the key is that of another command")
	require.Equal(t, revision, w.stored("a").Revision())
	require.Equal(t, stops, n.Count("restarted"))
	const replaced = "the value of a parked entity was replaced"
	require.Zero(t, strings.Count(told.String(), replaced))
	require.Equal(t, machines.Applied, w.Ask(repairOf("a", revision, second)).Outcome)
	require.Equal(t, 1, strings.Count(told.String(), replaced))
	a = w.Ask(add)
	require.True(t, a.Replayed, "its answer is still there")
	require.Equal(t, 1, w.Sum("a"))
}

// A value that was put by hand has come as far as a version can. Whatever replaces it would be above its events, where nobody could read it.
func TestNoRepairWritesWhatNobodyCanRead(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, consumertest.Things).start()
	w.Ask(consumertest.ToThing("a", "create", ""))
	w.Stop()
	first := string(w.stored("a").Value())
	_, err := w.Bucket("things").Put(w.Ctx, "default.a", []byte(strings.Replace(first, `"version":1,`, `"version":9007199254740990,`, 1)))
	require.NoError(t, err)
	w.start()
	require.EqualValues(t, 9007199254740991, w.Ask(consumertest.ToThing("a", "add", `{"n":1}`)).Version)
	w.Eventually("its event", func() bool { return len(w.Events("thing", "default.a")) == 2 })
	revision := w.broken("a")
	a := w.Ask(repairOf("a", revision, first))
	require.Equal(t, machines.Refused, a.Outcome)
	require.Equal(t, machines.CodeValidation, a.Refusal.Code)
	require.Contains(t, a.Refusal.Fields[0].Message, "no entity comes so far")
	require.Equal(t, revision, w.stored("a").Revision())
}

// with is a value with one more member, in the place of one of the same name.
func with(value, member string) string { return strings.TrimSuffix(value, "}") + "," + member + "}" }

// A value that somebody has written with names that are in no subject keeps its entity from everything, and nobody else.
func TestAValueOfNamesThatAreNone(t *testing.T) {
	t.Parallel()
	w, n := noted(t, consumertest.Things)
	w.start()
	w.Ask(consumertest.ToThing("a", "create", ""))
	first := string(w.stored("a").Value())
	w.Stop()
	for _, more := range []string{`"outbox":[{"kind":"event","name":"x y","version":9}]`, `"timers":{"x y":{"at":"2036-01-02T03:04:05Z","armed":1}}`} {
		_, err := w.Bucket("things").Put(w.Ctx, "default.a", []byte(with(first, more)))
		require.NoError(t, err)
		w.start()
		a := w.Ask(consumertest.ToThing("a", "add", `{"n":1}`))
		require.NotNil(t, a.Refusal, more)
		require.Equal(t, machines.CodeParked, a.Refusal.Code, more)
		other := w.neighbour("a")
		w.Ask(consumertest.ToThing(other, "create", ""))
		w.Eventually("its event", func() bool { return len(w.Events("thing", "default."+other)) > 0 })
		w.Stop()
	}
	require.Zero(t, n.Count("restarted"))
}

// A value that is older than an answer under a key does not have what the answer tells of: the key is free again.
func TestARepairTakesAnswersAwayThatItsValueHasLost(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, consumertest.Things).start()
	created := w.Ask(under("birth", consumertest.ToThing("a", "create", "")))
	first := string(w.stored("a").Value())
	add := under("key", consumertest.ToThing("a", "add", `{"n":1}`))
	require.Equal(t, machines.Applied, w.Ask(add).Outcome)
	w.Ask(consumertest.ToThing("a", "close", ""))
	w.Ask(consumertest.ToThing("a", "create", ""))
	w.Eventually("its events", func() bool { return len(w.Events("thing", "default.a")) == 4 })
	require.Equal(t, machines.Applied, w.Ask(repairOf("a", w.broken("a"), first)).Outcome)
	repaired := w.stored("a").Revision()
	w.Eventually("the answer of its birth", func() bool {
		_, data, ok := w.answered("a", "birth")
		return ok && data.Revision == repaired && data.Version == created.Version
	})
	require.Len(t, w.Stream(streams.EventStream, w.Names.Event("thing", "default.a", "thing.created")), 2, "what was told of an earlier life is not told again")
	a := w.Ask(add)
	require.False(t, a.Replayed)
	require.Equal(t, machines.Applied, a.Outcome)
	require.Equal(t, 1, w.Sum("a"))
}

// answered is what is kept of the answer under a key.
func (w *world) answered(id, key string) (answers.Kept, machines.Answer, bool) {
	w.T.Helper()
	var r answers.Kept
	var a machines.Answer
	e, err := w.Bucket(streams.IdempotencyBucket).Get(w.Ctx, streams.AnswerKey("thing", "default."+id, key))
	if err != nil {
		return r, a, false
	}
	require.NoError(w.T, json.Unmarshal(e.Value(), &r))
	require.NoError(w.T, json.Unmarshal(r.Answer, &a))
	return r, a, true
}

// A repair under a key is remembered as any other command.
func TestARepairUnderAKeyIsAnsweredAsThen(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, consumertest.Things).start()
	w.Ask(consumertest.ToThing("a", "create", ""))
	good := string(w.stored("a").Value())
	refused := under("early", repairOf("a", 1, good))
	require.Equal(t, machines.CodeGuard, w.Ask(refused).Refusal.Code)
	repair := under("key", repairOf("a", w.broken("a"), good))
	then := w.raw(repair)
	w.Ask(consumertest.ToThing("a", "add", `{"n":1}`))
	w.Ask(consumertest.ToThing("a", "add", `{"n":1}`))
	w.Stop()
	w.start()
	again := w.raw(repair)
	require.Equal(t, string(then.Data), string(again.Data))
	require.True(t, streams.Replayed(again))
	a := w.Ask(refused)
	require.True(t, a.Replayed)
	require.Equal(t, machines.CodeGuard, a.Refusal.Code)
	other := repair
	other.Body = []byte(`{"revision":1,"value":{}}`)
	require.Equal(t, machines.CodeKeyReused, w.Ask(other).Refusal.Code)
	require.Equal(t, 2, w.Sum("a"))
}
