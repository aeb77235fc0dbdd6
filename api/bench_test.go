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
	"github.com/bcc94042/instar/streams/streamstest"
)

// BenchmarkCommand is the price of the door alone: an engine answers every command as soon as it is published, nothing
// is stored, and no client is in between.
func BenchmarkCommand(b *testing.B) {
	e := streamstest.Start(b, embedded.Options{Profile: embedded.OS}).Ensure(streams.Plan{States: []string{"gadgets"}, Views: []string{"gadgets_sizes"}})
	nc, js := e.NC, e.JS
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
	require.NoError(b, js.DeleteStream(b.Context(), streams.CommandStream)) // the engine of this test takes commands from their subject
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
}
