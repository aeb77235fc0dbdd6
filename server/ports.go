package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"syscall"
)

// checkPorts finds addresses that somebody else listens on before anything is started, and names the option of each.
func (a *app) checkPorts(ctx context.Context) error {
	nats := a.cfg.NATS.Listen
	if a.cfg.NATS.Attached() {
		nats = ""
	}
	var errs []error
	for _, l := range []struct{ address, flag string }{
		{a.cfg.HTTP.Listen, "http"}, {nats, "nats"}, {a.cfg.Cluster.Listen, "cluster-listen"}, {a.cfg.Discovery.DNS, "dns"}, {a.cfg.Discovery.XDS, "xds"},
	} {
		if l.address == "" {
			continue
		}
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", l.address)
		if err == nil {
			err = listener.Close()
		}
		if err == nil && l.flag == "dns" {
			var packets net.PacketConn
			if packets, err = (&net.ListenConfig{}).ListenPacket(ctx, "udp", l.address); err == nil {
				err = packets.Close()
			}
		}
		if errors.Is(err, syscall.EADDRINUSE) { // what else may be wrong with it is told by who uses it
			errs = append(errs, fmt.Errorf("cannot listen on %s, somebody else does: choose another address with --%s", l.address, l.flag))
		}
	}
	return errors.Join(errs...)
}

// listeners are the addresses that this process listens on, as configured and as they came about: a probe must not speak to
// them, whatever address of this host it does that by.
func (a *app) listeners() []string {
	c := a.cfg
	addrs := []string{c.HTTP.Listen, c.Cluster.Listen, c.Discovery.DNS, c.Discovery.XDS}
	if !c.NATS.Attached() {
		addrs = append(addrs, c.NATS.Listen)
	}
	if a.server != nil {
		if u, err := url.Parse(a.server.ClientURL()); err == nil {
			addrs = append(addrs, u.Host)
		}
	}
	return addrs
}

// listening is where an address of a listener leads to; its host may be a name, or missing. Port 0 is none yet.
func listening(addr string) (netip.AddrPort, bool) {
	host, service, err := net.SplitHostPort(addr)
	if err != nil {
		return netip.AddrPort{}, false
	}
	port, err := net.LookupPort("tcp", service)
	if err != nil || port == 0 {
		return netip.AddrPort{}, false
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		ip = netip.IPv6Unspecified()
	}
	return netip.AddrPortFrom(ip, uint16(port)), true // it was looked up
}
