package nameserver

import (
	"context"
	"net"
	"net/netip"
	"sync"
)

// Bounds of TCP. A connection has one question answered at a time, out of memory; it ends after so many, or when it is
// idle.
const (
	maxConns    = 1024 // in all
	maxConnsOf  = 64   // of one address
	maxPerConn  = 128  // questions
	maxOwnAddrs = 8    // of ns.dns.<domain>, where nothing else is said
)

// listen opens UDP and TCP on one port. A port that was chosen for TCP may be taken for UDP, so it chooses again.
func listen(ctx context.Context, address string) (net.PacketConn, net.Listener, error) {
	var lc net.ListenConfig
	for try := 1; ; try++ {
		conns, err := lc.Listen(ctx, "tcp", address)
		if err != nil {
			return nil, nil, err
		}
		packets, err := lc.ListenPacket(ctx, "udp", conns.Addr().String())
		if err == nil {
			return packets, &bounded{Listener: conns, of: map[netip.Addr]int{}}, nil
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

// bounded is a listener that closes at once what would be too much: of one address, so that it takes nobody's place, or in
// all.
type bounded struct {
	net.Listener
	mu  sync.Mutex
	of  map[netip.Addr]int
	all int
}

func (b *bounded) Accept() (net.Conn, error) {
	for {
		conn, err := b.Listener.Accept()
		if err != nil {
			return nil, err
		}
		from, _ := netip.ParseAddrPort(conn.RemoteAddr().String())
		if b.enter(from.Addr()) {
			return &guest{Conn: conn, leave: sync.OnceFunc(func() { b.leave(from.Addr()) })}, nil
		}
		_ = conn.Close() // it is told enough by that
	}
}

func (b *bounded) enter(from netip.Addr) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.all >= maxConns || b.of[from] >= maxConnsOf {
		return false
	}
	b.all++
	b.of[from]++
	return true
}

func (b *bounded) leave(from netip.Addr) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all--
	if b.of[from]--; b.of[from] == 0 {
		delete(b.of, from)
	}
}

// guest is a connection that gives its place back.
type guest struct {
	net.Conn
	leave func()
}

func (g *guest) Close() error {
	g.leave()
	return g.Conn.Close()
}
