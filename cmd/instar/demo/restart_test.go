package demo

import (
	"context"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/client"
	"github.com/bcc94042/instar/server/builtin"
)

// Ten instances are restarted one after the other while others call them: no call fails.
func TestRollingRestartOfAService(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	d := &discoveryDemo{options: builtin.Options(), out: io.Discard, began: time.Now()}
	stop, err := d.startRegistry(ctx, t.TempDir())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, stop()) })
	defer d.registry.HTTP.CloseIdleConnections()
	for i := range 10 {
		s := &demoWeb{name: fmt.Sprintf("i%d", i), check: client.Check{TTL: 10 * time.Second}, registry: d.registry}
		require.NoError(t, s.start(ctx))
		defer s.kill()
		d.servers = append(d.servers, s)
	}
	d.found, err = d.registry.Resolve(ctx, demoService, client.Options{})
	require.NoError(t, err)
	defer d.found.Close()
	_, err = d.until(ctx, "all are found", func(names []string) bool { return len(names) == 10 })
	require.NoError(t, err)
	d.callers = startCallers(ctx, d.registry)
	defer d.callers.stop()
	for _, s := range d.servers {
		require.NoError(t, s.drain(ctx))
		require.NoError(t, s.start(ctx))
		require.Equal(t, uint64(2), s.lease.Generation())
	}
	n := d.callers.begin()
	t.Logf("%d calls during ten restarts, %d failed", n.calls, n.failed)
	require.Zero(t, n.failed, "%v", n.first)
	require.Greater(t, n.calls, 100)
}
