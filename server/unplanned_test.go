package server_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/consumers/backup"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/server"
	"github.com/bcc94042/instar/server/config"
)

// A process that does not have a machine of the installation would leave its entities out of a backup, and says so instead; in both modes in the same words. Buckets of others
// are none of its business.
func TestABackupWithoutAMachineOfTheInstallation(t *testing.T) {
	t.Parallel()
	m, dir := kettle("kettle", "kettles"), t.TempDir()
	doors := server.Options{Machines: []*machines.Machine{door()}}
	r := start(t, dir, doors)
	require.NoError(t, r.host.AddMachine(t.Context(), m, server.Performs(stove{})))
	r.ok("POST", "/v1/kettles/k/fill", `{"liters":2}`)
	r.comes("/v1/kettles/k/times", `{"value":1}`)
	require.NoError(t, r.stop())

	one := start(t, dir, doors, func(c *config.Config) { c.NATS.Listen = "127.0.0.1:0" })
	js, err := jetstream.New(one.nc)
	require.NoError(t, err)
	prices, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "prices", Description: "Prices, by key"})
	require.NoError(t, err)
	_, err = prices.PutString(t.Context(), "a", "1")
	require.NoError(t, err)
	attached := func(prefix string) func(c *config.Config) {
		return func(c *config.Config) { c.NATS.URL, c.NATS.Prefix = one.host.Embedded.ClientURL(), prefix }
	}
	theirs := start(t, t.TempDir(), server.Options{Machines: []*machines.Machine{kettle("pot", "pots")}, Providers: map[string]server.Provider{"pot": server.Performs(stove{})}}, attached("b"))
	theirs.ok("POST", "/v1/pots/p/fill", `{"liters":2}`)
	two := start(t, t.TempDir(), doors, attached("instar"))

	var told []string
	for _, r := range []*running{one, two} {
		code, text := r.do("GET", "/v1/backup", "")
		require.Equal(t, 503, code)
		for _, part := range []string{"KV_kettles, KV_kettles_times", "from a process that has the machine"} {
			require.Contains(t, text, part)
		}
		_, detail, _ := strings.Cut(text, `"detail":"`)
		detail, _, _ = strings.Cut(detail, `"`)
		told = append(told, detail)
	}
	require.Equal(t, told[0], told[1])

	for _, r := range []*running{one, two} {
		require.NoError(t, r.host.AddMachine(t.Context(), m, server.Performs(stove{})))
		before := time.Now()
		head, end, err := backup.Check(strings.NewReader(r.ok("GET", "/v1/backup", "")))
		require.NoError(t, err)
		require.WithinDuration(t, before, head.At, time.Minute)
		require.Equal(t, []string{"door", "kettle"}, slices.Sorted(maps.Keys(head.Schemas)))
		require.Equal(t, 1, end.Entities["KV_kettles"])
		require.Contains(t, end.Messages, "KV_kettles_times")
		for _, other := range []string{"KV_prices", "KV_b_pots", "B_COMMANDS"} { // all streams of its own account
			require.Equal(t, r == one, slices.Contains(head.Others, other), other)
		}
	}
	_, _, err = backup.Check(strings.NewReader(theirs.ok("GET", "/v1/backup", "")))
	require.NoError(t, err)
	require.NoError(t, theirs.stop()) // they need the streams of the first
	require.NoError(t, two.stop())
}
