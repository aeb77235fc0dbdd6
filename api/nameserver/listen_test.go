package nameserver

import (
	"net"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestReachable(t *testing.T) {
	t.Parallel()
	require.Equal(t, []netip.Addr{netip.MustParseAddr("192.0.2.1")}, reachable(&net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 53}))
	for _, all := range []net.IP{net.IPv4zero, net.IPv6unspecified} {
		found := reachable(&net.TCPAddr{IP: all, Port: 53})
		require.NotEmpty(t, found)
		for _, ip := range found {
			require.False(t, ip.IsUnspecified() || ip.IsLinkLocalUnicast())
			require.True(t, !all.Equal(net.IPv4zero) || ip.Is4())
		}
	}
}
