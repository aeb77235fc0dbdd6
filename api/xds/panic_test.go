package xds_test

import (
	"sync/atomic"
	"testing"
	"time"

	discoverypb "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	edspb "github.com/envoyproxy/go-control-plane/envoy/service/endpoint/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/bcc94042/instar/api/discovery"
	"github.com/bcc94042/instar/api/xds"
	"github.com/bcc94042/instar/internal/panics"
)

// broken panics as long as it is.
type broken struct {
	discovery.Finder
	is *atomic.Bool
}

func (b broken) Find(q discovery.Query) discovery.Result {
	if b.is.Load() {
		panic("out of range")
	}
	return b.Finder.Find(q)
}

// A panic ends the stream that it is for. Where it comes while a service is followed, its streams keep what they have.
func TestAPanicIsOneStream(t *testing.T) {
	t.Parallel()
	var is atomic.Bool
	b, conn, _ := setup(t, func(s *xds.Server) { s.Finder = broken{s.Finder, &is} })
	open := func() edspb.EndpointDiscoveryService_StreamEndpointsClient {
		st, err := edspb.NewEndpointDiscoveryServiceClient(conn).StreamEndpoints(within(t))
		require.NoError(t, err)
		require.NoError(t, st.Send(&discoverypb.DiscoveryRequest{Node: node("envoy"), ResourceNames: []string{"web.default"}}))
		return st
	}
	is.Store(true)
	before := panics.Counts()["xds"]
	_, err := open().Recv()
	require.Equal(t, codes.Internal, status.Code(err), "%v", err)
	require.NotContains(t, err.Error(), "out of range")
	require.Greater(t, panics.Counts()["xds"], before)
	is.Store(false)
	st := open()
	r, err := st.Recv()
	require.NoError(t, err, "the next one is served")
	require.Len(t, r.GetResources(), 1)

	is.Store(true)
	before = panics.Counts()["xds"]
	b.set(8, web("i1", "10.0.0.9:80", "b", "active.healthy", 100))
	require.Eventually(t, func() bool { return panics.Counts()["xds"] > before }, 10*time.Second, 5*time.Millisecond)
	is.Store(false)
	_, err = open().Recv()
	require.NoError(t, err)
}
