package api_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/api"
	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/machines/all"
	"github.com/bcc94042/instar/streams"
)

// Every lifecycle that the program runs can be described: no two types share a name, no two paths meet.
func TestTheRealMachines(t *testing.T) {
	t.Parallel()
	srv, err := streams.StartServer(streams.ServerOptions{Dir: t.TempDir(), Profile: streams.OS})
	require.NoError(t, err)
	t.Cleanup(func() { _ = srv.Shutdown(context.Background()) })
	nc, err := streams.Connect(streams.ConnectOptions{Server: srv, Name: "test"})
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	js, err := streams.JetStream(nc)
	require.NoError(t, err)
	app, err := streams.NewAppender(nc, streams.AppenderOptions{})
	require.NoError(t, err)
	t.Cleanup(app.Close)
	commands, err := streams.NewCommands(app)
	require.NoError(t, err)
	plan, indexes := streams.Plan{}, map[string]*kv.Index{}
	for _, m := range all.Machines() {
		plan.States = append(plan.States, m.Plural)
		for _, v := range m.Views {
			plan.Views = append(plan.Views, m.BucketOf(v))
		}
		indexes[m.Name] = kv.NewIndex(js, m.Plural, func(string, []byte) (kv.Meta, error) { return kv.Meta{}, nil }, kv.Options{})
	}
	_, err = streams.Ensure(t.Context(), js, plan)
	require.NoError(t, err)
	door, err := api.New(api.Options{Machines: all.Machines(), Commands: commands, NC: nc, JS: js, Indexes: indexes, Open: true})
	require.NoError(t, err)
	doc, err := openapi3.NewLoader().LoadFromData(door.OpenAPI())
	require.NoError(t, err)
	require.NoError(t, doc.Validate(t.Context()))
	for _, m := range all.Machines() {
		for _, c := range m.Commands() {
			require.Contains(t, string(door.OpenAPI()), fmt.Sprintf("%q", m.Name+"-"+c.Name))
		}
	}
}

func ExampleHashToken() {
	fmt.Println(api.HashToken("correct horse battery staple"))
	// Output: sha256:c4bbcb1fbec99d65bf59d85c8cb62ee2db963f0fe106f483d9afa73bd4e39a8a
}
