package embedded

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
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
	says := func() string {
		raw, err := os.ReadFile(filepath.Join(o.Dir, runFile))
		require.NoError(t, err)
		return string(raw[:len(isRunning)])
	}
	require.Equal(t, isRunning, says())
	nc.Close()
	require.NoError(t, s.Shutdown(context.Background()))
	require.Equal(t, isStopped, says())
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

// A quota that is used up is told by another error than a full disk, and is the same to whoever starts.
func TestAQuotaIsAFullDisk(t *testing.T) {
	t.Parallel()
	for err, full := range map[error]bool{syscall.ENOSPC: true, syscall.EDQUOT: true, syscall.EIO: false, syscall.EROFS: false} {
		require.Equal(t, full, IsFull(&os.PathError{Op: "write", Path: "nonce.new", Err: err}), err)
	}
}

// A full disk is no reason not to serve reads, after a stop and after a kill. It runs alone: a child holds the locks of others between its fork and its exec.
func TestStartsOnAFullDisk(t *testing.T) {
	for _, text := range []string{isStopped, isRunning + "another boot", ""} {
		t.Run(text, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "disk")
			require.NoError(t, os.Mkdir(dir, 0o700))
			if out, err := exec.CommandContext(t.Context(), "mount", "-t", "tmpfs", "-o", "size=16m", "none", dir).CombinedOutput(); err != nil {
				t.Skipf("cannot mount a small disk: %s", out)
			}
			t.Cleanup(func() { _ = exec.CommandContext(context.Background(), "umount", "-l", dir).Run() }) // the test is over
			o := Options{Dir: filepath.Join(dir, "data"), Profile: Fsync, Log: slog.New(slog.DiscardHandler)}
			s, err := Start(o)
			require.NoError(t, err)
			nc, js := connected(t, s)
			things(t, js)
			_, err = js.Publish(t.Context(), "$KV.things.a", []byte("x"))
			require.NoError(t, err)
			nc.Close()
			require.NoError(t, s.Shutdown(context.Background()))
			require.NoError(t, os.Remove(filepath.Join(o.Dir, runFile)))
			if text != "" {
				require.NoError(t, os.WriteFile(filepath.Join(o.Dir, runFile), []byte(text), 0o600))
			}
			filler, err := os.Create(filepath.Join(dir, "filler"))
			require.NoError(t, err)
			for _, size := range []int{1 << 20, 1 << 12} {
				for err = nil; err == nil; {
					_, err = filler.Write(make([]byte, size))
				}
				require.ErrorIs(t, err, syscall.ENOSPC)
			}
			require.NoError(t, filler.Close())
			s, err = Start(o)
			require.NoError(t, err)
			nc, js = connected(t, s)
			st, err := js.Stream(t.Context(), "KV_things")
			require.NoError(t, err)
			got, err := st.GetMsg(t.Context(), 1)
			require.NoError(t, err)
			require.Equal(t, "x", string(got.Data))
			nc.Close()
			_ = s.Shutdown(context.Background()) // it may not be able to write
		})
	}
}
