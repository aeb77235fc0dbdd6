package main

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/server/config"
	"github.com/bcc94042/instar/streams"
)

// A store that is full but for its reserve refuses commands and says so, at the doors and in /readyz; nothing restarts; and room
// brings everything back. The same where somebody else has gone beyond the limit.
func TestAFullStoreRefusesUntilThereIsRoom(t *testing.T) {
	t.Parallel()
	w := startWhole(t, t.TempDir(), func(c *config.Config) {
		c.Gateway, c.Store.Max, c.Store.Events, c.Log.Level = config.GatewaySimulated, "16MiB", "4MiB", "warn"
	})
	nc, err := nats.Connect(w.nats, nats.NoReconnect())
	require.NoError(t, err)
	defer nc.Close()
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	events, err := js.Stream(t.Context(), streams.EventStream)
	require.NoError(t, err)
	require.EqualValues(t, 4<<20, events.CachedInfo().Config.MaxBytes)
	dead, err := js.Stream(t.Context(), streams.DeadStream)
	require.NoError(t, err)
	require.EqualValues(t, 2<<20, dead.CachedInfo().Config.MaxBytes, "a share of what is set, and not of the disk")
	put := func(id string) (int, string) {
		status, answer := w.call(http.MethodPost, "/v1/services/"+id+"/create?settle=10s", `{"spec":{"image":"hello"}}`)
		detail, _ := answer["detail"].(string)
		return status, detail
	}
	status, said := put("before")
	require.Less(t, status, 300, said)
	fill, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "FILL", Subjects: []string{"fill"}})
	require.NoError(t, err)
	for _, c := range []struct {
		name  string
		bytes int
	}{{"the reserve", 16<<20 - 200<<10}, {"beyond the limit", 24 << 20}} {
		for left := c.bytes; left > 0; left -= 64 << 10 {
			_, err := js.Publish(t.Context(), "fill", make([]byte, 64<<10-100))
			require.NoError(t, err, c.name)
			if info, err := fill.Info(t.Context()); err == nil && int(info.State.Bytes) > c.bytes {
				break
			}
		}
		require.Eventually(t, func() bool {
			status, said := put(fmt.Sprint("during-", time.Now().UnixNano()))
			return status == http.StatusServiceUnavailable && strings.Contains(said, "nothing can be stored now")
		}, 20*time.Second, 100*time.Millisecond, c.name)
		status, ready := w.call(http.MethodGet, "/readyz?verbose", "")
		require.Equal(t, http.StatusServiceUnavailable, status)
		require.Contains(t, fmt.Sprint(ready), "the store of the streams is full", c.name)
		require.NoError(t, fill.Purge(t.Context()))
		require.Eventually(t, func() bool { status, _ := put(fmt.Sprint("after-", time.Now().UnixNano())); return status < 300 }, 20*time.Second, 100*time.Millisecond, c.name)
	}
	require.True(t, nc.IsConnected(), "the embedded server was restarted")
}
