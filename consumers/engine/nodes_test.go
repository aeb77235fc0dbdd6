package engine

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/consumers/cluster"
	"github.com/bcc94042/instar/consumers/consumertest"
	"github.com/bcc94042/instar/internal/wait"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/embedded"
)

// process is an engine on a connection of its own, as another process would be.
type process struct {
	*cluster.Node
	nc   *nats.Conn
	stop context.CancelFunc
	ends chan error
}

// enter starts an engine of a node. Everything that it opened is closed when the test ends.
func (w *world) enter(name string) *process {
	w.T.Helper()
	d := w.Apart(name)
	m := &process{nc: d.NC, ends: make(chan error, 1)}
	m.Node = &cluster.Node{JS: d.JS, Appender: d.Appender, Name: name, Life: 2 * time.Second, Log: w.Log.With("at", name)}
	ctx, cancel := context.WithCancel(w.Ctx)
	m.stop = cancel
	w.Running.Go(func() { m.ends <- (&Engine{Deps: d, Node: m.Node}).Run(ctx) })
	return m
}

// die is kill -9 as far as others can tell: nothing is given back, and no more is said.
func (m *process) die() { m.nc.Close() }

func (m *process) owns() cluster.Set {
	s, _ := m.Owned()
	return s
}

// divided waits until each partition has exactly one owner among the nodes and each node owns some.
func (w *world) divided(nodes ...*process) {
	w.T.Helper()
	w.Eventually("each partition has one owner", func() bool {
		var counts []int
		var all cluster.Set
		total := 0
		for _, m := range nodes {
			s := m.owns()
			all |= s
			n := 0
			for p := range streams.Partitions {
				if s.Has(p) {
					n++
				}
			}
			counts = append(counts, n)
			total += n
		}
		return all == cluster.All && total == streams.Partitions && slices.Min(counts) > 0
	})
}

// Commands go on while nodes come and go; no node is in the way of another for long.
func TestNodesComeAndGoUnderLoad(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, consumertest.Things)
	one := w.enter("one")
	w.divided(one)
	ctx, stop := context.WithCancel(w.Ctx)
	var clients sync.WaitGroup
	sent := make([]int, 6)
	for n := range sent {
		clients.Go(func() {
			id := fmt.Sprintf("e-%d", n)
			w.Persist(consumertest.ToThing(id, "create", ""), "c")
			for wait.For(ctx, 20*time.Millisecond) {
				w.Persist(consumertest.ToThing(id, "add", `{"n":1}`), fmt.Sprint(sent[n]))
				sent[n]++
			}
		})
	}
	two, three := w.enter("two"), w.enter("three")
	w.divided(one, two, three)

	began := time.Now()
	two.stop()
	require.NoError(t, <-two.ends)
	w.divided(one, three)
	t.Logf("a clean leave: %s", time.Since(began))

	began = time.Now()
	three.die()
	w.divided(one)
	t.Logf("a death: %s", time.Since(began))
	three.stop()

	two = w.enter("two")
	w.divided(one, two)
	stop()
	clients.Wait()
	for n := range sent {
		require.Equal(t, sent[n], w.Sum(fmt.Sprintf("e-%d", n)))
		w.CheckStory(fmt.Sprintf("e-%d", n))
	}
}
