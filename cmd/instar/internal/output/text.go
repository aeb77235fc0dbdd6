package output

import (
	"maps"
	"slices"
	"strings"
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
