package xds_test

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoverypb "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	edspb "github.com/envoyproxy/go-control-plane/envoy/service/endpoint/v3"
	client "github.com/envoyproxy/go-control-plane/pkg/client/sotw/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/bcc94042/instar/api/discovery"
	"github.com/bcc94042/instar/api/xds"
	"github.com/bcc94042/instar/internal/lockedbuffer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// book is a catalog for tests, of one service: default/web.
type book struct {
	mu    sync.Mutex
	all   []discovery.Endpoint
	index uint64
	woken chan struct{}
}

func (b *book) Find(q discovery.Query) discovery.Result {
	b.mu.Lock()
	defer b.mu.Unlock()
	if q.Namespace != "default" || q.Service != "web" {
		return discovery.Result{Index: b.index}
	}
	return discovery.Result{Endpoints: b.all, Index: b.index, Changed: b.index, Known: true}
}

func (b *book) Watch(_, service string, after uint64) <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if service != "web" {
		return nil
	}
	if b.index > after {
		done := make(chan struct{})
		close(done)
		return done
	}
	return b.woken
}

func (b *book) Inhabited(string) bool { return true }

func (b *book) set(index uint64, all ...discovery.Endpoint) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all, b.index = all, index
	if b.woken != nil {
		close(b.woken)
	}
	b.woken = make(chan struct{})
}

func web(id, address, zone, state string, weight int) discovery.Endpoint {
	return discovery.Endpoint{Namespace: "default", Service: "web", InstanceID: id, NodeAddress: address, Zone: zone, State: state, Weight: weight, Version: "1"}
}

type ack struct {
	service string
	index   uint64
}

func setup(t *testing.T, change ...func(*xds.Server)) (*book, *grpc.ClientConn, chan ack) {
	t.Helper()
	b, acks, started, done := &book{}, make(chan ack, 100), make(chan string, 1), make(chan error, 1)
	b.set(7, web("i1", "10.0.0.1:80", "b", "active.healthy", 100), web("i2", "[::1]:81", "a", "active.suspect", 25),
		web("i3", "10.0.0.3:80", "a", "draining", 100), web("i4", "host.example:80", "a", "active.healthy", 100))
	s := &xds.Server{
		Address: "127.0.0.1:0", Finder: b, Started: func(a string) { started <- a },
		Acked: func(ns, service, _ string, index uint64) { acks <- ack{ns + "/" + service, index} },
	}
	for _, f := range change {
		f(s)
	}
	ctx, stop := context.WithCancel(context.Background())
	go func() { done <- s.Run(ctx) }()
	conn, err := grpc.NewClient(<-started, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = conn.Close()
		stop()
		require.NoError(t, <-done)
	})
	return b, conn, acks
}

func node(id string) *corepb.Node { return &corepb.Node{Id: id} }

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	t.Cleanup(cancel)
	return ctx
}

const whole = `{"clusterName":"web.default","endpoints":[
 {"locality":{"zone":"a"},"loadBalancingWeight":125,"lbEndpoints":[
  {"endpoint":{"address":{"socketAddress":{"address":"::1","portValue":81}}},"healthStatus":"DEGRADED","metadata":{"filterMetadata":{"envoy.lb":{"instanceId":"i2","version":"1"}}},"loadBalancingWeight":25},
  {"endpoint":{"address":{"socketAddress":{"address":"10.0.0.3","portValue":80}}},"healthStatus":"DRAINING","metadata":{"filterMetadata":{"envoy.lb":{"instanceId":"i3","version":"1"}}},"loadBalancingWeight":100}]},
 {"locality":{"zone":"b"},"loadBalancingWeight":100,"lbEndpoints":[
  {"endpoint":{"address":{"socketAddress":{"address":"10.0.0.1","portValue":80}}},"healthStatus":"HEALTHY","metadata":{"filterMetadata":{"envoy.lb":{"instanceId":"i1","version":"1"}}},"loadBalancingWeight":100}]}]}`

// assigned are the endpoints of each assignment of a response, by name.
func assigned(t *testing.T, r *discoverypb.DiscoveryResponse) map[string]*endpointpb.ClusterLoadAssignment {
	t.Helper()
	all := map[string]*endpointpb.ClusterLoadAssignment{}
	for _, raw := range r.GetResources() {
		var one endpointpb.ClusterLoadAssignment
		require.NoError(t, raw.UnmarshalTo(&one))
		require.NoError(t, one.ValidateAll(), "what Envoy itself checks")
		all[one.GetClusterName()] = &one
	}
	return all
}

func TestStateOfTheWorldOverADS(t *testing.T) {
	t.Parallel()
	b, conn, acks := setup(t)
	st, err := discoverypb.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(within(t))
	require.NoError(t, err)
	require.NoError(t, st.Send(&discoverypb.DiscoveryRequest{Node: node("proxy-1"), TypeUrl: resource.ClusterType}), "not served, and no reason to end")
	names := []string{"web.default", "web", "nobody.default", "Not a name"}
	ask := &discoverypb.DiscoveryRequest{TypeUrl: resource.EndpointType, ResourceNames: names}
	require.NoError(t, st.Send(ask))
	r, err := st.Recv()
	require.NoError(t, err)
	all := assigned(t, r)
	require.Len(t, all, 3)
	var want endpointpb.ClusterLoadAssignment
	require.NoError(t, protojson.Unmarshal([]byte(whole), &want))
	require.Equal(t, protojson.Format(&want), protojson.Format(all["web.default"]))
	require.Len(t, all["web"].GetEndpoints(), 2)
	require.Empty(t, all["nobody.default"].GetEndpoints(), "no proxy waits for what nobody knows")

	reply := func(r *discoverypb.DiscoveryResponse) {
		require.NoError(t, st.Send(&discoverypb.DiscoveryRequest{TypeUrl: resource.EndpointType, ResourceNames: names, VersionInfo: r.GetVersionInfo(), ResponseNonce: r.GetNonce()}))
	}
	reply(r)
	got := map[ack]bool{}
	for !got[ack{"default/web", 7}] || !got[ack{"default/nobody", 7}] {
		got[<-acks] = true
	}
	delete(got, ack{"default/web", 0}) // before its first ACK
	delete(got, ack{"default/nobody", 0})
	require.Len(t, got, 2, "web and web.default are one")

	b.set(9, web("i1", "10.0.0.1:80", "b", "draining", 100))
	for seen := map[string]bool{}; len(seen) < 2; { // one response for each name, or one for both
		r, err = st.Recv()
		require.NoError(t, err)
		for name, one := range assigned(t, r) {
			require.Equal(t, corepb.HealthStatus_DRAINING, one.GetEndpoints()[0].GetLbEndpoints()[0].GetHealthStatus(), name)
			seen[name] = true
		}
		reply(r)
	}
	await(acks, ack{"default/web", 9})
}

// await reads until it comes: what was acknowledged before is repeated meanwhile.
func await(acks chan ack, want ack) {
	for a := range acks {
		if a == want {
			return
		}
	}
}

func TestNackAcknowledgesNothing(t *testing.T) {
	t.Parallel()
	var server *xds.Server
	var logged lockedbuffer.Buffer
	_, conn, acks := setup(t, func(s *xds.Server) { server, s.Log = s, slog.New(slog.NewTextHandler(&logged, nil)) })
	st, err := edspb.NewEndpointDiscoveryServiceClient(conn).StreamEndpoints(within(t))
	require.NoError(t, err)
	require.NoError(t, st.Send(&discoverypb.DiscoveryRequest{Node: node("p"), ResourceNames: []string{"web"}}))
	r, err := st.Recv()
	require.NoError(t, err)
	require.NoError(t, st.Send(&discoverypb.DiscoveryRequest{ResourceNames: []string{"web"}, ResponseNonce: r.GetNonce(), ErrorDetail: status.New(codes.InvalidArgument, "bad").Proto()}))
	// What comes next on the same stream is answered, so the NACK has been read by then.
	require.NoError(t, st.Send(&discoverypb.DiscoveryRequest{ResourceNames: []string{"web", "other"}, ResponseNonce: r.GetNonce()}))
	_, err = st.Recv()
	require.NoError(t, err)
	require.Equal(t, xds.Stats{Streams: 1, LeftOut: 1, Rejected: 1}, server.Stats())
	require.Regexp(t, `a proxy rejected a response .* node=p services=\[web\] error=bad`, logged.String())
	require.Regexp(t, `instances without an IP address are left out.* service=web instances=1`, logged.String())
	require.Never(t, func() bool {
		select {
		case a := <-acks:
			return a.index > 0
		default:
			return false
		}
	}, 300*time.Millisecond, 10*time.Millisecond)
}

// A server that is behind cannot say so; it sends its proxies away, in both protocols.
func TestStaleServerEndsItsStreams(t *testing.T) {
	t.Parallel()
	var age atomic.Int64
	_, conn, _ := setup(t, func(s *xds.Server) { s.Stale = func() time.Duration { return time.Duration(age.Load()) } })
	eds := edspb.NewEndpointDiscoveryServiceClient(conn)
	whole, err := eds.StreamEndpoints(within(t))
	require.NoError(t, err)
	require.NoError(t, whole.Send(&discoverypb.DiscoveryRequest{Node: node("p"), ResourceNames: []string{"web"}}))
	deltas, err := eds.DeltaEndpoints(within(t))
	require.NoError(t, err)
	require.NoError(t, deltas.Send(&discoverypb.DeltaDiscoveryRequest{Node: node("p"), ResourceNamesSubscribe: []string{"web"}}))
	_, err = whole.Recv()
	require.NoError(t, err)
	_, err = deltas.Recv()
	require.NoError(t, err)
	age.Store(int64(11 * time.Second))
	_, err = whole.Recv()
	require.Equal(t, codes.Unavailable, status.Code(err), err)
	_, err = deltas.Recv()
	require.Equal(t, codes.Unavailable, status.Code(err), err)

	whole, err = eds.StreamEndpoints(within(t))
	require.NoError(t, err)
	require.NoError(t, whole.Send(&discoverypb.DiscoveryRequest{Node: node("p"), ResourceNames: []string{"web"}}))
	_, err = whole.Recv()
	require.NoError(t, err, "a proxy that has no other gets what is known")
}

func TestDeltas(t *testing.T) {
	t.Parallel()
	b, conn, acks := setup(t)
	st, err := edspb.NewEndpointDiscoveryServiceClient(conn).DeltaEndpoints(within(t))
	require.NoError(t, err)
	require.NoError(t, st.Send(&discoverypb.DeltaDiscoveryRequest{Node: node("proxy-2"), ResourceNamesSubscribe: []string{"web.default"}}))
	receive := func() (*discoverypb.DeltaDiscoveryResponse, *endpointpb.ClusterLoadAssignment) {
		r, err := st.Recv()
		require.NoError(t, err)
		for len(r.GetResources()) == 0 { // only says what is gone
			require.NoError(t, st.Send(&discoverypb.DeltaDiscoveryRequest{ResponseNonce: r.GetNonce()}))
			r, err = st.Recv()
			require.NoError(t, err)
		}
		var one endpointpb.ClusterLoadAssignment
		require.NoError(t, r.GetResources()[0].GetResource().UnmarshalTo(&one))
		require.NoError(t, st.Send(&discoverypb.DeltaDiscoveryRequest{ResponseNonce: r.GetNonce()}))
		return r, &one
	}
	_, one := receive()
	require.Len(t, one.GetEndpoints(), 2)
	await(acks, ack{"default/web", 7})

	b.set(8, web("i9", "10.0.0.9:80", "", "active.healthy", 0))
	_, one = receive()
	require.Equal(t, corepb.HealthStatus_DRAINING, one.GetEndpoints()[0].GetLbEndpoints()[0].GetHealthStatus(), "no weight, no traffic")
	await(acks, ack{"default/web", 8})

	// Nothing that the proxy sees has changed: it has the new index without being told.
	b.set(9, web("i9", "10.0.0.9:80", "", "active.healthy", 0))
	await(acks, ack{"default/web", 9})

	require.NoError(t, st.Send(&discoverypb.DeltaDiscoveryRequest{ResourceNamesUnsubscribe: []string{"web.default"}, ResourceNamesSubscribe: []string{"empty"}}))
	receive()
	await(acks, ack{"default/empty", 9})
}

func TestBadFields(t *testing.T) {
	t.Parallel()
	require.ErrorContains(t, (&xds.Server{}).Run(context.Background()), "Finder")
	require.ErrorContains(t, (&xds.Server{Finder: &book{}, Address: "127.0.0.1:-1"}).Run(context.Background()), "127.0.0.1:-1")
}

// The client of the library that Envoy's control planes are made with asks for everything, which endpoints do not have:
// it must not get what others ask for, because nobody would wait for it at a drain.
func TestWhoNamesNothingGetsNothing(t *testing.T) {
	t.Parallel()
	_, conn, acks := setup(t)
	named, err := edspb.NewEndpointDiscoveryServiceClient(conn).StreamEndpoints(within(t))
	require.NoError(t, err)
	require.NoError(t, named.Send(&discoverypb.DiscoveryRequest{Node: node("envoy"), ResourceNames: []string{"web.default"}}))
	r, err := named.Recv()
	require.NoError(t, err)
	require.Len(t, assigned(t, r), 1)

	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	all := client.NewADSClient(ctx, node("nobody"), resource.EndpointType)
	require.NoError(t, all.InitConnect(conn))
	_, err = all.Fetch()
	require.Equal(t, codes.DeadlineExceeded, status.Code(err), "%v", err)
	require.False(t, client.IsConnError(err))

	require.NoError(t, named.Send(&discoverypb.DiscoveryRequest{ResourceNames: []string{"web.default"}, VersionInfo: r.GetVersionInfo(), ResponseNonce: r.GetNonce()}))
	await(acks, ack{"default/web", 7})
}
