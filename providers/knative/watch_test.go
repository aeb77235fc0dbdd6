package knative_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/providers"
	"github.com/bcc94042/instar/providers/knative"
	"github.com/bcc94042/instar/providers/knative/knativetest"
)

// told collects the keys that a watch tells of.
type told struct {
	mu   sync.Mutex
	keys []string
}

func (w *told) add(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.keys = append(w.keys, key)
}

// take is what was told since the last time.
func (w *told) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	keys := w.keys
	w.keys = nil
	return keys
}

// watching begins a watch and waits until the cluster has it.
func (b *bench) watching(t *testing.T) *told {
	t.Helper()
	w := &told{}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- b.Watch(ctx, w.add) }()
	t.Cleanup(func() { cancel(); require.ErrorIs(t, <-ended, context.Canceled) })
	require.Eventually(t, func() bool { return b.cluster.Watches() == 1 }, awhile, tick)
	return w
}

func TestTheWatchTellsWhatChanged(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *knative.Config) { c.Namespace = "apps" })
	b.applied(t, asking(1, image("web:1")))
	b.cluster.Put("apps", "theirs", object{})
	b.cluster.Put("elsewhere", "web", object{"metadata": object{"labels": object{"instar/owner": "instar", "instar/namespace": "default"}}})
	w := b.watching(t)
	require.Empty(t, w.take(), "what was there before is not told")
	changes := []func(){
		func() { b.cluster.Step() },
		func() { b.cluster.Edit("apps", "web", func(o object) { o["spec"].(object)["by"] = "hand" }) },
		func() { b.cluster.Remove("apps", "web") },
		func() { b.applied(t, asking(2, image("web:1"))) },
	}
	for i, change := range changes {
		change()
		require.Eventually(t, func() bool { return len(w.take()) > 0 }, awhile, tick, "change %d", i)
	}
	b.cluster.Edit("apps", "theirs", func(o object) { o["spec"] = object{} })
	b.cluster.Edit("elsewhere", "web", func(o object) { o["spec"] = object{} })
	b.cluster.Step() // the last word, which is of ours
	var keys []string
	require.Eventually(t, func() bool { keys = append(keys, w.take()...); return len(keys) > 0 }, awhile, tick)
	for _, key := range keys {
		require.Equal(t, "default.web", key, "others' objects and namespaces are none of ours")
	}
}

func TestACutWatchIsTakenUpAgain(t *testing.T) {
	t.Parallel()
	for name, interrupt := range map[string]func(b *bench){
		"Cut":               func(b *bench) { b.cluster.CutWatches() },
		"CutAndExpired":     func(b *bench) { b.cluster.Expire(); b.cluster.CutWatches() },
		"ConnectionsBroken": func(b *bench) { b.http.CloseClientConnections() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, nil)
			b.applied(t, asking(1, image("web:1")))
			w := b.watching(t)
			b.cluster.Fail(on(http.MethodGet, knativetest.Failure{Code: 503, Message: "away"})) // for as long as it takes
			interrupt(b)
			require.Eventually(t, func() bool { return b.cluster.Watches() == 0 }, awhile, tick)
			b.cluster.SetStatus("default", "web", object{"because": name}) // nobody sees it happen
			b.cluster.Fail(nil)
			require.Eventually(t, func() bool { return strings.Join(w.take(), "") == "default.web" }, awhile, tick)
		})
	}
}

// An object that vanishes while nobody watches is told of when the list is read again.
func TestARemovalThatTheWatchMissedIsTold(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	b.applied(t, asking(1, image("web:1")))
	w := b.watching(t)
	b.cluster.Fail(on(http.MethodGet, knativetest.Failure{Code: 500, Reason: "InternalError", Message: "away"}))
	require.Equal(t, 1, b.cluster.CutWatches())
	b.cluster.Remove("default", "web")
	b.cluster.Expire()
	b.cluster.Fail(nil)
	require.Eventually(t, func() bool { return len(w.take()) > 0 }, awhile, tick)
}

func TestAWatchBeforeTheServerIsUp(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	b.cluster.Fail(func(*http.Request) *knativetest.Failure {
		return &knativetest.Failure{Code: 403, Reason: "Forbidden", Message: "not yet"}
	})
	w := &told{}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- b.Watch(ctx, w.add) }()
	require.Eventually(t, func() bool { return len(b.cluster.Calls()) > 0 }, awhile, tick)
	_, err := b.Observe(ctx, providers.ObserveRequest{Request: asking(1, image("web:1")).Request})
	require.True(t, providers.IsUnavailable(err), "the poll tells the same")
	b.cluster.Fail(nil)
	require.Eventually(t, func() bool { return b.cluster.Watches() == 1 }, awhile, tick)
	b.applied(t, asking(1, image("web:1")))
	require.Eventually(t, func() bool { return len(w.take()) > 0 }, awhile, tick)
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
}
