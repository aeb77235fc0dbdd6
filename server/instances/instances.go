// Package instances serves machines/instance and machines/preservation: instances are found over HTTP, NATS, DNS and xDS out of one
// catalog, and those of this node's partitions are checked.
package instances

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/bcc94042/instar/api"
	"github.com/bcc94042/instar/api/admin"
	"github.com/bcc94042/instar/api/discovery"
	"github.com/bcc94042/instar/api/limits"
	"github.com/bcc94042/instar/api/nameserver"
	"github.com/bcc94042/instar/api/xds"
	"github.com/bcc94042/instar/consumers/cluster"
	"github.com/bcc94042/instar/consumers/prober"
	"github.com/bcc94042/instar/machines/instance"
	"github.com/bcc94042/instar/machines/instance/reader"
	"github.com/bcc94042/instar/machines/preservation"
	"github.com/bcc94042/instar/providers/probe"
	"github.com/bcc94042/instar/server"
	"github.com/bcc94042/instar/streams/publish"
)

// Provider serves machines/instance: instances are found over HTTP, NATS, DNS and xDS, and those of this node's partitions are
// checked.
func Provider() server.Provider {
	return server.Provider{Open: openInstances, Live: true, Decoder: func() func(string, []byte) (any, error) {
		var r reader.Reader // an index decodes one value after another
		return func(key string, value []byte) (any, error) { return r.Decode(key, value) }
	}}
}

// PreservationProvider serves machines/preservation, which [Provider] reads.
func PreservationProvider() server.Provider {
	return server.Provider{Decoder: func() func(string, []byte) (any, error) {
		return func(_ string, value []byte) (any, error) {
			e, err := preservation.Machine.Decode(value)
			return e.Data, err
		}
	}}
}

// finder is how instances are found from this node, and looked after.
type finder struct {
	*server.Host
	catalog            *discovery.Catalog
	checker            probe.Prober
	dnsConns, xdsConns *limits.Pool
}

func openInstances(ctx context.Context, h *server.Host) (server.Work, error) {
	_, js, err := h.Connect("discovery")
	if err != nil {
		return server.Work{}, err
	}
	f := &finder{Host: h}
	f.catalog = discovery.New(discovery.Options{
		Instances: h.Indexes.Get(instance.Machine.Name), Preservations: h.Indexes.Get(preservation.Machine.Name),
		History: discovery.History{JS: js, Names: h.Deps.Names}, Hears: func() bool { return h.Member.Status().Member }, Log: h.Log,
	})
	if err := h.Register(discoveryCounts{f.catalog}); err != nil {
		return server.Work{}, err
	}
	if err := f.setChecker(); err != nil {
		return server.Work{}, err
	}
	h.Go(ctx, "discovery", f.catalog.Run)
	h.Check(f.checks)
	h.API(func(o *api.Options) {
		f.dnsConns, f.xdsConns = limits.NewPool("dns-connections", nameserver.DefaultConnections), limits.NewPool("xds-connections", o.Limits.Connections)
		o.Discovery, o.Admit, o.Pools = f.catalog, f.admit, append(o.Pools, f.dnsConns, f.xdsConns)
	})
	h.Serving(func(ctx context.Context, _ string) error { return errors.Join(f.startProbes(ctx), f.startNames(ctx)) })
	return server.Work{}, nil
}

// setChecker sets up what probes. The doors ask it, too.
func (f *finder) setChecker() error {
	settings := f.Config.Discovery
	f.checker.Scripts, f.checker.AnyRequest, f.checker.Match, f.checker.Log = settings.Scripts, settings.Probe.AnyRequest, settings.Probe.Match, f.Log
	f.checker.Own = f.Listening
	var err error
	f.checker.Allow, f.checker.Deny, err = settings.Probe.Networks()
	return err
}

// admit refuses a registration whose check this node would never carry out. Its owner may be another node, and has the last
// word: names are resolved by each probe.
func (f *finder) admit(cmd publish.Command) error {
	if cmd.Machine != instance.Machine.Name || cmd.Name != instance.CommandRegister || !bytes.Contains(cmd.Body, []byte(`"check"`)) {
		return nil
	}
	var b instance.RegisterBody
	if json.Unmarshal(cmd.Body, &b) != nil {
		return nil // which the engine refuses
	}
	if err := f.checker.Admit(b.Check, b.NodeAddress); err != nil {
		return fmt.Errorf("the check can never be carried out: %w", err)
	}
	return nil
}

// startProbes looks after the instances of the partitions that this node owns.
func (f *finder) startProbes(ctx context.Context) error {
	meter := newProbeMeter()
	meter.begin()
	if err := f.Register(meter.all()...); err != nil {
		return err
	}
	p := &prober.Prober{
		Deps: f.Deps, Shares: f.Member, Instances: f.Indexes.Get(instance.Machine.Name), Preservations: f.Indexes.Get(preservation.Machine.Name),
		Checker: &f.checker, Peers: peers{f.Member}, Node: f.Node, Metrics: meter,
	}
	f.Go(ctx, "the prober", p.Run)
	return nil
}

// peers are the nodes that may observe.
type peers struct{ *cluster.Node }

func (p peers) Nodes() []string {
	var names []string
	for _, n := range p.Node.Nodes() {
		names = append(names, n.Name)
	}
	return names
}

// startNames serves what is found over DNS and xDS, where the configuration says so. What knows nothing yet would deny
// that services exist, so both wait until the catalog is complete.
func (f *finder) startNames(ctx context.Context) error {
	said := func(what string) func(string) {
		return func(addr string) {
			f.Listens(addr)
			f.Log.Info(what+" listens", "address", addr)
		}
	}
	var finder discovery.Finder = f.catalog
	if shown := f.Config.Discovery.Shown(); shown != nil {
		finder = discovery.Only(finder, shown)
	}
	if addr := f.Config.Discovery.DNS; addr != "" {
		s := &nameserver.Server{
			Address: addr, Domain: f.Config.Discovery.DNSDomain, TTL: f.Config.Discovery.DNSTTL, Finder: finder, Stale: f.catalog.Stale, Started: said("the name server"), Log: f.Log, Pool: f.dnsConns,
		}
		for _, text := range f.Config.Discovery.DNSAddresses {
			s.Addresses = append(s.Addresses, netip.MustParseAddr(text)) // it was checked
		}
		f.Go(ctx, "the name server", f.complete(s.Run))
	}
	if addr := f.Config.Discovery.XDS; addr != "" {
		secured, err := server.ListenerTLS(f.Config.Discovery.XDSTLS, f.Log)
		if err != nil {
			return fmt.Errorf("discovery.xdsTLS: %w", err)
		}
		s := &xds.Server{Address: addr, TLS: secured, Finder: finder, Acked: f.acked, Stale: f.catalog.Stale, Log: f.Log, Pool: f.xdsConns, Started: said("the endpoint discovery service")}
		if err := f.Register(xdsCounts{s}); err != nil {
			return err
		}
		f.Go(ctx, "the endpoint discovery service", f.complete(s.Run))
	}
	return nil
}

// complete begins when the catalog is complete.
func (f *finder) complete(run func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		select {
		case <-f.catalog.Ready():
			return run(ctx)
		case <-ctx.Done():
			return nil
		}
	}
}

// acked passes on what a proxy has acted on, as any watcher would say it.
func (f *finder) acked(namespace, service, watcher string, index uint64) {
	body, err := json.Marshal(discovery.Acknowledgement{Watcher: watcher, Index: index})
	if err == nil {
		err = f.Deps.NC.Publish(f.Deps.Names.Acknowledge(namespace, service), body)
	}
	if err != nil {
		f.Log.Debug("cannot forward an acknowledgement; it will be redelivered", "service", service, "error", err)
	}
}

// checks are what readiness is made of here.
func (f *finder) checks() []admin.Check {
	c := admin.Check{Name: "discovery", Detail: "the instances are still being read"}
	select {
	case <-f.catalog.Ready():
		c.OK, c.Detail = true, fmt.Sprintf("at revision %d of the instances", f.catalog.Index())
		if stale := f.catalog.Stale(); stale > 0 {
			c.OK, c.Detail = false, fmt.Sprintf("this node cannot hear the others: what is found is what it knew %s ago", stale.Round(time.Second))
		}
	default:
	}
	return []admin.Check{c}
}
