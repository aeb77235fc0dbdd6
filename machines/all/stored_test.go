package all

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/instance"
	"github.com/bcc94042/instar/machines/instance/reader"
)

// folders are those of machines that have another name.
var folders = map[string]string{"database_provisioning": "database", "instance_provisioning": "platform"}

// What every released version has stored is read, and written again without loss. A value that is brought up to a newer schema is written in
// that one. The files stored-N.jsonl hold values of the bucket as version N of the schema stored them, a line each; they are never changed.
func TestStoredValuesOfReleasedVersions(t *testing.T) {
	t.Parallel()
	for _, m := range Machines() {
		for schema := 1; schema <= m.Schema(); schema++ {
			path := filepath.Join("..", cmp.Or(folders[m.Name], m.Name), "testdata", fmt.Sprintf("stored-%d.jsonl", schema))
			file, err := os.Open(path)
			require.NoError(t, err, "each schema needs values that were stored under it")
			defer file.Close()
			states := map[string]bool{}
			lines := bufio.NewScanner(file)
			for lines.Buffer(nil, 1<<20); lines.Scan(); {
				value := bytes.Clone(lines.Bytes())
				e, err := m.Decode(value)
				require.NoError(t, err, path)
				states[e.State] = true
				again, err := e.AppendJSON(nil)
				require.NoError(t, err)
				if schema == m.Schema() {
					require.JSONEq(t, string(value), string(again), path)
				}
				current, err := m.Current(value)
				require.NoError(t, err)
				if m == instance.Machine {
					var r reader.Reader
					_, err := r.Decode(e.Key(), current)
					require.NoError(t, err, path)
				}
				strange(t, m, current)
			}
			require.NoError(t, lines.Err())
			require.NotEmpty(t, states)
		}
	}
}

// strange adds a member to a value and to its data, as a newer version may, and sees it kept over a step.
func strange(t *testing.T, m *machines.Machine, value []byte) {
	t.Helper()
	var all map[string]any
	require.NoError(t, json.Unmarshal(value, &all))
	all["fromTomorrow"] = map[string]any{"deep": true}
	all["data"].(map[string]any)["fromTomorrow"] = "x"
	value, err := json.Marshal(all)
	require.NoError(t, err)
	e, err := m.Decode(value)
	require.NoError(t, err)
	for _, command := range m.Allowed(e.State) {
		next, out, err := m.Step(e, machines.Input{Command: command, ID: "c", Seq: e.Mark + 1, Time: time.Now(), Nonce: "n"})
		if err != nil || next.Version == e.Version || next.Birth != e.Birth || out.To == machines.None {
			continue // it needs a body, changes nothing, or begins a new life
		}
		raw, err := next.AppendJSON(nil)
		require.NoError(t, err)
		var kept map[string]any
		require.NoError(t, json.Unmarshal(raw, &kept))
		require.Equal(t, map[string]any{"deep": true}, kept["fromTomorrow"], "%s %s", m.Name, command)
		require.Equal(t, "x", kept["data"].(map[string]any)["fromTomorrow"], "%s %s", m.Name, command)
	}
}
