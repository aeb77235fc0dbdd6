//go:build linux

package process

import (
	"testing"
	"time"

	"github.com/bcc94042/instar/machines/service"
	"github.com/bcc94042/instar/providers"
	"github.com/bcc94042/instar/providers/providertest"
)

func TestContract(t *testing.T) {
	t.Parallel()
	quick := service.Probe{PeriodMillis: 50, StartupSeconds: 20}
	providertest.Run(t, providertest.Suite{
		New:     func(t *testing.T) providers.Gateway { return setup(t) },
		OK:      service.Spec{Image: "hello", Probe: quick},
		Fails:   service.Spec{Image: "hello", Probe: quick, Env: map[string]string{"HELLO_EXIT": "7"}},
		Pending: service.Spec{Image: "hello", Probe: service.Probe{StartupSeconds: 600}, Env: map[string]string{"HELLO_SICK": "true"}},
		Pass:    func() { <-time.After(tick) },
	})
}
