package consumers

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
)

// A command that ends the process each time is given up after a bound, although nothing in memory survives; those that
// wait with it are processed.
func TestACommandThatKillsTheProcessIsGivenUp(t *testing.T) {
	t.Parallel()
	w := setup(t, streams.Interval, thingMachine)
	n := streams.Partition("thing", "default.a")
	_, err := w.Commands.Send(w.ctx, toThing("a", "create", ""))
	require.NoError(t, err)
	for range 5 {
		_, err = w.Commands.Send(w.ctx, toThing("a", "add", `{"n":1}`))
		require.NoError(t, err)
	}
	killer, err := w.Commands.Send(w.ctx, toThing("a", "add", `{"n":1000}`))
	require.NoError(t, err)
	for range 5 {
		_, err = w.Commands.Send(w.ctx, toThing("a", "add", `{"n":1}`))
		require.NoError(t, err)
	}
	starts := 0
	for done := false; !done; starts++ {
		require.Less(t, starts, 40, "it is not given up")
		done = w.oneProcess(n, killer.Seq)
	}
	t.Logf("%d processes died", starts-1)
	require.Equal(t, 10, w.sum("a"))
	letters, err := w.dead().List(w.ctx, 0, 10)
	require.NoError(t, err)
	require.Len(t, letters, 1)
	require.Contains(t, string(letters[0].Body), "1000")
}

// oneProcess takes what waits as a process of its own would, and dies where it would step the killer. It reports whether it
// came to the end.
func (w *world) oneProcess(n int, killer uint64) bool {
	w.t.Helper()
	e := &Engine{Deps: w.withDefaults(), Batch: 256, CacheSize: 2048, AckWait: 30 * time.Second, process: fmt.Sprint(time.Now().UnixNano()), byName: map[string]*machines.Machine{"thing": thingMachine}}
	p := &partition{e: e, n: n, name: fmt.Sprintf("p%02d", n), slots: map[string]*slot{}, failures: map[uint64]int{}}
	require.NoError(w.t, p.look(w.ctx))
	cons, err := p.open(w.ctx)
	require.NoError(w.t, err)
	msgs, err := cons.FetchNoWait(256)
	require.NoError(w.t, err)
	var batch []delivery
	for m := range msgs.Messages() {
		d, err := p.receive(m)
		require.NoError(w.t, err)
		batch = append(batch, d)
	}
	require.NoError(w.t, msgs.Error())
	if len(batch) == 0 {
		return true
	}
	alone, err := p.examine(w.ctx, batch)
	require.NoError(w.t, err)
	p.examined, p.alone = true, alone
	for len(batch) > 0 {
		size := len(batch)
		if batch[0].seq <= p.alone {
			size = 1
		}
		for _, d := range batch[:size] {
			if d.seq == killer && p.failures[killer] < maxFailures {
				return false // the batch dies with it
			}
		}
		require.NoError(w.t, p.inTurn(w.ctx, batch[:size]))
		require.NoError(w.t, p.settled())
		batch = batch[size:]
	}
	require.NoError(w.t, w.NC.Flush())
	return true
}

// What was not there when the process before died is nobody's fault, and costs nothing.
func TestNewCommandsAreNotSuspected(t *testing.T) {
	t.Parallel()
	w := setup(t, streams.Interval, thingMachine).start()
	w.eventually("all partitions", func() bool { return w.engine.Live() == streams.Partitions })
	for n := range 20 {
		w.ask(toThing(fmt.Sprint("a", n), "create", ""))
	}
	require.Empty(t, w.stream("KV_owners", "$KV.owners."+suspectKey+">"))
}
