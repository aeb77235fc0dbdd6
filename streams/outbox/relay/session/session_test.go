package session_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/streams/embedded"
	"github.com/bcc94042/instar/streams/outbox/relay/relaytest"
	"github.com/bcc94042/instar/streams/outbox/relay/session"
	"github.com/bcc94042/instar/streams/outbox/relay/sink"
)

func TestMain(m *testing.M) { relaytest.Main(m) }

// ways are the ways in which a batch can be stored; what holds for one must hold for all.
func ways(t *testing.T, test func(t *testing.T, g *relaytest.Ground, open func(node string) *session.Opener)) {
	t.Helper()
	for name, way := range map[string]struct {
		profile embedded.Profile
		change  func(*sink.Abilities)
	}{
		"fast":   {embedded.OS, func(*sink.Abilities) {}},
		"atomic": {embedded.Fsync, func(*sink.Abilities) {}},
		"single": {embedded.OS, func(a *sink.Abilities) { a.Fast, a.Atomic = false, false }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := relaytest.Setup(t, way.profile)
			can := g.Can
			way.change(&can)
			test(t, g, func(node string) *session.Opener { return g.Opener(node, can, way.profile == embedded.Fsync) })
		})
	}
}

func TestABatchIsStoredInOrder(t *testing.T) {
	t.Parallel()
	ways(t, func(t *testing.T, g *relaytest.Ground, open func(string) *session.Opener) {
		o := open("a")
		s, err := o.Open(g.Ctx, 0, 0)
		require.NoError(t, err)
		for _, batch := range [][]int{relaytest.Span(1, 1), relaytest.Span(2, 40), relaytest.Span(41, 300)} {
			s.Pos = sink.Position(batch[len(batch)-1])
			n, err := o.Pub.Publish(g.Ctx, relaytest.Items(s, batch...), []sink.Session{s})
			require.NoError(t, err)
			require.Equal(t, len(batch), n)
		}
		require.Equal(t, relaytest.Words(1, 300), g.Positions())

		next, err := open("b").Open(g.Ctx, 0, 0)
		require.NoError(t, err)
		require.Equal(t, sink.Position(300), next.Pos)
		require.Empty(t, next.Seen)
	})
}

func TestAZombieCanStoreNothing(t *testing.T) {
	t.Parallel()
	ways(t, func(t *testing.T, g *relaytest.Ground, open func(string) *session.Opener) {
		a, b := open("a"), open("b")
		zombie, err := a.Open(g.Ctx, 0, 0)
		require.NoError(t, err)
		_, err = a.Pub.Publish(g.Ctx, relaytest.Items(zombie, relaytest.Span(1, 30)...), nil) // no marker: it died before the next one was due
		require.NoError(t, err)

		s, err := b.Open(g.Ctx, 0, 0)
		require.NoError(t, err)
		require.Zero(t, s.Pos)
		require.Equal(t, relaytest.Span(1, 30), numbers(s.Seen), "what lies beyond the marker is read back")
		other, err := b.Open(g.Ctx, 1, 0)
		require.NoError(t, err)

		for _, late := range [][]sink.Item{relaytest.Items(zombie, 31), relaytest.Items(zombie, relaytest.Span(31, 70)...)} {
			n, err := a.Pub.Publish(g.Ctx, late, nil)
			require.ErrorIs(t, err, sink.ErrFenced)
			require.Zero(t, n)
			n, err = a.Pub.Publish(g.Ctx, late, []sink.Session{zombie})
			require.ErrorIs(t, err, sink.ErrFenced)
			require.Zero(t, n)
		}
		_, err = b.Pub.Publish(g.Ctx, append(relaytest.Items(s, relaytest.Span(31, 50)...), relaytest.Items(other, relaytest.Span(51, 60)...)...), []sink.Session{s, other})
		require.NoError(t, err)
		require.Equal(t, relaytest.Words(1, 60), g.Positions())
	})
}

// A batch of which the relay does not know whether it was stored is found by the next session, whichever answers were lost.
func TestALostAnswerCostsNothing(t *testing.T) {
	t.Parallel()
	ways(t, func(t *testing.T, g *relaytest.Ground, open func(string) *session.Opener) {
		o := open("a")
		s, err := o.Open(g.Ctx, 0, 0)
		require.NoError(t, err)
		var deaf atomic.Bool
		o.Pub.Drops = func(*nats.Msg) bool { return deaf.Load() }
		o.Pub.Wait = 300_000_000

		deaf.Store(true)
		_, err = o.Pub.Publish(g.Ctx, relaytest.Items(s, relaytest.Span(1, 20)...), nil)
		require.ErrorIs(t, err, sink.ErrUnknown)
		_, err = o.Open(g.Ctx, 0, 0) // its own marker is stored, and it does not know
		require.ErrorIs(t, err, sink.ErrUnknown)
		deaf.Store(false)

		again, err := o.Open(g.Ctx, 0, 0)
		require.NoError(t, err)
		stored := numbers(again.Seen)
		require.Equal(t, relaytest.Words(1, len(stored)), g.Positions())
		if o.Pub.Can.Fast || o.Pub.Can.Atomic {
			require.Len(t, stored, 20)
		}
	})
}

func TestARowThatIsTooLargeIsNamed(t *testing.T) {
	t.Parallel()
	ways(t, func(t *testing.T, g *relaytest.Ground, open func(string) *session.Opener) {
		o := open("a")
		s, err := o.Open(g.Ctx, 0, 0)
		require.NoError(t, err)
		c := g.Stream.Config()
		c.MaxMsgSize = 4096
		_, err = g.JS.UpdateStream(g.Ctx, c) // after the relay looked at it
		require.NoError(t, err)
		batch := relaytest.Items(s, relaytest.Span(1, 40)...)
		batch[30].Row.Payload = make([]byte, 5000)
		n, err := o.Pub.Publish(g.Ctx, batch, []sink.Session{s})
		var refused *sink.RefusedError
		require.ErrorAs(t, err, &refused)
		require.Equal(t, 30, refused.Index)
		require.Equal(t, 30, n)
		n, err = o.Pub.Publish(g.Ctx, batch[31:], []sink.Session{s}) // the session goes on
		require.NoError(t, err)
		require.Equal(t, 9, n)
		last := relaytest.Items(s, relaytest.Span(41, 60)...)
		last[19].Row.Payload = make([]byte, 5000)
		n, err = o.Pub.Publish(g.Ctx, last, nil)
		require.ErrorAs(t, err, &refused)
		require.Equal(t, []int{19, 19}, []int{n, refused.Index})
		require.Equal(t, relaytest.Words(1, 30)+" "+relaytest.Words(32, 59), g.Positions())
	})
}

// What another publisher stored under the same id a moment ago is taken as stored.
func TestAnIdOfTheWindowIsNoError(t *testing.T) {
	t.Parallel()
	ways(t, func(t *testing.T, g *relaytest.Ground, open func(string) *session.Opener) {
		o := open("a")
		s, err := o.Open(g.Ctx, 0, 0)
		require.NoError(t, err)
		batch := relaytest.Items(s, relaytest.Span(1, 40)...)
		_, err = o.Pub.Publish(g.Ctx, batch[7:8], nil)
		require.NoError(t, err)
		n, err := o.Pub.Publish(g.Ctx, batch, []sink.Session{s})
		require.NoError(t, err)
		require.Equal(t, 40, n)
		require.Equal(t, "8 "+relaytest.Words(1, 7)+" "+relaytest.Words(9, 40), g.Positions())
		_, err = o.Pub.Publish(g.Ctx, relaytest.Items(s, 41), []sink.Session{s})
		require.NoError(t, err)
	})
}

func TestAMessageCarriesItsRow(t *testing.T) {
	t.Parallel()
	g := relaytest.Setup(t, embedded.OS)
	o := g.Opener("a", g.Can, false)
	s, err := o.Open(g.Ctx, 3, 0)
	require.NoError(t, err)
	r := relaytest.Row(7)
	r.Shard = 3
	r.Payload = make([]byte, 1<<20-3000)
	r.Headers = map[string]string{"Traceparent": "00-1-2-01", "tenant": "t1", "Nats-Rollup": "all", "nats-msg-id": "x", "CE-ID": "forged", "bad name": "x", "note": "two\r\nlines: here"}
	plain := relaytest.Row(8)
	plain.Headers = nil
	_, err = o.Pub.Publish(g.Ctx, []sink.Item{{Row: r, Session: s}, {Row: plain, Session: s}}, nil)
	require.NoError(t, err)

	m := g.Events()[0]
	require.Equal(t, "outbox.order.o-1.order.paid", m.Subject)
	require.Equal(t, r.Payload, m.Data)
	for _, h := range []string{"Nats-Expected-Last-Subject-Sequence", "Nats-Expected-Last-Subject-Sequence-Subject"} {
		delete(m.Header, h)
	}
	id, at := r.ID.String(), m.Header["ce-time"]
	require.Equal(t, nats.Header{
		"ce-specversion": {"1.0"}, "ce-id": {id}, "ce-source": {"/outbox/shop"}, "ce-type": {"order.paid"}, "ce-subject": {"order/o-1"}, "ce-time": at,
		"content-type": {"application/json"}, "ce-datacontenttype": {"application/json"}, "Nats-Msg-Id": {id}, "Outbox-Source": {"shop"}, "Outbox-Shard": {"3"}, "Outbox-Pos": {"7"},
		"traceparent": {"00-1-2-01"}, "tenant": {"t1"}, "note": {"two  lines: here"},
	}, m.Header)
	require.NotContains(t, g.Events()[1].Header, "tenant", "headers of the row before it")
}

func TestAnUnfitStreamIsRefused(t *testing.T) {
	t.Parallel()
	g := relaytest.Setup(t, embedded.OS)
	ensured := func(s sink.Stream) error {
		_, err := s.Ensure(g.Ctx, g.JS)
		return err
	}
	c := g.Stream.Config()
	c.AllowRollup = false
	c.Name, c.Subjects = "OTHER", []string{"other.>", "other-pos.>"}
	_, err := g.JS.CreateStream(g.Ctx, c)
	require.NoError(t, err)
	require.ErrorContains(t, ensured(sink.Stream{Name: "OTHER", Prefix: "other"}), "rollup")
	require.ErrorContains(t, ensured(sink.Stream{Name: "OTHER", Prefix: "third"}), "does not take third.>")
	require.NoError(t, ensured(g.Stream))
	c = g.Stream.Config()
	c.AllowDirect = true
	_, err = g.JS.UpdateStream(g.Ctx, c)
	require.NoError(t, err)
	require.ErrorContains(t, ensured(g.Stream), "--no-allow-direct")
}

// A position of another cluster is not taken over.
func TestAPositionOfAnotherClusterIsRefused(t *testing.T) {
	t.Parallel()
	g := relaytest.Setup(t, embedded.OS)
	o := g.Opener("a", g.Can, false)
	s, err := o.Open(g.Ctx, 0, 0)
	require.NoError(t, err)
	o.Cluster = "2/shop"
	_, err = o.Open(g.Ctx, 0, 0)
	require.ErrorIs(t, err, session.ErrForeign)
	_, err = o.Pub.Publish(g.Ctx, relaytest.Items(s, 1), nil)
	require.NoError(t, err, "a refusal does not fence")
}

// A server that goes away in the middle leaves a prefix.
func TestARestartedServerKeepsAPrefix(t *testing.T) {
	t.Parallel()
	ways(t, func(t *testing.T, g *relaytest.Ground, open func(string) *session.Opener) {
		o := open("a")
		done := make(chan error, 1)
		s, err := o.Open(g.Ctx, 0, 0)
		require.NoError(t, err)
		go func() {
			for n := 1; ; n += 100 {
				if _, err := o.Pub.Publish(context.WithoutCancel(g.Ctx), relaytest.Items(s, relaytest.Span(n, n+99)...), nil); err != nil {
					done <- err
					return
				}
			}
		}()
		require.Eventually(t, func() bool { i, _ := g.JS.Stream(g.Ctx, "OUTBOX"); return i != nil && i.CachedInfo().State.Msgs > 150 }, relaytest.Within, relaytest.Every)
		require.NoError(t, g.Server.Restart())
		require.ErrorIs(t, <-done, sink.ErrUnknown)
		var next *session.Session
		require.Eventually(t, func() bool { next, err = o.Open(g.Ctx, 0, 0); return err == nil }, relaytest.Within, relaytest.Every)
		stored := numbers(next.Seen)
		require.Equal(t, relaytest.Words(1, len(stored)), g.Positions())
		require.Equal(t, relaytest.Span(1, len(stored)), stored)
	})
}

func numbers(seen map[string]session.Stored) []int {
	var list []int
	for k := range maps.Keys(seen) {
		p, err := sink.ParsePosition(k)
		if err != nil {
			panic(errors.New("no number: " + k))
		}
		list = append(list, int(p))
	}
	slices.Sort(list)
	return list
}

// A source that was never relayed reads nothing back, however much others have stored; one that lost its positions reads the
// stream once for all of its shards.
func TestAStreamIsReadBackOnce(t *testing.T) {
	t.Parallel()
	g, pool := relaytest.Setup(t, embedded.OS), relaytest.Pool(t)
	const others = 300
	for range others {
		_, err := g.JS.Publish(g.Ctx, "outbox.other.x.y", nil)
		require.NoError(t, err)
	}
	open := func() int {
		o := g.Opener("a", g.Can, false)
		o.Pool = pool
		for shard := range 4 {
			_, err := o.Open(g.Ctx, shard, 0)
			require.NoError(t, err)
		}
		return o.Looked()
	}
	require.Zero(t, open())
	relaytest.Exec(t, pool, `insert into outbox_cursor (source, shard) values ('shop', 0)`)
	stream, err := g.JS.Stream(g.Ctx, "OUTBOX")
	require.NoError(t, err)
	require.NoError(t, stream.Purge(g.Ctx, jetstream.WithPurgeSubject("outbox-pos.>")))
	require.Less(t, open(), others+10)
}

// What the stream has taken and not synced may be lost: the relay has to send it again.
func TestABatchThatIsNotSyncedIsInDoubt(t *testing.T) {
	t.Parallel()
	ways(t, func(t *testing.T, g *relaytest.Ground, open func(string) *session.Opener) {
		o := open("a")
		s, err := o.Open(g.Ctx, 0, 0)
		require.NoError(t, err)
		broken := errors.New("the disk is broken")
		synced := 0
		o.Pub.Sync = func(context.Context) error { synced++; return broken }
		for _, batch := range [][]int{relaytest.Span(1, 1), relaytest.Span(2, 40)} {
			n, err := o.Pub.Publish(g.Ctx, relaytest.Items(s, batch...), nil)
			require.ErrorIs(t, err, sink.ErrUnknown)
			require.ErrorIs(t, err, broken)
			require.Zero(t, n)
		}
		require.ErrorIs(t, o.Pub.Mark(g.Ctx, s), sink.ErrUnknown)
		require.Equal(t, 3, synced)
		broken = nil
		n, err := o.Pub.Publish(g.Ctx, relaytest.Items(s, relaytest.Span(41, 60)...), nil)
		require.NoError(t, err)
		require.Equal(t, 20, n)
		require.Equal(t, 4, synced)

		o.Pub.Sync = func(context.Context) error { // the server that took the batch has gone, and another one has on disk all that it has
			was := g.NC.ConnectedServerId()
			require.NoError(t, g.Server.Restart())
			require.Eventually(t, func() bool { id := g.NC.ConnectedServerId(); return id != "" && id != was }, relaytest.Within, relaytest.Every)
			return nil
		}
		_, err = o.Pub.Publish(g.Ctx, relaytest.Items(s, relaytest.Span(61, 70)...), nil)
		require.ErrorIs(t, err, sink.ErrUnknown)
	})
}
