package cluster

import (
	"context"
	"encoding/json"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/consumers/consumertest"
	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/embedded"
	"github.com/bcc94042/instar/streams/publish"
)

// node is a node that has entered, and whose life and judgement a test drives.
func (w *world) node(name string) (*Node, *consumertest.Clock) {
	return w.nodeOf(name, 3*time.Second)
}

func (w *world) nodeOf(name string, life time.Duration) (*Node, *consumertest.Clock) {
	w.T.Helper()
	c := consumertest.NewClock()
	n := &Node{JS: w.JS, Appender: w.Appender, Name: name, Log: w.Log, Life: life, clock: c.Now}
	n.prepare()
	w.Also(n.index.Run)
	<-n.index.Ready()
	n.refreshView()
	require.NoError(w.T, n.join(w.Ctx))
	return n, c
}

func (n *Node) awaits(w *world, name string) {
	w.T.Helper()
	w.Eventually(n.Name+" sees "+name, func() bool {
		n.refreshView()
		n.mu.Lock()
		defer n.mu.Unlock()
		_, ok := n.view.nodes[name]
		return ok
	})
}

func (n *Node) sees(name string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, ok := n.view.nodes[name]
	return ok
}

// What is to be told to the others, such as that the node leaves, is tried again with a wait in between while there is no connection, on which each try fails at once.
func TestANodeThatCannotTellWaitsBetweenTries(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, consumertest.Things)
	d := w.Apart("alone")
	tries := make(chan time.Time, 10_000)
	n := &Node{JS: d.JS, Appender: d.Appender, Name: "alone", Life: 3 * time.Second, Log: slog.New(tellsOf{"cannot renew this node's key", tries})}
	w.Also(func(ctx context.Context) error {
		return n.Run(ctx, func(_ context.Context, leave <-chan struct{}, _ int) { <-leave })
	})
	w.Eventually("the node has entered", func() bool { return n.sees("alone") })
	d.NC.Close()
	n.startLeaving(false)
	first := <-tries
	for range 3 {
		<-tries
	}
	require.GreaterOrEqual(t, (<-tries).Sub(first), 4*n.Life/12-50*time.Millisecond)
}

// tellsOf sends the time of each record with some message.
type tellsOf struct {
	message string
	to      chan<- time.Time
}

func (h tellsOf) Enabled(context.Context, slog.Level) bool { return true }
func (h tellsOf) WithAttrs([]slog.Attr) slog.Handler       { return h }
func (h tellsOf) WithGroup(string) slog.Handler            { return h }
func (h tellsOf) Handle(_ context.Context, r slog.Record) error {
	if r.Message == h.message {
		select {
		case h.to <- time.Now():
		default:
		}
	}
	return nil
}

// No server's clock ends a node or a lease: a step forward on the leader of the bucket would end all of them at once.
func TestNoServersClockEndsALife(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, consumertest.Things)
	w.node("one")
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
	w := setup(t, embedded.Interval, consumertest.Things)
	one, _ := w.node("one")
	two, clock := w.node("two")
	two.awaits(w, "one")
	renewAt := func(d time.Duration) {
		clock.Move(d)
		require.NoError(t, two.writeKey(w.Ctx, two.keyRevision()))
	}

	renewAt(2 * time.Second)
	renewAt(time.Second) // not longer than the life
	two.expireSilent(w.Ctx)
	require.True(t, two.sees("one"))

	require.NoError(t, one.writeKey(w.Ctx, one.keyRevision())) // whether its watch has brought that or not
	renewAt(time.Millisecond)
	two.expireSilent(w.Ctx)
	require.True(t, two.sees("one"))

	renewAt(2 * time.Second)
	require.True(t, two.sees("one"))
	renewAt(2 * time.Second)
	two.expireSilent(w.Ctx)
	require.False(t, two.sees("one"))
	require.ErrorIs(t, one.writeKey(w.Ctx, one.keyRevision()), publish.ErrConflict, "it finds out that it has been ended")
	one.recheckKey(w.Ctx, publish.ErrConflict)
	require.NoError(t, one.writeKey(w.Ctx, one.keyRevision()))
	two.awaits(w, "one") // it lives again
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
			w := setup(t, embedded.Interval, consumertest.Things)
			one, _ := w.nodeOf("one", c.life)
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
			two, clock := w.nodeOf("two", c.judge)
			two.awaits(w, "one")
			until := func(most time.Duration) {
				for moved := time.Duration(0); moved < most; moved += time.Second {
					clock.Move(time.Second)
					require.NoError(t, two.writeKey(w.Ctx, two.keyRevision()))
				}
				two.expireSilent(w.Ctx)
			}
			until(c.want)
			require.True(t, two.sees("one"))
			until(time.Second)
			require.False(t, two.sees("one"))
		})
	}
}

// Who was away gives each other node the time in which that one renews its key.
func TestWhoWasAwayWaitsForOthersByTheirOwnLife(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, consumertest.Things)
	w.nodeOf("one", 15*time.Second)
	two, clock := w.node("two")
	two.awaits(w, "one")
	clock.Move(time.Hour)
	require.NoError(t, two.writeKey(w.Ctx, two.keyRevision()))
	for range 3 {
		clock.Move(time.Second)
		require.NoError(t, two.writeKey(w.Ctx, two.keyRevision()))
		two.expireSilent(w.Ctx)
		require.True(t, two.sees("one"))
	}
	clock.Move(time.Second)
	two.expireSilent(w.Ctx)
	require.False(t, two.sees("one"))
}

// The machine was suspended, or the whole cluster stood still: a node that was away itself judges nobody by that time.
func TestANodeThatWasAwayJudgesNobodyByThatTime(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, consumertest.Things)
	w.node("one")
	two, clock := w.node("two")
	two.awaits(w, "one")
	require.True(t, two.LeaseValid())
	clock.Move(time.Hour)
	require.False(t, two.LeaseValid(), "it does not commit before it has renewed its key")
	two.expireSilent(w.Ctx)
	require.True(t, two.sees("one"))
	require.NoError(t, two.writeKey(w.Ctx, two.keyRevision()))
	two.expireSilent(w.Ctx)
	require.True(t, two.sees("one"), "it may be about to renew its key, too")
	clock.Move(time.Second)
	two.expireSilent(w.Ctx)
	require.False(t, two.sees("one"))
}

// A process that has another one's name waits for the life of its key by its own clock.
func TestANameIsTakenOverWhenItsKeyIsNotRenewed(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, consumertest.Things)
	w.nodeOf("one", 9*time.Second)
	c := consumertest.NewClock()
	again := &Node{JS: w.JS, Appender: w.Appender, Name: "one", Log: w.Log, Life: 3 * time.Second, clock: c.Now}
	again.prepare()
	entered := make(chan error, 1)
	w.Running.Go(func() { entered <- again.join(w.Ctx) })
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
	w := setup(t, embedded.Interval, consumertest.Things)
	renew := func() uint64 {
		m := &nats.Msg{Subject: "$KV.owners.engine", Data: []byte("one"), Header: nats.Header{}}
		ack, err := w.JS.PublishMsg(w.Ctx, m)
		require.NoError(t, err)
		return ack.Sequence
	}
	c := consumertest.NewClock()
	l := &kv.Lease{JS: w.JS, Bucket: "owners", Key: "engine", Holder: "two", Life: 3 * time.Second, Clock: c.Now}
	held := func() {
		t.Helper()
		holder, err := l.Take(w.Ctx)
		require.ErrorIs(t, err, kv.ErrHeld)
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
	_, err := l.Take(w.Ctx)
	require.NoError(t, err)
	holder, _ := w.lease()
	require.Equal(t, "two", holder)
	require.NoError(t, l.Renew(w.Ctx), "at the revision that it has")
}

func TestALeaseIsJudgedByItsOwnLife(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, consumertest.Things)
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
		l := &kv.Lease{JS: w.JS, Bucket: "owners", Key: "engine", Holder: "two", Life: 3 * time.Second, Clock: c.Now}
		holds(said)
		_, err := l.Take(w.Ctx)
		require.ErrorIs(t, err, kv.ErrHeld, said)
		c.Move(want)
		_, err = l.Take(w.Ctx)
		require.ErrorIs(t, err, kv.ErrHeld, said)
		c.Move(1)
		_, err = l.Take(w.Ctx)
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
	w := setup(t, embedded.Interval, consumertest.Things)
	c := consumertest.NewClock()
	o := &Role{JS: w.JS, Node: "one", Name: "engine", Life: time.Second, Log: w.Log, clock: c.Now}
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
