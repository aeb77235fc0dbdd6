package limits

import (
	"crypto/tls"
	"net"
	"net/netip"
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
// but for those for which there is a place among the spare ones, which are accepted so that they can be told why: see [Over]. nil has none.
func Listen(l net.Listener, p, spare *Pool) net.Listener { return &listener{l, p, spare} }

type listener struct {
	net.Listener
	pool, spare *Pool
}

func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		client := Client(c.RemoteAddr().String())
		leave, full := l.pool.Take(client)
		if full != nil && l.spare != nil {
			leave, err = l.spare.Take(client)
		}
		if leave != nil && err == nil {
			return &conn{Conn: c, over: full, leave: leave}, nil
		}
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
