//go:build linux

package process

import (
	"net"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/providers"
)

func foreignListener(kind string) (net.Listener, error) {
	if kind == "fd" || kind == "late" {
		return net.FileListener(os.NewFile(3, "passed"))
	}
	return net.Listen("tcp", "127.0.0.1:"+os.Getenv("PORT"))
}

func TestEveryKindOfTemplateServesAndEnds(t *testing.T) {
	t.Parallel()
	for _, image := range []string{"hello", "passed", "ported", "public"} {
		t.Run(image, func(t *testing.T) {
			t.Parallel()
			g := setup(t)
			req := apply("web", image, 1)
			_, err := g.Apply(t.Context(), req)
			require.NoError(t, err)
			o := await(t, g, req, converged(req))
			require.Equal(t, "web-00001", o.Serving)
			require.NoError(t, g.Delete(t.Context(), providers.DeleteRequest{Request: req.Request}))
			require.Eventually(t, func() bool {
				_, err := g.Observe(t.Context(), providers.ObserveRequest{Request: req.Request})
				return providers.IsNotFound(err)
			}, awhile, tick)
		})
	}
}
