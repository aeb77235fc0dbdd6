package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
)

// An operator follows docs/operations.md with a value that somebody has broken by hand.
func TestRepairOfAParkedEntity(t *testing.T) {
	t.Parallel()
	w := startWhole(t, t.TempDir(), func(c *Config) { c.Gateway = GatewaySimulated })
	w.must("service", "create", "web", "--image", "sim:ok", "--wait")
	file := filepath.Join(t.TempDir(), "web.json")
	code, out := w.cli("entity", "repair", "service", "web", "--file", file, "--yes")
	require.NotEqual(t, exitOK, code, out)
	good := w.must("entity", "stored", "service", "web")
	require.NoError(t, os.WriteFile(file, []byte(good), 0o600))
	code, out = w.cli("entity", "repair", "service", "web", "--file", file, "--yes")
	require.Equal(t, exitConflict, code)
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
		require.Equal(t, exitConflict, code, out)
		require.Contains(t, out, "parked")
		require.Contains(t, w.must("entity", "stored", "service", "web"), broken[:4])
		w.must("entity", "repair", "service", "web", "--file", file, "--reason", "by hand", "--yes")
		w.must("service", "refresh", "web")
		w.shows("entity.reconciled", "service", "events", "web")
	}
	events := w.must("service", "events", "web", "-o", "json")
	require.Contains(t, events, "STEADY")
	require.Contains(t, events, "e25vIGpzb24", "the value that is no JSON, in base64")
	require.Contains(t, events, "by hand")
}
