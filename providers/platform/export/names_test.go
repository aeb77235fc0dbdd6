package export

import (
	"testing"
	"time"

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

// Not in parallel: while so many looks are not answered, no other one is.
func TestALookIsNotWaitedForWithoutEnd(t *testing.T) {
	was := patience
	t.Cleanup(func() { patience = was })
	patience = 10 * time.Millisecond
	for range cap(looks) {
		looks <- struct{}{}
	}
	f := &Files{Dir: t.TempDir()}
	require.ErrorContains(t, f.Ready("it"), "does not answer within 10ms")
	for range cap(looks) {
		<-looks
	}
	patience = was
	require.NoError(t, f.Ready("it"))
}
