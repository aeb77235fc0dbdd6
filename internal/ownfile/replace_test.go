package ownfile

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The test binary is also a program that replaces a file again and again.
func TestMain(m *testing.M) {
	if path := os.Getenv("REPLACES"); path != "" {
		for {
			if err := Replace(path, []byte(strings.Repeat("x", 1<<16))); err != nil {
				panic(err)
			}
		}
	}
	os.Exit(m.Run())
}

func namesIn(t *testing.T, dir string) (all []string) {
	t.Helper()
	list, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range list {
		all = append(all, e.Name())
	}
	return all
}

// killed ends a program while it writes the path for the first time, or again.
func killed(t *testing.T, path string) {
	t.Helper()
	for {
		cmd := exec.Command(os.Args[0], "-test.run=^$")
		cmd.Env = append(os.Environ(), "REPLACES="+path)
		require.NoError(t, cmd.Start())
		require.Eventually(t, func() bool { return len(namesIn(t, filepath.Dir(path))) > 1 }, time.Minute, time.Millisecond)
		require.NoError(t, cmd.Process.Kill())
		_ = cmd.Wait() // it was killed
		if len(namesIn(t, filepath.Dir(path))) > 1 {
			return
		}
	}
}

// A process can be killed at any time: what it had begun to write is no file of anybody, and may have secrets.
func TestWhatACrashLeavesGoesWithTheNextReplaceOrTheFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "acme.user")
	killed(t, path)
	require.NoError(t, Replace(path, []byte("new")))
	require.Equal(t, []string{"acme.user"}, namesIn(t, filepath.Dir(path)))
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "new", string(raw))

	killed(t, path)
	found, err := filepath.Glob(filepath.Join(filepath.Dir(path), "*.user"))
	require.NoError(t, err)
	require.Equal(t, []string{path}, found, "what is left does not look like a file of that kind")
	require.NoError(t, RemoveAll(path))
	require.Empty(t, namesIn(t, filepath.Dir(path)))
}

// Each is whole, also when many write it at once.
func TestOneFileIsReplacedByManyAtOnce(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file")
	var all sync.WaitGroup
	failed := make(chan error, 16)
	for i := range cap(failed) {
		all.Go(func() {
			for range 20 {
				if err := Replace(path, []byte(strings.Repeat(fmt.Sprintf("%x", i), 1000*(i+1)))); err != nil {
					failed <- err
					return
				}
				raw, err := os.ReadFile(path)
				if err == nil && (len(raw) == 0 || len(raw)%1000 != 0 || strings.Trim(string(raw), string(raw[0])) != "") {
					err = fmt.Errorf("a part of a file, or of two: %d bytes", len(raw))
				}
				if err != nil {
					failed <- err
					return
				}
			}
		})
	}
	all.Wait()
	close(failed)
	require.NoError(t, <-failed)
	require.Equal(t, []string{"file"}, namesIn(t, filepath.Dir(path)))
}
