package server

import (
	"log/slog"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines/instance"
	"github.com/bcc94042/instar/machines/registry"
	"github.com/bcc94042/instar/providers/probe"
	"github.com/bcc94042/instar/server/config"
)

// What checks instances speaks to no listener of this process, of those that are configured and those that come about.
func TestListeners(t *testing.T) {
	t.Parallel()
	c := config.Defaults(config.Serve)
	c.HTTP.Listen, c.NATS.Listen, c.Cluster.Listen = "localhost:8080", ":4222", "10.0.0.1:6222"
	c.Discovery.DNS, c.Discovery.XDS = "127.0.0.1:0", "[::1]:8658"
	a := newApp(c, Options{}, &registry.Registry{}, slog.New(slog.DiscardHandler))
	h := a.host(&a.steps)
	a.hosts = append(a.hosts, h)
	for _, addr := range a.listeners() {
		h.Listens(addr)
	}
	var ports []uint16
	for _, at := range h.Listening() {
		ports = append(ports, at.Port())
	}
	require.ElementsMatch(t, []uint16{8080, 4222, 6222, 8658}, ports)
	checker := probe.Prober{Options: probe.Options{Own: h.Listening}}
	for _, at := range []string{"127.0.0.1:6222", "[::1]:4222", "[::ffff:127.0.0.1]:8658"} {
		require.ErrorContains(t, checker.Admit(tcpCheck, at), "it is this program's own", at)
	}
	require.NoError(t, checker.Admit(tcpCheck, "127.0.0.1:8653"))
	h.Listens("127.0.0.1:8653")
	require.ErrorContains(t, checker.Admit(tcpCheck, "127.0.0.1:8653"), "it is this program's own")
	require.NoError(t, checker.Admit(tcpCheck, netip.AddrPortFrom(netip.MustParseAddr("203.0.113.9"), 6222).String()), "another's port")
}

var tcpCheck = instance.Check{Type: instance.CheckTCP}
