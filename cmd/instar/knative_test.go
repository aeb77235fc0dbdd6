package main

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/providers/knative/knativetest"
	"github.com/bcc94042/instar/server/config"
)

// A service in a cluster, from the command line over HTTP to the API server and back through the watch.
func TestLifeOfAServiceInACluster(t *testing.T) {
	t.Parallel()
	cluster := &knativetest.Server{}
	srv := httptest.NewServer(cluster)
	t.Cleanup(srv.Close)
	kubeconfig := write(t, "kubeconfig", knativetest.Kubeconfig(srv.URL))
	w := startWhole(t, t.TempDir(), func(c *config.Config) {
		c.Gateway, c.Gateways.Knative.Kubeconfig, c.Gateways.Knative.Images = config.GatewayKnative, kubeconfig, []string{"ghcr.io/acme"}
	})
	t.Cleanup(func() { cluster.CutWatches() })
	is := func(state string) { t.Helper(); w.must("service", "wait", "web", "--for", "state="+state) }
	shows := func(what string) { t.Helper(); w.shows(what, "service", "get", "web", "-o", "json") }

	away := knativetest.Failure{Code: 503, RetryAfter: 1}
	cluster.Fail(func(r *http.Request) *knativetest.Failure {
		if r.Method == http.MethodPatch {
			return &away
		}
		return nil
	})
	w.must("service", "create", "web", "--image", "ghcr.io/acme/web:1")
	shows("answers 503")
	cluster.Fail(nil)
	require.Eventually(t, func() bool { return cluster.Get("default", "web") != nil }, 60*time.Second, 20*time.Millisecond)
	is("CREATING")
	for range 3 {
		cluster.Step()
	}
	is("READY")
	shows("http://web.example.com")

	w.must("service", "update", "web", "--image", "ghcr.io/acme/fail:2")
	require.Eventually(t, func() bool { return generation(cluster) == 2 }, 60*time.Second, 20*time.Millisecond)
	is("UPDATING") // the cluster says Ready=True, of the revision before
	cluster.Step()
	cluster.Step()
	is("FAILED")
	shows("RevisionFailed")
	shows("revision web-00001 keeps serving")

	w.must("service", "update", "web", "--image", "docker.io/evil/web:3")
	is("FAILED")
	shows("is none of ghcr.io/acme")

	w.must("service", "update", "web", "--image", "ghcr.io/acme/web:4")
	require.Eventually(t, func() bool { return generation(cluster) == 3 }, 60*time.Second, 20*time.Millisecond)
	for range 3 {
		cluster.Step()
	}
	is("READY")
	cluster.Edit("default", "web", func(o knativetest.Object) {
		o["metadata"].(knativetest.Object)["annotations"].(knativetest.Object)["instar/spec-hash"] = "by hand"
	})
	shows("Drifted") // long before the next poll

	w.must("service", "delete", "web")
	is("DELETING")
	require.Eventually(t, func() bool { cluster.Step(); return cluster.Get("default", "web") == nil }, 60*time.Second, 20*time.Millisecond)
	is("DELETED")
}

func generation(cluster *knativetest.Server) float64 {
	return cluster.Get("default", "web")["metadata"].(knativetest.Object)["generation"].(float64)
}
