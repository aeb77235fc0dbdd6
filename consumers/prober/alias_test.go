package prober

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines/instance"
)

// Two that follow each other do not keep each other alive.
func TestAliasesInACircle(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.start(w.prober(&script{}))
	alias := func(of string) instance.RegisterBody {
		return instance.RegisterBody{Check: instance.Check{Type: instance.CheckAlias, Alias: of, Interval: "200ms"}}
	}
	w.register(t, "default.circle.b", instance.RegisterBody{})
	w.register(t, "default.circle.a", alias("circle/b"))
	w.register(t, "default.circle.c", alias("circle/a"))
	w.becomes(t, "default.circle.c", instance.Healthy, patience)
	l := w.prober(&script{}).newLoop(w.ctx)
	circular := func(id string) bool {
		item, _ := w.instances.Get("default.circle." + id)
		return l.circular(item)
	}
	require.False(t, circular("c"), "somebody who is no alias is at the end")
	w.register(t, "default.circle.b", alias("circle/a"))
	require.Eventually(t, func() bool { return circular("a") && circular("b") && circular("c") }, patience, 5*time.Millisecond)
	ill := func() bool {
		return w.state("default.circle.a") == instance.Unhealthy && w.state("default.circle.b") == instance.Unhealthy && w.state("default.circle.c") == instance.Unhealthy
	}
	require.Eventually(t, ill, patience, 5*time.Millisecond)
	require.Never(t, func() bool { return !ill() }, time.Second, 5*time.Millisecond)
}
