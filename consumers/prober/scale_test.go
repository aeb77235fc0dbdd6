package prober

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/consumers/cluster"
	"github.com/bcc94042/instar/kv/index"
	"github.com/bcc94042/instar/machines/instance"
	"github.com/bcc94042/instar/streams/publish"
)

// Ten thousand instances: registered as fast as they are admitted, and then one beat each ten seconds. The CPU is that of
// the whole process: server, sender and prober.
func TestTenThousand(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a core for some seconds")
	}
	w, told := setup(t), &standings{}
	p := w.prober(&script{})
	p.Metrics = told
	w.start(p)
	n := 10000
	if raced {
		n = 1000
	}
	all := make([]string, n)
	body := []byte(`{"nodeAddress":"10.0.0.1:80","check":{"type":"ttl","ttl":"10m"}}`) // nobody is silent for that, however busy the machine is
	var open atomic.Int64
	room := make(chan struct{}, 2000)
	start := time.Now()
	for i := range all {
		all[i] = fmt.Sprintf("default.s-%d.i-%d", i%50, i)
		room <- struct{}{}
		open.Add(1)
		require.NoError(t, w.Commands.Start(publish.Command{Machine: "instance", Key: all[i], Name: "register", Body: body}, "", func(publish.Result) { open.Add(-1); <-room }))
	}
	w.all(t, instance.Unknown, n)
	t.Logf("%d registrations admitted in %s: %.0f/s", n, time.Since(start).Round(time.Millisecond), float64(n)/time.Since(start).Seconds())
	for _, key := range all {
		w.beat(t, key, "")
	}
	w.all(t, instance.Healthy, n)

	idle := cpuOver(t, func(passed time.Duration) bool { return passed < 3*time.Second })
	sent := 0
	busy := cpuOver(t, func(passed time.Duration) bool {
		for ; sent < min(int(passed.Seconds()*1000), 5000); sent++ {
			w.beat(t, all[sent%n], "")
		}
		return sent < 5000
	})
	t.Logf("%d beats over %d instances: %.1f %% of a core, of which %.1f %% without beats", sent, n, busy, idle)
	require.Equal(t, n, w.instances.Counts("")[instance.Healthy])
	require.Less(t, busy-idle, 50.0, "on a machine that others use, too")
}

// all waits until all instances are in a state. How long that takes is the machine's affair, as long as there is progress.
func (w *world) all(t *testing.T, state string, n int) {
	t.Helper()
	best, moved := 0, time.Now()
	require.Eventually(t, func() bool {
		if now := w.instances.Counts("")[state]; now > best {
			best, moved = now, time.Now()
		}
		return best == n || time.Since(moved) > patience
	}, 10*time.Minute, 10*time.Millisecond)
	require.Equal(t, n, best, fmt.Sprint(w.instances.Counts("")))
}

// cpuOver is the percentage of a core that this process used while step was called every 10 ms, until it has enough.
func cpuOver(t *testing.T, step func(passed time.Duration) (more bool)) float64 {
	t.Helper()
	used := func() time.Duration {
		var u syscall.Rusage
		require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	before, start := used(), time.Now()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for step(time.Since(start)) {
		<-tick.C
	}
	return 100 * float64(used()-before) / float64(time.Since(start))
}

// owner is a loop without a world: instances that are healthy and send heartbeats.
func owner(n int) (*loop, []string) {
	l := (&Prober{Shares: cluster.Everything{}}).newLoop(context.Background()) // it does not run
	l.owned = cluster.All
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("default.s-%d.i-%d", i%50, i)
		rec := &instance.Record{Namespace: "default", Service: fmt.Sprintf("s-%d", i%50), ID: fmt.Sprintf("i-%d", i), State: instance.Healthy, Generation: 1}
		rec.Data.Terms = &instance.Terms{Check: instance.Check{Type: instance.CheckTTL, TTL: "30s"}}
		l.take(&index.Item{Key: all[i], State: rec.State, Generation: 1, Revision: uint64(i + 1), Value: rec})
	}
	return l, all
}

// What a prober keeps of an instance, beside the record that the index keeps.
func TestMemory(t *testing.T) {
	const n = 20000
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	recs := make([]*instance.Record, n)
	items := make([]index.Item, n)
	for i := range recs {
		recs[i] = &instance.Record{Namespace: "default", Service: "web", ID: fmt.Sprintf("i-%d", i), State: instance.Healthy, Generation: 1}
		recs[i].Data.Terms = &instance.Terms{Check: instance.Check{Type: instance.CheckTTL}}
		items[i] = index.Item{Key: fmt.Sprintf("default.web.i-%d", i), State: instance.Healthy, Revision: uint64(i + 1), Value: recs[i]}
	}
	l := (&Prober{Shares: cluster.Everything{}}).newLoop(context.Background()) // it does not run
	l.owned = cluster.All
	before := heap()
	for i := range items {
		l.take(&items[i])
	}
	each := (heap() - before) / n
	t.Logf("%d bytes for each instance", each)
	require.Less(t, each, uint64(1536))
	require.Greater(t, each, uint64(unsafe.Sizeof(tracked{})))
	require.Len(t, l.tracked, n)
	runtime.KeepAlive(items)
}

func BenchmarkBeat(b *testing.B) {
	l, all := owner(10000)
	for _, body := range []string{"", `{"generation":1,"status":"passing","inFlight":3}`} {
		b.Run(map[bool]string{true: "empty", false: "json"}[body == ""], func(b *testing.B) {
			msgs := make([]*nats.Msg, len(all))
			for i, key := range all {
				msgs[i] = &nats.Msg{Subject: "instar.hb." + key, Data: []byte(body)}
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				l.onHeartbeat(msgs[i%len(msgs)], l.now())
			}
		})
	}
}
