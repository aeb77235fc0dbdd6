package strictjson

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// The quick way and the precise one agree on what is read, what is refused and why.
func TestBothWaysAgree(t *testing.T) {
	t.Parallel()
	precise := func(raw []byte, into any) error {
		if err := explain(raw, into); err != nil {
			return err
		}
		n := names{raw: raw}
		if n.value(reflect.TypeOf(into)); n.odd != "" {
			return unknownError(n.odd)
		}
		return nil
	}
	piece := rapid.SampledFrom([]string{
		`{`, `}`, `[`, `]`, `,`, `:`, ` `, `1`, `null`, `""`, `"x"`, `"name":"a"`, `"Name":"a"`, `"deep":1`, `"deep":"d"`, `"Plain":2`, `"list":[{"deep":"a"}]`, `"free":{"x":{"other":1}}`,
		`"other":[{}]`, `"at":"2026-01-26T17:00:00Z"`, `"at":"soon"`, `"next":{`, `"raw":{"Name":[1]}`,
	})
	rapid.Check(t, func(t *rapid.T) {
		raw := ""
		for _, p := range rapid.SliceOfN(piece, 0, 12).Draw(t, "pieces") {
			raw += p
		}
		if rapid.Bool().Draw(t, "object") {
			raw = "{" + raw + "}"
		}
		var quick, slow strictly
		got, want := Unmarshal([]byte(raw), &quick), precise([]byte(raw), &slow)
		if want == nil {
			require.NoError(t, got, raw)
			require.Equal(t, slow, quick, raw)
			return
		}
		require.EqualError(t, got, want.Error(), raw)
	})
}
