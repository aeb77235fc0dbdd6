package machines_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines"
)

// shade and shop are data of a machine as an earlier version knows them.
type shade struct {
	Colour string `json:"colour,omitempty"`
}

type shop struct {
	Sign   string           `json:"sign,omitempty"`
	Front  *shade           `json:"front,omitempty"`
	Rooms  map[string]shade `json:"rooms,omitempty"`
	Panes  []shade          `json:"panes,omitempty"`
	Raw    json.RawMessage  `json:"raw,omitempty"`
	Opened time.Time        `json:"opened,omitzero"`
}

func shops(upcasts ...machines.Upcast) *machines.Machine {
	return machines.Define(machines.Definition[shop]{
		Name: "shop", Plural: "shops", Doc: "It sells.",
		States: []machines.State[shop]{{Name: "open"}, {Name: "closed", Terminal: true}},
		Events: []machines.EventType{{Name: "opened", Class: machines.ClassState}, {Name: "painted", Class: machines.ClassState}, {Name: "closed", Class: machines.ClassState}},
		Inputs: []machines.Command{{Name: "open", Birth: true}, {Name: "paint"}, {Name: "strip"}, {Name: "close"}},
		Edges: []machines.Edge[shop]{
			{From: []string{machines.None, "closed"}, On: "open", To: "open", Emit: []string{"opened"}},
			{From: []string{"open"}, On: "paint", To: machines.Same, Emit: []string{"painted"}, Do: func(tx *machines.Tx[shop]) { tx.Data.Front = &shade{"red"} }},
			{From: []string{"open"}, On: "strip", To: machines.Same, Emit: []string{"painted"}, Do: func(tx *machines.Tx[shop]) { tx.Data.Front, tx.Data.Rooms = nil, nil }},
			{From: []string{"open"}, On: "close", To: "closed", Emit: []string{"closed"}},
		},
		Upcasts: upcasts,
	})
}

// stored is what a newer version has written: it knows the members whose names begin with new.
const stored = `{"schema":1,"machine":"shop","namespace":"default","id":"a","state":"open","version":3,"generation":1,"since":"2026-01-02T03:04:05Z",
	"createdAt":"2026-01-02T03:04:05Z","updatedAt":"2026-01-02T03:04:05Z","newTop":{"z":1,"a":[true,1.50]},
	"data":{"newData":12345678901234567890,"sign":"x","front":{"newFront":"f","colour":"blue"},"rooms":{"hall":{"newRoom":null}},"panes":[{"newPane":1}],"raw":{"any":1}},
	"timers":{"t":{"at":"2026-01-02T03:04:05Z","armed":3,"newTimer":1}},"mark":7,"lastEvent":9}`

func step(t *testing.T, m *machines.Machine, e machines.Entity, command string) map[string]any {
	t.Helper()
	if command != "" {
		next, _, err := m.Step(e, machines.Input{Command: command, ID: command, Seq: 10, Time: time.Unix(1e9, 0).UTC()})
		require.NoError(t, err)
		e = next
	}
	raw, err := e.AppendJSON([]byte("another value"))
	require.NoError(t, err)
	raw, appended := bytes.CutPrefix(raw, []byte("another value"))
	require.True(t, appended)
	var all map[string]any
	dec := json.NewDecoder(strings.NewReader(string(raw)))
	dec.UseNumber()
	require.NoError(t, dec.Decode(&all), string(raw))
	require.True(t, strings.HasPrefix(string(raw), `{"schema":1,"machine":"shop",`), "known members stay where readers look first")
	return all
}

// What a newer version has stored is kept by this one, wherever it is: but in items of lists, and where what held it is gone.
func TestWhatIsNotKnownIsKept(t *testing.T) {
	t.Parallel()
	m := shops()
	e, err := m.Decode([]byte(stored))
	require.NoError(t, err)
	top := map[string]any{"z": json.Number("1"), "a": []any{true, json.Number("1.50")}}
	for _, command := range []string{"", "paint", "strip", "close"} {
		all := step(t, m, e, command)
		require.Equal(t, top, all["newTop"], command)
		data := all["data"].(map[string]any)
		require.Equal(t, json.Number("12345678901234567890"), data["newData"], command)
		require.NotContains(t, data["panes"].([]any)[0], "newPane", "no name says which item it is of")
		if command == "strip" {
			require.NotContains(t, data, "front")
			require.NotContains(t, data, "rooms")
			continue
		}
		require.Equal(t, "f", data["front"].(map[string]any)["newFront"], command)
		require.Contains(t, data["rooms"].(map[string]any)["hall"], "newRoom", command)
	}
	timers := step(t, m, e, "")["timers"].(map[string]any)
	require.NotContains(t, timers["t"], "newTimer", "it is of one try")

	closed, _, err := m.Step(e, machines.Input{Command: "close", ID: "c", Seq: 11, Time: time.Unix(1e9, 0)})
	require.NoError(t, err)
	reborn := step(t, m, closed, "open")
	require.NotContains(t, reborn, "newTop", "a new life has nothing of the one before")

	known, err := m.Decode([]byte(strings.ReplaceAll(`{"schema":1,"machine":"shop","namespace":"n","id":"a","state":"open","data":null}`, "\n", "")))
	require.NoError(t, err)
	step(t, m, known, "paint")
}

// A value of an earlier schema is brought up step by step; one of a newer schema is left alone.
func TestUpcasts(t *testing.T) {
	t.Parallel()
	data := func(v map[string]any) map[string]any { return v["data"].(map[string]any) }
	rename := func(v map[string]any) error {
		data(v)["label"] = data(v)["sign"]
		delete(data(v), "sign")
		return nil
	}
	again := func(v map[string]any) error {
		label, ok := data(v)["label"].(string)
		if !ok {
			return errors.New("it has no label")
		}
		data(v)["sign"] = label + "!"
		delete(data(v), "label")
		return nil
	}
	m := shops(rename, again)
	require.Equal(t, 3, m.Schema())
	require.Equal(t, 3, m.New("default", "", "a").Schema)
	e, err := m.Decode([]byte(stored))
	require.NoError(t, err)
	require.Equal(t, 3, e.Schema)
	require.Equal(t, "x!", e.Data.(*shop).Sign)
	raw, err := e.AppendJSON(nil)
	require.NoError(t, err)
	require.Contains(t, string(raw), "12345678901234567890", "what is not known is kept on the way")
	same, err := m.Current(raw)
	require.NoError(t, err)
	require.Equal(t, &raw[0], &same[0])

	left := shops().New("default", "", "a")
	left.State, left.Version, left.Data = e.State, e.Version, nil
	raw, err = left.AppendJSON(nil)
	require.NoError(t, err)
	remains, err := m.Decode(raw)
	require.NoError(t, err, "what remains of a dropped value has no data to bring up")
	require.Equal(t, 3, remains.Schema)
	require.Equal(t, e.Version, remains.Version)

	for text, want := range map[string]string{
		strings.Replace(stored, `"schema":1`, `"schema":4`, 1):       "has schema 4, this program knows up to 3",
		strings.Replace(stored, `"schema":1`, `"schema":0`, 1):       "has no schema",
		strings.Replace(stored, `"schema":1`, `"schema":2`, 1):       "from schema 2 to 3: it has no label",
		strings.Replace(stored, `"schema":1`, `"schema":"third"`, 1): "cannot read a stored shop",
	} {
		_, err := m.Decode([]byte(text))
		require.ErrorContains(t, err, want)
		_, err = m.Current([]byte(text))
		require.ErrorContains(t, err, want)
	}
	_, err = shops().Decode([]byte(strings.Replace(stored, `"schema":1`, `"schema":2`, 1)))
	require.ErrorContains(t, err, "run a newer one")
}
