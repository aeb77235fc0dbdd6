package xds

// The gRPC server. Run listens, registers EDS and ADS with the state-of-the-world and delta servers of go-control-plane, and
// stops them all when ctx ends. Those servers answer from the cache (endpoints) and call back for each request and response
// (acks.go); feed keeps the cache at what the Finder answers (follow.go). While the catalog is stale, move.go ends streams.

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	discoverypb "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	endpointpb "github.com/envoyproxy/go-control-plane/envoy/service/endpoint/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/log"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/delta/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/sotw/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"

	"github.com/bcc94042/instar/api/discovery"
	"github.com/bcc94042/instar/api/limits"
)

// Server is an xDS server. Its fields are not changed once it runs.
type Server struct {
	Address   string           // host:port to listen on
	TLS       *tls.Config      // nil speaks plain text; ask for client certificates to know who asks
	Namespace string           // of names that give none; "default" by default
	Finder    discovery.Finder // needed
	// Acked says that a watcher, which is all proxies of this server, acts on everything of a service up to an index; 0 is
	// that one of them has acknowledged nothing yet. It must not block. Optional.
	Acked   func(namespace, service, watcher string, index uint64)
	Started func(addr string) // called once it listens; optional
	// Stale says for how long the catalog may be behind, 0 while it is not; nil is never. While it is, streams are ended, so
	// that proxies ask another server.
	Stale func() time.Duration
	Log   *slog.Logger // nil discards
	Pool  *limits.Pool // of connections; nil has no bound

	stats stats
}

// stats are counted while the server runs.
type stats struct {
	streams, leftOut atomic.Int64
	rejected         atomic.Uint64
}

// Stats are counts of now, but for Rejected, which is since the start.
type Stats struct {
	Streams  int    // of proxies
	LeftOut  int    // instances of services that are asked for, which xDS cannot express: their address is a host name
	Rejected uint64 // responses that a proxy did not take (NACK)
}

// Stats returns the counts.
func (s *Server) Stats() Stats {
	return Stats{Streams: int(s.stats.streams.Load()), LeftOut: int(s.stats.leftOut.Load()), Rejected: s.stats.rejected.Load()}
}

const (
	repeatAcks  = 10 * time.Second // of a service, when nothing changes
	ackLife     = 3 * repeatAcks   // of an acknowledgement that is not repeated
	maxFollowed = 20000            // services at once: names are free, and each costs memory
	maxStreams  = 1000             // per connection
	keepalives  = 30 * time.Second
)

// Run serves until ctx ends, then returns nil when all streams have gone. It fails at once if a field is wrong or the
// address is taken.
func (s *Server) Run(ctx context.Context) error {
	if s.Finder == nil {
		return errors.New("an xDS server needs a Finder")
	}
	var lc net.ListenConfig
	conns, err := lc.Listen(ctx, "tcp", s.Address)
	if err != nil {
		return fmt.Errorf("cannot listen for xDS on %s: %w", s.Address, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	logs := s.Log
	if logs == nil {
		logs = slog.New(slog.DiscardHandler)
	}
	// Proxies of one id may ask several servers, and what one has says nothing of another: the watcher is this run alone.
	f := &feed{Server: s, ctx: ctx, log: logs, watcher: "xds:" + rand.Text(), mover: mover{log: logs}, followed: map[string]*followed{}, streams: map[streamID]*stream{}}
	// The counter of the cache restarts with the process: its versions must not look like those of an earlier one.
	f.cache = cache.NewLinearCache(resource.EndpointType, cache.WithVersionPrefix(strconv.FormatInt(time.Now().UnixNano(), 36)+"-"), cache.WithLogger(log.LoggerFuncs{}))
	options := []grpc.ServerOption{
		grpc.MaxConcurrentStreams(maxStreams), grpc.StreamInterceptor(f.mover.intercept),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: keepalives, Timeout: keepalives / 3}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: keepalives / 3, PermitWithoutStream: true}),
	}
	if s.TLS != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(s.TLS)))
	}
	server := grpc.NewServer(options...)
	whole, deltas := sotw.NewServer(ctx, endpoints{f.cache}, wholeCalls{f}), delta.NewServer(ctx, endpoints{f.cache}, deltaCalls{f})
	endpointpb.RegisterEndpointDiscoveryServiceServer(server, single{whole: whole, deltas: deltas})
	discoverypb.RegisterAggregatedDiscoveryServiceServer(server, aggregated{whole: whole, deltas: deltas})
	if s.Stale != nil {
		f.running.Go(func() { f.watchStale(ctx) })
	}
	if s.Started != nil {
		s.Started(conns.Addr().String())
	}
	defer context.AfterFunc(ctx, server.Stop)()
	pool := s.Pool
	if pool == nil {
		pool = limits.NewPool("xds-connections", limits.Bound{})
	}
	err = server.Serve(limits.Listen(conns, pool, nil))
	over := ctx.Err() != nil
	cancel()
	server.Stop()
	f.running.Wait()
	if over {
		return nil
	}
	return fmt.Errorf("xDS on %s stopped: %w", conns.Addr(), err)
}

// single is EDS as a service of its own.
type single struct {
	endpointpb.UnimplementedEndpointDiscoveryServiceServer
	whole  sotw.Server
	deltas delta.Server
}

func (s single) StreamEndpoints(st endpointpb.EndpointDiscoveryService_StreamEndpointsServer) error {
	return s.whole.StreamHandler(st, resource.EndpointType)
}

func (s single) DeltaEndpoints(st endpointpb.EndpointDiscoveryService_DeltaEndpointsServer) error {
	return s.deltas.DeltaStreamHandler(st, resource.EndpointType)
}

// aggregated is ADS.
type aggregated struct {
	discoverypb.UnimplementedAggregatedDiscoveryServiceServer
	whole  sotw.Server
	deltas delta.Server
}

func (s aggregated) StreamAggregatedResources(st discoverypb.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	return s.whole.StreamHandler(st, resource.AnyType)
}

func (s aggregated) DeltaAggregatedResources(st discoverypb.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	return s.deltas.DeltaStreamHandler(st, resource.AnyType)
}

// endpoints is a cache of one type. Streams that ask for another type, too, get no answer for it instead of an end, and so
// do those that name nothing: endpoints have no wildcard, which would give them what others ask for, unacknowledged.
type endpoints struct{ *cache.LinearCache }

func (e endpoints) CreateWatch(r *cache.Request, sub cache.Subscription, out chan cache.Response) (func(), error) {
	if r.GetTypeUrl() != resource.EndpointType || sub.IsWildcard() {
		return func() {}, nil
	}
	return e.LinearCache.CreateWatch(r, sub, out)
}

func (e endpoints) CreateDeltaWatch(r *cache.DeltaRequest, sub cache.Subscription, out chan cache.DeltaResponse) (func(), error) {
	if r.GetTypeUrl() != resource.EndpointType || sub.IsWildcard() {
		return func() {}, nil
	}
	return e.LinearCache.CreateDeltaWatch(r, sub, out)
}

// feed keeps the cache at what the catalog says. Its lock is taken before the cache's.
type feed struct {
	*Server
	ctx     context.Context // callbacks have none, and what they start ends with Run
	cache   *cache.LinearCache
	log     *slog.Logger
	mover   mover
	watcher string
	running sync.WaitGroup

	mu       sync.Mutex
	followed map[string]*followed // by name of the resource
	streams  map[streamID]*stream
}
