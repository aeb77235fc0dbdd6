// Package grpcresolver lets gRPC find servers in a registry: instar:///web, or instar:///web.shop of the namespace shop.
//
//	builder := &grpcresolver.Builder{Client: registry}
//	conn, err := grpc.NewClient("instar:///web", grpc.WithResolvers(builder), …)
//
// Calls are spread by weight (the policy "instar_weighted", which [Builder] asks for). A change of a weight opens no new
// connection, but for one from or to 0: an instance of weight 0 is not connected to unless all have it. One whose calls
// end with UNAVAILABLE or DEADLINE_EXCEEDED five times in a row is left out for a while, as [client.Transport] does it. An
// instance that drains leaves the list: calls under way to it end in peace, and it is confirmed to the registry that no
// new ones go there. While the registry is away, what was known last is used.
package grpcresolver

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/attributes"
	"google.golang.org/grpc/resolver"

	"github.com/bcc94042/instar/client"
)

// Scheme of the targets.
const Scheme = "instar"

// Builder makes resolvers for the targets of one registry. It implements [resolver.Builder].
type Builder struct {
	Client  *client.Client // needed
	Options client.Options // an instance of another zone is connected to only without one of Zone
}

// Scheme implements [resolver.Builder].
func (*Builder) Scheme() string { return Scheme }

// Build implements [resolver.Builder]. It does not wait for the registry: the first calls do, those without
// grpc.WaitForReady until it is known that no registry answers (2 s). It fails for a target without a service.
func (b *Builder) Build(target resolver.Target, cc resolver.ClientConn, _ resolver.BuildOptions) (resolver.Resolver, error) {
	name := strings.TrimSuffix(target.Endpoint(), ".instar")
	service, namespace, ok := strings.Cut(name, ".")
	if service == "" || b.Client == nil {
		return nil, errors.New("the target must be instar:///<service>, and the builder needs a Client")
	}
	c := b.Client
	if ok {
		c = c.In(namespace)
	}
	ctx, stop := context.WithCancel(context.Background())
	r := &follower{cc: cc, stop: stop, zone: b.Options.Zone}
	r.running.Go(func() { r.run(ctx, c, service, b.Options) })
	return r, nil
}

// follower tells one connection what the registry says.
type follower struct {
	cc      resolver.ClientConn
	stop    context.CancelFunc
	zone    string
	running sync.WaitGroup
}

const retry = 2 * time.Second // until the first list; gRPC is told that there is none yet

func (r *follower) run(ctx context.Context, c *client.Client, service string, opts client.Options) {
	for ctx.Err() == nil {
		first, cancel := context.WithTimeout(ctx, retry)
		found, err := c.Resolve(first, service, opts)
		cancel()
		if err != nil {
			r.cc.ReportError(err)
			continue
		}
		done := found.Subscribe(func(all []client.Endpoint) { r.update(found, all) })
		<-ctx.Done()
		done()
		found.Close()
	}
}

// update tells the list: what may get calls, of the zone if it has any.
func (r *follower) update(found *client.Resolver, all []client.Endpoint) {
	only := func(keep func(client.Endpoint) bool) {
		if some := slices.DeleteFunc(slices.Clone(all), func(e client.Endpoint) bool { return !keep(e) }); len(some) > 0 {
			all = some
		}
	}
	only(func(e client.Endpoint) bool { return e.Weight > 0 })
	if r.zone != "" {
		only(func(e client.Endpoint) bool { return e.Zone == r.zone })
	}
	state := resolver.State{ServiceConfig: r.cc.ParseServiceConfig(`{"loadBalancingConfig":[{"` + Policy + `":{}}]}`)}
	for _, e := range all {
		about := attributes.New(originKey{}, origin{found, e.InstanceID})
		//lint:ignore SA1019 as in originOf
		state.Addresses = append(state.Addresses, resolver.Address{Addr: e.NodeAddress, BalancerAttributes: about})
	}
	_ = r.cc.UpdateState(state) // says that there are none; gRPC fails calls by itself then
}

// ResolveNow implements [resolver.Resolver]: changes come by themselves.
func (*follower) ResolveNow(resolver.ResolveNowOptions) {}

// Close implements [resolver.Resolver].
func (r *follower) Close() {
	r.stop()
	r.running.Wait()
}
