// Package grpcresolver lets gRPC find servers in a registry: instar:///web, or instar:///web.shop of the namespace shop.
//
//	builder := &grpcresolver.Builder{Client: registry}
//	conn, err := grpc.NewClient("instar:///web", grpc.WithResolvers(builder), …)
//
// Calls are spread by weight (the policy "instar_weighted", which [Builder] asks for). A change of a weight opens no new
// connection. An instance that drains leaves the list: calls under way to it end in peace, and it is confirmed to the
// registry that no new ones go there. While the registry is away, what was known last is used.
package grpcresolver

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
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
	Options client.Options // Zone, Version, Tags and Meta count; an instance of another zone is used only without one of Zone
}

// Scheme implements [resolver.Builder].
func (*Builder) Scheme() string { return Scheme }

// Build implements [resolver.Builder]. It does not wait for the registry.
func (b *Builder) Build(target resolver.Target, cc resolver.ClientConn, _ resolver.BuildOptions) (resolver.Resolver, error) {
	name := strings.TrimSuffix(target.Endpoint(), ".instar")
	service, namespace, ok := strings.Cut(name, ".")
	if service == "" || b.Client == nil {
		return nil, errors.New("the target must be instar:///<service>, and the builder needs a Client")
	}
	c := &client.Client{URLs: b.Client.URLs, Token: b.Client.Token, Namespace: b.Client.Namespace, HTTP: b.Client.HTTP}
	if ok {
		c.Namespace = namespace
	}
	ctx, stop := context.WithCancel(context.Background())
	r := &follower{cc: cc, stop: stop, zone: b.Options.Zone, weights: map[string]*atomic.Int64{}}
	r.running.Go(func() { r.run(ctx, c, service, b.Options) })
	return r, nil
}

// follower tells one connection what the registry says.
type follower struct {
	cc      resolver.ClientConn
	stop    context.CancelFunc
	zone    string
	running sync.WaitGroup
	weights map[string]*atomic.Int64 // by address; read by pickers
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
		done := found.Subscribe(r.update)
		<-ctx.Done()
		done()
		found.Close()
	}
}

// update tells the list. The weight is a cell that stays the same, so that its change is no new address.
func (r *follower) update(all []client.Endpoint) {
	near := all[:0:0]
	for _, e := range all {
		if e.Zone == r.zone && r.zone != "" {
			near = append(near, e)
		}
	}
	if len(near) > 0 {
		all = near
	}
	state := resolver.State{ServiceConfig: r.cc.ParseServiceConfig(`{"loadBalancingConfig":[{"` + Policy + `":{}}]}`)}
	here := map[string]bool{}
	for _, e := range all {
		here[e.NodeAddress] = true
		cell := r.weights[e.NodeAddress]
		if cell == nil {
			cell = new(atomic.Int64)
			r.weights[e.NodeAddress] = cell
		}
		cell.Store(int64(e.Weight))
		state.Addresses = append(state.Addresses, resolver.Address{Addr: e.NodeAddress, BalancerAttributes: attributes.New(weightKey{}, weight{cell})})
	}
	for address := range r.weights {
		if !here[address] {
			delete(r.weights, address)
		}
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
