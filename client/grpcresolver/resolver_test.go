package grpcresolver_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/bcc94042/instar/client"
	"github.com/bcc94042/instar/client/grpcresolver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// registry sends the snapshots that it is given, and hears what is confirmed.
type registry struct {
	url       string
	snapshots chan []client.Endpoint
	confirmed chan uint64
}

func newRegistry(t *testing.T) *registry {
	t.Helper()
	r := &registry{snapshots: make(chan []client.Endpoint, 10), confirmed: make(chan uint64, 100)}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/discover/echo/watch", func(w http.ResponseWriter, q *http.Request) {
		for index := 1; ; index++ {
			_ = http.NewResponseController(w).Flush()
			select {
			case all := <-r.snapshots:
				raw, _ := json.Marshal(map[string]any{"index": index, "instances": all})
				_, _ = fmt.Fprintf(w, "event: snapshot\nid: %d\ndata: %s\n\n", index, raw)
			case <-q.Context().Done():
				return
			}
		}
	})
	mux.HandleFunc("POST /v1/services/echo/watchers/{watcher}", func(w http.ResponseWriter, q *http.Request) {
		var b struct{ Index uint64 }
		_ = json.NewDecoder(q.Body).Decode(&b)
		r.confirmed <- b.Index
		w.WriteHeader(204)
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	r.url = s.URL
	return r
}

// server is a real gRPC server.
func server(t *testing.T) string {
	t.Helper()
	return serverOf(t, health.NewServer())
}

func serverOf(t *testing.T, of healthpb.HealthServer) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := grpc.NewServer()
	healthpb.RegisterHealthServer(s, of)
	var done sync.WaitGroup
	done.Go(func() { _ = s.Serve(l) })
	t.Cleanup(func() { s.Stop(); done.Wait() })
	return l.Addr().String()
}

// dial is a connection to the service echo.
func dial(t *testing.T, r *registry) *grpc.ClientConn {
	t.Helper()
	registry := &client.Client{URLs: []string{r.url}}
	t.Cleanup(registry.CloseIdleConnections)
	conn, err := grpc.NewClient("instar:///echo", grpc.WithResolvers(&grpcresolver.Builder{Client: registry}), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func TestCallsFollowTheWeights(t *testing.T) {
	t.Parallel()
	r, a, b := newRegistry(t), server(t), server(t)
	conn := dial(t, r)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	calls := func(n int) map[string]int {
		got := map[string]int{}
		for range n {
			var p peer.Peer
			_, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{}, grpc.Peer(&p), grpc.WaitForReady(true))
			require.NoError(t, err)
			got[p.Addr.String()]++
		}
		return got
	}
	list := func(weightA, weightB int) {
		r.snapshots <- []client.Endpoint{{InstanceID: "a", NodeAddress: a, Weight: weightA}, {InstanceID: "b", NodeAddress: b, Weight: weightB}}
	}
	list(300, 100)
	require.Eventually(t, func() bool { return len(calls(20)) == 2 }, 10*time.Second, time.Millisecond)
	require.InDelta(t, 750, calls(1000)[a], 80)
	list(0, 100)
	require.Eventually(t, func() bool { return calls(20)[a] == 0 }, 10*time.Second, time.Millisecond, "a weight alone changes what is picked")
	list(100, 100)
	require.Eventually(t, func() bool { return len(calls(20)) == 2 }, 10*time.Second, time.Millisecond)
	r.snapshots <- []client.Endpoint{{InstanceID: "b", NodeAddress: b, Weight: 100}}
	for index := range r.confirmed {
		if index == 4 {
			break
		}
	}
	require.Equal(t, map[string]int{b: 50}, calls(50), "once it is confirmed nothing goes there")
}

// flaky is a server whose calls fail.
type flaky struct {
	healthpb.UnimplementedHealthServer
	code codes.Code
}

func (f flaky) Check(context.Context, *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	return nil, status.Error(f.code, "not now")
}

func TestWhatFailsIsEjected(t *testing.T) {
	t.Parallel()
	r := newRegistry(t)
	bad := serverOf(t, flaky{code: codes.Unavailable})
	all := []client.Endpoint{{InstanceID: "bad", NodeAddress: bad, Weight: 100}}
	for _, id := range []string{"a", "b"} {
		all = append(all, client.Endpoint{InstanceID: id, NodeAddress: server(t), Weight: 100})
	}
	r.snapshots <- all
	conn := dial(t, r)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	failed, seen := 0, map[string]bool{}
	for i := 0; i < 100 || len(seen) < 3; i++ {
		var p peer.Peer
		_, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{}, grpc.Peer(&p), grpc.WaitForReady(true))
		if seen[p.Addr.String()] = true; err != nil {
			failed++
		}
	}
	require.Equal(t, 5, failed)
}

// The only instance that is connected yet is not called when it has no weight and another has.
func TestWeightZeroIsNotCalled(t *testing.T) {
	t.Parallel()
	r := newRegistry(t)
	hidden, err := net.Listen("tcp", "127.0.0.1:0") // nobody accepts: it never becomes ready
	require.NoError(t, err)
	t.Cleanup(func() { _ = hidden.Close() })
	zero := server(t)
	r.snapshots <- []client.Endpoint{{InstanceID: "zero", NodeAddress: zero}, {InstanceID: "hidden", NodeAddress: hidden.Addr().String(), Weight: 100}}
	conn := dial(t, r)
	ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	t.Cleanup(cancel)
	_, err = healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{}, grpc.WaitForReady(true))
	require.Equal(t, codes.DeadlineExceeded, status.Code(err))
	r.snapshots <- []client.Endpoint{{InstanceID: "zero", NodeAddress: zero}}
	ctx, cancel = context.WithTimeout(context.Background(), 10*time.Second)
	t.Cleanup(cancel)
	_, err = healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{}, grpc.WaitForReady(true))
	require.NoError(t, err, "better than nothing")
}

func TestBadTarget(t *testing.T) {
	t.Parallel()
	conn, err := grpc.NewClient("instar:///", grpc.WithResolvers(&grpcresolver.Builder{Client: &client.Client{}}), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err == nil {
		defer conn.Close()
		conn.Connect()
		_, err = healthpb.NewHealthClient(conn).Check(context.Background(), &healthpb.HealthCheckRequest{})
	}
	require.ErrorContains(t, err, "instar:///<service>")
}
