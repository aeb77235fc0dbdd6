package relay

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/streams/embedded"
)

// ways are the ways in which a batch can be stored; what holds for one must hold for all.
func ways(t *testing.T, test func(t *testing.T, g *ground, open func(node string) *opener)) {
	t.Helper()
	for name, way := range map[string]struct {
		profile embedded.Profile
		change  func(*abilities)
	}{
		"fast":   {embedded.OS, func(*abilities) {}},
		"atomic": {embedded.Fsync, func(*abilities) {}},
		"single": {embedded.OS, func(a *abilities) { a.fast, a.atomic = false, false }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := setup(t, way.profile)
			can := g.can
			way.change(&can)
			test(t, g, func(node string) *opener { return g.opener(node, can, way.profile == embedded.Fsync) })
		})
	}
}

func TestABatchIsStoredInOrder(t *testing.T) {
	t.Parallel()
	ways(t, func(t *testing.T, g *ground, open func(string) *opener) {
		o := open("a")
		s, err := o.open(g.ctx, 0, 0)
		require.NoError(t, err)
		for _, batch := range [][]int{span(1, 1), span(2, 40), span(41, 300)} {
			s.pos = position(batch[len(batch)-1])
			n, err := o.pub.publish(g.ctx, items(s, batch...), []*session{s})
			require.NoError(t, err)
			require.Equal(t, len(batch), n)
		}
		require.Equal(t, words(1, 300), g.positions())

		next, err := open("b").open(g.ctx, 0, 0)
		require.NoError(t, err)
		require.Equal(t, position(300), next.pos)
		require.Empty(t, next.seen)
	})
}

func TestAZombieCanStoreNothing(t *testing.T) {
	t.Parallel()
	ways(t, func(t *testing.T, g *ground, open func(string) *opener) {
		a, b := open("a"), open("b")
		zombie, err := a.open(g.ctx, 0, 0)
		require.NoError(t, err)
		_, err = a.pub.publish(g.ctx, items(zombie, span(1, 30)...), nil) // no marker: it died before the next one was due
		require.NoError(t, err)

		s, err := b.open(g.ctx, 0, 0)
		require.NoError(t, err)
		require.Zero(t, s.pos)
		require.Equal(t, span(1, 30), numbers(s.seen), "what lies beyond the marker is read back")
		other, err := b.open(g.ctx, 1, 0)
		require.NoError(t, err)

		for _, late := range [][]item{items(zombie, 31), items(zombie, span(31, 70)...)} {
			n, err := a.pub.publish(g.ctx, late, nil)
			require.ErrorIs(t, err, errFenced)
			require.Zero(t, n)
			n, err = a.pub.publish(g.ctx, late, []*session{zombie})
			require.ErrorIs(t, err, errFenced)
			require.Zero(t, n)
		}
		_, err = b.pub.publish(g.ctx, append(items(s, span(31, 50)...), items(other, span(51, 60)...)...), []*session{s, other})
		require.NoError(t, err)
		require.Equal(t, words(1, 60), g.positions())
	})
}

// A batch of which the relay does not know whether it was stored is found by the next session, whichever answers were lost.
func TestALostAnswerCostsNothing(t *testing.T) {
	t.Parallel()
	ways(t, func(t *testing.T, g *ground, open func(string) *opener) {
		o := open("a")
		s, err := o.open(g.ctx, 0, 0)
		require.NoError(t, err)
		var deaf atomic.Bool
		o.pub.drops = func(*nats.Msg) bool { return deaf.Load() }
		o.pub.wait = 300_000_000

		deaf.Store(true)
		_, err = o.pub.publish(g.ctx, items(s, span(1, 20)...), nil)
		require.ErrorIs(t, err, errDoubt)
		_, err = o.open(g.ctx, 0, 0) // its own marker is stored, and it does not know
		require.ErrorIs(t, err, errDoubt)
		deaf.Store(false)

		again, err := o.open(g.ctx, 0, 0)
		require.NoError(t, err)
		stored := numbers(again.seen)
		require.Equal(t, words(1, len(stored)), g.positions())
		if o.pub.can.fast || o.pub.can.atomic {
			require.Len(t, stored, 20)
		}
	})
}

func TestARowThatIsTooLargeIsNamed(t *testing.T) {
	t.Parallel()
	ways(t, func(t *testing.T, g *ground, open func(string) *opener) {
		o := open("a")
		s, err := o.open(g.ctx, 0, 0)
		require.NoError(t, err)
		c := g.stream.Config()
		c.MaxMsgSize = 4096
		_, err = g.js.UpdateStream(g.ctx, c) // after the relay looked at it
		require.NoError(t, err)
		batch := items(s, span(1, 40)...)
		batch[30].row.Payload = make([]byte, 5000)
		n, err := o.pub.publish(g.ctx, batch, []*session{s})
		var refused *refusedError
		require.ErrorAs(t, err, &refused)
		require.Equal(t, 30, refused.index)
		require.Equal(t, 30, n)
		n, err = o.pub.publish(g.ctx, batch[31:], []*session{s}) // the session goes on
		require.NoError(t, err)
		require.Equal(t, 9, n)
		last := items(s, span(41, 60)...)
		last[19].row.Payload = make([]byte, 5000)
		n, err = o.pub.publish(g.ctx, last, nil)
		require.ErrorAs(t, err, &refused)
		require.Equal(t, []int{19, 19}, []int{n, refused.index})
		require.Equal(t, words(1, 30)+" "+words(32, 59), g.positions())
	})
}

// What another publisher stored under the same id a moment ago is taken as stored.
func TestAnIdOfTheWindowIsNoError(t *testing.T) {
	t.Parallel()
	ways(t, func(t *testing.T, g *ground, open func(string) *opener) {
		o := open("a")
		s, err := o.open(g.ctx, 0, 0)
		require.NoError(t, err)
		batch := items(s, span(1, 40)...)
		_, err = o.pub.publish(g.ctx, batch[7:8], nil)
		require.NoError(t, err)
		n, err := o.pub.publish(g.ctx, batch, []*session{s})
		require.NoError(t, err)
		require.Equal(t, 40, n)
		require.Equal(t, "8 "+words(1, 7)+" "+words(9, 40), g.positions())
		_, err = o.pub.publish(g.ctx, items(s, 41), []*session{s})
		require.NoError(t, err)
	})
}

func TestAMessageCarriesItsRow(t *testing.T) {
	t.Parallel()
	g := setup(t, embedded.OS)
	o := g.opener("a", g.can, false)
	s, err := o.open(g.ctx, 3, 0)
	require.NoError(t, err)
	r := example(7)
	r.shard = 3
	r.Payload = make([]byte, 1<<20-3000)
	r.Headers = map[string]string{"Traceparent": "00-1-2-01", "tenant": "t1", "Nats-Rollup": "all", "nats-msg-id": "x", "CE-ID": "forged", "bad name": "x", "note": "two\r\nlines: here"}
	plain := example(8)
	plain.Headers = nil
	_, err = o.pub.publish(g.ctx, []item{{r, s}, {plain, s}}, nil)
	require.NoError(t, err)

	m := g.events()[0]
	require.Equal(t, "outbox.order.o-1.order.paid", m.Subject)
	require.Equal(t, r.Payload, m.Data)
	for _, h := range []string{headerGuard, headerGuardSubject} {
		delete(m.Header, h)
	}
	id, at := r.ID.String(), m.Header["ce-time"]
	require.Equal(t, nats.Header{
		"ce-specversion": {"1.0"}, "ce-id": {id}, "ce-source": {"/outbox/shop"}, "ce-type": {"order.paid"}, "ce-subject": {"order/o-1"}, "ce-time": at,
		"content-type": {"application/json"}, "ce-datacontenttype": {"application/json"}, "Nats-Msg-Id": {id}, "Outbox-Source": {"shop"}, "Outbox-Shard": {"3"}, "Outbox-Pos": {"7"},
		"traceparent": {"00-1-2-01"}, "tenant": {"t1"}, "note": {"two  lines: here"},
	}, m.Header)
	require.NotContains(t, g.events()[1].Header, "tenant", "headers of the row before it")
}

func TestWhatCannotBecomeAMessageIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	e := newEncoder("outbox", "shop", 1<<20)
	for reason, spoil := range map[string]func(*row){
		"aggregate type": func(r *row) { r.AggregateType = "a.b" },
		"aggregate id":   func(r *row) { r.AggregateID = "*" },
		"event type":     func(r *row) { r.EventType = "order..paid" },
		"characters":     func(r *row) { r.AggregateID = strings.Repeat("x", 129) },
		"payload":        func(r *row) { r.Payload = make([]byte, 1<<20) },
		"headers":        func(r *row) { r.Headers = map[string]string{"big": strings.Repeat("x", 70_000)} },
	} {
		r := example(1)
		require.NoError(t, e.fits(r))
		spoil(r)
		require.ErrorContains(t, e.fits(r), reason)
	}
}

func TestAnUnfitStreamIsRefused(t *testing.T) {
	t.Parallel()
	g := setup(t, embedded.OS)
	c := g.stream.Config()
	c.AllowRollup = false
	c.Name, c.Subjects = "OTHER", []string{"other.>", "other-pos.>"}
	_, err := g.js.CreateStream(g.ctx, c)
	require.NoError(t, err)
	require.ErrorContains(t, Stream{Name: "OTHER", Prefix: "other"}.Ensure(g.ctx, g.js), "rollup")
	require.ErrorContains(t, Stream{Name: "OTHER", Prefix: "third"}.Ensure(g.ctx, g.js), "does not take third.>")
	require.NoError(t, g.stream.Ensure(g.ctx, g.js))
	c = g.stream.Config()
	c.AllowDirect = true
	_, err = g.js.UpdateStream(g.ctx, c)
	require.NoError(t, err)
	require.ErrorContains(t, g.stream.Ensure(g.ctx, g.js), "--no-allow-direct")
}

// A position of another cluster is not taken over.
func TestAPositionOfAnotherClusterIsRefused(t *testing.T) {
	t.Parallel()
	g := setup(t, embedded.OS)
	o := g.opener("a", g.can, false)
	s, err := o.open(g.ctx, 0, 0)
	require.NoError(t, err)
	o.cluster = "2/shop"
	_, err = o.open(g.ctx, 0, 0)
	require.ErrorIs(t, err, errForeign)
	_, err = o.pub.publish(g.ctx, items(s, 1), nil)
	require.NoError(t, err, "a refusal does not fence")
}

// A server that goes away in the middle leaves a prefix.
func TestARestartedServerKeepsAPrefix(t *testing.T) {
	t.Parallel()
	ways(t, func(t *testing.T, g *ground, open func(string) *opener) {
		o := open("a")
		done := make(chan error, 1)
		s, err := o.open(g.ctx, 0, 0)
		require.NoError(t, err)
		go func() {
			for n := 1; ; n += 100 {
				if _, err := o.pub.publish(context.WithoutCancel(g.ctx), items(s, span(n, n+99)...), nil); err != nil {
					done <- err
					return
				}
			}
		}()
		require.Eventually(t, func() bool { i, _ := g.js.Stream(g.ctx, "OUTBOX"); return i != nil && i.CachedInfo().State.Msgs > 150 }, waitFor, tick)
		require.NoError(t, g.server.Restart())
		require.ErrorIs(t, <-done, errDoubt)
		var next *session
		require.Eventually(t, func() bool { next, err = o.open(g.ctx, 0, 0); return err == nil }, waitFor, tick)
		stored := numbers(next.seen)
		require.Equal(t, words(1, len(stored)), g.positions())
		require.Equal(t, span(1, len(stored)), stored)
	})
}

func numbers(seen map[string]stored) []int {
	var list []int
	for k := range maps.Keys(seen) {
		p, err := parsePosition(k)
		if err != nil {
			panic(errors.New("no number: " + k))
		}
		list = append(list, int(p))
	}
	slices.Sort(list)
	return list
}
