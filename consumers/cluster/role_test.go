package cluster

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/consumers"
	"github.com/bcc94042/instar/consumers/consumertest"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/embedded"
)

// holder is one node that runs for the lease.
type holder struct {
	working chan context.Context // the context of work, each time that it starts
	stop    context.CancelFunc
	ended   chan error
	finish  chan error // what work returns, if not nil before its context ends
}

func (w *world) owner(node string, life time.Duration) *holder {
	ctx, cancel := context.WithCancel(w.Ctx)
	h := &holder{working: make(chan context.Context, 8), stop: cancel, ended: make(chan error, 1), finish: make(chan error)}
	o := &Role{JS: w.JS, Node: node, Life: life, Log: w.Log}
	w.Running.Go(func() {
		h.ended <- o.Run(ctx, func(ctx context.Context) error {
			h.working <- ctx
			select {
			case <-ctx.Done():
				return nil
			case err := <-h.finish:
				return err
			}
		})
	})
	return h
}

func (h *holder) works(t *testing.T) context.Context {
	t.Helper()
	select {
	case ctx := <-h.working:
		return ctx
	case <-time.After(15 * time.Second):
		t.Fatal("it does not get the lease")
		return nil
	}
}

func (w *world) lease() (string, uint64) {
	w.T.Helper()
	m, err := streams.Last(w.Ctx, w.NC, "KV_owners", "$KV.owners.engine")
	require.NoError(w.T, err)
	if m == nil {
		return "", 0
	}
	return string(m.Data), m.Sequence
}

func TestTheLeaseIsRenewedAndGivenBack(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, consumertest.Things)
	one := w.owner("one", time.Second)
	ctx := one.works(t)
	holder, revision := w.lease()
	require.Equal(t, "one", holder)
	two := w.owner("two", time.Second)
	w.Eventually("it is renewed past its life", func() bool { h, r := w.lease(); return h == "one" && r >= revision+6 })
	require.NoError(t, ctx.Err())
	require.Empty(t, two.working, "another node waits")
	one.stop()
	require.NoError(t, <-one.ended)
	require.Error(t, ctx.Err())
	two.works(t)
	holder, _ = w.lease()
	require.Equal(t, "two", holder)

	failed := errors.New("work failed")
	two.finish <- failed
	require.ErrorIs(t, <-two.ended, failed)
	holder, _ = w.lease()
	require.Empty(t, holder, "given back")
	w.Eventually("and it ends by itself", func() bool { _, r := w.lease(); return r == 0 })
	w.owner("three", time.Second).works(t)
}

// The node was killed: its lease is still there, and it is its own.
func TestARestartTakesItsOwnLeaseAtOnce(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, consumertest.Things)
	m := &nats.Msg{Subject: "$KV.owners.engine", Data: []byte("one"), Header: nats.Header{}}
	streams.Keep(m, time.Hour)
	w.Publish(m)
	other := w.owner("two", time.Minute)
	started := time.Now()
	w.owner("one", time.Minute).works(t)
	require.Less(t, time.Since(started), 30*time.Second) // of the hour that the lease lives
	require.Empty(t, other.working)
	other.stop()
	require.NoError(t, <-other.ended, "it may stop while it waits")
}

func TestADeadNodesLeaseEnds(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, consumertest.Things)
	m := &nats.Msg{Subject: "$KV.owners.engine", Data: []byte("dead"), Header: nats.Header{}}
	streams.Keep(m, 2*time.Second)
	w.Publish(m)
	w.owner("two", time.Second).works(t)
}

// Somebody else has the lease: work is told to end, and is waited for, and the node waits for the lease again.
func TestALostLeaseEndsTheWork(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, consumertest.Things)
	one := w.owner("one", time.Second)
	ctx := one.works(t)
	m := &nats.Msg{Subject: "$KV.owners.engine", Data: []byte("robber"), Header: nats.Header{}}
	streams.Keep(m, 2*time.Second)
	w.Publish(m)
	select {
	case <-ctx.Done():
	case <-time.After(15 * time.Second):
		t.Fatal("it works on")
	}
	holder, _ := w.lease()
	require.Equal(t, "robber", holder)
	again := one.works(t) // the robber does not renew
	require.NoError(t, again.Err())
}

func TestALeaseThatVanishedIsTakenAgain(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, consumertest.Things)
	one := w.owner("one", time.Second)
	ctx := one.works(t)
	s, err := w.JS.Stream(w.Ctx, "KV_owners")
	require.NoError(t, err)
	require.NoError(t, s.Purge(w.Ctx))
	w.Eventually("it is there again", func() bool { h, _ := w.lease(); return h == "one" })
	require.NoError(t, ctx.Err())
	require.Empty(t, one.working)
}

func TestOneOfManyWorks(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, consumertest.Things)
	var mu sync.Mutex
	at, most, turns := 0, 0, 0
	var all sync.WaitGroup
	for _, node := range []string{"one", "two", "three", "four"} {
		all.Go(func() {
			o := &Role{JS: w.JS, Node: node, Life: time.Second, Log: w.Log}
			_ = o.Run(w.Ctx, func(context.Context) error {
				mu.Lock()
				at++
				turns++
				most = max(most, at)
				mu.Unlock()
				mu.Lock()
				at--
				mu.Unlock()
				return nil
			})
		})
	}
	all.Wait()
	require.Equal(t, []int{1, 4}, []int{most, turns})
}

// What all nodes do is done while a node is live, goes on while it is cordoned, and ends when it is drained. What it offers is told while it takes what is new.
func TestANodeWorksWhileItIsLive(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval)
	n := &Node{JS: w.JS, Names: w.Names, Appender: w.Appender, Name: "one", Log: w.Log, Life: time.Minute} // which no busy machine misses
	n.Offer("hands", 2)
	ctx, stop := context.WithCancel(w.Ctx)
	ended := make(chan error, 2)
	w.Running.Go(func() {
		ended <- n.Run(ctx, func(_ context.Context, leave <-chan struct{}, _ int) { <-leave })
	})
	working := make(chan context.Context, 2)
	w.Running.Go(func() {
		ended <- n.While(ctx, func(ctx context.Context) error { working <- ctx; <-ctx.Done(); return nil })
	})
	offers := func(hands int) {
		t.Helper()
		w.Eventually("what it offers", func() bool {
			nodes := n.Nodes()
			much, says := 0, false
			if len(nodes) == 1 {
				much, says = nodes[0].Offers["hands"]
			}
			return says && much == hands
		})
	}
	first := w.begins(working)
	offers(2)
	_, changed := n.Takes()
	n.Offer("hands", 0)
	select { // whoever takes what is new hears of it
	case <-changed:
	case <-w.Ctx.Done():
	}
	takes, _ := n.Takes()
	require.False(t, takes, "it has nothing to offer")
	offers(0)
	n.Offer("hands", 2)
	offers(2)
	for _, is := range []struct {
		state NodeState
		hands int
	}{{NodeCordoned, 0}, {NodeLive, 2}, {NodeDraining, 0}} {
		require.NoError(t, first.Err())
		require.NoError(t, n.SetDesired(w.Ctx, "one", is.state))
		w.Eventually("it is "+string(is.state), func() bool { now, _ := n.Eligible(); return now == is.state })
		takes, _ := n.Takes()
		require.Equal(t, is.hands > 0, takes)
		offers(is.hands)
	}
	w.ends(first)
	require.NotErrorIs(t, context.Cause(first), consumers.ErrCutOff)
	require.NoError(t, n.SetDesired(w.Ctx, "one", NodeLive))
	second := w.begins(working)
	offers(2)
	stop()
	w.ends(second)
	require.NotErrorIs(t, context.Cause(second), consumers.ErrCutOff)
	require.NoError(t, <-ended)
	require.NoError(t, <-ended)
}

// A node that is cut off, or was frozen, ends what it does before that is given to others, and begins again when it is live. A slow renewal ends nothing.
func TestANodeThatIsCutOffEndsItsWork(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval)
	n, clock := w.node("one")
	working := make(chan context.Context, 3)
	ctx, stop := context.WithCancel(w.Ctx)
	defer stop()
	w.Also(func(context.Context) error {
		return n.While(ctx, func(ctx context.Context) error { working <- ctx; <-ctx.Done(); return nil })
	})
	renew := func() { t.Helper(); require.NoError(t, n.writeKey(w.Ctx, n.keyRevision())) }
	first := w.begins(working)
	clock.Move(n.Life*3/4 + cutOff)
	require.False(t, n.LeaseValid())
	renew()
	require.NoError(t, first.Err())

	clock.Move(n.Life*3/4 + cutOff + 1)
	w.ends(first)
	require.ErrorIs(t, context.Cause(first), consumers.ErrCutOff)
	require.Empty(t, working, "it was not begun anew after the slow renewal, and waits")
	renew()
	second := w.begins(working)

	clock.Move(time.Hour) // it was frozen,
	renew()               // and renews its key before it finds out
	w.ends(second)
	require.ErrorIs(t, context.Cause(second), consumers.ErrCutOff)
	third := w.begins(working)

	clock.Move(time.Hour) // it was frozen, and finds out when it is told to stop
	stop()
	w.ends(third)
	require.ErrorIs(t, context.Cause(third), consumers.ErrCutOff)
}

func (w *world) begins(working <-chan context.Context) context.Context {
	w.T.Helper()
	select {
	case ctx := <-working:
		return ctx
	case <-time.After(time.Minute):
		require.FailNow(w.T, "the work does not begin")
		return nil
	}
}

func (w *world) ends(work context.Context) {
	w.T.Helper()
	select {
	case <-work.Done():
	case <-time.After(time.Minute):
		require.FailNow(w.T, "the work does not end")
	}
}
