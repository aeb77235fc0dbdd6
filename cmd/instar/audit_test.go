package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/cmd/instar/cli/command"
	"github.com/bcc94042/instar/server/config"
	"github.com/bcc94042/instar/streams/audit"
)

// The chains of a server are read by resource and time, exported and verified; a file that was changed since is found, and so is a server that has lost what the file has.
func TestTheAuditOfAServerIsExportedAndVerified(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "audit.jsonl")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "00001_first.sql"), []byte("-- +goose Up\nselect 1;\n"), 0o600))
	audited := func(c *config.Config) {
		const nowhere = "postgres://nobody@127.0.0.1:1/none" // it is tried again, and each try is a record
		c.Gateway = config.GatewaySimulated
		c.Tenants = config.Tenants{Source: config.TenantSource{DSN: nowhere}, Servers: []config.TenantServer{{Name: "t1", DSN: nowhere}}, Keys: filepath.Join(dir, "keys.json"), Migrations: dir}
	}
	w := startWhole(t, t.TempDir(), audited)
	w.must("database_provisioning", "request", "acme/move")
	w.shows("provisioning.db.retrying", "audit", "--tenant", "acme")
	w.must("database_provisioning", "pause", "acme/move")
	w.shows("provisioning.db.halted", "audit", "--tenant", "acme") // nothing comes behind it
	list := func(args ...string) (types []string, at []time.Time) {
		for line := range strings.Lines(w.must(append([]string{"audit", "-o", "jsonl", "--tenant", "acme"}, args...)...)) {
			var r audit.Record
			require.NoError(t, json.Unmarshal([]byte(line), &r))
			types, at = append(types, r.EventType), append(at, r.Timestamp)
		}
		return types, at
	}
	all, at := list()
	require.Greater(t, len(all), 5)
	last := at[0]
	for _, a := range at {
		if a.After(last) {
			last = a
		}
	}
	moment := last.Format(time.RFC3339Nano)
	since, _ := list("--since", moment)
	until, _ := list("--until", moment)
	require.Contains(t, since, "provisioning.db.halted")
	require.NotContains(t, until, "provisioning.db.halted")
	require.Contains(t, until, "provisioning.db.requested")
	require.Len(t, all, len(since)+len(until))
	none, _ := list("--resource", "database")
	require.Empty(t, none, "nothing was created")

	w.must("audit", "export", file)
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, len(all), bytes.Count(text, []byte("\n")))
	w.must("audit", "verify")
	w.must("audit", "verify", file)
	var first map[string]any
	line, rest, _ := bytes.Cut(text, []byte("\n"))
	require.NoError(t, json.Unmarshal(line, &first))
	forged := bytes.Replace(line, []byte(first["eventType"].(string)), []byte("provisioning.db.forged"), 1)
	require.NoError(t, os.WriteFile(file, append(append(forged, '\n'), rest...), 0o600))
	code, out := w.cli("audit", "verify", file)
	require.Equal(t, command.ExitFailed, code, out)

	require.NoError(t, os.WriteFile(file, text, 0o600))
	require.NoError(t, w.stop())
	w = startWhole(t, t.TempDir(), audited) // another store
	code, out = w.cli("audit", "verify", file)
	require.Equal(t, command.ExitFailed, code, out)
}
