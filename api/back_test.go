package api_test

import (
	"encoding/json"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/api"
	"github.com/bcc94042/instar/kv/index"
)

// The snapshot of one entity is read from its bucket, which may be ahead of the index: what the index still has to tell is older, and is not sent.
func TestAWatchOfOneEntityDoesNotGoBack(t *testing.T) {
	var stands atomic.Bool // each change waits for a word
	came, word := make(chan struct{}), make(chan struct{})
	b := setup(t, func(o *api.Options) {
		ix := index.New(o.JS, "gadgets", func(_ string, value []byte) (index.Meta, error) {
			if stands.Load() {
				came <- struct{}{}
				<-word
			}
			return index.DescribeJSON(value)
		}, index.Options{})
		indexes := &index.Map{}
		indexes.Set(gadget.Name, ix)
		indexes.Set(part.Name, o.Indexes.Get(part.Name))
		o.Indexes = indexes
		done := make(chan struct{})
		go func() { defer close(done); _ = ix.Run(t.Context()) }()
		t.Cleanup(func() { <-done })
		<-ix.Ready()
	})
	b.ready("a")
	other := b.watch("/v1/gadgets/a/watch") // of the same feed
	other.named("snapshot")
	stands.Store(true)
	require.Equal(t, 200, b.post("/v1/gadgets/a/resize", `{"size":11}`).StatusCode)
	<-came
	require.Equal(t, 200, b.post("/v1/gadgets/a/resize", `{"size":13}`).StatusCode)
	w := b.watch("/v1/gadgets/a/watch")
	at, _ := w.named("snapshot")
	require.Contains(t, at.data, `"size":13`, "as the bucket has it")
	word <- struct{}{}
	for older := ""; !strings.Contains(older, `"size":11`); {
		e, _ := other.named("entity")
		older = e.data
	}
	<-came
	stands.Store(false)
	word <- struct{}{}
	require.Equal(t, 200, b.post("/v1/gadgets/a/resize", `{"size":14}`).StatusCode)
	for {
		e, _ := w.named("entity")
		var got struct {
			Data struct{ Spec struct{ Size int } }
		}
		require.NoError(t, json.Unmarshal([]byte(e.data), &got))
		require.GreaterOrEqual(t, got.Data.Spec.Size, 13, strings.TrimSpace(e.data))
		if got.Data.Spec.Size == 14 {
			return
		}
	}
}
