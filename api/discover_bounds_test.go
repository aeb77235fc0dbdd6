package api_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/api"
	"github.com/bcc94042/instar/api/auth"
	"github.com/bcc94042/instar/api/discovery"
	"github.com/bcc94042/instar/api/rest"
	"github.com/bcc94042/instar/kv/index"
)

func TestDiscoveryIsDocumented(t *testing.T) {
	r := discovering(t)
	doc, err := openapi3.NewLoader().LoadFromData(r.server.OpenAPI())
	require.NoError(t, err)
	require.NoError(t, doc.Validate(t.Context()))
	roles := map[string]auth.Role{}
	for _, op := range r.server.Operations() {
		roles[op.Method+" "+op.Path] = op.Role
	}
	for at, role := range map[string]auth.Role{
		"POST /v1/register": auth.Operate, "POST /v1/deregister/{instanceId}": auth.Operate, "GET /v1/discover": auth.Read, "GET /v1/discover/{service}": auth.Read,
		"GET /v1/discover/{service}/watch": auth.Read, "PUT /v1/services/{service}/instances/{instanceId}/heartbeat": auth.Operate,
		"POST /v1/services/{service}/watchers/{watcher}": auth.Read, "GET /v1/services/{service}/heartbeats": auth.Read, "GET /v1/prometheus/targets": auth.Read, "GET /v1/prometheus/targets/{service}": auth.Read,
	} {
		require.Equal(t, role, roles[at], at)
	}
	a := r.do("HEAD", "/v1/discover/web", "")
	require.Equal(t, 200, a.StatusCode)
	require.Empty(t, a.body)
	require.NotEmpty(t, a.Header.Get("X-Instar-Index"))
}

// Without a catalog there is nothing to find, and nothing says so.
func TestNoCatalogNoDiscovery(t *testing.T) {
	b := setup(t)
	b.get("/v1/discover/web").problem(t, 404, "not-found")
	require.False(t, slices.ContainsFunc(b.server.Operations(), func(op rest.Operation) bool { return op.ID == "register" }))
}

// Those who wait take seats, and there are so many.
func TestWaitingForAServiceTakesASeat(t *testing.T) {
	r := discovering(t, func(o *api.Options) { o.Limits.Watches.All = 1 })
	index := r.healthy("web", "a", "")
	w := r.watch("/v1/discover/web/watch")
	w.named("snapshot")
	require.Equal(t, "5", r.get("/v1/discover/web/watch").Header.Get("Retry-After"))
	r.get("/v1/discover/web/watch").problem(t, 503, "unavailable")
	r.get("/v1/discover/web?index=99999999&wait=20s").problem(t, 503, "unavailable")
	require.Equal(t, []string{"a"}, found(t, r.get("/v1/discover/web")), "who does not wait needs none")
	w.close()
	require.Eventually(t, func() bool {
		return strings.Contains(string(r.get("/metrics").body), `instar_limit_held{limit="watches"} 0`)
	}, soon, 5*time.Millisecond)
	require.Equal(t, []string{"a"}, found(t, r.get("/v1/discover/web?wait=1ms&index="+r.get("/v1/discover/web").Header.Get("X-Instar-Index"))))
	require.Positive(t, index)
}

// A catalog that is not complete yet would deny that services exist.
func TestNothingIsAnsweredBeforeAllWasRead(t *testing.T) {
	r := discovering(t, func(o *api.Options) {
		o.Discovery = discovery.New(discovery.Options{Instances: index.New(o.JS, "instances", func(string, []byte) (index.Meta, error) { return index.Meta{}, nil }, index.Options{})})
	})
	for _, path := range []string{"/v1/discover/web", "/v1/discover", "/v1/discover/web/watch", "/v1/prometheus/targets"} {
		require.Equal(t, "1", r.get(path).Header.Get("Retry-After"))
		r.get(path).problem(t, 503, "unavailable")
	}
}
