package engine

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/consumers/consumertest"
	"github.com/bcc94042/instar/consumers/effects"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/embedded"
	"github.com/bcc94042/instar/streams/publish"
)

// fencing is a provider that refuses an older fence than it has seen.
type fencing struct {
	mu      sync.Mutex
	seen    uint64
	refused []uint64
}

func (f *fencing) Perform(_ context.Context, t machines.Task) machines.Result {
	f.mu.Lock()
	defer f.mu.Unlock()
	if t.Fence < f.seen {
		f.refused = append(f.refused, t.Fence)
		return machines.Result{Failure: &machines.Failure{Code: "fenced", Message: "older", Retryable: true, Fence: f.seen}}
	}
	f.seen = t.Fence
	return machines.Result{Data: consumertest.WorkBody{How: "worked"}}
}

// The life that follows one whose value is lost is a later one for its provider: where events tell of the versions before, its tasks come with higher
// fences at once, and where nothing does, the provider itself.
func TestALaterLifeIsNotFenced(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		lost    []string
		seen    uint64
		refused []uint64
		done    uint64 // with this fence
	}{
		"ItsEventsAreThere": {[]string{"KV_errands", streams.CommandStream}, 2, nil, 3},
		"NothingIsThere":    {[]string{"KV_errands", "KV_idempotency", streams.CommandStream, streams.EventStream, streams.EffectStream}, 17, []uint64{1}, 19},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := setup(t, embedded.Interval, consumertest.Errands).speculating().start()
			to := publish.Command{Machine: "errand", Key: "default.x", Name: "create"}
			w.Ask(to)
			w.Ask(publish.Command{Machine: to.Machine, Key: to.Key, Name: "done", Body: []byte(`{"data":{"how":"well"}}`)})
			w.Eventually("its events", func() bool { return len(w.Events("errand", to.Key)) == 2 })
			w.Stop()
			w.Empty(c.lost...)
			w.start()
			require.Equal(t, machines.Applied, w.Ask(to).Outcome)
			f := &fencing{seen: c.seen}
			w.Also((&effects.Workers{Deps: w.Deps, Performer: effects.ByMachine{"errand": f}.Of}).Run)
			w.Eventually("it is done", func() bool { e, _ := w.Entity(consumertest.Errands, to.Key); return e.State == "done" })
			f.mu.Lock()
			defer f.mu.Unlock()
			require.Equal(t, c.refused, f.refused)
			require.Equal(t, c.done, f.seen)
		})
	}
}
