package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"reflect"
	"syscall"

	"github.com/knadh/koanf/providers/structs"
	"github.com/knadh/koanf/v2"
)

// changes are the settings that differ from the defaults of the mode, without secrets, as attributes of a log line. Lists that
// have no flag are told by their number.
func (c Config) changes(mode string) []any {
	have, usual := koanf.New(delim), koanf.New(delim)
	if have.Load(structs.Provider(c.Redacted(), "koanf"), nil) != nil || usual.Load(structs.Provider(Defaults(mode), "koanf"), nil) != nil {
		return []any{"error", "cannot be printed"} // which String says better
	}
	var attrs []any
	for _, o := range options {
		if v := have.Get(o.path()); !reflect.DeepEqual(v, usual.Get(o.path())) {
			attrs = append(attrs, o.key, v)
		}
	}
	for name, n := range map[string]int{"auth.tokens": len(c.Auth.Tokens), "nats.users": len(c.NATS.Users), "outbox.sources": len(c.Outbox.Sources)} {
		if n > 0 {
			attrs = append(attrs, name, n)
		}
	}
	return attrs
}

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
