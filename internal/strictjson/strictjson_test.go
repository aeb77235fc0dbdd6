package strictjson

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

type inner struct {
	Deep string `json:"deep"`
}

type strictly struct {
	inner
	Name   string            `json:"name"`
	Plain  int               // no tag
	List   []inner           `json:"list,omitempty"`
	Free   map[string]inner  `json:"free"`
	Text   map[string]string `json:"text"`
	Raw    json.RawMessage   `json:"raw"`
	At     time.Time         `json:"at"`
	Any    any               `json:"any"`
	Next   *strictly         `json:"next"`
	Hidden string            `json:"-"`
}

func TestNamesOfMembersAreExact(t *testing.T) {
	t.Parallel()
	for _, raw := range []string{
		`{}`, ` null `, `{"name":"a","deep":"b","Plain":1}`, `{"list":[{"deep":"a"},{}],"free":{"Deep":{"deep":""},"NAME":{}}}`,
		`{"text":{"Name":"x","name":"y"},"raw":{"NAME":[{"x":1}]},"any":{"Name":{"LIST":[]}},"at":"2026-01-26T17:00:00Z"}`,
		`{"next":{"next":{"name":"\"}{"}}}`, `{"na\u006de":"a"}`, "\n{ \"name\" :\t\"a\" , \"list\" : [ ] }\r\n",
	} {
		var v strictly
		require.NoError(t, Unmarshal([]byte(raw), &v), raw)
	}
	for raw, want := range map[string]string{
		`{"Name":"a"}`: "Name", `{"NAME":"a"}`: "NAME", `{"plain":1}`: "plain", `{"name":"a","Name":"b"}`: "Name", `{"N\u0061me":"a"}`: "Name",
		`{"list":[{"deep":"a"},{"Deep":"b"}]}`: "Deep", `{"free":{"x":{"DEEP":"b"}}}`: "DEEP", `{"next":{"next":{"Free":{}}}}`: "Free",
		`{"Deep":"b"}`: "Deep", `{"other":1}`: "other", `{"Hidden":"a"}`: "Hidden",
	} {
		var v strictly
		require.EqualError(t, Unmarshal([]byte(raw), &v), `json: unknown field "`+want+`"`, raw)
	}
	for _, raw := range []string{``, `{`, `{} {}`, `{}x`, `{"name":1}`, `[]`} {
		require.Error(t, Unmarshal([]byte(raw), &strictly{}), raw)
	}
}

// Whatever text comes, the walk ends, and agrees with encoding/json about what is JSON.
func TestAnyTextIsReadOrRefused(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		raw := rapid.StringOf(rapid.SampledFrom([]rune(`{}[]",:\ namefrt1e-.`))).Draw(t, "raw")
		var v map[string]any
		var s strictly
		err := Unmarshal([]byte(raw), &v)
		require.Equal(t, json.Unmarshal([]byte(raw), &v) == nil, err == nil, raw)
		_ = Unmarshal([]byte(raw), &s)
	})
}
