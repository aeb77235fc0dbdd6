package cluster

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/consumers/consumertest"
	"github.com/bcc94042/instar/streams"
)

// observer is a node that has entered, and whose life and judgement a test drives.
func (w *world) observer(name string) (*Node, *consumertest.Clock) {
	return w.observerOf(name, 3*time.Second)
}

func (w *world) observerOf(name string, life time.Duration) (*Node, *consumertest.Clock) {
	w.T.Helper()
	c := consumertest.NewClock()
	n := &Node{JS: w.JS, Appender: w.Appender, Name: name, Log: w.Log, Life: life, clock: c.Now}
	n.prepare()
	w.Also(n.index.Run)
	<-n.index.Ready()
	n.refresh()
	require.NoError(w.T, n.enter(w.Ctx))
	return n, c
}

func (n *Node) sees(w *world, name string) {
	w.T.Helper()
	w.Eventually(n.Name+" sees "+name, func() bool {
		n.refresh()
		n.mu.Lock()
		defer n.mu.Unlock()
		_, ok := n.view.nodes[name]
		return ok
	})
}

func (n *Node) lives(name string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, ok := n.view.nodes[name]
	return ok
}

// No server's clock ends a node or a lease: a step forward on the leader of the bucket would end all of them at once.
func TestNoServersClockEndsALife(t *testing.T) {
	t.Parallel()
	w := setup(t, streams.Interval, consumertest.Things)
	w.observer("one")
	one := w.owner("one", time.Minute)
	one.works(t)
	for _, subject := range []string{"$KV.owners.node.one", "$KV.owners.engine"} {
		list := w.Stream("KV_owners", subject)
		require.Len(t, list, 1, subject)
		require.Empty(t, list[0].Header.Get("Nats-TTL"), subject)
	}
}

// A node is ended by one that has not seen it renew for its life, and by its own clock only.
func TestANodeIsEndedByTheClockOfWhoSeesIt(t *testing.T) {
	t.Parallel()
	w := setup(t, streams.Interval, consumertest.Things)
	one, _ := w.observer("one")
	two, clock := w.observer("two")
	two.sees(w, "one")
	renewAt := func(d time.Duration) {
		clock.Move(d)
		require.NoError(t, two.announceAt(w.Ctx, two.at()))
	}

	renewAt(2 * time.Second)
	renewAt(time.Second) // not longer than the life
	two.suspect(w.Ctx)
	require.True(t, two.lives("one"))

	require.NoError(t, one.announceAt(w.Ctx, one.at())) // whether its watch has brought that or not
	renewAt(time.Millisecond)
	two.suspect(w.Ctx)
	require.True(t, two.lives("one"))

	renewAt(2 * time.Second)
	require.True(t, two.lives("one"))
	renewAt(2 * time.Second)
	two.suspect(w.Ctx)
	require.False(t, two.lives("one"))
	require.ErrorIs(t, one.announceAt(w.Ctx, one.at()), streams.ErrConflict, "it finds out that it has been ended")
	one.recover(w.Ctx, streams.ErrConflict)
	require.NoError(t, one.announceAt(w.Ctx, one.at()))
	two.sees(w, "one") // it lives again
}

// A node that renews its key every 5 s is no dead one for those that renew theirs each second. One of an earlier version does not
// say how long it lives: then it is as long as who asks.
func TestANodeIsJudgedByItsOwnLife(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what        string
		life, judge time.Duration
		silent      bool // of an earlier version
		want        time.Duration
	}{
		{"Longer", 15 * time.Second, 3 * time.Second, false, 15 * time.Second},
		{"Shorter", 3 * time.Second, 15 * time.Second, false, 3 * time.Second},
		{"Unsaid", 15 * time.Second, 3 * time.Second, true, 3 * time.Second},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			w := setup(t, streams.Interval, consumertest.Things)
			one, _ := w.observerOf("one", c.life)
			if c.silent {
				raw, revision, err := one.read(w.Ctx, nodeKey+"one")
				require.NoError(t, err)
				var said map[string]any
				require.NoError(t, json.Unmarshal(raw, &said))
				require.Contains(t, said, "life")
				delete(said, "life")
				raw, err = json.Marshal(said)
				require.NoError(t, err)
				_, err = one.write(w.Ctx, nodeKey+"one", raw, revision, 0)
				require.NoError(t, err)
			}
			two, clock := w.observerOf("two", c.judge)
			two.sees(w, "one")
			until := func(most time.Duration) {
				for moved := time.Duration(0); moved < most; moved += time.Second {
					clock.Move(time.Second)
					require.NoError(t, two.announceAt(w.Ctx, two.at()))
				}
				two.suspect(w.Ctx)
			}
			until(c.want)
			require.True(t, two.lives("one"))
			until(time.Second)
			require.False(t, two.lives("one"))
		})
	}
}

// Who was away gives each other node the time in which that one renews its key.
func TestWhoWasAwayWaitsForOthersByTheirOwnLife(t *testing.T) {
	t.Parallel()
	w := setup(t, streams.Interval, consumertest.Things)
	w.observerOf("one", 15*time.Second)
	two, clock := w.observer("two")
	two.sees(w, "one")
	clock.Move(time.Hour)
	require.NoError(t, two.announceAt(w.Ctx, two.at()))
	for range 3 {
		clock.Move(time.Second)
		require.NoError(t, two.announceAt(w.Ctx, two.at()))
		two.suspect(w.Ctx)
		require.True(t, two.lives("one"))
	}
	clock.Move(time.Second)
	two.suspect(w.Ctx)
	require.False(t, two.lives("one"))
}

// The machine was suspended, or the whole cluster stood still: a node that was away itself judges nobody by that time.
func TestANodeThatWasAwayJudgesNobodyByThatTime(t *testing.T) {
	t.Parallel()
	w := setup(t, streams.Interval, consumertest.Things)
	w.observer("one")
	two, clock := w.observer("two")
	two.sees(w, "one")
	require.True(t, two.Current())
	clock.Move(time.Hour)
	require.False(t, two.Current(), "it does not commit before it has renewed its key")
	two.suspect(w.Ctx)
	require.True(t, two.lives("one"))
	require.NoError(t, two.announceAt(w.Ctx, two.at()))
	two.suspect(w.Ctx)
	require.True(t, two.lives("one"), "it may be about to renew its key, too")
	clock.Move(time.Second)
	two.suspect(w.Ctx)
	require.False(t, two.lives("one"))
}

// A process that has another one's name waits for the life of its key by its own clock.
func TestANameIsTakenOverWhenItsKeyIsNotRenewed(t *testing.T) {
	t.Parallel()
	w := setup(t, streams.Interval, consumertest.Things)
	w.observerOf("one", 9*time.Second)
	c := consumertest.NewClock()
	again := &Node{JS: w.JS, Appender: w.Appender, Name: "one", Log: w.Log, Life: 3 * time.Second, clock: c.Now}
	again.prepare()
	entered := make(chan error, 1)
	w.Running.Go(func() { entered <- again.enter(w.Ctx) })
	for done := false; !done; {
		select {
		case err := <-entered:
			require.NoError(t, err)
			done = true
		case <-time.After(20 * time.Millisecond):
			c.Move(100 * time.Millisecond)
		}
	}
	require.Greater(t, c.Now(), time.Hour+9*time.Second, "by the life that the key says")
	raw, _, err := again.read(w.Ctx, nodeKey+"one")
	require.NoError(t, err)
	var r record
	require.NoError(t, json.Unmarshal(raw, &r))
	require.Equal(t, again.Nonce, r.Nonce)
}

func TestALeaseIsTakenOverWhenItIsNotRenewed(t *testing.T) {
	t.Parallel()
	w := setup(t, streams.Interval, consumertest.Things)
	renew := func() uint64 {
		m := &nats.Msg{Subject: "$KV.owners.engine", Data: []byte("one"), Header: nats.Header{}}
		ack, err := w.JS.PublishMsg(w.Ctx, m)
		require.NoError(t, err)
		return ack.Sequence
	}
	c := consumertest.NewClock()
	o := &Owner{JS: w.JS, Node: "two", Role: "engine", Life: 3 * time.Second, Log: w.Log, clock: c.Now}
	held := func() {
		t.Helper()
		_, holder, err := o.take(w.Ctx)
		require.ErrorIs(t, err, errHeld)
		require.Equal(t, "one", holder)
	}
	renew()
	held()
	c.Move(3 * time.Second)
	held()
	renew()
	c.Move(time.Hour)
	held() // renewed while nobody looked
	c.Move(3*time.Second + 1)
	revision, _, err := o.take(w.Ctx)
	require.NoError(t, err)
	holder, at := w.lease()
	require.Equal(t, "two", holder)
	require.Equal(t, at, revision)
}

func TestALeaseIsJudgedByItsOwnLife(t *testing.T) {
	t.Parallel()
	w := setup(t, streams.Interval, consumertest.Things)
	holds := func(life string) {
		m := &nats.Msg{Subject: "$KV.owners.engine", Data: []byte("one"), Header: nats.Header{}}
		if life != "" {
			m.Header.Set(streams.HeaderLife, life)
		}
		_, err := w.JS.PublishMsg(w.Ctx, m)
		require.NoError(t, err)
	}
	for said, want := range map[string]time.Duration{"15s": 15 * time.Second, "1s": time.Second, "": 3 * time.Second, "1ns": time.Second, "soon": 3 * time.Second} {
		c := consumertest.NewClock()
		o := &Owner{JS: w.JS, Node: "two", Role: "engine", Life: 3 * time.Second, Log: w.Log, clock: c.Now}
		holds(said)
		_, _, err := o.take(w.Ctx)
		require.ErrorIs(t, err, errHeld, said)
		c.Move(want)
		_, _, err = o.take(w.Ctx)
		require.ErrorIs(t, err, errHeld, said)
		c.Move(1)
		_, _, err = o.take(w.Ctx)
		require.NoError(t, err, said)
	}
	stored, err := streams.Last(w.Ctx, w.NC, "KV_owners", "$KV.owners.engine")
	require.NoError(t, err)
	require.Equal(t, "3s", streams.Header(stored.Headers(), streams.HeaderLife), "what it took says its life")
	require.Equal(t, "two", string(stored.Data), "and earlier versions read the name alone")
}

// The holder's time is over before another one may take the lease, also when the bucket does not answer.
func TestWhoCannotRenewTheLeaseStopsInTime(t *testing.T) {
	t.Parallel()
	w := setup(t, streams.Interval, consumertest.Things)
	c := consumertest.NewClock()
	o := &Owner{JS: w.JS, Node: "one", Role: "engine", Life: time.Second, Log: w.Log, clock: c.Now}
	ctx, cancel := context.WithCancel(w.Ctx)
	defer cancel()
	started, ended := make(chan struct{}, 2), make(chan struct{}, 2)
	w.Running.Go(func() {
		_ = o.Run(ctx, func(ctx context.Context) error {
			started <- struct{}{}
			<-ctx.Done()
			ended <- struct{}{}
			return nil
		})
	})
	<-started
	c.Move(time.Hour) // the machine was suspended
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		t.Fatal("it works on")
	}
	<-started // nobody else has taken the lease
}
