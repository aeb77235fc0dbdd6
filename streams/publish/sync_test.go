package publish

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/embedded"
)

// syncing is a disk that a test syncs.
type syncing chan func(error)

func (s syncing) sync(stream string, done func(error)) { s <- done }

func TestAWriteIsAnsweredWhenItIsSynced(t *testing.T) {
	t.Parallel()
	g := setup(t, embedded.OS)
	disk := make(syncing, 1)
	a := g.appender(AppenderOptions{Sync: disk.sync})
	require.True(t, a.Syncs())
	answers := make(chan Result, 1)
	write := func(expected string) {
		m := event("a", "made", "{}")
		m.Header.Set(nats.MsgIdHdr, "one")
		if expected != "" {
			m.Header.Set(nats.MsgIdHdr, "another")
			m.Header.Set(nats.ExpectedLastSeqHdr, expected)
		}
		a.Go("EVENTS", m, func(r Result) { answers <- r })
	}
	write("")
	done := <-disk
	require.Empty(t, answers, "it is stored, and not synced yet")
	done(nil)
	require.Equal(t, Result{Seq: 1}, <-answers)

	write("")
	done = <-disk
	require.Empty(t, answers, "the first one may not be synced either")
	done(nil)
	require.Equal(t, Result{Seq: 1, Duplicate: true}, <-answers)

	write("7")
	require.ErrorIs(t, (<-answers).Err, ErrConflict, "nothing is stored")

	write("1")
	(<-disk)(errors.New("the disk is broken"))
	r := <-answers
	require.ErrorIs(t, r.Err, ErrUnanswered)
	require.ErrorContains(t, r.Err, "it is stored, and may not be on disk: the disk is broken")

	write("2")
	done = <-disk
	a.Close()
	require.ErrorIs(t, (<-answers).Err, ErrClosed)
	done(nil)
	require.Empty(t, answers, "it is answered once")

	a = g.appender(AppenderOptions{Sync: disk.sync, Timeout: time.Millisecond})
	a.Go("EVENTS", event("b", "made", "{}"), func(r Result) { answers <- r })
	require.ErrorIs(t, (<-answers).Err, ErrUnanswered, "a disk that stands still")
	(<-disk)(nil)
	require.Empty(t, answers)
}

func TestStreamsAreSyncedSideBySide(t *testing.T) {
	t.Parallel()
	g := setup(t, embedded.OS)
	disk := make(syncing, 1)
	a := g.appender(AppenderOptions{Sync: disk.sync})
	for _, why := range []error{nil, errors.New("the disk is broken")} {
		got := make(chan error, 1)
		go func() { got <- a.Sync(g.Ctx, "EVENTS", "COMMANDS") }()
		first, second := <-disk, <-disk
		second(nil)
		require.Empty(t, got, "one of them is not synced yet")
		first(why)
		require.ErrorIs(t, <-got, why)
	}
}

func TestWhoWritesByItselfAsksForASync(t *testing.T) {
	t.Parallel()
	g := setup(t, embedded.OS)
	disk := make(syncing, 1)
	inside := g.appender(AppenderOptions{Sync: disk.sync})
	client := &SyncClient{NC: g.NC}
	outside := func(ctx context.Context) error { return client.Sync(ctx, "EVENTS") }
	require.NoError(t, outside(g.Ctx), "nobody syncs what is acknowledged: it is on disk")
	require.NoError(t, g.appender(AppenderOptions{}).Sync(g.Ctx, "EVENTS"))
	asked := ""
	sub, err := ServeSync(g.NC, streams.Names{}, func(stream string, done func(error)) { asked = stream; disk.sync(stream, done) })
	require.NoError(t, err)
	for _, ask := range []func(context.Context) error{outside, func(ctx context.Context) error { return inside.Sync(ctx, "EVENTS") }} {
		got := make(chan error, 1)
		go func() { got <- ask(g.Ctx) }()
		(<-disk)(nil)
		require.NoError(t, <-got)
		go func() { got <- ask(g.Ctx) }()
		(<-disk)(errors.New("the disk is broken"))
		err := <-got
		require.ErrorIs(t, err, ErrUnanswered)
		require.ErrorContains(t, err, "the disk is broken")
		ctx, cancel := context.WithTimeout(g.Ctx, 5*time.Millisecond)
		require.ErrorIs(t, ask(ctx), ErrUnanswered, "nobody has said that it is synced")
		cancel()
		(<-disk)(nil)
	}
	require.Equal(t, "EVENTS", asked)
	require.NoError(t, sub.Unsubscribe())
	require.NoError(t, g.NC.Flush())
	require.ErrorIs(t, outside(g.Ctx), ErrUnanswered, "it has answered before, and stops")
	g.NC.Close()
	require.ErrorIs(t, (&SyncClient{NC: g.NC}).Sync(g.Ctx, "EVENTS"), ErrUnanswered, "nobody can say it")
}

// One sync is for all messages of all chains.
func TestChainsAreSyncedTogether(t *testing.T) {
	t.Parallel()
	g := setup(t, embedded.OS)
	disk := make(syncing, 8)
	a := g.appender(AppenderOptions{Sync: disk.sync})
	chain := func(key string, n int) *Chain {
		c := &Chain{Filter: "instar.evt.thing.default." + key + ".>"}
		for range n {
			c.Msgs = append(c.Msgs, event(key, "made", "{}"))
		}
		return c
	}
	write := func(sync error, chains ...*Chain) {
		ended := make(chan struct{})
		go func() { defer close(ended); a.AppendChains(t.Context(), "EVENTS", chains) }()
		done := <-disk
		require.Never(t, func() bool { return len(disk) > 0 }, 50*time.Millisecond, 10*time.Millisecond)
		select {
		case <-ended:
			t.Fatal("it is not synced yet")
		default:
		}
		done(sync)
		<-ended
	}
	one, three, beaten := chain("a", 1), chain("b", 3), chain("a", 2)
	write(nil, one, three)
	require.NoError(t, errors.Join(one.Err, three.Err))
	require.Equal(t, 3, three.Done)

	more := chain("b", 2)
	more.Last = three.Last
	write(errors.New("the disk is broken"), more, beaten)
	require.ErrorIs(t, more.Err, ErrUnanswered)
	require.Zero(t, more.Done, "what is not known to be on disk is not known to be stored")
	require.Equal(t, three.Last, more.Last)
	require.ErrorIs(t, beaten.Err, ErrConflict)

	a.AppendChains(t.Context(), "EVENTS", []*Chain{beaten, chain("a", 0)}) // nothing is stored, so nothing is synced
	require.Empty(t, disk)
}

// Whoever waits for a disk that stands still gives up, as the writers do: a partition that went on waiting would be taken for one that hangs.
func TestASyncGivesUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := &Appender{sync: func(string, func(error)) {}}
		begun := time.Now()
		require.ErrorIs(t, a.Sync(t.Context(), "X"), ErrUnanswered)
		require.Equal(t, syncWithin, time.Since(begun))
	})
}
