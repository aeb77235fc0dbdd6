package embedded

import (
	"bytes"
	"context"
	"encoding/json"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/internal/lockedbuffer"
	"github.com/bcc94042/instar/streams"
)

// lines counts those of a level that hold a text.
func lines(log *lockedbuffer.Buffer, level, text string) (n int) {
	for line := range strings.Lines(log.String()) {
		if strings.Contains(line, "level="+level) && strings.Contains(line, text) {
			n++
		}
	}
	return n
}

// What a kill leaves is told once and alarms nobody. What is broken does.
func TestLogOfARecovery(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	run := func(dir string, while func(jetstream.JetStream)) *lockedbuffer.Buffer {
		said := &lockedbuffer.Buffer{}
		server, err := Start(Options{Dir: dir, Profile: OS, Log: slog.New(slog.NewTextHandler(said, &slog.HandlerOptions{Level: slog.LevelDebug}))})
		require.NoError(t, err)
		defer func() { require.NoError(t, server.Shutdown(context.Background())) }()
		nc, err := streams.Connect(streams.ConnectOptions{Server: server, Name: "test"})
		require.NoError(t, err)
		defer nc.Close()
		js, err := streams.JetStream(nc)
		require.NoError(t, err)
		while(js)
		return said
	}
	write := func(js jetstream.JetStream) {
		for _, name := range []string{"A", "B", "C"} {
			_, err := js.CreateOrUpdateStream(t.Context(), jetstream.StreamConfig{Name: name, Subjects: []string{name}, AllowMsgTTL: true, AllowMsgSchedules: name == "A"})
			require.NoError(t, err)
			for range 10 {
				_, err := js.Publish(t.Context(), name, bytes.Repeat([]byte("x"), 100), jetstream.WithMsgTTL(3600e9))
				require.NoError(t, err)
			}
		}
	}
	copied := func() string {
		to := filepath.Join(t.TempDir(), "copy")
		require.NoError(t, os.CopyFS(to, os.DirFS(dir)))
		return to
	}
	count := func(js jetstream.JetStream) (n uint64) {
		for _, name := range []string{"A", "B", "C"} {
			s, err := js.Stream(t.Context(), name)
			require.NoError(t, err)
			n += s.CachedInfo().State.Msgs
		}
		return n
	}
	require.Zero(t, lines(run(dir, write), "WARN", ""))
	stopped := copied()
	var killed string
	run(dir, func(js jetstream.JetStream) {
		write(js)
		killed = copied() // what is there when a process is killed now
	})

	said := run(killed, func(js jetstream.JetStream) { require.EqualValues(t, 60, count(js)) })
	require.Zero(t, lines(said, "WARN", ""), said)
	require.Zero(t, lines(said, "ERROR", ""))
	require.Equal(t, 1, lines(said, "INFO", "the last run was not stopped in order"))
	require.GreaterOrEqual(t, lines(said, "DEBUG", "outdated"), 3, "of another version the server may have other words")

	damage(t, stopped, "index.db")
	said = run(stopped, func(js jetstream.JetStream) { require.EqualValues(t, 30, count(js)) })
	require.Positive(t, lines(said, "WARN", "checksum did not match"), said)
	require.Zero(t, lines(said, "INFO", "not stopped in order"))
}

// damage changes a byte in the middle of the files of all streams whose names end so.
func damage(t *testing.T, dir, suffix string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, suffix) {
			return err
		}
		b, err := os.ReadFile(path)
		if err == nil && len(b) > 0 {
			b[len(b)/2] ^= 0xff
			err = os.WriteFile(path, b, 0o600)
		}
		return err
	}))
}

// The server cuts off what it cannot read at the end of a stream, and keeps no trace of that: where this fails, it does by now,
// and the program can tell of it.
func TestACutStreamLeavesNoTrace(t *testing.T) {
	t.Parallel()
	dir, said := t.TempDir(), &lockedbuffer.Buffer{}
	run := func(while func(*nats.Conn, jetstream.JetStream)) {
		server, err := Start(Options{Dir: dir, Profile: OS, Log: slog.New(slog.NewTextHandler(said, nil))})
		require.NoError(t, err)
		defer func() { require.NoError(t, server.Shutdown(context.Background())) }()
		nc, err := streams.Connect(streams.ConnectOptions{Server: server, Name: "test"})
		require.NoError(t, err)
		defer nc.Close()
		js, err := streams.JetStream(nc)
		require.NoError(t, err)
		while(nc, js)
	}
	run(func(_ *nats.Conn, js jetstream.JetStream) {
		_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "A", Subjects: []string{"A"}})
		require.NoError(t, err)
		for range 30 {
			_, err := js.Publish(t.Context(), "A", make([]byte, 100))
			require.NoError(t, err)
		}
	})
	block := filepath.Join(dir, "nats", "jetstream", "$G", "streams", "A", "msgs", "1.blk")
	info, err := os.Stat(block)
	require.NoError(t, err)
	require.NoError(t, os.Truncate(block, info.Size()/2))
	run(func(nc *nats.Conn, _ jetstream.JetStream) {
		m, err := nc.Request("$JS.API.STREAM.INFO.A", []byte(`{"deleted_details":true}`), 5*time.Second)
		require.NoError(t, err)
		var told struct {
			State struct {
				Messages int
				Lost     any
			}
		}
		require.NoError(t, json.Unmarshal(m.Data, &told))
		require.Less(t, told.State.Messages, 30)
		require.Nil(t, told.State.Lost)
	})
	require.Zero(t, lines(said, "WARN", "")+lines(said, "ERROR", ""), said)
}
