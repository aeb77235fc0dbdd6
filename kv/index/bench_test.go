package index

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/kv/internal/feed"
	"github.com/bcc94042/instar/kv/kvtest"
)

// keys is the size of a snapshot in benchmarks; KEYS=1000000 shows the start of a large installation.
func keys() int {
	if n, err := strconv.Atoi(os.Getenv("KEYS")); err == nil {
		return n
	}
	return 100_000
}

// BenchmarkSnapshot reads all keys of a bucket in the three ways that there are, describes them, and as an index.
func BenchmarkSnapshot(b *testing.B) {
	n := kvtest.Start(b)
	n.Create(b, "b")
	count := keys()
	fill(b, n, "b", count)
	rate := func(b *testing.B) {
		b.ReportMetric(float64(count)*float64(b.N)/b.Elapsed().Seconds(), "keys/s")
	}
	way := func(name string, read func(b *testing.B)) {
		b.Run(name, func(b *testing.B) {
			before := cpu(b)
			for b.Loop() {
				read(b)
			}
			b.ReportMetric(float64(cpu(b)-before)/float64(time.Microsecond)/float64(count)/float64(b.N), "cpu-us/key")
			rate(b)
		})
	}
	way("WatchAll", func(b *testing.B) {
		kv, err := n.JS.KeyValue(b.Context(), "b")
		require.NoError(b, err)
		w, err := kv.WatchAll(b.Context())
		require.NoError(b, err)
		for e := range w.Updates() {
			if e == nil {
				break
			}
			_, _ = DescribeJSON(e.Value())
		}
		require.NoError(b, w.Stop())
	})
	way("OrderedConsumer", func(b *testing.B) {
		c, err := n.JS.OrderedConsumer(b.Context(), "KV_b", jetstream.OrderedConsumerConfig{FilterSubjects: []string{"$KV.b.>"}})
		require.NoError(b, err)
		done := make(chan struct{})
		cc, err := c.Consume(func(m jetstream.Msg) {
			meta, _ := m.Metadata()
			_, _ = DescribeJSON(m.Data())
			if meta.NumPending == 0 {
				close(done)
			}
		}, jetstream.PullMaxMessages(4096))
		require.NoError(b, err)
		<-done
		cc.Stop()
	})
	way("Feed", func(b *testing.B) {
		f, err := feed.Open(b.Context(), n.JS, "b", "", feed.Position{})
		require.NoError(b, err)
		var batch []feed.Update
		for !f.CaughtUp {
			batch, err = f.Next(b.Context(), batch[:0])
			require.NoError(b, err)
			for _, u := range batch {
				_, _ = DescribeJSON(u.Value)
			}
		}
		f.Close()
	})
	way("Index", func(b *testing.B) {
		ctx, cancel := context.WithCancel(b.Context())
		ix, done := New(n.JS, "b", describe, Options{}), make(chan error, 1)
		go func() { done <- ix.Run(ctx) }()
		<-ix.Ready()
		require.Equal(b, count, ix.Len())
		cancel()
		require.NoError(b, <-done)
	})
}

// cpu is the time that the process has worked: on a machine with other work, the only figure that compares.
func cpu(b *testing.B) time.Duration {
	var u syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// million is a served index of many items in memory, and what it costs per item beyond the key.
func million(count int) (*Index, float64) {
	ix := New(nil, "b", describe, Options{})
	t := newTable()
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	bytes := 0
	for i := range count {
		o := item(i*7919%count, uint64(i+1))
		bytes += len(o.Key)
		t.apply(&o)
		t.at.Revision = o.Revision
	}
	ix.serve(t)
	runtime.GC()
	runtime.ReadMemStats(&after)
	return ix, float64(int(after.HeapAlloc)-int(before.HeapAlloc)-bytes) / float64(count)
}

func item(k int, rev uint64) op {
	at := time.Date(2025, 1, 2, 3, 4, 5, 0, time.UTC)
	return op{Update: feed.Update{Key: fmt.Sprintf("ns%d.entity-%07d", k%50, k), Revision: rev, At: 1}, meta: Meta{
		State: stateOf(k), Version: 3, Since: at, CreatedAt: at, UpdatedAt: at.Add(time.Duration(k) * time.Second),
		Labels: map[string]string{"team": "t" + strconv.Itoa(k%1000), "env": [...]string{"prod", "dev"}[k%2]},
	}}
}

// stateOf makes one state that is rare, and ten that are not.
func stateOf(k int) string {
	if k%1000 == 7 {
		return "failed"
	}
	return "state." + strconv.Itoa(k%10)
}

func BenchmarkListState1M(b *testing.B) {
	ix, perItem := million(1_000_000)
	for _, q := range []struct {
		name string
		Query
	}{
		{"Rare", Query{States: []string{"failed"}, Limit: 2000}},
		{"Common", Query{States: []string{"state.3"}}},
		{"CommonDeep", Query{States: []string{"state.3"}, After: "ns3.entity-0500000"}},
		{"CommonWhole", Query{States: []string{"state.3"}, Limit: 1_000_000}},
		{"StateAndLabel", Query{States: []string{"state.3"}, Labels: []Selector{{Label: "team", Op: Equal, Values: []string{"t303"}}}, Limit: 2000}},
		{"NamespaceAndStates", Query{Namespace: "ns7", States: []string{"failed", "state.7"}, Limit: 100}},
		{"NoMatchInAll", Query{UpdatedBefore: time.Unix(1, 0)}},
	} {
		b.Run(q.name, func(b *testing.B) {
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				n = len(ix.List(q.Query).Items)
			}
			b.ReportMetric(float64(n), "items")
			b.ReportMetric(perItem, "B/kept")
		})
	}
	b.Run("Counts", func(b *testing.B) {
		for b.Loop() {
			_ = ix.Counts("ns7")
		}
	})
}

// BenchmarkApply writes to a served index of a million, as the watch does.
func BenchmarkApply(b *testing.B) {
	ix, _ := million(1_000_000)
	ops := make([]op, 100_000)
	for i := range ops {
		k := i * 7919 % 1_000_000
		ops[i] = item(k, 1_000_000)
	}
	for _, c := range []struct {
		name   string
		change func(i int, o *op)
	}{
		{"SameState", func(int, *op) {}},
		{"OtherState", func(i int, o *op) { o.meta.State = "state." + strconv.Itoa(i%9) }},
		{"Insert", func(i int, o *op) { o.Key = "ns7.new-" + strconv.Itoa(i*7919%1_000_003) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				o := ops[i%len(ops)]
				c.change(i, &o)
				ix.table.apply(&o)
			}
		})
	}
}

func BenchmarkDescribeJSON(b *testing.B) {
	doc := document(12345)
	b.SetBytes(int64(len(doc)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := DescribeJSON(doc); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkLive writes to a bucket as fast as it takes writes, with an index and many subscriptions behind it, and
// waits until the index has all.
func BenchmarkLive(b *testing.B) {
	n := kvtest.Start(b)
	n.Create(b, "b")
	ix := run(b, n, "b")
	for i := range 1000 {
		s := ix.Subscribe(Filter{Key: fmt.Sprintf("default.k%d", i)}, 1)
		b.Cleanup(s.Close)
	}
	all := ix.Subscribe(Filter{Namespace: "default"}, 100_000)
	b.Cleanup(all.Close)
	go func() {
		for range all.C {
		}
	}()
	const count = 20_000
	for b.Loop() {
		fill(b, n, "b", count)
		info, err := n.JS.Stream(b.Context(), "KV_b")
		require.NoError(b, err)
		require.NoError(b, ix.Wait(b.Context(), info.CachedInfo().State.LastSeq))
	}
	b.ReportMetric(count*float64(b.N)/b.Elapsed().Seconds(), "writes/s")
}
