package main

import (
	"context"
	"errors"
	"fmt"
	"net"
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
