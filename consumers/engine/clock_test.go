package engine

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/consumers/cluster"
	"github.com/bcc94042/instar/consumers/consumertest"
	"github.com/bcc94042/instar/internal/wait"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/embedded"
)

// steppedEngine is an engine of a node whose stream stamps commands by a clock that is off by as much as the test says. The
// server's own clock, which fires schedules, goes on.
func (w *world) steppedEngine() (n *cluster.Node, off *atomic.Int64) {
	w.T.Helper()
	off = &atomic.Int64{}
	n = &cluster.Node{JS: w.JS, Appender: w.Appender, Name: "one", Log: w.Log}
	w.Also((&Engine{Deps: w.Deps, Node: n, stamp: func(at time.Time) time.Time { return at.Add(time.Duration(off.Load())) }}).Run)
	w.Eventually("it runs all partitions", func() bool { owned, _ := n.Owned(); return owned == cluster.All })
	return n, off
}

// works lets a thing wait for its deadline, after two seconds by the clock of its stream.
func (w *world) works(id string) (deadline time.Time) {
	w.T.Helper()
	w.Ask(consumertest.ToThing(id, "create", ""))
	w.Ask(consumertest.ToThing(id, "work", `{"how":"nobody works"}`))
	e, _ := w.Entity(consumertest.Things, "default."+id)
	require.Contains(w.T, e.Timers, "deadline")
	return e.Timers["deadline"].At
}

// late waits until a thing was ended by its deadline: once, and not before it by the clock of its stream.
func (w *world) late(id string, deadline time.Time) {
	w.T.Helper()
	e := w.Reaches(id, "broken")
	require.False(w.T, e.UpdatedAt.Before(deadline), "%s: at %s for %s", id, e.UpdatedAt, deadline)
	want := []string{"1 thing.created", "2 thing.working", "3 thing.broken"} // they are published after the write
	w.Eventually("its events", func() bool { return len(w.Events("thing", "default."+id)) >= len(want) })
	require.Equal(w.T, want, w.Events("thing", "default."+id))
}

// The clock of the leader of the stream is stepped between the command and its deadline: that is kept by the time that the clock
// shows, once, and the node goes on to be one.
func TestDeadlinesAreKeptByAClockThatIsStepped(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ armed, fired time.Duration }{
		"ForwardByMinutes": {-10 * time.Minute, 0}, // overdue when it is stored
		"Forward":          {-time.Second, time.Second},
		"Back":             {time.Second, -time.Second},
		"ItIsOff":          {10 * time.Minute, 10 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := setup(t, embedded.Interval, consumertest.Things)
			node, off := w.steppedEngine()
			off.Store(int64(c.armed))
			deadline := w.works("a")
			off.Store(int64(c.fired))
			if name == "ItIsOff" { // by its own clock the server fires it in ten minutes: what comes earlier is not taken
				answer := w.Ask(consumertest.ToThing("a", "elapsed", `{"timer":"deadline","armed":2}`))
				require.Equal(t, "working", answer.State)
				off.Store(int64(10*time.Minute + 3*time.Second))
				w.Ask(consumertest.ToThing("a", "elapsed", `{"timer":"deadline","armed":2}`))
			}
			w.late("a", deadline)
			require.True(t, node.Status().Member)
			owned, _ := node.Owned()
			require.Equal(t, cluster.All, owned)
		})
	}
}

// The clock was ahead when an entity was created, and is put right: what is told of it later seems to be older than its life. That is no
// reason to take its events for those of another one.
func TestALifeIsNotToldByClocks(t *testing.T) {
	t.Parallel()
	w, n := noted(t, consumertest.Things)
	var off atomic.Int64
	off.Store(int64(time.Hour))
	w.Run((&Engine{Deps: w.Deps, stamp: func(at time.Time) time.Time { return at.Add(time.Duration(off.Load())) }}).Run)
	create, add := consumertest.ToThing("a", "create", ""), consumertest.ToThing("a", "add", `{"n":1}`)
	create.ID, add.ID = "one", "k1"
	first := w.Ask(create)
	w.Ask(add)
	w.Ask(consumertest.ToThing("a", "add", `{"n":1}`))
	off.Store(0)
	require.NotNil(t, w.Ask(consumertest.ToThing("a", "add", `{"n":-1}`)).Refusal)
	want := []string{"1 thing.created", "2 thing.added", "3 thing.added", "3 command.refused"}
	w.Eventually("the event of the refusal", func() bool { return slices.Equal(want, w.Events("thing", "default.a")) })
	w.Stop()
	w.start()
	require.True(t, w.Ask(add).Replayed)
	again := w.Ask(create)
	require.True(t, again.Replayed)
	require.Equal(t, first.Revision, again.Revision)
	require.Equal(t, 2, w.Sum("a"))
	require.Equal(t, want, w.Events("thing", "default.a"))
	require.Zero(t, n.Count("reconciled thing value-older"))
}

// A clock that jumps back and forth all the time loses no deadline, keeps none twice, and none before it shows its time.
func TestDeadlinesAreKeptByAClockThatJumps(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, consumertest.Things)
	node, off := w.steppedEngine()
	jumping, stop := context.WithCancel(w.Ctx)
	defer stop()
	w.Running.Go(func() {
		r := rand.New(rand.NewPCG(1, 2))
		for wait.For(jumping, 20*time.Millisecond) {
			off.Store(r.Int64N(int64(4*time.Second)) - int64(2*time.Second))
		}
		off.Store(0)
	})
	deadlines := map[string]time.Time{}
	for n := range 20 {
		id := fmt.Sprint("a", n)
		deadlines[id] = w.works(id)
	}
	for id, deadline := range deadlines {
		w.late(id, deadline)
	}
	require.True(t, node.Status().Member)
	stop()
	require.Empty(t, w.Stream(streams.CommandStream, "instar.timer.>"), "no schedule is left")
}

// How long a commit takes is told by a clock that nobody can set: a wall clock that is put forward by an hour would end the
// process of every node that is at one.
func TestStallsAreToldByAClockOfTheirOwn(t *testing.T) {
	t.Parallel()
	c := consumertest.NewClock()
	e := &Engine{clock: c.Now}
	e.busy[3].Store(int64(e.now()))
	require.Zero(t, e.Stalled())
	c.Move(time.Minute + 1)
	require.Equal(t, 1, e.Stalled())
	e.clock = nil
	require.Less(t, e.now(), 24*time.Hour, "it counts from the start of the process")
	e.busy[3].Store(int64(e.now()))
	require.Zero(t, e.Stalled())
}
