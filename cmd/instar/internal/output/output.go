// Package output writes answers in the formats of the command line: tables for people; JSON, lines of JSON and YAML in
// the order and with all fields that the server sent; names for scripts.
package output

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Format is what -o chooses.
type Format string

// The formats.
const (
	Table Format = "table"
	Wide  Format = "wide"
	JSON  Format = "json"
	JSONL Format = "jsonl"
	YAML  Format = "yaml"
	Name  Format = "name"
)

// Formats are all of them.
var Formats = []string{string(Table), string(Wide), string(JSON), string(JSONL), string(YAML), string(Name)}

// ParseFormat reads a format.
func ParseFormat(s string) (Format, error) {
	if !slices.Contains(Formats, s) {
		return "", fmt.Errorf("-o: %q is none of %s", s, strings.Join(Formats, ", "))
	}
	return Format(s), nil
}

// Human reports whether people read it.
func (f Format) Human() bool { return f == Table || f == Wide }

// Value writes one JSON value; for the formats of people, too, it is indented JSON.
func (f Format) Value(w io.Writer, raw []byte) error {
	switch f {
	case JSONL:
		return line(w, raw)
	case YAML:
		return yamlOf(w, raw)
	}
	var b bytes.Buffer
	if err := json.Indent(&b, bytes.TrimSpace(raw), "", "  "); err != nil {
		return fmt.Errorf("the server sent no JSON: %w", err)
	}
	b.WriteByte('\n')
	_, err := b.WriteTo(w)
	return err
}

// List writes JSON values: an array, lines, or one YAML sequence.
func (f Format) List(w io.Writer, items []json.RawMessage) error {
	if f == JSONL {
		for _, item := range items {
			if err := line(w, item); err != nil {
				return err
			}
		}
		return nil
	}
	if items == nil {
		items = []json.RawMessage{}
	}
	raw, err := json.Marshal(items)
	if err != nil {
		return fmt.Errorf("the server sent no JSON: %w", err)
	}
	return f.Value(w, raw)
}

func line(w io.Writer, raw []byte) error {
	var b bytes.Buffer
	if err := json.Compact(&b, raw); err != nil {
		return fmt.Errorf("the server sent no JSON: %w", err)
	}
	b.WriteByte('\n')
	_, err := b.WriteTo(w)
	return err
}

// yamlOf keeps the order of the fields: JSON is YAML in another style.
func yamlOf(w io.Writer, raw []byte) error {
	var doc yaml.Node
	if err := yaml.Unmarshal(raw, &doc); err != nil {
		return fmt.Errorf("the server sent no JSON: %w", err)
	}
	plain(&doc)
	enc := yaml.NewEncoder(w)
	enc.SetIndent(2)
	if err := enc.Encode(&doc); err != nil {
		return fmt.Errorf("cannot write YAML: %w", err)
	}
	return enc.Close()
}

func plain(n *yaml.Node) {
	if len(n.Content) > 0 || n.Kind == yaml.ScalarNode {
		n.Style = 0 // an empty collection keeps its brackets
	}
	for _, c := range n.Content {
		plain(c)
	}
}
