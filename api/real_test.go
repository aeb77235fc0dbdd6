package api_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/api"
	"github.com/bcc94042/instar/api/auth"
	"github.com/bcc94042/instar/kv/index"
	"github.com/bcc94042/instar/machines/all"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/embedded"
	"github.com/bcc94042/instar/streams/publish"
	"github.com/bcc94042/instar/streams/streamstest"
)

// Every lifecycle that the program runs can be described: no two types share a name, no two paths meet.
func TestTheRealMachines(t *testing.T) {
	t.Parallel()
	e := streamstest.Start(t, embedded.Options{Profile: embedded.OS})
	nc, js := e.NC, e.JS
	app, err := publish.NewAppender(nc, publish.AppenderOptions{})
	require.NoError(t, err)
	t.Cleanup(app.Close)
	commands, err := publish.NewCommands(app)
	require.NoError(t, err)
	plan, indexes := streams.Plan{}, &index.Map{}
	for _, m := range all.Machines() {
		plan.States = append(plan.States, m.Plural)
		for _, v := range m.Views {
			plan.Views = append(plan.Views, m.BucketOf(v))
		}
		indexes.Set(m.Name, index.New(js, m.Plural, func(string, []byte) (index.Meta, error) { return index.Meta{}, nil }, index.Options{}))
	}
	e.Ensure(plan)
	door, err := api.New(api.Options{Machines: registryOf(t, all.Machines()...), Commands: commands, NC: nc, JS: js, Indexes: indexes, Open: true})
	require.NoError(t, err)
	doc, err := openapi3.NewLoader().LoadFromData(door.OpenAPI())
	require.NoError(t, err)
	require.NoError(t, doc.Validate(t.Context()))
	var async struct {
		Channels   map[string]struct{ Address string }
		Components struct {
			Messages map[string]struct {
				Payload struct {
					Ref        string `json:"$ref"`
					Properties map[string]struct {
						Ref string `json:"$ref"`
					}
				}
			}
			Schemas map[string]struct{ Properties map[string]any }
		}
	}
	require.NoError(t, json.Unmarshal(door.AsyncAPI(), &async))
	for channel, data := range map[string]string{"service.applied": "ServiceApplied", "service.observed": "ServiceObservation", "relay.started": "RelayObservation", "service.delete-accepted": ""} {
		require.Contains(t, async.Channels, channel)
		message := async.Components.Messages[channel].Payload
		require.Contains(t, message.Properties, "attempt")
		require.Equal(t, data, strings.TrimPrefix(message.Properties["data"].Ref, "#/components/schemas/"), channel)
	}
	require.Equal(t, "instar.cmd.service.{namespace}.{id}.failed", async.Channels["service.failed"].Address)
	require.Contains(t, async.Components.Schemas["EffectFailed"].Properties, "failure")
	require.Contains(t, async.Components.Schemas["ServiceApplyTask"].Properties, "spec", "of the data of a task")
	for _, m := range all.Machines() {
		for _, c := range m.Commands() {
			require.Contains(t, string(door.OpenAPI()), fmt.Sprintf("%q", m.Name+"-"+c.Name))
		}
	}
}

func ExampleHashToken() {
	fmt.Println(auth.HashToken("correct horse battery staple"))
	// Output: sha256:c4bbcb1fbec99d65bf59d85c8cb62ee2db963f0fe106f483d9afa73bd4e39a8a
}
