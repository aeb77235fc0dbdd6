package effects

import (
	"testing"

	"github.com/bcc94042/instar/consumers/consumertest"
	"github.com/bcc94042/instar/consumers/engine"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams/embedded"
)

func TestMain(m *testing.M) { consumertest.Main(m) }

// world is a NATS, with an engine when it is started.
type world struct{ *consumertest.World }

func setup(t *testing.T, profile embedded.Profile, ms ...*machines.Machine) *world {
	t.Helper()
	return &world{consumertest.New(t, profile, ms...)}
}

func (w *world) start() *world {
	w.Run((&engine.Engine{Deps: w.Deps, Indexes: w.Indexes}).Run)
	return w
}

// withWorkers performs the effects of things.
func (w *world) withWorkers() *consumertest.Worker {
	k := consumertest.NewWorker()
	w.Also((&Workers{Deps: w.Deps, Performer: ByMachine{"thing": k}.Of}).Run)
	return k
}

func noted(t *testing.T, ms ...*machines.Machine) (*world, *consumertest.Notes) {
	t.Helper()
	w := setup(t, embedded.Interval, ms...)
	return w, w.Noted()
}

func attached(t *testing.T, account string, ms ...*machines.Machine) (*world, *consumertest.Notes) {
	t.Helper()
	w, n := consumertest.Attached(t, account, ms...)
	return &world{w}, n
}
