package nameserver

import (
	"net"
	"net/netip"
	"os"
	"testing"

	"github.com/miekg/dns"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/api/discovery"
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

// Keys that differ in case only are one name of DNS; which of them it is does not change from question to question.
func TestPortOfKeysThatDifferInCase(t *testing.T) {
	t.Parallel()
	for range 20 {
		require.Equal(t, "1", named(map[string]string{"port.Web": "2", "PORT.WEB": "1", "Port.web": "3"}, "port.web"))
	}
	require.Empty(t, named(map[string]string{"": "2"}, "port.web"))
}

// deaf is a connection to somebody who reads nothing.
type deaf struct {
	dns.ResponseWriter
	closed bool
}

func (d *deaf) RemoteAddr() net.Addr    { return &net.TCPAddr{} }
func (d *deaf) LocalAddr() net.Addr     { return &net.TCPAddr{} }
func (d *deaf) WriteMsg(*dns.Msg) error { return os.ErrDeadlineExceeded }
func (d *deaf) Close() error            { d.closed = true; return nil }

func TestWhoReadsNothingLosesItsConnection(t *testing.T) {
	t.Parallel()
	h, err := (&Server{Finder: new(discovery.Catalog)}).handler()
	require.NoError(t, err)
	d := &deaf{}
	h.ServeDNS(d, new(dns.Msg).SetQuestion("example.com.", dns.TypeA))
	require.True(t, d.closed)
}
