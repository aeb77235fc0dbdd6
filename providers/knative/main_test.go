package knative_test

import (
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/bcc94042/instar/machines/service"
	"github.com/bcc94042/instar/providers"
	"github.com/bcc94042/instar/providers/knative"
	"github.com/bcc94042/instar/providers/knative/knativetest"
	"github.com/bcc94042/instar/providers/providertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// How long a test waits for what must happen, and how often it looks.
const (
	awhile = 20 * time.Second
	tick   = 5 * time.Millisecond
)

// bench is a cluster with a gateway to it.
type bench struct {
	*knative.Gateway
	cluster *knativetest.Server
	http    *httptest.Server
}

// setup changes the configuration of the gateway before it is opened.
func setup(t *testing.T, change func(*knative.Config)) *bench {
	t.Helper()
	b := &bench{cluster: &knativetest.Server{}}
	b.http = httptest.NewServer(b.cluster)
	t.Cleanup(func() { b.http.CloseClientConnections(); b.http.Close() })
	c := knative.Config{
		Kubeconfig: kubeconfig(t, knativetest.Kubeconfig(b.http.URL)),
		Log:        slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	if change != nil {
		change(&c)
	}
	g, err := knative.Open(c)
	require.NoError(t, err)
	b.Gateway = g
	return b
}

func kubeconfig(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// asking is the request for a generation of the service default/web.
func asking(generation uint64, spec service.Spec) providers.ApplyRequest {
	return providers.ApplyRequest{
		Request: providers.Request{
			Namespace: "default", Name: "web", UID: "life-1", Fence: generation,
			Hash: spec.Hash(), Attempt: fmt.Sprintf("apply-%d-1", generation),
		},
		Generation: generation, Spec: spec,
	}
}

func image(name string) service.Spec { return service.Spec{Image: "registry.test/" + name} }

func (b *bench) applied(t *testing.T, req providers.ApplyRequest) service.Applied {
	t.Helper()
	applied, err := b.Apply(t.Context(), req)
	require.NoError(t, err)
	return applied
}

func (b *bench) observed(t *testing.T) service.Observation {
	t.Helper()
	o, err := b.Observe(t.Context(), providers.ObserveRequest{Request: asking(1, image("web:1")).Request})
	if providers.IsNotFound(err) {
		return service.Observation{}
	}
	require.NoError(t, err)
	return o
}

func TestContract(t *testing.T) {
	t.Parallel()
	providertest.Run(t, providertest.Suite{
		New: func(t *testing.T) providers.Gateway {
			b := setup(t, func(c *knative.Config) { c.Images = []string{"registry.test"} })
			played := make(chan struct{})
			go func() { defer close(played); b.cluster.Play(t.Context(), tick) }()
			t.Cleanup(func() { <-played }) // the context has ended by then
			return b.Gateway
		},
		OK:      image("web:1"),
		Fails:   image("fail:1"),
		Pending: image("pending:1"),
		Pass:    func() { <-time.After(tick / 2) },
	})
}
