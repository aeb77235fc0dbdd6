package main

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/server/config"
)

// What a backup reads comes over a connection of its own, which ends with it: on that of the API, commands would wait behind it.
func TestABackupHasItsOwnConnection(t *testing.T) {
	t.Parallel()
	w := startWhole(t, t.TempDir(), func(c *config.Config) { c.Gateway = config.GatewaySimulated })
	nc, err := nats.Connect(w.nats)
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	read, err := nc.SubscribeSync("$JS.API.CONSUMER.CREATE.EVENTS.>")
	require.NoError(t, err)
	require.NoError(t, nc.Flush())
	inboxes := map[string]bool{} // a connection has one for all of its questions
	for _, name := range []string{"a", "b"} {
		w.must("backup", "--to", filepath.Join(t.TempDir(), name))
	}
	for len(inboxes) < 2 { // a backup may ask more than once: what is slow to come is asked for anew
		m, err := read.NextMsg(10 * time.Second)
		require.NoError(t, err, "both backups have read over %v", inboxes)
		inboxes[m.Reply[:strings.LastIndexByte(m.Reply, '.')]] = true
	}
}
