package embedded

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
)

// What the server noted of messages that a power loss has cost is forgotten: messages that get their sequences do not expire when those would have.
func TestNotesOfLostMessagesAreForgotten(t *testing.T) {
	t.Parallel()
	o := Options{Dir: t.TempDir(), Profile: Fsync, Log: slog.New(slog.DiscardHandler)}
	s, err := Start(o)
	require.NoError(t, err)
	nc, js := connected(t, s)
	things(t, js)
	dir := filepath.Join(o.streamsDir(), "KV_things", "msgs")
	block, wheel := filepath.Join(dir, "1.blk"), filepath.Join(dir, "thw.db")
	_, err = js.Publish(t.Context(), "$KV.things.first", []byte("x"))
	require.NoError(t, err)
	kept, err := os.Stat(block)
	require.NoError(t, err)
	_, err = js.PublishMsg(t.Context(), &nats.Msg{Subject: "$KV.things.lost", Header: nats.Header{"Nats-TTL": []string{"2s"}}})
	require.NoError(t, err)
	expires := time.Now().Add(2 * time.Second)
	require.FileExists(t, filepath.Join(o.Dir, runFile))
	nc.Close()
	require.NoError(t, s.Shutdown(context.Background()))
	require.NoFileExists(t, filepath.Join(o.Dir, runFile), "after a stop")
	require.FileExists(t, wheel)
	require.NoError(t, os.Truncate(block, kept.Size()))

	require.NoError(t, o.afterOutage())
	require.NoError(t, o.afterOutage())
	if mounting(o.Dir) != "" {
		require.FileExists(t, wheel, "only the process has ended")
	}
	require.NoError(t, os.WriteFile(filepath.Join(o.Dir, runFile), []byte("another boot"), 0o600))
	s, err = Start(o)
	require.NoError(t, err)
	nc, js = connected(t, s)
	ack, err := js.Publish(t.Context(), "$KV.things.live", []byte("x"))
	require.NoError(t, err)
	require.Equal(t, uint64(2), ack.Sequence, "which the lost one had")
	_, err = js.PublishMsg(t.Context(), &nats.Msg{Subject: "$KV.things.other", Header: nats.Header{"Nats-TTL": []string{"3s"}}})
	require.NoError(t, err)
	st, err := js.Stream(t.Context(), "KV_things")
	require.NoError(t, err)
	require.Eventually(t, func() bool { // the wheel has turned beyond both
		_, err := st.GetLastMsgForSubject(t.Context(), "$KV.things.other")
		return err != nil && time.Now().After(expires)
	}, time.Minute, 50*time.Millisecond)
	_, err = st.GetLastMsgForSubject(t.Context(), "$KV.things.live")
	require.NoError(t, err, "it has no end")
	nc.Close()
	require.NoError(t, s.Shutdown(context.Background()))
}
