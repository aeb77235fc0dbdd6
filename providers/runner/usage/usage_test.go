package usage

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestWatch(t *testing.T) {
	t.Parallel()
	for what, most := range map[string]Of{"bytes": {Bytes: 100}, "entries": {Entries: 50}} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			dir, over := t.TempDir(), make(chan struct{})
			stop := Watch(t.Context(), dir, most, func() { close(over) })
			defer stop()
			for i := range 60 {
				require.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), make([]byte, 2), 0o600))
			}
			select {
			case <-over:
			case <-time.After(20 * time.Second):
				require.FailNow(t, "nobody is told")
			}
		})
	}
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a"), make([]byte, 7), 0o600))
	require.Equal(t, Of{Bytes: 7, Entries: 2}, Look(dir, Of{}))
	Watch(t.Context(), dir, Of{Bytes: 7, Entries: 2}, func() { t.Error("it is not exceeded") })()
}
