package export

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// An object of a shared bucket can be named as the prefix of its tenant is, with nothing behind it.
func TestEachNameHasAFileOfItsOwn(t *testing.T) {
	t.Parallel()
	files := map[string]string{}
	for _, name := range []string{"", ".", "%", "%25", "a/b", "a%2Fb"} {
		file := fileName(name)
		require.NotEmpty(t, file, "%q", name)
		require.NotContains(t, files, file, "%q", name)
		files[file] = name
	}
}
