package schema_test

import (
	"runtime"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/api/schema"
)

// A body that is made to cost much costs little: it is bounded in size, and judged by its depth before it is decoded (OWASP
// API4).
func TestHostileBodies(t *testing.T) { // not parallel: it measures what is allocated
	const size = 255 << 10
	object := &huma.Schema{Type: huma.TypeObject, AdditionalProperties: true}
	object.PrecomputeMessages()
	v := schema.New(huma.NewMapRegistry("#/", huma.DefaultSchemaNamer))
	for what, raw := range map[string]string{
		"arrays in arrays":   strings.Repeat("[", size),
		"objects in objects": strings.Repeat(`{"a":`, size/5),
		"ten thousand deep":  strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000),
		"empty arrays":       "[" + strings.Repeat("[],", size/3) + "[]]",
		"numbers":            "[" + strings.Repeat("1,", size/2) + "1]",
		"members":            "{" + strings.Repeat(`"":0,`, size/5) + `"":0}`,
		"escapes":            `"` + strings.Repeat(`\u0000`, size/6) + `"`,
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		details, err := v.Check(object, "body", []byte(raw))
		runtime.ReadMemStats(&after)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(50<<20), what)
		if what != "members" {
			require.True(t, err != nil || len(details) > 0, what)
		}
	}
}
