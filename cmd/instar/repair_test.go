package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/cmd/instar/cli/command"
	"github.com/bcc94042/instar/server/config"
)

// An operator follows docs/operations.md with a value that somebody has broken by hand.
func TestRepairOfAParkedEntity(t *testing.T) {
	t.Parallel()
	w := startWhole(t, t.TempDir(), func(c *config.Config) { c.Gateway = config.GatewaySimulated })
	w.must("service", "create", "web", "--image", "sim:ok", "--wait")
	file := filepath.Join(t.TempDir(), "web.json")
	code, out := w.cli("entity", "repair", "service", "web", "--file", file, "--yes")
	require.NotEqual(t, command.ExitOK, code, out)
	good := w.must("entity", "stored", "service", "web")
	require.NoError(t, os.WriteFile(file, []byte(good), 0o600))
	code, out = w.cli("entity", "repair", "service", "web", "--file", file, "--yes")
	require.Equal(t, command.ExitConflict, code)
	require.Contains(t, out, "is not parked")

	nc, err := nats.Connect(w.nats)
	require.NoError(t, err)
	defer nc.Close()
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	bucket, err := js.KeyValue(t.Context(), "services")
	require.NoError(t, err)
	for _, broken := range []string{strings.Replace(good, "READY", "STEADY", 1), "{no json"} {
		_, err = bucket.Put(t.Context(), "default.web", []byte(broken))
		require.NoError(t, err)
		code, out = w.cli("service", "refresh", "web")
		require.Equal(t, command.ExitConflict, code, out)
		require.Contains(t, out, "parked")
		require.Contains(t, w.must("entity", "stored", "service", "web"), broken[:4])
		w.must("entity", "repair", "service", "web", "--file", file, "--reason", "by hand", "--yes")
		w.must("service", "refresh", "web")
		w.shows("entity.reconciled", "service", "events", "web")
	}
	// Of one that is parked nothing is known but that it can be repaired.
	revision, err := bucket.Put(t.Context(), "default.web", []byte("{no json"))
	require.NoError(t, err)
	status, refused := w.call(http.MethodPost, "/v1/services/web/repair-value", fmt.Sprintf(`{"revision":%d,"value":{"schema":7}}`, revision))
	require.Equal(t, http.StatusUnprocessableEntity, status)
	require.Contains(t, fmt.Sprint(refused["errors"]), "location:body.value ")
	require.Equal(t, []any{"repair-value"}, refused["allowedCommands"])
	status, refused = w.call(http.MethodPost, "/v1/services/web/refresh", "")
	require.Equal(t, http.StatusConflict, status)
	require.Equal(t, []any{"repair-value"}, refused["allowedCommands"])

	// What came of one that nobody waited for is found under its key, whatever the entity has taken since.
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.url+"/v1/services/web/repair-value", strings.NewReader(fmt.Sprintf(`{"revision":%d,"value":%s}`, revision, good)))
	require.NoError(t, err)
	req.Header = http.Header{"Content-Type": {"application/json"}, "Prefer": {"respond-async"}, "Idempotency-Key": {"by-key"}}
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusAccepted, resp.StatusCode)
	for n := range 3 {
		status, answer := w.call(http.MethodPost, "/v1/services/web/label", fmt.Sprintf(`{"labels":{"n":"%d"}}`, n))
		require.Equal(t, http.StatusOK, status, answer)
	}
	status, op := w.call(http.MethodGet, resp.Header.Get("Location"), "")
	require.Equal(t, http.StatusOK, status, op)
	require.Equal(t, true, op["done"], op)
	require.NotNil(t, op["response"], op)

	// Its key is purged: it can be created again.
	_, err = bucket.Put(t.Context(), "default.web", []byte("{no json"))
	require.NoError(t, err)
	code, out = w.cli("service", "refresh", "web")
	require.Equal(t, command.ExitConflict, code, out)
	require.Contains(t, out, "parked")
	require.NoError(t, bucket.Purge(t.Context(), "default.web"))
	w.must("service", "create", "web", "--image", "sim:ok", "--wait")
	events := w.must("service", "events", "web", "-o", "json")
	require.Contains(t, events, "STEADY")
	require.Contains(t, events, "e25vIGpzb24", "the value that is no JSON, in base64")
	require.Contains(t, events, "by hand")
}
