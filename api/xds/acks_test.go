package xds_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	discoverypb "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	edspb "github.com/envoyproxy/go-control-plane/envoy/service/endpoint/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/bcc94042/instar/api/discovery"
	"github.com/bcc94042/instar/api/xds"
)

// owner is whom confirmations reach: what each watcher has said last of default/web, and how many have come.
type owner struct {
	mu    sync.Mutex
	last  map[string]uint64
	heard int
}

func (o *owner) acked(_, _, watcher string, index uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.last == nil {
		o.last = map[string]uint64{}
	}
	o.last[watcher] = index
	o.heard++
}

// least is what every watcher has, of so many; 0 when there are others.
func (o *owner) least(watchers int) uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.last) != watchers {
		return 0
	}
	least := uint64(1 << 60)
	for _, index := range o.last {
		least = min(least, index)
	}
	return least
}

func (o *owner) count() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.heard
}

func serve(t *testing.T, b *book, o *owner) *grpc.ClientConn {
	t.Helper()
	started, done := make(chan string, 1), make(chan error, 1)
	s := &xds.Server{Address: "127.0.0.1:0", Finder: b, Started: func(a string) { started <- a }, Acked: o.acked}
	ctx, stop := context.WithCancel(context.Background())
	go func() { done <- s.Run(ctx) }()
	conn, err := grpc.NewClient(<-started, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = conn.Close()
		stop()
		require.NoError(t, <-done)
	})
	return conn
}

// proxy is an Envoy that asks for default/web. It acknowledges when it is told to.
type proxy struct {
	t    *testing.T
	st   edspb.EndpointDiscoveryService_StreamEndpointsClient
	last *discoverypb.DiscoveryResponse
}

func envoy(t *testing.T, conn *grpc.ClientConn, id string) (p *proxy, hangUp func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(within(t))
	st, err := edspb.NewEndpointDiscoveryServiceClient(conn).StreamEndpoints(ctx)
	require.NoError(t, err)
	require.NoError(t, st.Send(&discoverypb.DiscoveryRequest{Node: node(id), ResourceNames: []string{"web"}}))
	return &proxy{t: t, st: st}, cancel
}

func (p *proxy) receive() {
	p.t.Helper()
	r, err := p.st.Recv()
	require.NoError(p.t, err)
	p.last = r
}

func (p *proxy) confirm() {
	p.t.Helper()
	require.NoError(p.t, p.st.Send(&discoverypb.DiscoveryRequest{ResourceNames: []string{"web"}, VersionInfo: p.last.GetVersionInfo(), ResponseNonce: p.last.GetNonce()}))
}

func one(state string) discovery.Endpoint { return web("i1", "10.0.0.1:80", "", state, 100) }

const soon = 5 * time.Second

// Envoys with one node id, at one server and at two: the slower one counts.
func TestProxiesOfOneID(t *testing.T) {
	t.Parallel()
	b, o := &book{}, &owner{}
	b.set(7, one("active.healthy"))
	first, second := serve(t, b, o), serve(t, b, o)
	var all []*proxy
	for _, conn := range []*grpc.ClientConn{first, first, second} {
		p, _ := envoy(t, conn, "ingress")
		p.receive()
		p.confirm()
		all = append(all, p)
	}
	require.Eventually(t, func() bool { return o.least(2) == 7 }, soon, 5*time.Millisecond)
	b.set(9, one("draining"))
	for i, p := range all {
		require.Never(t, func() bool { return o.least(2) != 7 }, 100*time.Millisecond, 5*time.Millisecond, "%d of 3 have confirmed", i)
		p.receive()
		p.confirm()
	}
	require.Eventually(t, func() bool { return o.least(2) == 9 }, soon, 5*time.Millisecond)
	o.mu.Lock()
	defer o.mu.Unlock()
	for name := range o.last {
		require.True(t, strings.HasPrefix(name, "xds:"), name)
	}
}

// A proxy that comes from another server acts on what it was told there, until it acknowledges something here; and one
// whose stream breaks acts on what it has.
func TestProxiesThatComeAndGo(t *testing.T) {
	t.Parallel()
	b, o := &book{}, &owner{}
	b.set(7, one("active.healthy"))
	conn := serve(t, b, o)
	stays, _ := envoy(t, conn, "stays")
	stays.receive()
	stays.confirm()
	require.Eventually(t, func() bool { return o.least(1) == 7 }, soon, 5*time.Millisecond)
	comes, hangUp := envoy(t, conn, "comes")
	comes.receive()
	require.Eventually(t, func() bool { return o.least(1) == 0 }, soon, 5*time.Millisecond)
	comes.confirm()
	require.Eventually(t, func() bool { return o.least(1) == 7 }, soon, 5*time.Millisecond)
	hangUp()
	b.set(9, one("draining"))
	stays.receive()
	stays.confirm()
	require.Never(t, func() bool { return o.least(1) != 7 }, 500*time.Millisecond, 5*time.Millisecond, "the one that broke does not know")
}

// What many proxies acknowledge is told once, when the last one has.
func TestConfirmationsAreFew(t *testing.T) {
	t.Parallel()
	b, o := &book{}, &owner{}
	b.set(7, one("active.healthy"))
	conn := serve(t, b, o)
	all := make([]*proxy, 100)
	for i := range all {
		all[i], _ = envoy(t, conn, "ingress")
		all[i].receive()
		all[i].confirm()
	}
	require.Eventually(t, func() bool { return o.least(1) == 7 }, soon, 5*time.Millisecond)
	before := o.count()
	b.set(8, one("active.healthy"))
	require.Eventually(t, func() bool { return o.least(1) == 8 }, soon, 5*time.Millisecond)
	require.Equal(t, before+1, o.count(), "nothing that they see has changed")
	b.set(9, one("draining"))
	for _, p := range all {
		p.receive()
		p.confirm()
	}
	require.Eventually(t, func() bool { return o.least(1) == 9 }, soon, 5*time.Millisecond)
	require.Equal(t, before+2, o.count())
}
