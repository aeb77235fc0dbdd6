package config

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDomains(t *testing.T) {
	t.Parallel()
	missing := filepath.Join(t.TempDir(), "keys.json")
	good := `domains:
  https: 127.0.0.1:8443
  http: 127.0.0.1:8081
  keys: ` + missing + `
  points: 192.0.2.1, 2001:db8::1
  resolvers: 192.0.2.53:53
  reserved: apps.example.net
  targets: 10.1.0.0/16
`
	c, err := Load(Dev, flagSet(t, Dev, "--config", writeFile(t, "good.yaml", good)), nil)
	require.NoError(t, err)
	require.True(t, c.Domains.On())
	require.Equal(t, LetsEncrypt, c.Domains.ACME)
	points, resolvers := c.Domains.Lists()
	require.Equal(t, []string{"192.0.2.1", "2001:db8::1"}, points)
	require.Equal(t, []string{"192.0.2.53:53"}, resolvers)
	require.Len(t, c.Domains.Networks(), 1)
	for host, reserved := range map[string]bool{"apps.example.net": true, "a.apps.example.net": true, "myapps.example.net": false, "example.net": false} {
		require.Equal(t, reserved, c.Domains.Refuses(host) != "", host)
	}
	_, err = Load(Serve, flagSet(t, Serve, "--config", writeFile(t, "serve.yaml", good)), nil)
	require.ErrorContains(t, err, "domains.keys", "serve makes no keyset")

	_, err = Load(Dev, flagSet(t, Dev, "--config", writeFile(t, "bad.yaml", `domains:
  https: "443"
  http: "80"
  acme: http://ca.example
  ca: `+missing+`
  points: proxy.example.net, 192.0.2.1
  resolvers: dns.example.net
  reserved: "*.example.net"
  targets: 10.0.0.1
  dns: {server: ns}
`)), nil)
	for _, want := range []string{"domains.https", "domains.http:", "domains.acme", "domains.ca", "domains.points: a name can be", "domains.resolvers", "domains.reserved", "domains.keys", "domains.targets", "domains.dns.server", "domains.dns.key", "domains.dns.zones"} {
		require.ErrorContains(t, err, want)
	}
	_, err = Load(Dev, flagSet(t, Dev, "--domains-http", "127.0.0.1:80"), nil)
	require.ErrorContains(t, err, "without domains.https")
}
