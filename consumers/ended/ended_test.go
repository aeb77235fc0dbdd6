package ended_test

import (
	"context"
	"fmt"
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

// A process that was suspended between the marker and the removal of the views goes on when another one has finished, and the name has a new life.
func TestAViewOfTheNextLifeIsKept(t *testing.T) {
	t.Parallel()
	w := consumertest.New(t, embedded.Interval, service.Machine)
	m, view := service.Machine, service.Machine.BucketOf(service.Machine.Views[0])
	has := func(version int) bool {
		r := w.Appender.Append(w.Ctx, []publish.Write{kv.Write(view, "default.web", fmt.Appendf(nil, `{"version":%d}`, version))})[0]
		require.NoError(t, r.Err)
		require.NoError(t, ended.Views(w.Ctx, &w.Deps, m, "default.web", 7))
		got, err := kv.Read(w.Ctx, w.NC, view, "default.web")
		require.NoError(t, err)
		return !kv.Absent(got)
	}
	require.False(t, has(7))
	require.True(t, has(8))
}
