package engine

import (
	"testing"

	"github.com/bcc94042/instar/consumers/consumertest"
	"github.com/bcc94042/instar/consumers/effects"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams/embedded"
	"github.com/bcc94042/instar/streams/publish"
)

func TestMain(m *testing.M) { consumertest.Main(m) }

// world is a NATS with an engine that can be stopped and started.
type world struct {
	*consumertest.World
	engine *Engine
}

func setup(t *testing.T, profile embedded.Profile, ms ...*machines.Machine) *world {
	t.Helper()
	return &world{World: consumertest.New(t, profile, ms...)}
}

func noted(t *testing.T, ms ...*machines.Machine) (*world, *consumertest.Notes) {
	t.Helper()
	w := setup(t, embedded.Interval, ms...)
	return w, w.Noted()
}

func attached(t *testing.T, account string, ms ...*machines.Machine) (*world, *consumertest.Notes) {
	t.Helper()
	w, n := consumertest.Attached(t, account, ms...)
	return &world{World: w}, n
}

func (w *world) start() *world {
	w.engine = &Engine{Deps: w.Deps, Indexes: w.Indexes}
	w.Run(w.engine.Run)
	return w
}

func (w *world) withWorkers() *consumertest.Worker {
	k := consumertest.NewWorker()
	workers := &effects.Workers{Deps: w.Deps, Performer: effects.ByMachine{"thing": k}.Of}
	w.Also(workers.Run)
	return k
}

func createCommand(id string) publish.Command {
	return publish.Command{Machine: "service", Key: "default." + id, Name: "create", Actor: "test", Body: []byte(`{"spec":{"image":"hello"}}`)}
}
