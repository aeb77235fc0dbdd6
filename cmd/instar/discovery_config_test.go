package main

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDiscoveryConfig(t *testing.T) {
	t.Parallel()
	load := func(text string, args ...string) (Config, error) {
		return Load(ModeServe, flagSet(t, ModeServe, append([]string{"--config", write(t, "instar.yaml", text)}, args...)...), nil)
	}
	c, err := load("discovery:\n  scripts: true\n  probe:\n    allow: [169.254.10.0/24, \"fd00::7\"]\n", "--dns", "127.0.0.1:8600", "--xds", "[::1]:18000")
	require.NoError(t, err)
	require.Equal(t, Discovery{DNS: "127.0.0.1:8600", XDS: "[::1]:18000", Scripts: true, Probe: Probe{Allow: []string{"169.254.10.0/24", "fd00::7"}}}, c.Discovery)
	networks, err := prefixes(c.Discovery.Probe.Allow)
	require.NoError(t, err)
	require.Equal(t, []netip.Prefix{netip.MustParsePrefix("169.254.10.0/24"), netip.MustParsePrefix("fd00::7/128")}, networks)

	for text, says := range map[string]string{
		"discovery: {dns: nowhere}":               "discovery.dns",
		"discovery: {xds: \"127.0.0.1\"}":         "discovery.xds",
		"discovery: {probe: {deny: [10.0.0.0]}}":  "",
		"discovery: {probe: {deny: [10.0.0/8]}}":  "discovery.probe.deny",
		"discovery: {probe: {allow: [internal]}}": "discovery.probe.allow",
		"discovery: {probes: {}}":                 "unknown key",
		"discovery: {dns: \"0.0.0.0:53\"}":        "can be reached from other machines",
		"discovery: {xds: \"10.1.2.3:18000\"}":    "can be reached from other machines",
	} {
		_, err := load(text)
		if says == "" {
			require.NoError(t, err, text)
			continue
		}
		require.ErrorContains(t, err, says, text)
	}
	_, err = load("discovery: {dns: \"0.0.0.0:53\"}", "--insecure")
	require.NoError(t, err)
}
