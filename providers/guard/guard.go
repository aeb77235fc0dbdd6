// Package guard says where this program may connect to on behalf of others, who name the address: not to itself, and not to where a host
// finds its own credentials. Names are judged by each connection, by the address that they lead to then.
package guard

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"
)

// ErrForbidden is wrapped when an address may not be connected to.
var ErrForbidden = errors.New("may not be connected to")

// Guard says which addresses may be connected to. The zero value refuses only what no service has its place at.
type Guard struct {
	Deny  []netip.Prefix // refused, besides what always is
	Allow []netip.Prefix // allowed, although it would be refused; Deny is stronger
	// Only are the networks that may be connected to, of what is not refused; nil are all.
	Only []netip.Prefix
	// Public refuses private networks and this host, too.
	Public bool
	// Elsewhere refuses all addresses that this host has when a connection begins, whatever is allowed.
	Elsewhere bool
	// Own are the listeners of this program when a connection begins; refused on every address of this host. Nil is none.
	Own      func() []netip.AddrPort
	Resolver *net.Resolver // nil is that of the system
}

// forbidden are the ranges that no service has its place in. In brackets whose metadata is served there.
var forbidden = prefixes(
	"0.0.0.0/8", "::/128", // unspecified
	"169.254.0.0/16", "fe80::/10", // link-local [AWS, Azure, Google and others]
	"100.100.100.200/32",                            // [Alibaba]
	"168.63.129.16/32",                              // [Azure]
	"192.0.0.192/32",                                // [Oracle]
	"fd00:ec2::254/128",                             // [AWS]
	"fd20:ce::254/128",                              // [Google]
	"224.0.0.0/4", "ff00::/8", "255.255.255.255/32", // multicast, broadcast
)

// private are the networks that are not reached from everywhere, and this host.
var private = prefixes("10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "198.18.0.0/15", "::1/128", "fc00::/7", "fec0::/10")

func prefixes(list ...string) []netip.Prefix {
	ps := make([]netip.Prefix, len(list))
	for i, s := range list {
		ps[i] = netip.MustParsePrefix(s)
	}
	return ps
}

// Ranges in which an IPv6 address stands for the IPv4 one in some of its bytes.
var (
	nat64  = netip.MustParsePrefix("64:ff9b::/96")
	sixto4 = netip.MustParsePrefix("2002::/16")
)

// meant are the addresses that one stands for: itself, and the IPv4 address inside it.
func meant(a netip.Addr) []netip.Addr {
	a = a.Unmap().WithZone("")
	list := []netip.Addr{a}
	switch b := a.As16(); {
	case a.Is4():
	case nat64.Contains(a):
		list = append(list, netip.AddrFrom4([4]byte(b[12:16])))
	case sixto4.Contains(a):
		list = append(list, netip.AddrFrom4([4]byte(b[2:6])))
	}
	return list
}

func within(a netip.Addr, ps []netip.Prefix) bool {
	return slices.ContainsFunc(ps, func(p netip.Prefix) bool { return p.Contains(a) })
}

// Admit says why an address may not be connected to, or nil.
func (g *Guard) Admit(to netip.AddrPort) error {
	if g.Only != nil && !within(to.Addr().Unmap().WithZone(""), g.Only) {
		return fmt.Errorf("%s %w: it is in none of the networks that are meant", to, ErrForbidden)
	}
	for _, a := range meant(to.Addr()) {
		refused := within(a, forbidden) || g.Public && within(a, private)
		if g.Elsewhere && local(a) {
			return fmt.Errorf("%s %w: it is this host", to, ErrForbidden)
		}
		if within(a, g.Deny) || refused && !within(a, g.Allow) {
			return fmt.Errorf("%s %w: allow its range in the configuration if it is meant", to, ErrForbidden)
		}
	}
	if g.Own == nil {
		return nil
	}
	for _, own := range g.Own() {
		if own.Port() == to.Port() && local(to.Addr().Unmap()) {
			return fmt.Errorf("%s %w: it is this program's own", to, ErrForbidden)
		}
	}
	return nil
}

// local says whether an address is one of this host.
func local(a netip.Addr) bool { return among(a, net.InterfaceAddrs) }

func among(a netip.Addr, list func() ([]net.Addr, error)) bool {
	if a.IsLoopback() || a.IsUnspecified() {
		return true
	}
	addrs, err := list()
	if err != nil { // as where netlink is forbidden
		return bound(a)
	}
	for _, i := range addrs {
		if n, ok := i.(*net.IPNet); ok {
			if mine, ok := netip.AddrFromSlice(n.IP); ok && mine.Unmap() == a.WithZone("") {
				return true
			}
		}
	}
	return false
}

// bound says the same by whether a socket can have the address, of which nothing is sent. That of a connection to it would tell less: to a second
// address of a network it comes from the first. Where the system lets sockets have addresses of others (ip_nonlocal_bind), all are taken for this host's.
func bound(a netip.Addr) bool {
	c, err := net.ListenPacket("udp", netip.AddrPortFrom(a, 0).String())
	if err == nil {
		_ = c.Close() // nothing was sent
		return true
	}
	return !errors.Is(err, syscall.EADDRNOTAVAIL) // not known to be another's
}

// Control is asked with the resolved address before anything is sent to it.
func (g *Guard) Control(_, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%s %w: it is no address", address, ErrForbidden)
	}
	return g.Admit(to)
}

// Dialer connects to what is admitted.
func (g *Guard) Dialer() *net.Dialer {
	return &net.Dialer{Control: g.Control, KeepAlive: -1, Resolver: g.Resolver}
}
