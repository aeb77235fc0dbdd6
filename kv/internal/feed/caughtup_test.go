package feed

import (
	"fmt"
	"sync"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/streams/embedded"
	"github.com/bcc94042/instar/streams/streamstest"
)

// Who is told that he has caught up has every key, also those whose values are replaced again and again meanwhile.
func TestCaughtUpHasEveryKey(t *testing.T) {
	t.Parallel()
	n := streamstest.Start(t, embedded.Options{Profile: embedded.OS})
	bucket, err := n.JS.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "things"})
	require.NoError(t, err)
	for i := range 20 {
		_, err := bucket.PutString(t.Context(), fmt.Sprint("key.", i), "")
		require.NoError(t, err)
	}
	for i := range 2 {
		_, err = bucket.PutString(t.Context(), fmt.Sprint("web.", i), "")
		require.NoError(t, err)
	}
	stop := make(chan struct{})
	var writing sync.WaitGroup
	defer writing.Wait()
	defer close(stop)
	for n := range 2 {
		writing.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					_, _ = bucket.PutString(t.Context(), fmt.Sprint("web.", n), "x")
				}
			}
		})
	}
	for round := range 200 {
		f, err := Open(t.Context(), n.JS, "things", "", Position{})
		require.NoError(t, err)
		seen := map[string]bool{}
		for !f.CaughtUp {
			batch, err := f.Next(t.Context(), nil)
			require.NoError(t, err)
			for _, u := range batch {
				seen[u.Key] = true
			}
		}
		f.Close()
		require.Len(t, seen, 22, "in round %d", round)
	}
}
