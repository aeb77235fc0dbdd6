package model

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"
)

// clusterOfThree are three nats-servers on loopback, of which the first one is asked.
func clusterOfThree(t testing.TB) *server.Server {
	t.Helper()
	var routes []*url.URL
	var ports []int
	for range 3 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer l.Close()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
		routes = append(routes, &url.URL{Scheme: "nats-route", Host: l.Addr().String()})
		require.NoError(t, l.Close())
	}
	var all []*server.Server
	for i := range 3 {
		s, err := server.NewServer(&server.Options{
			DontListen: true, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true, ServerName: fmt.Sprint("model-", i),
			Cluster: server.ClusterOpts{Name: "model", Host: "127.0.0.1", Port: ports[i]}, Routes: routes,
		})
		require.NoError(t, err)
		s.Start()
		t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
		all = append(all, s)
	}
	require.Eventually(t, func() bool {
		for _, s := range all {
			if !s.JetStreamIsCurrent() || s.NumRoutes() == 0 {
				return false
			}
		}
		return true
	}, time.Minute, 50*time.Millisecond)
	return all[0]
}

// TestTheModelAnswersAsACluster is the conformance test with streams of three replicas.
func TestTheModelAnswersAsACluster(t *testing.T) {
	t.Parallel()
	sequences := uint64(20 * *long)
	real := clusterOfThree(t)
	done, different := 0, 0
	for n := uint64(1); n <= sequences && different < 5; n++ {
		var p *pair
		for try := 1; try <= tries; try++ {
			p = pairOf(t, real, 3, lately(n, try))
			g := &generator{p: p, r: rand.New(rand.NewPCG(3, n)), n: n, rest: time.Duration(try-1) * 2 * time.Millisecond}
			done += g.run()
			if p.different == "" {
				break
			}
		}
		if p.different != "" {
			different++
			t.Errorf("sequence %d: %s\nafter\n%s", n, p.different, strings.Join(last(p.said, 24), "\n"))
		}
	}
	t.Logf("%d operations in %d sequences", done, sequences)
}
