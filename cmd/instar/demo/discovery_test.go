package demo

import (
	"context"
	"testing"
	"time"

	"github.com/bcc94042/instar/internal/lockedbuffer"
	"github.com/bcc94042/instar/server/builtin"

	"github.com/stretchr/testify/require"
)

// The whole promise, on a machine that may be busy with other tests: deaths may be noticed later than the demo allows.
func TestDemoDiscovery(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	out := &lockedbuffer.Buffer{}
	d := &discoveryDemo{options: builtin.Options(), out: out, began: time.Now(), slack: 10 * time.Second}
	d.hurry()
	require.NoError(t, d.run(ctx), out)
	require.Regexp(t, `(?m)^failed calls: 0 of \d+ during drains and restarts · silent death noticed in .* · hard death by probe in .* · flapping held down for \S+$`, out.String())
}
