package guard

import (
	"net"
	"net/netip"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// Package probe tries all that is always refused, against real connections.
func TestAdmit(t *testing.T) {
	t.Parallel()
	for _, s := range []struct {
		to    string
		guard Guard
		ok    bool
	}{
		{"10.1.2.3:80", Guard{}, true},
		{"127.0.0.1:80", Guard{}, true},
		{"169.254.169.254:80", Guard{}, false},
		{"8.8.8.8:443", Guard{Public: true}, true},
		{"[2606:4700::1111]:443", Guard{Public: true}, true},
		{"10.1.2.3:80", Guard{Public: true}, false},
		{"172.31.0.1:80", Guard{Public: true}, false},
		{"192.168.1.1:80", Guard{Public: true}, false},
		{"100.64.0.1:80", Guard{Public: true}, false},
		{"127.0.0.1:80", Guard{Public: true}, false},
		{"[::1]:80", Guard{Public: true}, false},
		{"[fd00::1]:80", Guard{Public: true}, false},
		{"[::ffff:10.0.0.1]:80", Guard{Public: true}, false},
		{"[64:ff9b::a00:1]:80", Guard{Public: true}, false},
		{"10.1.2.3:80", Guard{Public: true, Allow: prefixes("10.1.0.0/16")}, true},
		{"10.1.2.3:80", Guard{Public: true, Allow: prefixes("10.1.0.0/16"), Deny: prefixes("10.1.2.3/32")}, false},
		{"127.0.0.1:80", Guard{Allow: prefixes("127.0.0.0/8"), Own: func() []netip.AddrPort { return []netip.AddrPort{netip.MustParseAddrPort("0.0.0.0:80")} }}, false},
	} {
		err := s.guard.Admit(netip.MustParseAddrPort(s.to))
		require.Equal(t, s.ok, err == nil, "%s %+v: %v", s.to, s.guard, err)
		if !s.ok {
			require.ErrorIs(t, err, ErrForbidden)
		}
	}
	elsewhere := Guard{Elsewhere: true, Allow: prefixes("0.0.0.0/0", "::/0")}
	require.NoError(t, elsewhere.Admit(netip.MustParseAddrPort("192.0.2.1:80")))
	addrs, err := net.InterfaceAddrs()
	require.NoError(t, err)
	for _, a := range addrs { // not only those of the loopback
		ip := netip.MustParsePrefix(a.String()).Addr()
		require.ErrorIs(t, elsewhere.Admit(netip.AddrPortFrom(ip, 80)), ErrForbidden, "%s", ip)
		if ip.Is4() {
			require.ErrorIs(t, elsewhere.Admit(netip.AddrPortFrom(netip.AddrFrom16(ip.As16()), 80)), ErrForbidden, "%s", ip)
		}
	}
	require.ErrorIs(t, (&Guard{}).Control("tcp", "nonsense", nil), ErrForbidden)
}

// A service manager may forbid to list the addresses of this host. Those of others are no less allowed, and its own no more.
func TestAddressesOfThisHostAreKnownWithoutAList(t *testing.T) {
	t.Parallel()
	none := func() ([]net.Addr, error) { return nil, syscall.EAFNOSUPPORT }
	for _, s := range []string{"192.0.2.1", "8.8.8.8"} {
		require.False(t, among(netip.MustParseAddr(s), none), s)
	}
	addrs, err := net.InterfaceAddrs()
	require.NoError(t, err)
	for _, a := range append(addrs, &net.IPNet{IP: net.IPv4zero, Mask: net.CIDRMask(0, 32)}, &net.IPNet{IP: net.IPv4(127, 0, 0, 2), Mask: net.CIDRMask(8, 32)}) {
		require.True(t, among(netip.MustParsePrefix(a.String()).Addr(), none), "%s", a)
	}
}
