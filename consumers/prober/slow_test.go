package prober

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines/instance"
)

// holes never answer for those whose service is called so.
type holes struct{ script }

func (h *holes) Check(ctx context.Context, target instance.Target) instance.Result {
	if !strings.HasPrefix(target.Key, "default.hole.") {
		return h.script.Check(ctx, target)
	}
	begun := time.Now()
	select {
	case <-time.After(target.Timeout):
	case <-ctx.Done():
	}
	r := timedOut
	r.Latency = time.Since(begun)
	return r
}

// More instances that never answer than the pool has places do not keep the others from being probed.
func TestSlowProbes(t *testing.T) {
	t.Parallel()
	w, checker := setup(t), &holes{}
	p := w.prober(checker)
	p.Workers = 4
	w.start(p)
	for _, key := range keys("hole", 40) {
		w.register(t, key, instance.RegisterBody{Check: quick})
	}
	w.register(t, "default.well.a", instance.RegisterBody{Check: quick})
	w.becomes(t, "default.well.a", instance.Healthy, 3*patience)
	before := checker.count("default.well.a")
	require.Eventually(t, func() bool { return checker.count("default.well.a") >= before+10 }, 4*time.Second, 10*time.Millisecond)
	checker.set("default.well.a", refused)
	w.becomes(t, "default.well.a", instance.Unhealthy, 3*time.Second)
}
