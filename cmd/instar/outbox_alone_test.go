package main

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/internal/postgres"
	"github.com/bcc94042/instar/internal/testenv"
	"github.com/bcc94042/instar/streams/outbox"
)

// A relay alone takes its settings from flags, and shows how it stands; it is not ready when its database is away.
func TestARelayAloneShowsHowItStands(t *testing.T) {
	t.Parallel()
	cluster, err := postgres.Start(t.Context(), postgres.Options{Dir: passable(t), Config: map[string]string{"fsync": "off"}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, cluster.Stop(context.Background())) })
	dsn := cluster.DSN("postgres")
	require.NoError(t, outbox.Init(t.Context(), dsn, "", outbox.Settings{Mode: outbox.Log}))
	w := startWhole(t, t.TempDir(), nil)
	address := testenv.Address(t)
	launch(t, "outbox", "relay", "--dsn", dsn, "--nats-url", w.nats, "--source", "alone", "--http", address, "--poll", "50ms", "--attempts", "2", "--base-backoff", "10ms", "--types", "order.paid", "--cloudevents", "structured")
	get := func(path string) (int, string) {
		resp, err := http.Get("http://" + address + path)
		if err != nil {
			return 0, ""
		}
		defer resp.Body.Close()
		var b strings.Builder
		_, _ = io.Copy(&b, resp.Body)
		return resp.StatusCode, b.String()
	}
	is := func(path string, code int, text string) {
		t.Helper()
		require.Eventually(t, func() bool { c, b := get(path); return c == code && strings.Contains(b, text) }, 60*time.Second, 100*time.Millisecond, path+" "+text)
	}
	is("/readyz", 200, "")
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), `select outbox_append('order', '1', 'order.paid', '{}'), outbox_append('order', '2', 'order.unheard', '{}')`)
	require.NoError(t, err)
	require.NoError(t, conn.Close(t.Context()))
	is("/metrics", 200, `instar_outbox_published_total{source="alone"} 1`)
	is("/metrics", 200, `instar_outbox_attempts_bucket{source="alone",le="1"} 1`)
	is("/metrics", 200, `instar_outbox_rows{source="alone",state="DEAD"} 1`)
	require.NoError(t, cluster.Kill())
	is("/readyz", 503, "")
	code, _ := get("/livez")
	require.Equal(t, 200, code)
	require.NoError(t, cluster.Restart(t.Context()))
	is("/readyz", 200, "")
}
