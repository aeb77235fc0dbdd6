package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoverypb "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	edspb "github.com/envoyproxy/go-control-plane/envoy/service/endpoint/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/bcc94042/instar/client"
	"github.com/bcc94042/instar/internal/testenv"
	"github.com/bcc94042/instar/server/config"
)

// proxy is what Envoy does with an endpoint discovery service.
type proxy struct {
	t  *testing.T
	st edspb.EndpointDiscoveryService_StreamEndpointsClient
}

func newProxy(t *testing.T, addr string) *proxy {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	st, err := edspb.NewEndpointDiscoveryServiceClient(conn).StreamEndpoints(ctx, grpc.WaitForReady(true))
	require.NoError(t, err)
	require.NoError(t, st.Send(&discoverypb.DiscoveryRequest{Node: &corepb.Node{Id: "envoy"}, ResourceNames: []string{"web.default"}}))
	return &proxy{t, st}
}

// receive waits for the next version, which is to be acknowledged.
func (p *proxy) receive() (health string, ack *discoverypb.DiscoveryRequest) {
	p.t.Helper()
	r, err := p.st.Recv()
	require.NoError(p.t, err)
	require.Len(p.t, r.GetResources(), 1)
	var all endpointpb.ClusterLoadAssignment
	require.NoError(p.t, r.GetResources()[0].UnmarshalTo(&all))
	for _, zone := range all.GetEndpoints() {
		for _, e := range zone.GetLbEndpoints() {
			health += fmt.Sprintf("%s:%d %s;", e.GetEndpoint().GetAddress().GetSocketAddress().GetAddress(), e.GetEndpoint().GetAddress().GetSocketAddress().GetPortValue(), e.GetHealthStatus())
		}
	}
	return health, &discoverypb.DiscoveryRequest{ResourceNames: []string{"web.default"}, VersionInfo: r.GetVersionInfo(), ResponseNonce: r.GetNonce()}
}

// until acknowledges until the endpoints are so; that version it does not acknowledge yet.
func (p *proxy) until(want string) *discoverypb.DiscoveryRequest {
	p.t.Helper()
	for {
		got, ack := p.receive()
		if got == want {
			return ack
		}
		require.NoError(p.t, p.st.Send(ack))
	}
}

// A drain waits for the proxy and for the client that know the instance, and for no longer.
func TestDrainIsAcknowledgedByEnvoyAndClients(t *testing.T) {
	t.Parallel()
	eds := testenv.Address(t)
	w := startWhole(t, t.TempDir(), func(c *config.Config) { c.Gateway, c.Discovery.XDS = config.GatewaySimulated, eds })
	tr := &http.Transport{}
	defer tr.CloseIdleConnections()
	registry := &client.Client{URLs: []string{w.url}, HTTP: &http.Client{Transport: tr}}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	lease, err := registry.Register(ctx, client.Registration{
		Service: "web", NodeAddress: "127.0.0.1:9", InstanceID: "i1", Check: client.Check{TTL: 2 * time.Second}, Policy: client.Policy{Drain: 50 * time.Second},
	})
	require.NoError(t, err)
	lease.InFlight(func() int { return 0 })
	envoy := newProxy(t, eds)
	require.NoError(t, envoy.st.Send(envoy.until("127.0.0.1:9 HEALTHY;")))
	follower, err := registry.Resolve(ctx, "web", client.Options{})
	require.NoError(t, err)
	defer follower.Close()

	var over atomic.Bool
	drained := make(chan error, 1)
	go func() {
		err := lease.Drain(ctx)
		over.Store(true)
		drained <- err
	}()
	ack := envoy.until("127.0.0.1:9 DRAINING;")
	require.Eventually(t, func() bool { return len(follower.Endpoints()) == 0 }, 10*time.Second, 10*time.Millisecond)
	require.Never(t, over.Load, time.Second, 50*time.Millisecond, "the proxy has not acknowledged")
	require.NoError(t, envoy.st.Send(ack))
	require.NoError(t, <-drained)
	require.Contains(t, w.must("instance", "events", "web/i1", "-o", "json"), "drain-complete")
	envoy.until("")

	_, err = registry.Register(ctx, client.Registration{Service: "web", NodeAddress: "nonsense"})
	var refused *client.Error
	require.ErrorAs(t, err, &refused)
	require.Equal(t, 422, refused.Status)
	require.Equal(t, 1, strings.Count(err.Error(), "is not host:port"), err)
}

// A lease against the real thing: replaced by another process, ended by an administrator, alive through a restart.
func TestLeases(t *testing.T) {
	t.Parallel()
	dir, listen := t.TempDir(), testenv.Address(t)
	change := func(c *config.Config) { c.Gateway, c.HTTP.Listen = config.GatewaySimulated, listen }
	w := startWhole(t, dir, change)
	tr := &http.Transport{}
	defer tr.CloseIdleConnections()
	registry := &client.Client{URLs: []string{w.url}, HTTP: &http.Client{Transport: tr}}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	reg := client.Registration{Service: "web", NodeAddress: "127.0.0.1:9", Check: client.Check{TTL: time.Second}}
	old, err := registry.Register(ctx, reg)
	require.NoError(t, err)
	lease, err := registry.Register(ctx, reg)
	require.NoError(t, err)
	defer lease.Close()
	require.Equal(t, old.InstanceID, lease.InstanceID)
	<-old.Done()
	require.ErrorIs(t, old.Err(), client.ErrReplaced)
	require.ErrorIs(t, old.Drain(ctx), client.ErrReplaced)

	follower, err := registry.Resolve(ctx, "web", client.Options{})
	require.NoError(t, err)
	defer follower.Close()
	generation := func(want uint64) {
		t.Helper()
		require.Eventually(t, func() bool {
			all := follower.Endpoints()
			return len(all) == 1 && all[0].Generation == want && lease.Generation() == want
		}, 20*time.Second, 10*time.Millisecond)
	}
	generation(2)
	status, got := w.call("POST", "/v1/deregister/"+lease.InstanceID+"?force=true", "")
	require.Equal(t, 202, status, got)
	generation(3)

	require.NoError(t, w.stop())
	require.Eventually(t, func() bool { return follower.Staleness() > 0 }, 10*time.Second, 10*time.Millisecond)
	require.Len(t, follower.Endpoints(), 1)
	startWhole(t, dir, change)
	require.Eventually(t, func() bool { return follower.Staleness() == 0 }, 20*time.Second, 10*time.Millisecond)
	generation(3)
	lease.Report(false, "disk full")
	require.Eventually(t, func() bool { return len(follower.Endpoints()) == 0 }, 20*time.Second, 10*time.Millisecond)
	lease.Report(true, "")
	generation(3)
}
