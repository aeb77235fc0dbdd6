package api_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/api"
	"github.com/bcc94042/instar/api/discovery"
	"github.com/bcc94042/instar/kv/index"
	"github.com/bcc94042/instar/machines/instance"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/embedded"
	"github.com/bcc94042/instar/streams/publish"
	"github.com/bcc94042/instar/streams/streamstest"
)

// BenchmarkDiscover asks for one of 200 services with 50 instances each over HTTP on loopback, eight clients at a time,
// and reports the 99th percentile of the answers' times.
func BenchmarkDiscover(b *testing.B) {
	e := streamstest.Start(b, embedded.Options{Profile: embedded.OS}).Ensure(streams.Plan{States: []string{"instances"}})
	nc, js := e.NC, e.JS
	app, err := publish.NewAppender(nc, publish.AppenderOptions{})
	require.NoError(b, err)
	commands, err := publish.NewCommands(app)
	require.NoError(b, err)
	for i := range 10_000 {
		_, err := js.PublishAsync(fmt.Sprintf("$KV.instances.default.s%d.i-%d", i/50, i), fmt.Appendf(nil, `{"schema":1,"machine":"instance","namespace":"default","parent":"s%d","id":"i-%d",
			"state":"active.healthy","version":4,"generation":1,"since":"2026-01-01T00:00:00Z","data":{"nodeAddress":"10.0.%d.%d:8080","payload":{"region":"eu"},"zone":"z%d","weight":100,"check":{"type":"ttl"}}}`, i/50, i, i/256, i%256, i%3), jetstream.WithStallWait(time.Minute))
		require.NoError(b, err)
	}
	<-js.PublishAsyncComplete()
	ix := index.New(js, "instances", func(_ string, v []byte) (index.Meta, error) {
		meta, err := index.DescribeJSON(v)
		if err == nil {
			meta.Value, err = instance.Decode(v)
		}
		return meta, err
	}, index.Options{})
	catalog := discovery.New(discovery.Options{Instances: ix})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = ix.Run(ctx) })
	running.Go(func() { _ = catalog.Run(ctx) })
	<-catalog.Ready()
	var indexes index.Map
	indexes.Set("instance", ix)
	door, err := api.New(api.Options{Machines: registryOf(b, instance.Machine), Commands: commands, NC: nc, JS: js, Indexes: &indexes, Discovery: catalog, Tokens: tokens})
	require.NoError(b, err)
	web := httptest.NewUnstartedServer(nil)
	web.Config = door.HTTPServer("", nil)
	web.Start()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	var mu sync.Mutex
	var took []time.Duration
	b.SetParallelism(4)
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		var mine []time.Duration
		for n := 0; pb.Next(); n++ {
			r, _ := http.NewRequest("GET", fmt.Sprintf("%s/v1/discover/s%d", web.URL, n%200), nil)
			r.Header.Set("Authorization", "Bearer read-token")
			start := time.Now()
			res, err := client.Do(r)
			if err != nil || res.StatusCode != 200 {
				b.Error(err, res)
				return
			}
			size, _ := io.Copy(io.Discard, res.Body)
			_ = res.Body.Close()
			if mine = append(mine, time.Since(start)); size < 5000 {
				b.Error("an answer of", size)
				return
			}
		}
		mu.Lock()
		took = append(took, mine...)
		mu.Unlock()
	})
	b.StopTimer()
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-us")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "answers/s")
	require.NoError(b, door.Close())
	web.Close()
	client.CloseIdleConnections()
	cancel()
	running.Wait()
	commands.Close()
	app.Close()
	nc.Close()
}
