package output

import (
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

func pairs(m map[string]any) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		parts = append(parts, k+"="+Text(m[k]))
	}
	return strings.Join(parts, ",")
}

// Pairs writes a map as K=V, sorted by key.
func Pairs(m map[string]string) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		parts = append(parts, k+"="+m[k])
	}
	return strings.Join(parts, ",")
}

// TableOf makes a table of a JSON list of objects: a column for each field, in the order in which they come. Fields
// that hold lists or objects have none.
func TableOf(raw []byte) (*Grid, bool) {
	var doc yaml.Node
	if err := yaml.Unmarshal(raw, &doc); err != nil || len(doc.Content) == 0 {
		return nil, false
	}
	list := doc.Content[0]
	if list.Kind != yaml.SequenceNode || len(list.Content) == 0 {
		return nil, false
	}
	g := &Grid{}
	column := map[string]int{}
	for _, row := range list.Content {
		if row.Kind != yaml.MappingNode {
			return nil, false
		}
		for i := 0; i+1 < len(row.Content); i += 2 {
			name := row.Content[i].Value
			if _, known := column[name]; !known && row.Content[i+1].Kind == yaml.ScalarNode {
				column[name] = len(column)
				g.Titles = append(g.Titles, strings.ToUpper(name))
			}
		}
	}
	for _, row := range list.Content {
		cells := make([]string, len(column))
		for i := 0; i+1 < len(row.Content); i += 2 {
			if n, ok := column[row.Content[i].Value]; ok {
				cells[n] = row.Content[i+1].Value
			}
		}
		g.Add(cells...)
	}
	return g, true
}
