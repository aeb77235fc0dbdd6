package nameserver

import (
	"context"
	"net"
	"net/netip"

	"github.com/bcc94042/instar/api/limits"
)

// DefaultConnections are the connections of TCP that are open at once: in all, and of one address.
var DefaultConnections = limits.Bound{All: 1024, Each: 64}

// maxOwnAddrs are those of ns.dns.<domain>, where nothing else is said.
const maxOwnAddrs = 8

// listen opens UDP and TCP on one port. A port that was chosen for TCP may be taken for UDP, so it chooses again.
func listen(ctx context.Context, address string, pool *limits.Pool) (net.PacketConn, net.Listener, error) {
	var lc net.ListenConfig
	for try := 1; ; try++ {
		conns, err := lc.Listen(ctx, "tcp", address)
		if err != nil {
			return nil, nil, err
		}
		packets, err := lc.ListenPacket(ctx, "udp", conns.Addr().String())
		if err == nil {
			return packets, limits.Listen(conns, pool, nil), nil
		}
		_ = conns.Close()
		if _, port, _ := net.SplitHostPort(address); port != "0" || try == portTries {
			return nil, nil, err
		}
	}
}

// reachable are the addresses under which a listener is found: its own, or, when it listens on all of the host, those of
// the host; loopback only when there is nothing else.
func reachable(at net.Addr) []netip.Addr {
	where, err := netip.ParseAddrPort(at.String())
	if err != nil {
		return nil
	}
	own := where.Addr().Unmap().WithZone("")
	if !own.IsUnspecified() {
		return []netip.Addr{own}
	}
	var outside, loopback []netip.Addr
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil
	}
	for _, one := range all {
		prefix, err := netip.ParsePrefix(one.String())
		switch ip := prefix.Addr().Unmap(); {
		case err != nil, own.Is4() && !ip.Is4(): // 0.0.0.0 is not all
		case ip.IsLoopback():
			loopback = append(loopback, ip)
		case ip.IsGlobalUnicast() && len(outside) < maxOwnAddrs:
			outside = append(outside, ip)
		}
	}
	if len(outside) > 0 {
		return outside
	}
	return loopback
}
