package instance_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/instance"
)

// The kinds that go by kinds.go are those of the schema.
func TestTheKindsOfChecksAreThoseOfTheSchema(t *testing.T) {
	t.Parallel()
	field, found := reflect.TypeFor[instance.Check]().FieldByName("Type")
	require.True(t, found)
	require.Equal(t, strings.Join(instance.Kinds, ","), field.Tag.Get("enum"))
}

func TestRegistrationsAreBounded(t *testing.T) {
	t.Parallel()
	many := func(n int) map[string]string {
		m := map[string]string{}
		for i := range n {
			m[fmt.Sprintf("k%03d", i)] = "v"
		}
		return m
	}
	for want, b := range map[string]instance.RegisterBody{
		"":                                                                   {Payload: many(64), Labels: many(32), Tags: make62("t"), Zone: "eu-1", Version: "v1.2+build", Weight: ptr(0)},
		"payload: has more than 64 keys":                                     {Payload: many(65)},
		"payload: is larger than 16384 bytes":                                {Payload: map[string]string{"k": strings.Repeat("x", 16384)}},
		"payload: is longer than 128 bytes":                                  {Payload: map[string]string{strings.Repeat("k", 129): "v"}},
		"payload.k: contains a NUL byte":                                     {Payload: map[string]string{"k": "\x00"}},
		"labels: has more than 32 labels":                                    {Labels: many(33)},
		"labels.a: is not a Kubernetes label value":                          {Labels: map[string]string{"a": "b c"}},
		`labels: "A_/b" is not a Kubernetes label key`:                       {Labels: map[string]string{"A_/b": "c"}},
		"tags: has more than 64":                                             {Tags: append(make62("t"), "a", "b", "c")},
		"version: is longer than 128 bytes":                                  {Version: strings.Repeat("1", 129)},
		"check.headers: has more than 64":                                    {Check: instance.Check{Type: "http", Headers: many(65)}},
		"check.body: is longer than 16384 bytes":                             {Check: instance.Check{Type: "udp", Body: strings.Repeat("x", 16385)}},
		"check.status: has more than 16":                                     {Check: instance.Check{Type: "http", Status: []int{200, 201, 202, 203, 204, 205, 206, 207, 208, 226, 300, 301, 302, 303, 304, 305, 306}}},
		"check.match: is longer than 1024 bytes":                             {Check: instance.Check{Type: "udp", Match: strings.Repeat("x", 1025)}},
		"check.path: contains a blank or #":                                  {Check: instance.Check{Type: "http", Path: "/a b"}},
		"check.command: has more than 32 arguments":                          {Check: instance.Check{Type: "script", Command: make62("a")[:33]}},
		"check.command[1]: is longer than 4096 bytes or contains a NUL byte": {Check: instance.Check{Type: "script", Command: []string{"a", "\x00"}}},
	} {
		b.NodeAddress = "web:80"
		if r := b.Validate(); want == "" {
			require.Nil(t, r)
		} else {
			require.NotNil(t, r, want)
			require.Equal(t, want, r.Message)
		}
	}
}

func make62(tag string) []string {
	tags := make([]string, 62)
	for i := range tags {
		tags[i] = tag
	}
	return tags
}

// What a check says may be long, and no text at all.
func TestOutputIsCutBetweenCharacters(t *testing.T) {
	t.Parallel()
	e := instance.Machine.New("default", "web", "a")
	do := func(name string, body any) {
		raw, err := json.Marshal(body)
		require.NoError(t, err)
		if in, _ := instance.Machine.Input(name); in.Report {
			raw, err = json.Marshal(machines.Report{Data: raw})
			require.NoError(t, err)
		}
		e, _, err = instance.Machine.Step(e, machines.Input{Command: name, Time: noon, Actor: "node-1", Body: raw})
		require.NoError(t, err)
	}
	do(instance.CommandRegister, instance.RegisterBody{NodeAddress: "web:80", Check: instance.Check{Type: "tcp"}})
	do(instance.ReportPersisted, nil)
	do(instance.ReportFailed, instance.Evidence{Consecutive: 3, Output: strings.Repeat("x", 511) + "é\xff" + strings.Repeat("y", 100)})
	v := e.Data.(*instance.Data).Evidence
	require.Equal(t, strings.Repeat("x", 511), v.Output)
	require.Equal(t, "node-1", v.Observer, "who sent it saw it")
	require.Equal(t, noon, v.At)
}
