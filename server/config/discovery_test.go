package config

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/internal/selfsigned"
)

func TestDiscoveryConfig(t *testing.T) {
	t.Parallel()
	load := func(text string, args ...string) (Config, error) {
		return Load(Serve, flagSet(t, Serve, append([]string{"--config", writeFile(t, "instar.yaml", text)}, args...)...), nil)
	}
	c, err := load("discovery:\n  scripts: true\n  probe:\n    anyRequest: true\n    match: true\n    allow: [169.254.10.0/24, \"fd00::7\"]\n", "--dns", "127.0.0.1:8600", "--xds", "[::1]:18000")
	require.NoError(t, err)
	require.Equal(t, Discovery{DNS: "127.0.0.1:8600", DNSDomain: "instar", XDS: "[::1]:18000", Scripts: true, Probe: Probe{AnyRequest: true, Match: true, Allow: []string{"169.254.10.0/24", "fd00::7"}}}, c.Discovery)
	networks, err := Prefixes(c.Discovery.Probe.Allow)
	require.NoError(t, err)
	require.Equal(t, []netip.Prefix{netip.MustParsePrefix("169.254.10.0/24"), netip.MustParsePrefix("fd00::7/128")}, networks)

	for text, says := range map[string]string{
		"discovery: {dns: nowhere}":                                             "discovery.dns",
		"discovery: {xds: \"127.0.0.1\"}":                                       "discovery.xds",
		"discovery: {probe: {deny: [10.0.0.0]}}":                                "",
		"discovery: {probe: {deny: [10.0.0/8]}}":                                "discovery.probe.deny",
		"discovery: {probe: {allow: [internal]}}":                               "discovery.probe.allow",
		"discovery: {probes: {}}":                                               "unknown key",
		"discovery: {dnsTTL: 1500ms}":                                           "discovery.dnsTTL: 1.5s is not a number of whole seconds",
		"discovery: {dnsTTL: 2h}":                                               "discovery.dnsTTL",
		"discovery: {dnsAddresses: [ns1]}":                                      "discovery.dnsAddresses",
		"discovery: {dnsAddresses: [\"0.0.0.0\"]}":                              "discovery.dnsAddresses",
		"discovery: {dnsAddresses: [192.0.2.53, \"2001:db8::53\"]}":             "",
		"discovery: {dnsTTL: 5}":                                                "no duration",
		"discovery: {dnsDomain: a..b}":                                          "discovery.dnsDomain",
		"discovery: {dnsDomain: \"\"}":                                          "discovery.dnsDomain",
		"discovery: {dnsDomain: \"a b\"}":                                       "discovery.dnsDomain",
		"discovery: {xdsTLS: {ca: x}}":                                          "for discovery.xds, which is not set",
		"discovery: {xds: \"127.0.0.1:1\", xdsTLS: {ca: /nowhere}}":             "needs ca, cert and key",
		"discovery: {xds: \"127.0.0.1:1\", xdsTLS: {cert: /nowhere}}":           "cert and key belong together",
		"discovery: {xds: \"127.0.0.1:1\", xdsTLS: {cert: /nowhere, key: /no}}": "discovery.xdsTLS.cert",
		"discovery: {dns: \"0.0.0.0:53\"}":                                      "can be reached from other machines",
		"discovery: {xds: \"10.1.2.3:18000\"}":                                  "can be reached from other machines",
	} {
		_, err := load(text)
		if says == "" {
			require.NoError(t, err, text)
			continue
		}
		require.ErrorContains(t, err, says, text)
	}
	cert, key := filepath.Join(t.TempDir(), "cert.pem"), filepath.Join(t.TempDir(), "key.pem")
	require.NoError(t, selfsigned.Write(1, cert, key))
	ca := cert // it is its own
	c, err = load(fmt.Sprintf("discovery: {xds: \"10.1.2.3:18000\", xdsTLS: {ca: %s, cert: %s}}", ca, cert), "--xds-key", key, "--dns-domain", "service.example.com.", "--dns-ttl", "5s", "--discovery-namespaces", "shop, default")
	require.NoError(t, err, "clients prove who they are")
	require.Equal(t, []any{"service.example.com.", 5 * time.Second, TLS{CA: ca, Cert: cert, Key: key}}, []any{c.Discovery.DNSDomain, c.Discovery.DNSTTL, c.Discovery.XDSTLS})
	_, err = load(fmt.Sprintf("discovery: {xds: \"10.1.2.3:18000\", xdsTLS: {cert: %s, key: %s}}", cert, key))
	require.ErrorContains(t, err, "set discovery.xdsTLS with ca", "encrypted is not who is there")
	require.Equal(t, []string{"shop", "default"}, c.Discovery.Shown())
	_, err = load("discovery: {dns: \"0.0.0.0:53\"}", "--insecure")
	require.ErrorContains(t, err, "discovery.namespaces", "everybody would see all of them")
	c, err = load("discovery: {dns: \"0.0.0.0:53\", namespaces: \"*\"}", "--insecure")
	require.NoError(t, err)
	require.Nil(t, c.Discovery.Shown())
	_, err = load("discovery: {dns: \"127.0.0.1:8600\", namespaces: \"a.b\"}")
	require.ErrorContains(t, err, "discovery.namespaces")
}

// A server that asks for no tokens is asked by loopback names, and by those that it was told of.
func TestHostsOfAnOpenServer(t *testing.T) {
	t.Parallel()
	own, err := os.Hostname()
	require.NoError(t, err)
	for _, c := range []struct {
		listen, hosts string
		want          []string
	}{
		{"127.0.0.1:8080", "", []string{}},
		{"[::1]:8080", "box.lan, 10.0.0.7", []string{"box.lan", "10.0.0.7"}},
		{"127.0.0.1:8080", "*", nil},
		{"0.0.0.0:8080", "", []string{"0.0.0.0", own}},
		{":8080", "box.lan", []string{"box.lan", own}},
		{"box.lan:8080", "", []string{"box.lan", own}},
		{"0.0.0.0:8080", "box.lan,*", nil},
	} {
		require.Equal(t, c.want, HTTP{Listen: c.listen, Hosts: c.hosts}.AllowedHosts(), "%s %s", c.listen, c.hosts)
	}
	_, err = Load(Dev, flagSet(t, Dev, "--http-hosts", "http://box.lan"), nil)
	require.ErrorContains(t, err, "http.hosts")
	cfg, err := Load(Dev, flagSet(t, Dev, "--http-hosts", "box.lan"), nil)
	require.NoError(t, err)
	require.Equal(t, []string{"box.lan"}, cfg.HTTP.AllowedHosts())
}
