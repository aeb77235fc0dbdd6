package overlay_test

import (
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/internal/simulation/overlay"
)

// The patches apply to the Go that is in use, or the simulation repeats nothing.
func TestThePatchesApply(t *testing.T) {
	t.Parallel()
	module, err := filepath.Abs("../../..")
	require.NoError(t, err)
	root, err := overlay.GoRoot()
	require.NoError(t, err)
	list, err := overlay.Write(t.TempDir(), module, root)
	require.NoError(t, err, "%s changed what the simulation patches", runtime.Version())
	require.FileExists(t, list)
}

func TestAPatchWhoseTextIsGoneIsRefused(t *testing.T) {
	t.Parallel()
	module, err := filepath.Abs("../../..")
	require.NoError(t, err)
	root, err := overlay.GoRoot()
	require.NoError(t, err)
	_, err = overlay.Write(t.TempDir(), module, root, overlay.Patch{File: "internal/wait/wait.go", Old: "no such text", New: "x"})
	require.ErrorIs(t, err, overlay.ErrNotThere)
}
