package clone

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Of a repository that is not there any more nothing is left, whoever was told of its deletion.
func TestTidyRemovesWhatHasNoRepository(t *testing.T) {
	t.Parallel()
	dir, _ := origin(t)
	src := Source{URL: dir}
	c := cloner(t, Options{Local: []string{filepath.Dir(dir)}, New: time.Nanosecond})
	var held []*Checkout
	for _, name := range []string{"default/kept", "default/gone", "other/gone"} {
		got, err := c.Fetch(t.Context(), name, "1", src, nil)
		require.NoError(t, err)
		held = append(held, got)
	}
	held[0].Release()
	held[1].Release()
	there := func(name string) bool { return name == "default/kept" }
	require.NoError(t, c.Tidy(there))
	require.DirExists(t, held[0].Dir)
	require.NoDirExists(t, filepath.Dir(held[1].Dir))
	require.DirExists(t, held[2].Dir, "it is in use")
	again, err := Open(c.opts) // the process has ended meanwhile
	require.NoError(t, err)
	require.NoError(t, again.Tidy(there))
	require.NoDirExists(t, filepath.Dir(held[2].Dir))
	got, err := again.Use(t.Context(), "default/gone", "2", src, nil)
	require.NoError(t, err, "it may come back")
	require.True(t, got.Fetched)
	c.opts.New = time.Hour
	require.NoError(t, c.Tidy(there))
	require.DirExists(t, got.Dir, "it may just have been created")
}

func TestAllCheckoutsAreBounded(t *testing.T) {
	t.Parallel()
	dir, _ := origin(t)
	c := cloner(t, Options{Local: []string{filepath.Dir(dir)}})
	var dirs []string
	for i, name := range []string{"a/one", "a/two", "a/three"} {
		got, err := c.Fetch(t.Context(), name, "1", Source{URL: dir}, nil)
		require.NoError(t, err)
		got.Release()
		dirs = append(dirs, got.Dir)
		old := time.Now().Add(time.Duration(i-10) * time.Minute)
		require.NoError(t, os.Chtimes(got.Dir, old, old))
	}
	got, err := c.Use(t.Context(), "a/one", "2", Source{URL: dir}, nil)
	require.NoError(t, err)
	c.opts.Total = c.sizeOf(dirs[0]) * 3 / 2
	require.NoError(t, c.Tidy(func(string) bool { return true }))
	require.DirExists(t, dirs[0], "it is in use")
	require.NoDirExists(t, dirs[1])
	require.NoDirExists(t, dirs[2])
	got.Release()
	got, err = c.Use(t.Context(), "a/two", "2", Source{URL: dir}, nil)
	require.NoError(t, err)
	require.True(t, got.Fetched, "what was removed is fetched again")
	require.NoDirExists(t, dirs[0], "a fetch makes room, too")
}

// A use that wants less history than there is takes what there is, and leaves it current.
func TestADeeperCheckoutServesAShallowerUse(t *testing.T) {
	t.Parallel()
	dir, run := origin(t)
	run("commit", "-qm", "more", "--allow-empty")
	c := cloner(t, Options{Local: []string{filepath.Dir(dir)}})
	cloned, err := c.Fetch(t.Context(), "a/one", "1", Source{URL: dir, Depth: 3, Clone: 7}, nil)
	require.NoError(t, err)
	cloned.Release()
	for _, depth := range []int{1, 3} {
		got, err := c.Use(t.Context(), "a/one", "2", Source{URL: dir, Depth: depth, Clone: 7}, nil)
		require.NoError(t, err)
		require.Equal(t, cloned.Dir, got.Dir)
		got.Release()
	}
	for _, depth := range []int{-1, 3, 0} {
		whole, err := c.Use(t.Context(), "a/one", "3", Source{URL: dir, Depth: depth, Clone: 7}, nil)
		require.NoError(t, err)
		require.NotEqual(t, cloned.Dir, whole.Dir)
		whole.Release()
	}
}

// Another depth of the same commit is another checkout.
func TestAnotherDepthOfTheSameCommit(t *testing.T) {
	t.Parallel()
	dir, run := origin(t)
	for range 3 {
		run("commit", "-qm", "more", "--allow-empty")
	}
	c := cloner(t, Options{Local: []string{filepath.Dir(dir)}})
	lengths := map[int]int{}
	for _, depth := range []int{1, 3, -1} {
		for _, fetch := range []bool{true, false} {
			get := c.Use
			if fetch {
				get = c.Fetch
			}
			got, err := get(t.Context(), "a/one", "1", Source{URL: dir, Depth: depth}, nil)
			require.NoError(t, err)
			log, err := historyOf(t, got, 100)
			require.NoError(t, err)
			lengths[depth] = len(log)
			got.Release()
		}
	}
	require.Equal(t, 1, lengths[1])
	require.Equal(t, 3, lengths[3])
	require.Greater(t, lengths[-1], 3)
}
