package domain

import (
	"net"
	"net/netip"
	"slices"
	"strings"

	machine "github.com/bcc94042/instar/machines/domain"
)

// Leads reports whether a target is at the address, host:port, written in whatever way; no route has no target. Names but localhost are not looked up.
func Leads(r *machine.Route, address string) bool {
	at := plain(address)
	return r != nil && slices.ContainsFunc(r.Targets, func(t machine.Target) bool { return plain(t.Address) == at })
}

// plain is one form of an address. That of this host by its names is 127.0.0.1, as what listens there may listen on both.
func plain(address string) string {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	if host = strings.ToLower(strings.TrimSuffix(host, ".")); host == "localhost" {
		host = "127.0.0.1"
	} else if ip, err := netip.ParseAddr(host); err == nil {
		if ip = ip.Unmap(); ip.IsUnspecified() || ip == netip.IPv6Loopback() {
			ip = netip.AddrFrom4([4]byte{127, 0, 0, 1})
		}
		host = ip.String()
	}
	return net.JoinHostPort(host, port)
}
