package main

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/bcc94042/instar/cmd/instar/cli/command"
	"github.com/bcc94042/instar/internal/lockedbuffer"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/server/config"
)

// passable is a directory that the user of a private Postgres gets through to.
func passable(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "instar-test-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, os.Chmod(dir, 0o711)) // what is below is closed
	return filepath.Join(dir, "data")
}

// shopfront is an application with an outbox in the private Postgres of a server.
type shopfront struct {
	*whole
	dsn    string
	conn   *pgx.Conn
	js     jetstream.JetStream
	stream func() []string // what is in the stream, as "<subject> <payload>"
}

func newShopfront(t *testing.T, dir string) *shopfront {
	t.Helper()
	s := &shopfront{whole: startWhole(t, dir, func(c *config.Config) { c.Outbox.Postgres = config.PostgresAuto })}
	require.Eventually(t, func() bool { return strings.Contains(s.out.String(), "Outbox: ") }, 60*time.Second, 20*time.Millisecond)
	require.Contains(t, s.out.String(), "connects to a private Postgres with an outbox", "initdb and postgres are needed")
	raw, err := os.ReadFile(filepath.Join(dir, "postgres", "dsn"))
	require.NoError(t, err)
	s.dsn = strings.TrimSpace(string(raw))
	s.conn, err = pgx.Connect(t.Context(), s.dsn)
	require.NoError(t, err)
	nc, err := nats.Connect(s.nats)
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	s.js, err = jetstream.New(nc)
	require.NoError(t, err)
	s.stream = func() []string {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		c, err := s.js.OrderedConsumer(ctx, "OUTBOX", jetstream.OrderedConsumerConfig{FilterSubjects: []string{"outbox.>"}})
		if err != nil {
			return nil
		}
		batch, err := c.FetchNoWait(1000)
		if err != nil {
			return nil
		}
		var found []string
		for m := range batch.Messages() {
			found = append(found, m.Subject()+" "+string(m.Data()))
		}
		return found
	}
	return s
}

// write appends an event of an order.
func (s *shopfront) write(id, event, payload string) {
	s.t.Helper()
	_, err := s.conn.Exec(s.t.Context(), `select outbox_append('order', $1, $2, $3::jsonb)`, id, event, payload)
	require.NoError(s.t, err)
}

func (s *shopfront) relayIs(state string) {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		_, out := s.cli("relay", "get", "dev", "-o", "json")
		return strings.Contains(out, `"state": "`+state+`"`)
	}, 30*time.Second, 50*time.Millisecond, state)
}

func (s *shopfront) streamHas(want ...string) {
	s.t.Helper()
	require.EventuallyWithT(s.t, func(c *assert.CollectT) { require.Equal(c, want, s.stream()) }, 30*time.Second, 50*time.Millisecond)
}

var nothingWaits = regexp.MustCompile(`dev +running +log +0`)

// What a user does with the outbox of instar dev: append, see it, pause, resume, drain, a row that cannot be published,
// redrive, discard, and a restart.
func TestOutboxOfAServer(t *testing.T) {
	t.Parallel()
	dir := passable(t)
	s := newShopfront(t, dir)
	s.relayIs("running")
	s.write("1", "order.placed", `{"n":1}`)
	s.streamHas(`outbox.order.1.order.placed {"n": 1}`)
	require.Eventually(t, func() bool { return nothingWaits.MatchString(s.must("outbox", "status")) }, 20*time.Second, 100*time.Millisecond)
	s.shows("SENT     order/1  order.placed", "outbox", "tail", "--dsn", s.dsn, "--follow=false")

	s.must("relay", "pause", "dev", "--yes", "--reason", "a failover")
	s.relayIs("paused")
	s.write("1", "order.paid", `{"n":2}`)
	require.Never(t, func() bool { return len(s.stream()) > 1 }, 1500*time.Millisecond, 100*time.Millisecond)
	s.must("relay", "resume", "dev")
	s.streamHas(`outbox.order.1.order.placed {"n": 1}`, `outbox.order.1.order.paid {"n": 2}`)
	s.must("relay", "drain", "dev", "--yes")
	s.relayIs("paused")
	require.Contains(t, s.must("relay", "events", "dev"), "relay.drained")

	// A row is more than the stream takes: its aggregate waits, others do not.
	stream, err := s.js.Stream(t.Context(), "OUTBOX")
	require.NoError(t, err)
	changed := stream.CachedInfo().Config
	changed.MaxMsgSize = 20_000
	_, err = s.js.UpdateStream(t.Context(), changed)
	require.NoError(t, err)
	s.must("relay", "resume", "dev")
	s.write("2", "order.placed", `{"note":"`+strings.Repeat("x", 30_000)+`"}`)
	s.write("2", "order.paid", `{"n":3}`)
	s.write("3", "order.placed", `{"n":4}`)
	s.streamHas(`outbox.order.1.order.placed {"n": 1}`, `outbox.order.1.order.paid {"n": 2}`, `outbox.order.3.order.placed {"n": 4}`)
	s.shows("order/2", "outbox", "status")
	s.shows("relay.parked", "relay", "events", "dev")
	require.Contains(t, s.must("outbox", "redrive", "--aggregate", "order/2"), "1 rows")
	s.shows("order/2", "outbox", "status")
	code, out := s.cli("outbox", "discard", "--aggregate", "order/9", "--source", "nobody", "--yes")
	require.Equal(t, command.ExitNotFound, code, out)
	require.Eventually(t, func() bool {
		_, out := s.cli("outbox", "discard", "--aggregate", "order/2", "--yes")
		return strings.Contains(out, "1 rows")
	}, 30*time.Second, 200*time.Millisecond, "it fails again, then it is discarded")
	all := []string{`outbox.order.1.order.placed {"n": 1}`, `outbox.order.1.order.paid {"n": 2}`, `outbox.order.3.order.placed {"n": 4}`, `outbox.order.2.order.paid {"n": 3}`}
	s.streamHas(all...)

	require.Eventually(t, func() bool { return strings.Contains(body(t, s.url+"/metrics"), `instar_outbox_lag{source="dev"} 0`) }, 20*time.Second, 100*time.Millisecond)
	metrics := body(t, s.url+"/metrics")
	require.Contains(t, metrics, `instar_outbox_published_total{source="dev"} `)
	_ = s.conn.Close(t.Context())
	require.NoError(t, s.stop())

	s = newShopfront(t, dir)
	s.relayIs("running")
	s.write("1", "order.shipped", `{"n":5}`)
	s.streamHas(append(all, `outbox.order.1.order.shipped {"n": 5}`)...)
	require.NotContains(t, s.must("relay", "events", "dev"), "command.refused")
	require.NotContains(t, s.must("relay", "get", "dev", "-o", "json"), "password")
	_ = s.conn.Close(t.Context())
}

func TestWithoutADatabaseTheOutboxSaysWhatToDo(t *testing.T) {
	t.Parallel()
	w := startWhole(t, t.TempDir(), nil)
	require.Contains(t, w.must("outbox", "status"), "--outbox-dsn")
	require.JSONEq(t, `{"items":[]}`, body(t, w.url+"/v1/outbox"), "a list of nothing is a list")
	w.must("service", "wait", "hello", "--for", "state=READY") // everything else works
	code, out := w.cli("outbox", "redrive", "--all", "-y")
	require.Equal(t, command.ExitNotFound, code, out)
	code, out = w.cli("outbox", "init", "--data", t.TempDir())
	require.Equal(t, command.ExitUsage, code)
	require.Contains(t, out, "INSTAR_OUTBOX_DSN")
	code, _ = w.cli("outbox", "redrive", "no-id")
	require.Equal(t, command.ExitUsage, code)
	code, _ = w.cli("outbox", "tail", "--dsn", "postgres://127.0.0.1:1/nothing")
	require.Equal(t, command.ExitUnreachable, code)
}

func TestDemoOutbox(t *testing.T) {
	t.Parallel()
	var out lockedbuffer.Buffer
	code := execute([]string{"demo", "outbox", "--fast"}, strings.NewReader(""), &out, &out)
	require.Zero(t, code, out.String())
	require.Contains(t, out.String(), "without duplicates and in order, after 3 kills")
	require.Contains(t, out.String(), "kill -9 of Postgres")
}
