package engine

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/consumers"
	"github.com/bcc94042/instar/consumers/consumertest"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/publish"
)

// root is a trace context as W3C wants it: others are dropped at the door.
const root = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

func TestMeterAndTracerAreTold(t *testing.T) {
	t.Parallel()
	w, n := noted(t, consumertest.Things)
	w.start()
	w.withWorkers()
	cmd := consumertest.ToThing("a", "create", "")
	cmd.Trace = root
	w.Ask(cmd)
	w.Ask(consumertest.ToThing("a", "add", `{"n":-1}`))
	w.Ask(consumertest.ToThing("a", "poison", ""))
	cmd = consumertest.ToThing("a", "work", `{"how":"second"}`)
	cmd.Trace = root
	w.Ask(cmd)
	w.Reaches("a", "open")
	for _, want := range []string{
		`transition thing "" "open" create stayed=false`, "refused thing validation", `transition thing "open" "working" work stayed=true`, `transition thing "working" "open" done stayed=true`,
		"attempt thing.work failed", "attempt thing.work done",
		`span step thing.create below "root" [instar.machine thing instar.command create]`,
		`span effect thing.work below "root+" [instar.machine thing instar.effect work]`,
		`span step thing.done below "root++++" [instar.machine thing instar.command done]`,
	} {
		if strings.Contains(want, "++++") { // how deep depends on the tries
			w.Eventually(want, func() bool { return n.Count(`span step thing.done below "`+root+"aa") == 1 })
			continue
		}
		want = strings.NewReplacer("root", root, "+", "a").Replace(want)
		w.Eventually(want, func() bool { return n.Has(want) })
	}
	w.Eventually("the dead letter", func() bool { return n.Has("dead p") })
	require.Zero(t, n.Count("restarted"))
	require.Zero(t, n.Count("conflict"))
	w.Stop()
	n.Mu.Lock()
	defer n.Mu.Unlock()
	for name, want := range map[string]int{"step thing.create": 1, "step thing.add": 1, "step thing.poison": 1, "step thing.work": 1, "effect thing.work": 2, "step thing.done": 1} {
		require.Equal(t, want, n.Ends[name], name)
	}
}

func TestAConflictIsCounted(t *testing.T) {
	t.Parallel()
	w, n := noted(t, consumertest.Things)
	w.start()
	w.Ask(consumertest.ToThing("a", "create", ""))
	m, err := streams.Last(w.Ctx, w.NC, "KV_things", "$KV.things.default.a")
	require.NoError(t, err)
	bucket, err := w.JS.KeyValue(w.Ctx, "things")
	require.NoError(t, err)
	_, err = bucket.Put(w.Ctx, "default.a", m.Data)
	require.NoError(t, err)
	w.Ask(consumertest.ToThing("a", "add", `{"n":1}`))
	require.Equal(t, 1, n.Count("conflict thing"))
	require.Equal(t, 1, n.Count("restarted p"))
}

// growMachine makes values of any size.
var growMachine = machines.Define(machines.Definition[consumertest.Thing]{
	Name: "growth", Plural: "growths", Doc: "For tests of values that no stream takes.",
	States: []machines.State[consumertest.Thing]{{Name: "open"}, {Name: "closed", Terminal: true}},
	Inputs: []machines.Command{{Name: "create", Birth: true}, {Name: "grow", Body: consumertest.AddBody{}}, {Name: "close"}},
	Events: []machines.EventType{{Name: "growth.grown", Class: machines.ClassState}},
	Edges: []machines.Edge[consumertest.Thing]{
		{From: []string{machines.None}, On: "create", To: "open", Emit: []string{"growth.grown"}},
		{From: []string{"open"}, On: "close", To: "closed", Emit: []string{"growth.grown"}},
		{From: []string{"open"}, On: "grow", To: machines.Same, Emit: []string{"growth.grown"}, Do: func(t *machines.Tx[consumertest.Thing]) {
			t.Data.Sum += machines.Body[consumertest.AddBody](t).N
			if t.Data.Sum > 1<<10 {
				t.Data.Text = strings.Repeat("x", t.Data.Sum)
			}
		}},
	},
})

// A command makes a value that is larger than the stream takes: it is given up after its bound, those before and
// behind it are applied, and so are those of other entities.
func TestACommandWithoutRoomInTheValueEndsAsDead(t *testing.T) {
	t.Parallel()
	w, n := noted(t, growMachine)
	grow := func(id string, by int) publish.Command {
		return publish.Command{Machine: "growth", Key: "default." + id, Name: "grow", ID: fmt.Sprint(id, by), Body: []byte(fmt.Sprintf(`{"n":%d}`, by))}
	}
	send := func(cmd publish.Command) {
		_, err := w.Commands.Send(w.Ctx, cmd)
		require.NoError(t, err)
	}
	send(publish.Command{Machine: "growth", Key: "default.a", Name: "create"})
	for _, by := range []int{1, 2, 2 << 20, 3} { // all in one batch
		send(grow("a", by))
	}
	w.start()
	require.Eventually(t, func() bool {
		e, _ := w.Entity(growMachine, "default.a")
		return e.Data != nil && e.Data.(*consumertest.Thing).Sum == 6
	}, time.Minute, 20*time.Millisecond, "it is given up, and the last is applied")
	letters, err := w.DeadLetters().List(w.Ctx, 0, 10)
	require.NoError(t, err)
	require.Len(t, letters, 1)
	require.Contains(t, string(letters[0].Body), fmt.Sprint(2<<20))
	require.Equal(t, "given up after 10 tries", letters[0].Reason)
	require.LessOrEqual(t, n.Count(fmt.Sprintf("restarted p%02d", streams.Partition("growth", "default.a"))), consumers.MaxTries+1)
	require.Zero(t, n.Count("conflict"))
	again := w.Ask(grow("a", 2<<20))
	require.Equal(t, machines.Dead, again.Outcome)
	require.True(t, again.Replayed)
	require.Equal(t, machines.Applied, w.Ask(publish.Command{Machine: "growth", Key: "default.b", Name: "create"}).Outcome)
}

// An entity's value is so large that not even the note of a dead command has room in it: the command is buried
// without one, and its partition goes on.
func TestAFullEntityDoesNotStopItsPartition(t *testing.T) {
	t.Parallel()
	w, _ := noted(t, growMachine)
	w.start()
	w.Ask(publish.Command{Machine: "growth", Key: "default.a", Name: "create"})
	size := func() int {
		var m *streams.Message
		w.Eventually("a read", func() (ok bool) { // a leader that is busy may not answer in time
			var err error
			m, err = streams.Last(w.Ctx, w.NC, "KV_growths", "$KV.growths.default.a")
			return err == nil
		})
		return len(m.Data)
	}
	grow := publish.Command{Machine: "growth", Key: "default.a", Name: "grow", Body: []byte(`{"n":1040000}`)}
	require.Equal(t, machines.Applied, w.Ask(grow).Outcome)
	grow.Body = []byte(fmt.Sprintf(`{"n":%d}`, 1<<20-size()-650))
	require.Equal(t, machines.Applied, w.Ask(grow).Outcome)
	require.Greater(t, size(), 1<<20-700)
	before := size()
	_, err := w.Commands.Send(w.Ctx, publish.Command{Machine: "growth", Key: "default.a", Name: "grow", ID: strings.Repeat("i", 250), Actor: strings.Repeat("a", 250), Reason: strings.Repeat("r", 250), Body: []byte(`{"n":5}`)})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		letters, err := w.DeadLetters().List(w.Ctx, 0, 10)
		return err == nil && len(letters) == 1
	}, time.Minute, 20*time.Millisecond, "it is buried")
	require.Equal(t, before, size(), "the value is left alone")
}
