package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/consumers/consumertest"
	"github.com/bcc94042/instar/consumers/effects"
	"github.com/bcc94042/instar/consumers/poison"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/embedded"
	"github.com/bcc94042/instar/streams/publish"
)

// mortalMachine has a command that ends the process, and one that takes a while.
func mortalMachine(kill, rest func()) *machines.Machine {
	return machines.Define(machines.Definition[consumertest.Thing]{
		Name: "mortal", Plural: "mortals", Doc: "For tests.",
		States: []machines.State[consumertest.Thing]{{Name: "open"}, {Name: "closed", Terminal: true}},
		Inputs: []machines.Command{{Name: "create", Birth: true}, {Name: "add", Body: consumertest.AddBody{}}, {Name: "kill"}, {Name: "rest"}, {Name: "close"}},
		Events: []machines.EventType{{Name: "mortal.changed", Class: machines.ClassState}},
		Edges: []machines.Edge[consumertest.Thing]{
			{From: []string{machines.None}, On: "create", To: "open", Emit: []string{"mortal.changed"}},
			{From: []string{"open"}, On: "add", To: machines.Same, Emit: []string{"mortal.changed"}, Do: func(t *machines.Tx[consumertest.Thing]) { t.Data.Sum += machines.Body[consumertest.AddBody](t).N }},
			{From: []string{"open"}, On: "kill", To: machines.Same, Emit: []string{"mortal.changed"}, Do: func(*machines.Tx[consumertest.Thing]) { kill() }},
			{From: []string{"open"}, On: "rest", To: machines.Same, Emit: []string{"mortal.changed"}, Do: func(t *machines.Tx[consumertest.Thing]) { rest(); t.Data.Sum++ }},
			{From: []string{"open"}, On: "close", To: "closed", Emit: []string{"mortal.changed"}},
		},
	})
}

// mortal is a world whose processes end where an entity takes the command kill.
type mortal struct {
	*world
	kill atomic.Pointer[func()]
	rest atomic.Pointer[func()]
	part int

	performer effects.Performer // of effects; nil performs none
	patience  func()            // before a process dies; may be nil
}

func mortals(t *testing.T, profile embedded.Profile, beside ...*machines.Machine) *mortal {
	m := &mortal{part: streams.Partition("mortal", "default.a")}
	own := mortalMachine(func() { (*m.kill.Load())() }, func() { (*m.rest.Load())() })
	m.world = setup(t, profile, append([]*machines.Machine{own}, beside...)...)
	return m
}

func (m *mortal) send(id, command, body string) uint64 {
	m.T.Helper()
	stored, err := m.Commands.Send(m.Ctx, publish.Command{Machine: "mortal", Key: "default." + id, Name: command, Body: []byte(body)})
	require.NoError(m.T, err)
	return stored.Seq
}

// process takes what waits as a process of its own, of which nothing is heard any more when it has died. It returns when it has
// died or nothing waits any more.
func (m *mortal) process() (died bool) {
	m.T.Helper()
	nc, err := streams.Connect(streams.ConnectOptions{Server: m.Server, Name: "process", Log: m.Log})
	require.NoError(m.T, err)
	defer nc.Close()
	deps := m.Deps
	deps.NC, deps.Turn = nc, make(chan struct{}, 1)
	deps.JS, err = streams.JetStream(nc)
	require.NoError(m.T, err)
	deps.Appender, err = publish.NewAppender(nc, publish.AppenderOptions{Group: m.Appender.Grouping()})
	require.NoError(m.T, err)
	defer deps.Appender.Close()
	e := &Engine{Deps: deps, Batch: 8}
	dead := make(chan struct{})
	die := sync.OnceFunc(func() { close(dead) })
	kill := func() {
		if m.patience != nil {
			m.patience()
		}
		nc.Close()
		die()
		<-m.Ctx.Done()
	}
	rest := func() { // who dies beside it dies before it is over
		select {
		case <-dead:
			<-m.Ctx.Done()
		case <-time.After(300 * time.Millisecond):
		}
	}
	m.kill.Store(&kill)
	m.rest.Store(&rest)
	ctx, stop := context.WithCancel(m.Ctx)
	ended := make(chan struct{})
	m.Running.Go(func() {
		defer close(ended)
		if m.performer != nil {
			m.Running.Go(func() {
				_ = (&effects.Workers{Deps: deps, Performer: effects.ByMachine{"errand": m.performer}.Of}).Run(ctx)
			})
		}
		_ = e.Run(ctx)
	})
	limit := time.After(2 * time.Minute)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-dead:
			stop()
			return true
		case <-tick.C:
			if len(m.waiting())+len(m.Stream(streams.EffectStream, ">")) == 0 && len(m.Suspects("*")) == 0 { // it takes its note back when all have ended
				stop()
				<-ended
				return false
			}
		case <-limit:
			m.T.Fatal("it neither dies nor comes to an end")
		}
	}
}

// waiting are the sequences of the commands in the stream.
func (m *mortal) waiting() (seqs []uint64) {
	for _, msg := range m.Stream(streams.CommandStream, "instar.in.>") {
		seqs = append(seqs, msg.Sequence)
	}
	return seqs
}

// noted is what is written down about the partition.
func (m *mortal) noted() (s poison.Record) {
	m.T.Helper()
	stored, err := streams.Last(m.Ctx, m.NC, "KV_owners", fmt.Sprintf("$KV.owners.suspect.p%02d", m.part))
	require.NoError(m.T, err)
	if stored != nil && len(stored.Data) > 0 {
		require.NoError(m.T, json.Unmarshal(stored.Data, &s))
	}
	return s
}

// A command that ends the process each time is given up after a bound, although nothing in memory survives; those that
// wait with it are processed. It need not be in the first batch, and what lies before it may be done and still in the stream.
func TestACommandThatKillsTheProcessIsGivenUp(t *testing.T) {
	t.Parallel()
	for _, profile := range []embedded.Profile{embedded.Interval, embedded.Fsync} {
		t.Run(string(profile), func(t *testing.T) {
			t.Parallel()
			m := mortals(t, profile)
			m.send("a", "create", "")
			var same []string // of its partition
			for i := 0; len(same) < 20; i++ {
				if id := fmt.Sprint("o", i); streams.Partition("mortal", "default."+id) == m.part {
					same = append(same, id)
				}
			}
			for _, id := range same {
				m.send(id, "create", "")
			}
			killers := []uint64{m.send("a", "kill", "")}
			m.send("a", "add", `{"n":1}`)
			killers = append(killers, m.send(same[0], "kill", ""))
			m.send(same[0], "add", `{"n":10}`)
			deaths := 0
			for ; m.process(); deaths++ {
				require.Less(t, deaths, 2*(poison.GivenUp+poison.Suspected), "it is not given up")
				if s := m.noted(); s.Starts > poison.Suspected+1 {
					require.Contains(t, killers, m.waiting()[0], "what is taken alone is gone before the next one is begun")
				}
			}
			t.Logf("%d processes died", deaths)
			for id, want := range map[string]int{"a": 1, same[0]: 10, same[19]: 0} {
				e, _ := m.Entity(m.Machines.All()[0], "default."+id)
				require.Equal(t, want, e.Data.(*consumertest.Thing).Sum, id)
			}
			letters, err := m.DeadLetters().List(m.Ctx, 0, 10)
			require.NoError(t, err)
			require.Len(t, letters, 2)
			for _, l := range letters {
				require.True(t, strings.HasSuffix(l.Subject, ".kill"), l.Subject)
			}
			require.Zero(t, m.noted(), "the note is taken back")
		})
	}
}

// Commands that take longer wait in other partitions, so they are under way whenever the process dies. They are done in the end,
// and given up is the one that kills.
func TestCommandsBesideAKillerAreNotGivenUp(t *testing.T) {
	t.Parallel()
	m := mortals(t, embedded.Interval)
	m.send("a", "create", "")
	beside := map[int]string{}
	for i := 0; len(beside) < 4; i++ {
		id := fmt.Sprint("o", i)
		if n := streams.Partition("mortal", "default."+id); n != m.part && beside[n] == "" {
			beside[n] = id
			m.send(id, "create", "")
		}
	}
	require.False(t, m.process())
	m.send("a", "kill", "")
	for _, id := range beside {
		m.send(id, "rest", "")
	}
	deaths := 0
	for ; m.process(); deaths++ {
		require.LessOrEqual(t, deaths, poison.GivenUp)
	}
	for _, id := range beside {
		e, _ := m.Entity(m.Machines.All()[0], "default."+id)
		require.Equal(t, 1, e.Data.(*consumertest.Thing).Sum, id)
	}
	letters, err := m.DeadLetters().List(m.Ctx, 0, 10)
	require.NoError(t, err)
	require.Len(t, letters, 1)
	require.True(t, strings.HasSuffix(letters[0].Subject, ".kill"), letters[0].Subject)
	require.Empty(t, m.Suspects("*"))
}

// slow is a provider that takes a while.
type slow struct{ rest func() }

func (s slow) Perform(context.Context, machines.Task) machines.Result {
	s.rest()
	return machines.Result{Data: consumertest.WorkBody{How: "worked"}}
}

// A task is under way whenever a command ends the process: it is done in the end, and the commands that kill are given up.
func TestATaskBesideAKillerIsNotGivenUp(t *testing.T) {
	t.Parallel()
	m := mortals(t, embedded.Interval, consumertest.Errands)
	begun := make(chan struct{}, 1)
	m.performer = slow{func() {
		select {
		case begun <- struct{}{}:
		default:
		}
		(*m.rest.Load())()
	}}
	m.patience = func() { // the task begins first, if it does
		select {
		case <-begun:
		case <-time.After(100 * time.Millisecond):
		}
	}
	_, err := m.Commands.Send(m.Ctx, publish.Command{Machine: "errand", Key: "default.e", Name: "create"})
	require.NoError(t, err)
	m.send("a", "create", "")
	m.send("a", "kill", "")
	m.send("a", "kill", "")
	deaths := 0
	for ; m.process(); deaths++ {
		require.LessOrEqual(t, deaths, 2*poison.GivenUp)
		require.NoError(t, m.JS.DeleteConsumer(m.Ctx, streams.EffectStream, "fx-errand-work"))
	}
	m.start() // for the result
	m.Eventually("it is done", func() bool { return m.Errand("e") == "done" })
	letters, err := m.DeadLetters().List(m.Ctx, 0, 10)
	require.NoError(t, err)
	require.Len(t, letters, 2)
	for _, l := range letters {
		require.True(t, strings.HasSuffix(l.Subject, ".kill"), l.Subject)
	}
}

// killedOnce is a mortal whose first process has died, and what that has left.
func killedOnce(t *testing.T) (*mortal, poison.Record) {
	t.Helper()
	m := mortals(t, embedded.Interval)
	m.send("a", "create", "")
	m.send("a", "kill", "")
	require.True(t, m.process())
	left := m.noted()
	require.Equal(t, 1, left.Starts)
	return m, left
}

// A process that is stopped before it has come through is not counted, and what others have left stands.
func TestAProcessThatIsStoppedIsNotCounted(t *testing.T) {
	t.Parallel()
	m, left := killedOnce(t)
	begun, proceed := make(chan struct{}), make(chan struct{})
	kill := func() { close(begun); <-proceed }
	m.kill.Store(&kill)
	m.start()
	<-begun
	require.Equal(t, 2, m.noted().Starts)
	m.StopEngine()
	close(proceed)
	m.Stop()
	now := m.noted()
	now.Seq, now.Time = left.Seq, left.Time // the first that waits is another one when the one before has left the stream
	require.Equal(t, left, now)
}

// A process ends because a partition has stalled: those that are not stuck after all take their notes back before it does.
func TestAProcessThatStallsIsNotCounted(t *testing.T) {
	t.Parallel()
	m, left := killedOnce(t)
	nc, err := streams.Connect(streams.ConnectOptions{Server: m.Server, Name: "stalled", Log: m.Log})
	require.NoError(t, err)
	deps := m.Deps
	deps.NC = nc
	deps.JS, err = streams.JetStream(nc)
	require.NoError(t, err)
	deps.Appender, err = publish.NewAppender(nc, publish.AppenderOptions{})
	require.NoError(t, err)
	e := &Engine{Deps: deps, StallAfter: 50 * time.Millisecond}
	kill := func() { time.Sleep(6 * e.StallAfter) } // it is seen after two
	m.kill.Store(&kill)
	require.ErrorIs(t, e.Run(m.Ctx), ErrStalled)
	nc.Close() // nothing is heard of it any more
	deps.Appender.Close()
	now := m.noted()
	now.Seq, now.Time = left.Seq, left.Time
	require.Equal(t, left, now)
}

// What was not there when the process before died is nobody's fault, and costs nothing.
func TestNewCommandsAreNotSuspected(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, consumertest.Things).start()
	w.Eventually("all partitions", func() bool { return w.engine.Live() == streams.Partitions })
	for n := range 20 {
		w.Ask(consumertest.ToThing(fmt.Sprint("a", n), "create", ""))
	}
	require.Empty(t, w.Stream("KV_owners", "$KV.owners.suspect.>"))
}
