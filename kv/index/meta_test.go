package index

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// slow is DescribeJSON by encoding/json: the members by their exact names, then each one by its type.
func slow(value []byte) (m Meta, err error) {
	var members map[string]json.RawMessage
	if err = json.Unmarshal(value, &members); err != nil {
		return Meta{}, err
	}
	if !bytes.HasPrefix(bytes.TrimSpace(value), []byte("{")) {
		return Meta{}, fmt.Errorf("not an object")
	}
	for name, into := range map[string]any{
		"schema": &m.Schema, "state": &m.State, "version": &m.Version, "generation": &m.Generation,
		"since": &m.Since, "createdAt": &m.CreatedAt, "updatedAt": &m.UpdatedAt, "labels": &m.Labels,
	} {
		if raw, ok := members[name]; ok {
			if err := json.Unmarshal(raw, into); err != nil {
				return Meta{}, err
			}
		}
	}
	return m, nil
}

func TestDescribeSelects(t *testing.T) {
	t.Parallel()
	m, err := DescribeJSON([]byte(`{"state":"a","labels":{"team":"web"},"data":{"type":"noop","params":{"type":"no"},"pool":null}}`), "type", "pool")
	require.NoError(t, err)
	require.Equal(t, map[string]string{"team": "web", ".data.type": "noop"}, m.Labels)
	m, err = DescribeJSON([]byte(`{"data":null}`), "type")
	require.NoError(t, err)
	require.Empty(t, m.Labels)
	for _, wrong := range []string{`{"data":{"type":1}}`, `{"data":[]}`} {
		_, err = DescribeJSON([]byte(wrong), "type")
		require.ErrorContains(t, err, "cannot read data")
	}
}

func FuzzDescribe(f *testing.F) {
	for _, s := range []string{
		`{}`, ` { } `, `null`, `[]`, `{"state":"a"}x`, `{"state":null,"version":null,"since":null,"labels":null,"schema":null}`,
		`{"state":"a\u0041\n\ud83d\ude00\ud83d","st\u0061te":"b"}`, "{\"state\":\"\xff\"}", "{\"state\":\"a\nb\"}", `{"State":"A"}`,
		`{"version":1.0}`, `{"version":1e2}`, `{"version":-1}`, `{"version":-0}`, `{"version":01}`, `{"version":18446744073709551616}`, `{"schema":-3}`,
		`{"labels":{"a":"b","a":"c","d":null,"\u0065":"f"}}`, `{"labels":{"a":1}}`, `{"labels":[]}`, `{"labels":{}}`,
		`{"since":"2025-01-02T03:04:05.6Z","createdAt":"2025-01-02T03:04:05+02:00","updatedAt":"x"}`, `{"since":"2025-01-02T03:04:05,6Z"}`, `{"since":5}`,
		`{"data":{"state":"no","a":[1,2.5e-7,true,false,null,{}]},"state":"yes"}`, `{"a":tru}`, `{"a":nulll}`, `{"a":1,}`, `{"a":[1,]}`, `{"a" 1}`, `{"a":-}`, `{"a":1.}`, `{"a":"\x"}`, `{"a":"\u12"}`, `{"a":"`, `{`,
		strings.Repeat(`{"a":`, 20) + "1" + strings.Repeat("}", 20),
	} {
		f.Add([]byte(s))
	}
	f.Add(document(3))
	f.Fuzz(func(t *testing.T, value []byte) {
		want, wrong := slow(value)
		got, err := DescribeJSON(value)
		require.Equal(t, wrong == nil, err == nil, "%v, not %v", err, wrong)
		require.Equal(t, want, got)
	})
}

func TestDescribeDepthIsThatOfEncodingJSON(t *testing.T) {
	t.Parallel()
	for _, depth := range []int{9999, 10000} {
		value := []byte(`{"a":` + strings.Repeat("[", depth) + strings.Repeat("]", depth) + `}`)
		_, wrong := slow(value)
		_, err := DescribeJSON(value)
		require.Equal(t, wrong == nil, err == nil, "%d: %v, not %v", depth, err, wrong)
	}
}

func ExampleDescribeJSON() {
	m, err := DescribeJSON([]byte(`{"state":"ready","version":3,"since":"2025-01-02T03:04:05Z","labels":{"team":"web"},"data":{"anything":[1,2]}}`))
	fmt.Println(m.State, m.Version, m.Since.Format(time.Kitchen), m.Labels, err)
	_, err = DescribeJSON([]byte(`{"state":"ready","version":"three"}`))
	fmt.Println(err)
	// Output:
	// ready 3 3:04AM map[team:web] <nil>
	// cannot read version: strconv.ParseUint: parsing "\"three\"": invalid syntax
}
