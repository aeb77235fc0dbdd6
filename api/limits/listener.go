package limits

import (
	"crypto/tls"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
)

// Client is who an address is of: an address of IPv4 itself, of IPv6 its network of 64 bits, of which one client has all
// addresses. What is no address is itself.
func Client(address string) string {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return address
	}
	ip := at.Addr().Unmap().WithZone("")
	if ip.Is6() {
		if network, err := ip.Prefix(64); err == nil {
			return network.String()
		}
	}
	return ip.String()
}

// Listen takes a place of the pool for each connection until it is closed. One that is over its bound is closed at once,
// but for up to spare of them at a time, which are accepted so that they can be told why: see [Over].
func Listen(l net.Listener, p *Pool, spare int) net.Listener {
	return &listener{Listener: l, pool: p, spare: int64(spare)}
}

type listener struct {
	net.Listener
	pool  *Pool
	spare int64
	told  atomic.Int64 // connections that are over their bound
}

func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		leave, err := l.pool.Take(Client(c.RemoteAddr().String()))
		if err == nil {
			return &conn{Conn: c, leave: leave}, nil
		}
		if l.told.Add(1) <= l.spare {
			return &conn{Conn: c, over: err, leave: sync.OnceFunc(func() { l.told.Add(-1) })}, nil
		}
		l.told.Add(-1)
		_ = c.Close() // it is told enough by that
	}
}

// conn is a connection that gives its place back.
type conn struct {
	net.Conn
	over  error
	leave func()
}

func (c *conn) Close() error {
	defer c.leave()
	return c.Conn.Close()
}

// Over is the [*Full] of a connection that is over its bound, or nil; it may be wrapped by TLS.
func Over(c net.Conn) error {
	if secured, ok := c.(*tls.Conn); ok {
		c = secured.NetConn()
	}
	if c, ok := c.(*conn); ok {
		return c.over
	}
	return nil
}
