package cluster

import (
	"testing"

	"github.com/bcc94042/instar/consumers/consumertest"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams/embedded"
)

func TestMain(m *testing.M) { consumertest.Main(m) }

// world is a NATS, for nodes that run nothing.
type world struct{ *consumertest.World }

func setup(t *testing.T, profile embedded.Profile, ms ...*machines.Machine) *world {
	t.Helper()
	return &world{consumertest.New(t, profile, ms...)}
}
