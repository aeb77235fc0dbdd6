package ended_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/consumers/consumertest"
	"github.com/bcc94042/instar/consumers/ended"
	"github.com/bcc94042/instar/consumers/engine"
	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/kv/index"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/service"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/embedded"
	"github.com/bcc94042/instar/streams/publish"
)

func TestMain(m *testing.M) { consumertest.Main(m) }

func TestDue(t *testing.T) {
	t.Parallel()
	now := time.Now()
	e := machines.Entity{State: "closed", UpdatedAt: now.Add(-time.Hour)}
	require.True(t, ended.Due(consumertest.Things, &e, now, time.Hour))
	require.False(t, ended.Due(consumertest.Things, &e, now, time.Hour+1))
	require.False(t, ended.Due(consumertest.Things, &e, now, 0), "0 is never")
	alive, waits, works := e, e, e
	alive.State = "open"
	waits.Timers = map[string]machines.Timer{"x": {}}
	works.Effects = map[string]machines.Attempt{"work": {}}
	for _, other := range []machines.Entity{alive, waits, works, {}} {
		require.False(t, ended.Due(consumertest.Things, &other, now, time.Hour))
	}
}

// The pass drops what has ended and left the index, and nothing else; the index forgets that it is to be dropped.
func TestAPassDropsWhatHasEnded(t *testing.T) {
	t.Parallel()
	w := consumertest.New(t, embedded.Interval, consumertest.Things)
	ix := index.New(w.JS, "things", func(_ string, v []byte) (index.Meta, error) { return index.DescribeJSON(v) }, index.Options{
		Ended: func(state string) bool { return state == "closed" }, EndedFor: time.Millisecond,
	})
	w.Also(ix.Run)
	w.Indexes = &index.Map{}
	w.Indexes.Set("thing", ix)
	after := func(string) time.Duration { return 5 * time.Millisecond }
	w.Run((&engine.Engine{Deps: w.Deps, Indexes: w.Indexes, DropAfter: after}).Run)
	for _, id := range []string{"a", "b", "alive"} {
		w.Ask(consumertest.ToThing(id, "create", ""))
	}
	for _, id := range []string{"a", "b"} {
		w.Ask(consumertest.ToThing(id, "close", ""))
	}
	w.Eventually("both have left the index", func() bool { return len(ix.Ended(time.Now())) == 2 })
	require.Empty(t, ix.Ended(time.Now().Add(-time.Hour)))
	ctx, cancel := context.WithCancel(w.Ctx)
	defer cancel()
	p := &ended.Passes{Deps: w.Deps, Indexes: w.Indexes, After: after, Owns: func(int) bool { return true }}
	w.Running.Go(func() { p.Run(ctx) })
	dropped := func(id string) bool {
		m, err := kv.Read(w.Ctx, w.NC, "things", "default."+id)
		return err == nil && kv.Dropped(m)
	}
	w.Eventually("both are dropped", func() bool { return dropped("a") && dropped("b") && len(ix.Ended(time.Now())) == 0 })
	require.False(t, dropped("alive"))
	cancel()
}

// After the first pass, which looks at all that views have, one goes by the drops that the last one has sent, also if it is not known whether they were stored: a bucket with a million
// keys is not listed each hour.
func TestAPassListsAViewOnce(t *testing.T) {
	t.Parallel()
	m := service.Machine
	w := consumertest.New(t, embedded.Interval, m)
	view := m.BucketOf(m.Views[0])
	put := func(write publish.Write) { require.NoError(t, w.Appender.Append(w.Ctx, []publish.Write{write})[0].Err) }
	e := m.New("default", "", "")
	e.State, e.Version = service.Deleted, 7
	value := func(id string) []byte {
		e.ID = id
		raw, err := e.AppendJSON(nil)
		require.NoError(t, err)
		return raw
	}
	put(kv.Drop(m.Plural, "default.before", value("before"), time.Hour))
	put(kv.Write(view, "default.before", []byte(`{"version":7}`)))
	put(kv.Write(m.Plural, "default.now", value("now")))
	put(kv.Write(view, "default.now", []byte(`{"version":7}`)))
	ix := index.New(w.JS, m.Plural, func(_ string, v []byte) (index.Meta, error) { return index.DescribeJSON(v) }, index.Options{
		Ended: func(state string) bool { return state == service.Deleted }, EndedFor: time.Nanosecond,
	})
	w.Also(ix.Run)
	<-ix.Ready()
	w.Indexes = &index.Map{}
	w.Indexes.Set(m.Name, ix)
	listed, err := w.NC.SubscribeSync("$JS.API.STREAM.INFO." + streams.BucketStream(view))
	require.NoError(t, err)
	w.Eventually("it has left the index", func() bool { return len(ix.Ended(time.Now())) == 1 })
	appender, err := publish.NewAppender(w.NC, publish.AppenderOptions{Sync: func(_ string, done func(error)) { done(errors.New("the disk stands still")) }})
	require.NoError(t, err)
	t.Cleanup(appender.Close)
	w.Noted()
	d := w.Deps
	d.Commands, err = publish.NewCommands(appender)
	require.NoError(t, err)
	t.Cleanup(d.Commands.Close)
	owned, after := false, time.Nanosecond
	p := &ended.Passes{Deps: d, Indexes: w.Indexes, After: func(string) time.Duration { return after }, Owns: func(int) bool { return owned }}
	there := func(id string) bool {
		got, err := kv.Read(w.Ctx, w.NC, view, "default."+id)
		require.NoError(t, err)
		return got != nil
	}
	listings := func() (n int) {
		require.NoError(t, w.NC.Flush())
		for {
			m, err := listed.NextMsg(time.Millisecond)
			if err != nil {
				return n
			}
			if strings.Contains(string(m.Data), "*") {
				n++
			}
		}
	}
	p.Pass(w.Ctx)
	require.True(t, there("before"), "it has no partition")
	require.Zero(t, listings())
	owned = true
	p.Pass(w.Ctx) // and sends a drop, which is stored, and not answered
	require.False(t, there("before"))
	require.Equal(t, 1, listings())
	after = 0 // it is not due again, as with a clock that was set back, and its value is there yet
	p.Pass(w.Ctx)
	require.True(t, there("now"))
	put(kv.Drop(m.Plural, "default.now", value("now"), time.Hour)) // as its owner does
	w.Eventually("the index knows", func() bool { return len(ix.Ended(time.Now())) == 0 })
	p.Pass(w.Ctx)
	require.False(t, there("now"), "it was told which")
	p.Pass(w.Ctx)
	require.Zero(t, listings())
}

// What views have of dropped entities goes with the next pass, however it got there; what is of another life, or of an entity that has a value, stays. A view that cannot be
// asked is told of, and the others are not kept by it.
func TestAPassRemovesTheViewsOfWhatWasDropped(t *testing.T) {
	t.Parallel()
	m := service.Machine
	w := consumertest.New(t, embedded.Interval, m)
	n := w.Noted()
	view, other := m.BucketOf(m.Views[0]), m.BucketOf(m.Views[1])
	put := func(write publish.Write) { require.NoError(t, w.Appender.Append(w.Ctx, []publish.Write{write})[0].Err) }
	of := func(id string) []byte {
		e := m.New("default", "", id)
		e.State, e.Version = service.Deleted, 7
		value, err := e.AppendJSON(nil)
		require.NoError(t, err)
		return value
	}
	for _, id := range []string{"gone", "broken", "reborn", "unread"} {
		put(kv.Drop(m.Plural, "default."+id, of(id), time.Hour))
		put(kv.Write(view, "default."+id, []byte(`{"version":7}`)))
	}
	put(kv.Drop(m.Plural, "default.unread", []byte("x"), time.Hour))
	put(kv.Write(view, "default.broken", []byte("x")))
	put(kv.Write(view, "default.reborn", []byte(`{"version":8}`)))
	put(kv.Write(m.Plural, "default.ended", of("ended")))
	put(kv.Write(view, "default.ended", []byte(`{"version":7}`)))
	put(kv.Write(view, "default.nobody", []byte(`{"version":7}`)))
	require.NoError(t, w.JS.DeleteStream(w.Ctx, streams.BucketStream(other)))
	ix := index.New(w.JS, m.Plural, func(_ string, v []byte) (index.Meta, error) { return index.DescribeJSON(v) }, index.Options{})
	w.Also(ix.Run)
	<-ix.Ready()
	w.Indexes = &index.Map{}
	w.Indexes.Set(m.Name, ix)
	ctx, cancel := context.WithCancel(w.Ctx)
	defer cancel()
	p := &ended.Passes{Deps: w.Deps, Indexes: w.Indexes, After: func(string) time.Duration { return 0 }, Owns: func(int) bool { return true }}
	w.Running.Go(func() { p.Run(ctx) })
	w.Eventually("the pass", func() bool { return n.Count("drop failed service") == 2 }) // what cannot be read, and the view that is not there
	left := func(id string) bool {
		got, err := kv.Read(w.Ctx, w.NC, view, "default."+id)
		require.NoError(t, err)
		return got != nil
	}
	w.Eventually("two are gone", func() bool { return !left("gone") && !left("broken") })
	for _, id := range []string{"reborn", "unread", "ended", "nobody"} {
		require.True(t, left(id), id)
	}
	cancel()
}
