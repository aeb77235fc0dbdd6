package output_test

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/cmd/instar/internal/output"
)

func TestAge(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for d, want := range map[time.Duration]string{
		-time.Hour: "0s", 0: "0s", 119 * time.Second: "119s", 125 * time.Second: "2m5s", 10 * time.Minute: "10m", 179 * time.Minute: "179m",
		3 * time.Hour: "3h", 47 * time.Hour: "47h", 48 * time.Hour: "2d",
	} {
		require.Equal(t, want, output.Age(now.Add(-d), now))
	}
	require.Empty(t, output.Age(time.Time{}, now))
}

func TestAt(t *testing.T) {
	t.Parallel()
	var v any
	require.NoError(t, json.Unmarshal([]byte(`{"a":{"b":[1,2.5,"x"]},"labels":{"app.kubernetes.io/name":"web","n":1e9},"null":null}`), &v))
	for path, want := range map[string]string{
		"a.b": "1,2.5,x", "a.c": "", "a.b.c": "", "labels.app.kubernetes.io/name": "web", "labels": "app.kubernetes.io/name=web,n=1000000000", "null": "",
	} {
		require.Equal(t, want, output.At(v, path), path)
	}
}

func TestGridColoursDoNotCountAsWidth(t *testing.T) {
	t.Parallel()
	g := output.Grid{Titles: []string{"ID", "STATE", "LAST WORD"}, Paint: func(column, text string) string {
		if column == "STATE" {
			return "<" + text + ">"
		}
		return text
	}}
	g.Add("ä", "READY", "evil\x1b[2J\r\n")
	g.Add("longer", "UP", "")
	var b bytes.Buffer
	require.NoError(t, g.Write(&b))
	require.Equal(t, "ID      STATE  LAST WORD\nä       <READY>  evil[2J\nlonger  <UP>     -\n", b.String())
}

func TestYAMLKeepsOrderAndTypes(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	require.NoError(t, output.YAML.Value(&b, []byte(`{"z":"true","a":{"n":1,"list":[],"text":"a: b"},"m":["x",{"k":null}]}`)))
	require.Equal(t, "z: \"true\"\na:\n  n: 1\n  list: []\n  text: 'a: b'\nm:\n  - x\n  - k: null\n", b.String())
}

func TestList(t *testing.T) {
	t.Parallel()
	items := []json.RawMessage{[]byte(`{"a": 1}`), []byte(`{"b": 2}`)}
	var b bytes.Buffer
	require.NoError(t, output.JSONL.List(&b, items))
	require.Equal(t, "{\"a\":1}\n{\"b\":2}\n", b.String())
	b.Reset()
	require.NoError(t, output.JSON.List(&b, nil))
	require.Equal(t, "[]\n", b.String())
	_, err := output.ParseFormat("xml")
	require.ErrorContains(t, err, "table, wide, json, jsonl, yaml, name")
}

func TestTableOf(t *testing.T) {
	t.Parallel()
	g, ok := output.TableOf([]byte(`[{"name":"a","n":1,"list":[1]},{"name":"b","late":"true"}]`))
	require.True(t, ok)
	var b bytes.Buffer
	require.NoError(t, g.Write(&b))
	require.Equal(t, "NAME  N  LATE\na     1  -\nb     -  true\n", b.String())
	for _, other := range []string{`[]`, `{}`, `[1]`, `"x"`} {
		_, ok := output.TableOf([]byte(other))
		require.False(t, ok, other)
	}
}
