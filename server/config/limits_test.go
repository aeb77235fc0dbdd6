package config

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/api"
	"github.com/bcc94042/instar/api/limits"
	"github.com/bcc94042/instar/api/rest"
)

func TestLimitsConfig(t *testing.T) {
	t.Parallel()
	load := func(args ...string) (Config, error) { return Load(Serve, flagSet(t, Serve, args...), nil) }
	c, err := load()
	require.NoError(t, err)
	require.Equal(t, api.DefaultLimits, c.Limits.API(1<<20))
	require.Equal(t, rest.DefaultTimeouts, c.HTTP.APITimeouts())
	require.Equal(t, 768, c.Limits.API(1024).Connections.All, "the files that may be open are fewer")
	c, err = load("--max-connections", "0", "--max-watches", "7", "--max-watches-per-client", "3", "--rate", "50", "--burst", "100", "--http-write-timeout", "1m")
	require.NoError(t, err)
	l := c.Limits.API(0)
	require.Equal(t, []any{0, limits.Bound{All: 7, Each: 3}, 50, 100, time.Minute}, []any{l.Connections.All, l.Watches, l.Rate, l.Burst, c.HTTP.APITimeouts().Write})
	c, err = load("--commands-at-once", "0", "--max-commands-per-client", "9", "--max-entities-per-namespace", "1000")
	require.NoError(t, err)
	l = c.Limits.API(0)
	require.Equal(t, []int{4096, 9, 0, 1000}, []int{l.Commands.All, l.Commands.Each, l.CommandsAtOnce, l.Entities})
	for flag, key := range map[string]string{"--max-waits=-1": "limits.waits", "--burst=5": "limits.rate", "--http-body-timeout=1ms": "http.bodyTimeout"} {
		_, err = load(flag)
		require.ErrorContains(t, err, key)
	}
}

// A token and a user of NATS may have a rate of their own.
func TestRatesOfTheirOwn(t *testing.T) {
	t.Parallel()
	load := func(users, tokens string) (Config, error) {
		file := writeFile(t, "instar.yaml", "nats: {users: ["+users+"]}\nauth: {tokens: ["+tokens+"]}\n")
		return Load(Serve, flagSet(t, Serve, "--config", file), nil)
	}
	token := func(more string) string {
		return "{name: ci, hash: 'sha256:" + strings.Repeat("0", 64) + "', role: read" + more + "}"
	}
	user := func(role, more string) string {
		return "{name: u-" + role + ", password: x, role: " + role + more + "}"
	}
	c, err := load(user("read", ", rate: 5, burst: 9")+", "+user("operate", ", rate: 7")+", "+user("work", ""), token(", rate: 3"))
	require.NoError(t, err)
	require.Equal(t, []rest.User{{Account: "READERS", Name: "u-read", Rate: 5, Burst: 9}, {Account: "USER_u-operate", Name: "u-operate", Rate: 7}}, c.NATS.APIUsers())
	require.Equal(t, 3, c.Auth.APITokens()[0].Rate)
	for want, cfg := range map[string][2]string{
		"auth.tokens[0].rate: rate and burst must not be negative": {"", token(", rate: -1")},
		"burst is for rate, which is not set":                      {user("work", ", burst: 4"), ""},
		"has a rate, but clients of the role admin":                {user("admin", ", rate: 4"), ""},
	} {
		_, err := load(cfg[0], cfg[1])
		require.ErrorContains(t, err, want)
	}
}
