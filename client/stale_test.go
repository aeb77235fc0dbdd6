package client_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/client"
)

// A node that cannot hear the others says so, and is believed.
func TestStaleNode(t *testing.T) {
	t.Parallel()
	f := newRegistry(t)
	f.put("web", "i1", "10.0.0.1:80", 100)
	r := resolve(t, f, client.Options{})
	require.Zero(t, r.Staleness())
	f.with(func() { f.behind = 60 })
	eventually(t, func() bool { return r.Staleness() >= time.Minute })
	f.breakWatches()
	eventually(t, func() bool { return look(f, func() bool { return len(f.resumes) == 2 }) })
	require.Never(t, func() bool { return r.Staleness() < time.Minute }, 200*time.Millisecond, 5*time.Millisecond, "also when the watch goes on")
	f.with(func() { f.behind = 0 })
	eventually(t, func() bool { return r.Staleness() == 0 })

	f.with(func() { f.behind = 60 })
	other := newRegistry(t)
	other.put("web", "i2", "10.0.0.2:80", 100)
	other.put("web", "i2", "10.0.0.2:81", 100) // else it is as far as the first, and has nothing to say
	c := f.client(t)
	c.URLs = append(c.URLs, other.server.URL)
	r, err := c.Resolve(within(t), "web", client.Options{})
	require.NoError(t, err)
	t.Cleanup(r.Close)
	eventually(t, func() bool { return r.Staleness() == 0 && ids(r.Endpoints())[0] == "i2" }, "another node is asked")
}

// A node that is behind may know less than the one before it did: what it says does not lead back. One that is not behind
// is believed, whatever its index: the store was restored.
func TestFailsOverToAStalerNode(t *testing.T) {
	t.Parallel()
	ahead, staler := newRegistry(t), newRegistry(t)
	staler.put("web", "gone", "10.0.0.9:80", 100)
	staler.behind = 60
	ahead.put("web", "i1", "10.0.0.1:80", 100)
	ahead.put("web", "i2", "10.0.0.2:80", 100)
	c := ahead.client(t)
	c.URLs = append(c.URLs, staler.server.URL)
	r, err := c.Resolve(within(t), "web", client.Options{})
	require.NoError(t, err)
	t.Cleanup(r.Close)
	require.Equal(t, []string{"i1", "i2"}, ids(r.Endpoints()))
	lists := make(chan []string, 100)
	defer r.Subscribe(func(all []client.Endpoint) { lists <- ids(all) })()
	require.Equal(t, []string{"i1", "i2"}, <-lists)
	ahead.stop()
	asked := func(n int) func() bool {
		return func() bool { return look(staler, func() bool { return len(staler.resumes) >= n }) }
	}
	eventually(t, asked(2), "it is asked again and again")
	require.Empty(t, lists)
	require.Equal(t, []string{"i1", "i2"}, ids(r.Endpoints()))
	require.Positive(t, r.Staleness())
	require.Less(t, r.Staleness(), 30*time.Second, "what is known is fresher than what that node knows")
	require.Equal(t, "3", look(staler, func() string { return staler.resumes[len(staler.resumes)-1] }))

	staler.with(func() { staler.behind = 0 })
	require.Equal(t, []string{"gone"}, <-lists)
	eventually(t, func() bool { return r.Staleness() == 0 })
}

// What a node that is behind told is what a watch goes on from at the next one, which would else say nothing where its list
// is the one of before.
func TestGoesOnFromWhatAStalerNodeTold(t *testing.T) {
	t.Parallel()
	f, staler := newRegistry(t), newRegistry(t)
	f.put("web", "i1", "10.0.0.1:80", 100)
	staler.put("web", "i1", "10.0.0.1:80", 100)
	staler.put("web", "gone", "10.0.0.9:80", 100)
	staler.behind = 60
	c := f.client(t)
	c.URLs = append(c.URLs, staler.server.URL)
	r, err := c.Resolve(within(t), "web", client.Options{})
	require.NoError(t, err)
	t.Cleanup(r.Close)
	lists := make(chan []string, 100)
	defer r.Subscribe(func(all []client.Endpoint) { lists <- ids(all) })()
	require.Equal(t, []string{"i1"}, <-lists)
	f.breakWatches() // the watch stands: the first list came by it
	require.Equal(t, []string{"gone", "i1"}, <-lists)
	eventually(t, func() bool { return look(f, func() bool { return len(f.resumes) == 2 }) })
	require.Equal(t, "3", look(f, func() string { return f.resumes[1] }))
	require.Equal(t, []string{"i1"}, <-lists)
}

// A node is believed from when it has said how it stands: until then what is known gets no fresher by it.
func TestAConnectionIsNoWord(t *testing.T) {
	t.Parallel()
	f := newRegistry(t)
	f.put("web", "i1", "10.0.0.1:80", 100)
	r := resolve(t, f, client.Options{})
	block := make(chan struct{})
	f.with(func() { f.silent = block })
	f.breakWatches()
	eventually(t, func() bool { return look(f, func() bool { return len(f.resumes) == 2 }) })
	eventually(t, func() bool { return r.Staleness() > 100*time.Millisecond })
	close(block)
	eventually(t, func() bool { return r.Staleness() == 0 })
}

// What a node that is behind told is as old in the cache as it was when it was told.
func TestCacheOfAStaleNode(t *testing.T) {
	t.Parallel()
	f := newRegistry(t)
	f.put("web", "i1", "10.0.0.1:80", 100)
	f.behind = 3600
	c := f.client(t)
	c.CacheDir = t.TempDir()
	r, err := c.Resolve(within(t), "web", client.Options{})
	require.NoError(t, err)
	r.Close()
	f.with(func() { f.down = true })
	r, err = c.Resolve(within(t), "web", client.Options{})
	require.NoError(t, err)
	t.Cleanup(r.Close)
	require.Greater(t, r.Staleness(), 59*time.Minute)

	f.with(func() { f.down, f.behind = false, 7200 })
	f.remove("web", "i1")
	require.Never(t, func() bool { return len(r.Endpoints()) == 0 }, 500*time.Millisecond, 10*time.Millisecond, "the cache knows more")
	f.with(func() { f.behind = 0 })
	eventually(t, func() bool { return len(r.Endpoints()) == 0 })
}

// A subscriber that comes while the first list is being told gets it once: who counts changes is not misled.
func TestASubscriberSeesEachListOnce(t *testing.T) {
	t.Parallel()
	for range 100 {
		f := newRegistry(t)
		f.put("web", "i1", "10.0.0.1:80", 100)
		r, err := f.client(t).Resolve(within(t), "web", client.Options{})
		require.NoError(t, err)
		lists := make(chan []string, 10)
		defer r.Subscribe(func(all []client.Endpoint) { lists <- ids(all) })()
		f.put("web", "i2", "10.0.0.2:80", 100)
		require.Equal(t, []string{"i1"}, <-lists)
		require.Equal(t, []string{"i1", "i2"}, <-lists)
		r.Close()
		require.Empty(t, lists)
	}
}
