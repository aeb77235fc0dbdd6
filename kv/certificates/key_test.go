package certificates

import (
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

var tokens = regexp.MustCompile(`^file(\.([a-zA-Z0-9_-]|=[0-9A-F]{2})+)+$`)

func FuzzKeys(f *testing.F) {
	f.Add("certificates/acme/example.com.key", "certificates/acme/example=2Ecom.key")
	f.Add("a//b", "/a/b/")
	f.Add("a.b", "a/b")
	f.Add("*", ">")
	f.Add("\xff\x00", "ÿ")
	f.Fuzz(func(t *testing.T, one, two string) {
		a, errA := encode(files, one)
		b, errB := encode(files, two)
		if errA == nil {
			require.Regexp(t, tokens, a)
			path, ok := decode(a[len(files)+1:])
			require.True(t, ok)
			require.Equal(t, cleaned(one), path)
		}
		if errA == nil && errB == nil {
			require.Equal(t, cleaned(one) == cleaned(two), a == b)
		}
		decode(one) // of anything
	})
}

func TestOthersKeysAreNoNames(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"=", "a=2", "a=2G", "=2E="} {
		_, ok := decode(key)
		require.False(t, ok, key)
	}
}
