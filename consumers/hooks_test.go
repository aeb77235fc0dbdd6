package consumers

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
)

// notes is a meter and a tracer that remember.
type notes struct {
	mu   sync.Mutex
	list []string
	ends map[string]int // spans that ended, by name
}

func (n *notes) note(format string, v ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.list = append(n.list, fmt.Sprintf(format, v...))
}

func (n *notes) Transition(machine, from, to, input string, stayed time.Duration) {
	n.note("transition %s %q %q %s stayed=%v", machine, from, to, input, stayed > 0)
}
func (n *notes) Refused(machine, code string)       { n.note("refused %s %s", machine, code) }
func (n *notes) Conflict(machine string)            { n.note("conflict %s", machine) }
func (n *notes) Attempt(effect, outcome string)     { n.note("attempt %s %s", effect, outcome) }
func (n *notes) DeadLetter(consumer string)         { n.note("dead %s", consumer[:1]) }
func (n *notes) Restarted(consumer string)          { n.note("restarted %s", consumer) }
func (n *notes) Reconciled(machine, problem string) { n.note("reconciled %s %s", machine, problem) }
func (n *notes) Skipped(view string)                { n.note("skipped %s", view) }

func (n *notes) trace(name, parent string, attributes ...string) (string, func(error)) {
	n.note("span %s below %q %v", name, parent, attributes)
	return parent + "a", func(error) {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.ends[name]++
	}
}

func (n *notes) has(want string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Contains(n.list, want)
}

func (n *notes) count(prefix string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	c := 0
	for _, s := range n.list {
		if strings.HasPrefix(s, prefix) {
			c++
		}
	}
	return c
}

func noted(t *testing.T, ms ...*machines.Machine) (*world, *notes) {
	t.Helper()
	w, n := setup(t, streams.Interval, ms...), &notes{ends: map[string]int{}}
	w.Meter, w.Trace = n, n.trace
	return w, n
}

// root is a trace context as W3C wants it: others are dropped at the door.
const root = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

func TestMeterAndTracerAreTold(t *testing.T) {
	t.Parallel()
	w, n := noted(t, thingMachine)
	w.start()
	w.withWorkers()
	cmd := toThing("a", "create", "")
	cmd.Trace = root
	w.ask(cmd)
	w.ask(toThing("a", "add", `{"n":-1}`))
	w.ask(toThing("a", "poison", ""))
	cmd = toThing("a", "work", `{"how":"second"}`)
	cmd.Trace = root
	w.ask(cmd)
	w.reaches("a", "open")
	for _, want := range []string{
		`transition thing "" "open" create stayed=false`, "refused thing validation", `transition thing "open" "working" work stayed=true`, `transition thing "working" "open" done stayed=true`,
		"attempt thing.work failed", "attempt thing.work done",
		`span step thing.create below "root" [instar.machine thing instar.command create]`,
		`span effect thing.work below "root+" [instar.machine thing instar.effect work]`,
		`span step thing.done below "root++++" [instar.machine thing instar.command done]`,
	} {
		if strings.Contains(want, "++++") { // how deep depends on the tries
			w.eventually(want, func() bool { return n.count(`span step thing.done below "`+root+"aa") == 1 })
			continue
		}
		want = strings.NewReplacer("root", root, "+", "a").Replace(want)
		w.eventually(want, func() bool { return n.has(want) })
	}
	w.eventually("the dead letter", func() bool { return n.has("dead p") })
	require.Zero(t, n.count("restarted"))
	require.Zero(t, n.count("conflict"))
	w.stop()
	n.mu.Lock()
	defer n.mu.Unlock()
	for name, want := range map[string]int{"step thing.create": 1, "step thing.add": 1, "step thing.poison": 1, "step thing.work": 1, "effect thing.work": 2, "step thing.done": 1} {
		require.Equal(t, want, n.ends[name], name)
	}
}

func TestAConflictIsCounted(t *testing.T) {
	t.Parallel()
	w, n := noted(t, thingMachine)
	w.start()
	w.ask(toThing("a", "create", ""))
	m, err := streams.Last(w.ctx, w.NC, "KV_things", "$KV.things.default.a")
	require.NoError(t, err)
	bucket, err := w.JS.KeyValue(w.ctx, "things")
	require.NoError(t, err)
	_, err = bucket.Put(w.ctx, "default.a", m.Data)
	require.NoError(t, err)
	w.ask(toThing("a", "add", `{"n":1}`))
	require.Equal(t, 1, n.count("conflict thing"))
	require.Equal(t, 1, n.count("restarted p"))
}

// growMachine makes values of any size.
var growMachine = machines.Define(machines.Definition[thing]{
	Name: "growth", Plural: "growths", Doc: "For tests of values that no stream takes.",
	States: []machines.State[thing]{{Name: "open"}, {Name: "closed", Terminal: true}},
	Inputs: []machines.Command{{Name: "create", Birth: true}, {Name: "grow", Body: addBody{}}, {Name: "close"}},
	Events: []machines.EventType{{Name: "growth.grown", Class: machines.ClassState}},
	Edges: []machines.Edge[thing]{
		{From: []string{machines.None}, On: "create", To: "open", Emit: []string{"growth.grown"}},
		{From: []string{"open"}, On: "close", To: "closed", Emit: []string{"growth.grown"}},
		{From: []string{"open"}, On: "grow", To: machines.Same, Emit: []string{"growth.grown"}, Do: func(t *machines.Tx[thing]) {
			t.Data.Sum += machines.Body[addBody](t).N
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
	grow := func(id string, by int) streams.Command {
		return streams.Command{Machine: "growth", Key: "default." + id, Name: "grow", ID: fmt.Sprint(id, by), Body: []byte(fmt.Sprintf(`{"n":%d}`, by))}
	}
	send := func(cmd streams.Command) {
		_, err := w.Commands.Send(w.ctx, cmd)
		require.NoError(t, err)
	}
	send(streams.Command{Machine: "growth", Key: "default.a", Name: "create"})
	for _, by := range []int{1, 2, 2 << 20, 3} { // all in one batch
		send(grow("a", by))
	}
	w.start()
	require.Eventually(t, func() bool {
		e, _ := w.entity(growMachine, "default.a")
		return e.Data != nil && e.Data.(*thing).Sum == 6
	}, time.Minute, 20*time.Millisecond, "it is given up, and the last is applied")
	letters, err := w.dead().List(w.ctx, 0, 10)
	require.NoError(t, err)
	require.Len(t, letters, 1)
	require.Contains(t, string(letters[0].Body), fmt.Sprint(2<<20))
	require.Equal(t, "given up after 10 tries", letters[0].Reason)
	require.LessOrEqual(t, n.count(fmt.Sprintf("restarted p%02d", streams.Partition("growth", "default.a"))), maxFailures+1)
	require.Zero(t, n.count("conflict"))
	again := w.ask(grow("a", 2<<20))
	require.Equal(t, machines.Dead, again.Outcome)
	require.True(t, again.Replayed)
	require.Equal(t, machines.Applied, w.ask(streams.Command{Machine: "growth", Key: "default.b", Name: "create"}).Outcome)
}

// An entity's value is so large that not even the note of a dead command has room in it: the command is buried
// without one, and its partition goes on.
func TestAFullEntityDoesNotStopItsPartition(t *testing.T) {
	t.Parallel()
	w, _ := noted(t, growMachine)
	w.start()
	w.ask(streams.Command{Machine: "growth", Key: "default.a", Name: "create"})
	size := func() int {
		var m *streams.Message
		w.eventually("a read", func() (ok bool) { // a leader that is busy may not answer in time
			var err error
			m, err = streams.Last(w.ctx, w.NC, "KV_growths", "$KV.growths.default.a")
			return err == nil
		})
		return len(m.Data)
	}
	grow := streams.Command{Machine: "growth", Key: "default.a", Name: "grow", Body: []byte(`{"n":1040000}`)}
	require.Equal(t, machines.Applied, w.ask(grow).Outcome)
	grow.Body = []byte(fmt.Sprintf(`{"n":%d}`, 1<<20-size()-650))
	require.Equal(t, machines.Applied, w.ask(grow).Outcome)
	require.Greater(t, size(), 1<<20-700)
	before := size()
	_, err := w.Commands.Send(w.ctx, streams.Command{Machine: "growth", Key: "default.a", Name: "grow", ID: strings.Repeat("i", 250), Actor: strings.Repeat("a", 250), Reason: strings.Repeat("r", 250), Body: []byte(`{"n":5}`)})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		letters, err := w.dead().List(w.ctx, 0, 10)
		return err == nil && len(letters) == 1
	}, time.Minute, 20*time.Millisecond, "it is buried")
	require.Equal(t, before, size(), "the value is left alone")
}
