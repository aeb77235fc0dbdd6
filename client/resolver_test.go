package client_test

import (
	"context"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/client"
)

func notify(c chan os.Signal, s os.Signal) { signal.Notify(c, s) }

// resolve is a resolver whose watch stands, so that it can be cut.
func resolve(t *testing.T, f *registry, opts client.Options) *client.Resolver {
	t.Helper()
	before := look(f, func() int { return len(f.resumes) })
	r, err := f.client(t).Resolve(within(t), "web", opts)
	require.NoError(t, err)
	t.Cleanup(r.Close)
	eventually(t, func() bool { return look(f, func() bool { return len(f.resumes) > before }) }, "its watch")
	return r
}

func TestResolverFollowsAndConfirms(t *testing.T) {
	t.Parallel()
	f := newRegistry(t)
	f.put("web", "i1", "10.0.0.1:80", 100)
	r := resolve(t, f, client.Options{Watcher: "me"})
	require.Equal(t, []string{"i1"}, ids(r.Endpoints()))
	confirmed := func(index uint64) {
		t.Helper()
		eventually(t, func() bool { return look(f, func() bool { return f.watchers["web/me"] == index }) })
	}
	confirmed(2)
	told := make(chan []string, 10)
	cancel := r.Subscribe(func(all []client.Endpoint) { told <- ids(all) })
	require.Equal(t, []string{"i1"}, <-told)
	f.put("web", "i2", "10.0.0.2:80", 100)
	require.Equal(t, []string{"i1", "i2"}, <-told)
	confirmed(3)
	f.remove("web", "i1")
	require.Equal(t, []string{"i2"}, <-told)
	confirmed(4)
	f.put("other", "x", "10.0.0.9:80", 100)
	confirmed(5) // an id without an event
	require.Zero(t, r.Staleness())
	cancel()
	f.remove("web", "i2")
	confirmed(6)
	require.Empty(t, told)
}

func TestClosedResolverHoldsUpNoDrain(t *testing.T) {
	t.Parallel()
	f := newRegistry(t)
	f.put("web", "i1", "10.0.0.1:80", 100)
	r := resolve(t, f, client.Options{})
	named := resolve(t, f, client.Options{Watcher: "me"})
	eventually(t, func() bool { return look(f, func() bool { return len(f.watchers) == 2 }) })
	r.Close()
	named.Close()
	for name, index := range look(f, func() map[string]uint64 { return maps.Clone(f.watchers) }) {
		require.Equal(t, name == "web/me", index < 1000, name)
	}
}

func TestCutWatchGoesOnWithoutASnapshot(t *testing.T) {
	t.Parallel()
	f := newRegistry(t)
	f.put("web", "i1", "10.0.0.1:80", 100)
	r := resolve(t, f, client.Options{})
	f.breakWatches()
	eventually(t, func() bool { return look(f, func() bool { return len(f.resumes) == 2 }) })
	require.Equal(t, []string{"", "2"}, look(f, func() []string { return f.resumes }))
	f.put("web", "i2", "10.0.0.2:80", 100)
	eventually(t, func() bool { return len(r.Endpoints()) == 2 })
	require.Equal(t, 1, look(f, func() int { return f.snapshots }))
}

// The registry was restored and stands where it stood, with other instances: what its ids tell goes back to it whole.
func TestCutWatchIsToldOfAnotherHistory(t *testing.T) {
	t.Parallel()
	f := newRegistry(t)
	f.with(func() { f.history = "one" })
	f.put("web", "i1", "10.0.0.1:80", 100)
	r := resolve(t, f, client.Options{})
	look(f, func() any { // nobody who is connected is told
		f.history = "two"
		f.instances["web/i2"] = f.instances["web/i1"]
		f.instances["web/i2"].InstanceID = "i2"
		delete(f.instances, "web/i1")
		return nil
	})
	f.breakWatches()
	eventually(t, func() bool { return len(ids(r.Endpoints())) == 1 && ids(r.Endpoints())[0] == "i2" })
	require.Equal(t, []string{"", "2-one"}, look(f, func() []string { return f.resumes }))
}

// A registry of another version may not know the id of the one before it.
func TestAnIDThatTheRegistryDoesNotKnowIsDropped(t *testing.T) {
	t.Parallel()
	f := newRegistry(t)
	f.with(func() { f.history = "one" })
	f.put("web", "i1", "10.0.0.1:80", 100)
	r := resolve(t, f, client.Options{})
	look(f, func() any { f.history, f.old = "", true; return nil })
	f.breakWatches()
	eventually(t, func() bool { return look(f, func() bool { return f.snapshots == 2 }) })
	f.put("web", "i2", "10.0.0.2:80", 100)
	eventually(t, func() bool { return len(r.Endpoints()) == 2 })
}

func TestServesWhatItKnewWhileTheRegistryIsAway(t *testing.T) {
	t.Parallel()
	f := newRegistry(t)
	f.put("web", "i1", "10.0.0.1:80", 100)
	r := resolve(t, f, client.Options{})
	addr := f.server.Listener.Addr().String()
	f.stop()
	eventually(t, func() bool { return r.Staleness() > 50*time.Millisecond })
	choice, err := r.Pick()
	require.NoError(t, err)
	choice.Done(client.OK)
	f.put("web", "i2", "10.0.0.2:80", 100)
	f.remove("web", "i1")
	f.start(t, addr)
	eventually(t, func() bool {
		return r.Staleness() == 0 && len(ids(r.Endpoints())) == 1 && ids(r.Endpoints())[0] == "i2"
	})
}

func TestNoRegistryIsAnError(t *testing.T) {
	t.Parallel()
	f := newRegistry(t)
	f.with(func() { f.down = true })
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	_, err := f.client(t).Resolve(ctx, "web", client.Options{})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "503")
}

// A confirmation of "it has gone" waits for the calls that were begun before.
func TestConfirmationWaitsForCallsToWhatHasGone(t *testing.T) {
	t.Parallel()
	f := newRegistry(t)
	f.put("web", "i1", "10.0.0.1:80", 100)
	r := resolve(t, f, client.Options{Watcher: "me"})
	choice, err := r.Pick()
	require.NoError(t, err)
	f.remove("web", "i1")
	eventually(t, func() bool { return len(r.Endpoints()) == 0 })
	require.Never(t, func() bool { return look(f, func() bool { return f.watchers["web/me"] == 3 }) }, 100*time.Millisecond, 10*time.Millisecond)
	choice.Done(client.OK)
	eventually(t, func() bool { return look(f, func() bool { return f.watchers["web/me"] == 3 }) })
}

func picks(t *testing.T, r *client.Resolver, n int) map[string]int {
	t.Helper()
	got := map[string]int{}
	for range n {
		choice, err := r.Pick()
		require.NoError(t, err)
		got[choice.InstanceID]++
		choice.Done(client.OK)
	}
	return got
}

func TestPick(t *testing.T) {
	t.Parallel()
	f := newRegistry(t)
	_, err := resolve(t, f, client.Options{}).Pick()
	require.ErrorIs(t, err, client.ErrNoEndpoints)
	f.put("web", "i1", "10.0.0.1:80", 300)
	f.put("web", "i2", "10.0.0.2:80", 100)
	f.put("web", "i3", "10.0.0.3:80", 0)
	f.with(func() { f.instances["web/i2"].Zone = "b" })

	require.Equal(t, map[string]int{"i1": 300, "i2": 100}, picks(t, resolve(t, f, client.Options{}), 400), "exactly by weight")
	require.Equal(t, map[string]int{"i2": 10}, picks(t, resolve(t, f, client.Options{Zone: "b"}), 10))
	require.Len(t, picks(t, resolve(t, f, client.Options{Zone: "nowhere"}), 10), 2)

	least := resolve(t, f, client.Options{Balance: client.LeastInFlight})
	got := map[string]int{}
	for range 400 { // none of them ends
		choice, err := least.Pick()
		require.NoError(t, err)
		got[choice.InstanceID]++
	}
	require.InDelta(t, 300, got["i1"], 15, "load in proportion to weight")

	f.put("web", "i1", "10.0.0.1:80", 0)
	f.put("web", "i2", "10.0.0.2:80", 0)
	none := resolve(t, f, client.Options{})
	require.Len(t, picks(t, none, 30), 3, "better than nothing")
}

func TestEjection(t *testing.T) {
	t.Parallel()
	f := newRegistry(t)
	for _, id := range []string{"i1", "i2", "i3"} {
		f.put("web", id, "10.0.0."+id[1:]+":80", 100)
	}
	r := resolve(t, f, client.Options{})
	fail := func(o client.Outcome, avoid ...string) string {
		choice, err := r.Pick(avoid...)
		require.NoError(t, err)
		choice.Done(o)
		return choice.InstanceID
	}
	require.Equal(t, "i1", fail(client.Refused, "i2", "i3"))
	require.Equal(t, map[string]int{"i2": 5, "i3": 5}, picks(t, r, 10))
	for range 5 {
		require.Equal(t, "i2", fail(client.Failed, "i3"))
	}
	require.Len(t, picks(t, r, 10), 2, "two of three would be more than half")
	f.put("web", "i1", "10.0.0.1:81", 100)
	eventually(t, func() bool { return len(picks(t, r, 9)) == 3 }, "a new process is not the old one")
}

func TestSilentWatchIsGivenUp(t *testing.T) {
	t.Parallel()
	over := make(chan struct{})
	hung := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-over }))
	defer hung.Close()
	defer close(over)
	f := newRegistry(t)
	f.put("web", "i1", "10.0.0.1:80", 100)
	c := f.client(t)
	c.URLs = []string{hung.URL, f.server.URL}
	r, err := c.Resolve(within(t), "web", client.Options{})
	require.NoError(t, err, "no head of an answer within 5 s: another node")
	r.Close()
}
