package machines

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/bcc94042/instar/internal/strictjson"
)

// Upcast brings a stored value from one schema to the next: from the first to the second for the first upcast of a machine, and so on. The
// value is the whole stored object, whose numbers are [json.Number]; it is changed in place. It may be called more than once for
// the same value, and must not depend on anything else.
type Upcast func(value map[string]any) error

// Schema is the schema of the values that this version of the machine writes: one more than it has upcasts. A value with a higher one was
// written by a newer program: it is reported and left alone.
func (m *Machine) Schema() int { return 1 + len(m.upcasts) }

// Current is the stored value in the schema of this version. Of a value that has it already it is the same slice. It fails
// for a value of a newer schema, and for one that has none.
func (m *Machine) Current(value []byte) ([]byte, error) {
	var head struct {
		Schema int `json:"schema"`
	}
	if len(m.upcasts) == 0 {
		return value, nil // what reads it looks
	}
	if err := json.Unmarshal(value, &head); err != nil {
		return nil, fmt.Errorf("machines: cannot read a stored %s: %w", m.Name, err)
	}
	if err := m.checkSchema(head.Schema, ""); err != nil || head.Schema == m.Schema() {
		return value, err
	}
	dec := json.NewDecoder(bytes.NewReader(value))
	dec.UseNumber()
	var all map[string]any
	if err := dec.Decode(&all); err != nil {
		return nil, fmt.Errorf("machines: cannot read a stored %s: %w", m.Name, err)
	}
	_, whole := all["data"] // what is left of a dropped value has none
	for n := head.Schema; n < m.Schema(); n++ {
		if whole {
			if err := m.upcasts[n-1](all); err != nil {
				return nil, fmt.Errorf("machines: cannot bring a stored %s from schema %d to %d: %w", m.Name, n, n+1, err)
			}
		}
		all["schema"] = n + 1
	}
	return json.Marshal(all)
}

func (m *Machine) checkSchema(schema int, key string) error {
	switch {
	case schema > m.Schema():
		return fmt.Errorf("machines: stored %s %s has schema %d, this program knows up to %d: run a newer one", m.Name, key, schema, m.Schema())
	case schema < 1:
		return fmt.Errorf("machines: stored %s has no schema: it was not written by this program", m.Name)
	}
	return nil
}

// ofEntity leaves out what belongs to one try of one thing: the next one is not of it.
func ofEntity(r strictjson.Unknown) strictjson.Unknown {
	for _, name := range []string{"timers", "effects", "lastError"} {
		if _, known := r[name].(strictjson.Unknown); known {
			delete(r, name)
		}
	}
	if len(r) == 0 {
		return nil
	}
	return r
}
