package engine

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/consumers/consumertest"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/service"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/embedded"
	"github.com/bcc94042/instar/streams/publish"
)

func TestCreateIsAppliedAndPublished(t *testing.T) {
	t.Parallel()
	for _, profile := range []embedded.Profile{embedded.Interval, embedded.Fsync, consumertest.EachWrite} {
		t.Run(string(profile), func(t *testing.T) {
			t.Parallel()
			w := setup(t, profile).start()
			a := w.Ask(createCommand("web"))
			require.Equal(t, machines.Applied, a.Outcome)
			require.Equal(t, "CREATING", a.State)
			require.EqualValues(t, 1, a.Version)
			e, rev := w.Entity(service.Machine, "default.web")
			require.Equal(t, a.Revision, rev)
			require.Len(t, e.Commands, 1)
			w.Eventually("three events", func() bool { return len(w.Events("service", "default.web")) == 3 })
			require.Equal(t, []string{"1 service.creation.requested", "1 service.spec.accepted", "1 service.spec.apply.started"}, w.Events("service", "default.web"))
			w.Eventually("its task", func() bool { return len(w.Stream(streams.EffectStream, "instar.fx.>")) == 1 }) // each stream for itself
			w.Eventually("its timer", func() bool { return len(w.Stream(streams.CommandStream, "instar.timer.>")) == 1 })

			again := w.Ask(createCommand("web"))
			require.Equal(t, machines.Refused, again.Outcome)
			require.Equal(t, machines.CodeExists, again.Refusal.Code)
			w.Eventually("the refusal is an event", func() bool {
				ev := w.Events("service", "default.web")
				return len(ev) == 4 && ev[3] == "1 command.refused"
			})
		})
	}
}

func TestSameIDIsOneCommand(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval).start()
	cmd := createCommand("web")
	cmd.ID = "once"
	first := w.Ask(cmd)
	second := w.Ask(cmd)
	require.True(t, second.Replayed)
	second.Replayed = false
	require.Equal(t, first, second)

	cmd.Body = []byte(`{"spec":{"image":"static"}}`)
	other := w.Ask(cmd)
	require.Equal(t, machines.CodeKeyReused, other.Refusal.Code)
	e, _ := w.Entity(service.Machine, "default.web")
	require.EqualValues(t, 1, e.Version)
}

func TestManyClientsManyEntities(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval).speculating().start()
	var all sync.WaitGroup
	const entities, each = 40, 10
	for n := range entities {
		all.Go(func() {
			id := fmt.Sprintf("e%d", n)
			w.Ask(createCommand(id))
			for i := range each {
				body, _ := json.Marshal(service.LabelBody{Labels: map[string]string{"n": fmt.Sprint(i)}})
				a := w.Ask(publish.Command{Machine: "service", Key: "default." + id, Name: "label", Body: body})
				require.Equal(t, machines.Applied, a.Outcome)
				require.EqualValues(t, i+2, a.Version)
			}
		})
	}
	all.Wait()
	for n := range entities {
		key := fmt.Sprintf("default.e%d", n)
		w.Eventually("all events", func() bool { return len(w.Events("service", key)) == 3+each })
	}
}

// Entities without commands leave the memory; a refusal that only memory holds stays for as long as the stream knows its id.
func TestIdleEntitiesAreForgotten(t *testing.T) {
	t.Parallel()
	p := &partition{cache: map[string]*cachedEntity{"stored": {}, "refused": {unstored: true}, "busy": {finishing: true}}}
	left := func() []string { return slices.Sorted(maps.Keys(p.cache)) }
	p.evictIdle()
	require.Equal(t, []string{"busy", "refused", "stored"}, left()) // not a whole round yet
	p.evictIdle()
	require.Equal(t, []string{"busy", "refused"}, left())
	for range streams.CommandWindow / idleRound {
		require.Contains(t, p.cache, "refused")
		p.evictIdle()
	}
	p.evictIdle()
	require.Equal(t, []string{"busy"}, left())
}
