package relay

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/streams/outbox"
	"github.com/bcc94042/instar/streams/outbox/relay/control"
)

// granted are leases of the shards whose bits are set.
type granted struct {
	shards atomic.Uint64
	asked  atomic.Int64
}

func (g *granted) Acquire(_ context.Context, shard int) (<-chan struct{}, func(), bool) {
	g.asked.Add(1)
	return nil, func() {}, g.shards.Load()&(1<<shard) != 0
}

func (g *granted) Share(_ context.Context, count, _ int) int { return count }

func (g *granted) Leave(context.Context) {}

// granting gives a node leases of some shards.
func granting(node string, shards ...int) func(*Relay) {
	g := &granted{}
	for _, n := range shards {
		g.shards.Or(1 << n)
	}
	return func(r *Relay) { r.Node, r.Leases = node, g }
}

// What a relay knew of the sequence when it began to stand by says nothing about the database of now.
func TestALateTakeoverIsNoOlderDatabase(t *testing.T) {
	t.Parallel()
	s := openShop(t, outbox.Log)
	var leases granted
	s.run(s.relay(outbox.Log, func(r *Relay) { r.Leases, r.Node = &leases, "b" }))
	require.Eventually(t, func() bool { return leases.asked.Load() > 0 }, waitFor, tick)
	stop := s.run(s.relay(outbox.Log))
	for n := range 40 {
		s.add(fmt.Sprint("o-", n), n)
	}
	s.eventually(40)
	require.NoError(t, stop())
	leases.shards.Store(1<<64 - 1)
	s.add("o-1", 40)
	s.check()
}

// A relay that takes shards of different positions over, while somebody writes, publishes what is between these.
func TestShardsThatStandApartLoseNothingBehindAWriter(t *testing.T) {
	t.Parallel()
	s := openShop(t, outbox.Log)
	var half granted
	half.shards.Store(0b0011)
	stop := s.run(s.relay(outbox.Log, func(r *Relay) { r.Leases = &half }))
	for n := range 40 {
		s.add(fmt.Sprint("o-", n), n)
	}
	s.eventually(s.count(`select count(*) from outbox_log where shard < 2`))
	require.NoError(t, stop())
	tx, err := s.pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `select outbox_append('order', 'o-1', 'order.paid', '{"n": 40}')`)
	require.NoError(t, err)
	var waits waiting
	s.run(s.relay(outbox.Log, func(r *Relay) { r.Meter = &waits }))
	require.Eventually(t, func() bool { return waits.n.Load() > 3 }, waitFor, tick)
	require.NoError(t, tx.Commit(t.Context()))
	s.check()
}

// waiting counts the reads that waited for a writer.
type waiting struct {
	control.NoMeter
	n atomic.Int64
}

func (w *waiting) FenceWait(time.Duration) { w.n.Add(1) }
