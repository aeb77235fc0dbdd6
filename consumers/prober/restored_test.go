package prober

import (
	"bytes"
	"context"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/consumers/cluster"
	"github.com/bcc94042/instar/kv/index"
	"github.com/bcc94042/instar/machines/instance"
	"github.com/bcc94042/instar/streams"
)

// places remembers where it was sent.
type places struct {
	mu   sync.Mutex
	last string
}

func (p *places) Check(_ context.Context, target instance.Target) instance.Result {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = target.Address
	return instance.Result{OK: true}
}

func (p *places) Admit(instance.Check, string) error { return nil }

func (p *places) at() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last
}

// A store that was restored from a backup goes on at revisions that were seen before.
func TestAStoreOfLowerRevisionsIsTaken(t *testing.T) {
	t.Parallel()
	w, seen := setup(t), &places{}
	w.start(w.prober(seen))
	key := "default.back.a"
	var item index.Item
	for generation := range uint64(3) {
		w.register(t, key, instance.RegisterBody{NodeAddress: "127.0.0.1:1001", Check: quick})
		require.Eventually(t, func() bool {
			item, _ = w.instances.Get(key)
			return item.Generation > generation && item.State == instance.Healthy
		}, patience, 5*time.Millisecond)
	}
	before := item.Revision
	require.Greater(t, before, uint64(5))
	st, err := w.JS.Stream(w.ctx, "KV_instances")
	require.NoError(t, err)
	msg, err := st.GetLastMsgForSubject(w.ctx, "$KV.instances."+key)
	require.NoError(t, err)

	require.NoError(t, w.JS.DeleteStream(w.ctx, "KV_instances"))
	_, err = streams.Ensure(w.ctx, w.JS, streams.Plan{States: []string{"instances", "preservations"}})
	require.NoError(t, err)
	_, err = w.JS.Publish(w.ctx, "$KV.instances."+key, bytes.ReplaceAll(msg.Data, []byte("127.0.0.1:1001"), []byte("127.0.0.1:2002")))
	require.NoError(t, err)
	require.Eventually(t, func() bool { return seen.at() == "127.0.0.1:2002" }, patience, 10*time.Millisecond)
	item, _ = w.instances.Get(key)
	require.Less(t, item.Revision, before)
}

// The bucket lost its end, and others have written more since than it lost: the instance is at the revision at which it was seen.
func TestAStoreThatLostItsEndIsTaken(t *testing.T) {
	t.Parallel()
	w, seen := setup(t), &places{}
	w.start(w.prober(seen))
	key := "default.back.a"
	w.register(t, key, instance.RegisterBody{NodeAddress: "127.0.0.1:1001", Check: quick})
	var item index.Item
	require.Eventually(t, func() bool {
		item, _ = w.instances.Get(key)
		return item.State == instance.Healthy && seen.at() == "127.0.0.1:1001"
	}, patience, 5*time.Millisecond)
	st, err := w.JS.Stream(w.ctx, "KV_instances")
	require.NoError(t, err)
	msg, err := st.GetLastMsgForSubject(w.ctx, "$KV.instances."+key)
	require.NoError(t, err)

	require.NoError(t, w.JS.DeleteStream(w.ctx, "KV_instances"))
	config := st.CachedInfo().Config
	config.FirstSeq = msg.Sequence
	_, err = w.JS.CreateStream(w.ctx, config)
	require.NoError(t, err)
	ack, err := w.JS.Publish(w.ctx, "$KV.instances."+key, bytes.ReplaceAll(msg.Data, []byte("127.0.0.1:1001"), []byte("127.0.0.1:2002")))
	require.NoError(t, err)
	require.Equal(t, msg.Sequence, ack.Sequence)
	require.Eventually(t, func() bool { return seen.at() == "127.0.0.1:2002" }, patience, 10*time.Millisecond)
}

// After the index was built anew nothing of before counts: neither what was seen of instances, nor what watchers confirmed.
func TestAnIndexThatIsBuiltAnew(t *testing.T) {
	t.Parallel()
	w, key := setup(t), "default.back.a"
	w.register(t, key, instance.RegisterBody{})
	l := (&Prober{Deps: w.Deps, Shares: cluster.Everything{}, Instances: w.instances, Preservations: w.preservations}).newLoop(t.Context())
	require.Eventually(t, func() bool { return w.state(key) != "" }, patience, time.Millisecond)
	l.load(cluster.All)
	require.NotNil(t, l.tracked[key])
	l.onAcknowledgements(&nats.Msg{Subject: "instar.ack.default.back", Data: []byte(`{"watcher":"w1","index":1}`)})
	require.Equal(t, 1, l.services["default.back"].watchers.Len())
	l.load(cluster.All)
	require.Equal(t, 1, l.services["default.back"].watchers.Len(), "it is the same one")
	require.Zero(t, l.floor)

	require.NoError(t, w.JS.DeleteStream(w.ctx, "KV_instances"))
	_, err := streams.Ensure(w.ctx, w.JS, streams.Plan{States: []string{"instances", "preservations"}})
	require.NoError(t, err)
	require.Eventually(t, func() bool { return w.instances.Stats().Builds > 1 }, patience, time.Millisecond)
	w.tell(t, "instance", "default.back.b", instance.CommandRegister, instance.RegisterBody{NodeAddress: "127.0.0.1:9"})
	require.Eventually(t, func() bool { return w.state("default.back.b") != "" }, patience, time.Millisecond)
	l.load(cluster.All)
	require.Nil(t, l.tracked[key])
	require.Zero(t, l.services["default.back"].watchers.Len())
	require.NotZero(t, l.floor, "whoever watches has to be heard first")
	require.Equal(t, w.instances.Revision(), l.anew)
}
