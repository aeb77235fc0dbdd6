package discovery_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/bcc94042/instar/api/discovery"
	"github.com/bcc94042/instar/kv/index"
	"github.com/bcc94042/instar/machines/instance"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/embedded"
	"github.com/bcc94042/instar/streams/streamstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var plan = streams.Plan{States: []string{"instances", "preservations"}}

// bundle is a catalog over real buckets, which the test writes.
type bundle struct {
	nc      *nats.Conn
	js      jetstream.JetStream
	ix      *index.Index
	catalog *discovery.Catalog
}

func setup(t testing.TB, change ...func(*discovery.Options)) *bundle {
	e := streamstest.Start(t, embedded.Options{Profile: embedded.OS}).Ensure(plan)
	b := &bundle{nc: e.NC, js: e.JS}
	b.ix = index.New(b.js, "instances", func(_ string, value []byte) (index.Meta, error) {
		meta, err := index.DescribeJSON(value)
		if err != nil {
			return meta, err
		}
		meta.Value, err = instance.Decode(value)
		return meta, err
	}, index.Options{})
	guards := index.New(b.js, "preservations", func(_ string, value []byte) (index.Meta, error) { return index.DescribeJSON(value) }, index.Options{})
	o := discovery.Options{Instances: b.ix, Preservations: guards}
	for _, f := range change {
		f(&o)
	}
	b.catalog = discovery.New(o)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, run := range []func(context.Context) error{b.ix.Run, guards.Run, b.catalog.Run} {
		running.Go(func() { _ = run(ctx) })
	}
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	<-b.catalog.Ready()
	return b
}

func value(service, id, state string) []byte {
	return fmt.Appendf(nil, `{"schema":1,"machine":"instance","namespace":"default","parent":%q,"id":%q,"state":%q,"version":1,"generation":1,"since":"2026-01-01T00:00:00Z",
		"data":{"nodeAddress":"10.0.0.1:80","weight":100,"payload":{"region":"eu"},"check":{"type":"ttl","ttl":"10s"}}}`, service, id, state)
}

func (b *bundle) put(t testing.TB, service, id, state string) uint64 {
	ack, err := b.js.Publish(t.Context(), "$KV.instances.default."+service+"."+id, value(service, id, state))
	require.NoError(t, err)
	return ack.Sequence
}

func (b *bundle) found(service string) (ids []string) {
	for _, e := range b.catalog.Find(discovery.Query{Namespace: "default", Service: service}).Endpoints {
		ids = append(ids, e.InstanceID)
	}
	return ids
}

func TestWhatIsWrittenIsFound(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.put(t, "web", "a", instance.Healthy)
	revision := b.put(t, "web", "b", instance.Healthy)
	require.NoError(t, b.catalog.Wait(t.Context(), revision))
	require.Equal(t, []string{"a", "b"}, b.found("web"))
	r := b.catalog.Find(discovery.Query{Namespace: "default", Service: "web"})
	require.Equal(t, revision, r.Index)
	require.Equal(t, revision, r.Changed)

	t.Run("ChangeWakes", func(t *testing.T) {
		w := b.catalog.Watch("default", "web", r.Changed)
		revision = b.put(t, "web", "a", instance.Unhealthy)
		<-w
		r := b.catalog.Find(discovery.Query{Namespace: "default", Service: "web"})
		require.Equal(t, revision, r.Changed)
		require.GreaterOrEqual(t, r.Index, r.Changed)
		require.Equal(t, []string{"b"}, b.found("web"))
	})
	t.Run("ServiceProtectsItself", func(t *testing.T) {
		_, stir := b.catalog.Stir("default", "web")
		_, err := b.js.Publish(t.Context(), "$KV.preservations.default.web.none", []byte(`{"schema":1,"state":"protected"}`))
		require.NoError(t, err)
		<-stir
		require.True(t, b.catalog.Find(discovery.Query{Namespace: "default", Service: "web"}).Protected)
	})
	t.Run("WaitEnds", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		require.ErrorIs(t, b.catalog.Wait(ctx, revision+1000), context.DeadlineExceeded)
	})
	t.Run("ALostSubscriptionLosesNothing", func(t *testing.T) {
		w := b.catalog.Watch("default", "web", b.catalog.Find(discovery.Query{Namespace: "default", Service: "web"}).Changed)
		require.NoError(t, b.js.DeleteStream(t.Context(), "KV_instances"))
		_, err := streams.Ensure(t.Context(), b.js, plan)
		require.NoError(t, err)
		first := b.put(t, "web", "c", instance.Healthy) // the other store begins at 1
		require.Eventually(t, func() bool { return fmt.Sprint(b.found("web")) == "[c]" }, 20*time.Second, 10*time.Millisecond, "b is gone and c is new")
		require.Less(t, first, revision)
		require.Empty(t, b.catalog.Locate("default", "a"))
		require.Equal(t, []string{"web"}, b.catalog.Locate("default", "c"))
		require.Positive(t, b.catalog.Stats().Lost)
		<-w
		require.NoError(t, b.catalog.Wait(t.Context(), b.put(t, "web", "b", instance.Healthy)))
		require.Equal(t, []string{"b", "c"}, b.found("web"))
	})
}

// After a restore the bucket may be at a higher revision than before when it is read again: what is in it counts, however
// low its revision is, and who waits for a change of what he knew is woken.
func TestALostHistoryIsForgotten(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.put(t, "other", "x", instance.Healthy)
	b.put(t, "web", "gone", instance.Healthy)
	revision := b.put(t, "web", "a", instance.Healthy)
	require.NoError(t, b.catalog.Wait(t.Context(), revision))
	before := b.catalog.Find(discovery.Query{Namespace: "default", Service: "web"})
	require.Equal(t, []string{"a", "gone"}, b.found("web"))
	woken := b.catalog.Watch("default", "web", before.Changed)

	require.NoError(t, b.js.DeleteStream(t.Context(), "KV_instances"))
	_, err := streams.Ensure(t.Context(), b.js, plan)
	require.NoError(t, err)
	b.put(t, "web", "a", instance.Unhealthy)
	for range 2 * revision {
		revision = b.put(t, "other", "x", instance.Healthy)
	}
	require.Greater(t, revision, before.Index)
	<-woken
	require.NoError(t, b.catalog.Wait(t.Context(), revision))
	require.Empty(t, b.found("web"))
	require.Greater(t, b.catalog.Find(discovery.Query{Namespace: "default", Service: "web"}).Changed, before.Changed)
	require.Empty(t, b.catalog.Locate("default", "gone"))
	require.Equal(t, []string{"web"}, b.catalog.Locate("default", "a"))
}

// Whatever is written while it is followed is found once its revision is reached.
func TestWritersAndReaders(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var all sync.WaitGroup
	for n := range 4 {
		all.Go(func() {
			service := fmt.Sprintf("s%d", n%2)
			for i := range 50 {
				id := fmt.Sprintf("w%d-%d", n, i)
				revision := b.put(t, service, id, instance.Healthy)
				if b.catalog.Wait(t.Context(), revision) != nil {
					t.Error("not reached", revision)
					return
				}
				if r := b.catalog.Find(discovery.Query{Namespace: "default", Service: service}); !has(r.Endpoints, id) || r.Index < revision {
					t.Errorf("%s of revision %d is not found at index %d", id, revision, r.Index)
				}
			}
		})
	}
	all.Wait()
	require.Len(t, b.found("s0"), 100)
	require.Equal(t, discovery.Stats{Services: 2, Instances: 200, Found: 200, Finds: b.catalog.Stats().Finds, Builds: 1}, b.catalog.Stats())
}

func has(all []discovery.Endpoint, id string) bool {
	for _, e := range all {
		if e.InstanceID == id {
			return true
		}
	}
	return false
}
