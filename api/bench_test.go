package api_test

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/api"
	"github.com/bcc94042/instar/kv/index"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/embedded"
	"github.com/bcc94042/instar/streams/publish"
)

// BenchmarkCommand is the price of the door alone: an engine answers every command as soon as it is published, nothing
// is stored, and no client is in between.
func BenchmarkCommand(b *testing.B) {
	srv, err := embedded.Start(embedded.Options{Dir: b.TempDir(), Profile: embedded.OS})
	require.NoError(b, err)
	nc, err := streams.Connect(streams.ConnectOptions{Server: srv, Name: "bench"})
	require.NoError(b, err)
	js, err := streams.JetStream(nc)
	require.NoError(b, err)
	_, err = streams.Ensure(b.Context(), js, streams.Plan{States: []string{"gadgets"}, Views: []string{"gadgets_sizes"}})
	require.NoError(b, err)
	require.NoError(b, js.DeleteStream(b.Context(), streams.CommandStream))
	app, err := publish.NewAppender(nc, publish.AppenderOptions{})
	require.NoError(b, err)
	commands, err := publish.NewCommands(app)
	require.NoError(b, err)
	done, err := json.Marshal(machines.Answer{Outcome: machines.Applied, Machine: "gadget", Namespace: "default", ID: "x", State: "CREATING", Version: 1, Revision: 1})
	require.NoError(b, err)
	sub, err := nc.Subscribe("instar.cmd.>", func(m *nats.Msg) {
		_ = nc.Publish(m.Header.Get("Instar-Reply"), done)
		_ = m.Respond([]byte(`{"stream":"COMMANDS","seq":1}`))
	})
	require.NoError(b, err)
	ix := index.New(js, "gadgets", func(_ string, v []byte) (index.Meta, error) { return index.DescribeJSON(v) }, index.Options{})
	var indexes index.Map
	indexes.Set("gadget", ix)
	door, err := api.New(api.Options{Machines: registryOf(b, gadget), Commands: commands, NC: nc, JS: js, Indexes: &indexes, Tokens: tokens})
	require.NoError(b, err)
	h := door.Handler()
	var n atomic.Int64
	b.ReportAllocs()
	b.SetParallelism(32)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			r := httptest.NewRequest("POST", fmt.Sprintf("/v1/gadgets/g%d/create", n.Add(1)), strings.NewReader(`{"spec":{"name":"lamp","size":3,"tags":{"a":"b"}},"labels":{"team":"web"}}`))
			r.Header.Set("Authorization", "Bearer operate-token")
			r.Header.Set("Content-Type", "application/json")
			w := httptest.NewRecorder()
			if h.ServeHTTP(w, r); w.Code != 200 {
				b.Fatal(w.Code, w.Body)
			}
		}
	})
	b.StopTimer()
	_ = sub.Unsubscribe()
	require.NoError(b, door.Close())
	commands.Close()
	app.Close()
	nc.Close()
	require.NoError(b, srv.Shutdown(b.Context()))
}
