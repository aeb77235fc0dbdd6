package discovery

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/bcc94042/instar/kv/index"
	"github.com/bcc94042/instar/machines/instance"
)

// crowd is a catalog of n instances in services of 50.
func crowd(n int) *Catalog {
	now := noon
	c := fed(&now)
	touched := map[*service]struct{}{}
	for i := range n {
		value := fmt.Appendf(nil, `{"schema":1,"machine":"instance","namespace":"default","parent":"s%d","id":"i-%d","state":"active.healthy","version":4,"generation":1,"since":"2026-01-01T00:00:00Z",
			"data":{"nodeAddress":"10.0.%d.%d:8080","payload":{"region":"eu","rack":"r%d"},"zone":"z%d","version":"1.2.3","tags":["a","b"],"weight":100,"healthCheckRetries":0,
			"check":{"type":"ttl","ttl":"10s"},"policy":{"rise":1,"drain":"10s"},"evidence":{"observer":"self","kind":"ttl","at":"2026-01-01T00:00:00Z"},"registeredAt":"2026-01-01T00:00:00Z"}}`, i/50, i, i/256%256, i%256, i%40, i%3)
		r, err := instance.Decode(value)
		if err != nil {
			panic(err)
		}
		touched[c.take(&index.Item{Key: fmt.Sprintf("default.s%d.i-%d", i/50, i), State: r.State, Revision: uint64(i + 1), Value: r}, false)] = struct{}{}
	}
	c.advance(uint64(n), touched)
	return c
}

func BenchmarkFind(b *testing.B) {
	c := crowd(10_000)
	q := Query{Namespace: "default", Service: "s77"}
	b.Run("All", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if len(c.Find(q).Endpoints) != 50 {
					b.Fail()
				}
			}
		})
	})
	b.Run("JSON", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if len(c.Whole("default", "s77").Instances()) < 1000 {
					b.Fail()
				}
			}
		})
	})
	q.Choose, q.Key = 1, "user-7"
	b.Run("ChooseOne", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if len(c.Find(q).Endpoints) != 1 {
				b.Fail()
			}
		}
	})
}

// What an instance costs in memory, its decoded record and, when its service was asked for, its endpoint and JSON
// included, is bounded, and does not depend on how many there are.
func TestMemoryPerInstance(t *testing.T) {
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	for _, n := range []int{1_000, 5_000, 20_000} {
		before, start := heap(), time.Now()
		c := crowd(n)
		took := time.Since(start)
		for _, s := range populated(c) {
			c.Whole("default", s).Instances()
		}
		each := float64(heap()-before) / float64(n)
		t.Logf("%7d instances: %.0f bytes and %s each", n, each, took/time.Duration(n))
		if each > 4096 {
			t.Errorf("%d instances take %.0f bytes each", n, each)
		}
		runtime.KeepAlive(c)
	}
}
