package clone

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/providers"
)

// bomb is a repository of a handful of objects whose tree has wide^deep files of so many bytes.
func bomb(t *testing.T, wide, deep, size int) string {
	t.Helper()
	dir, run := origin(t)
	object := func(kind string, content []byte) string {
		cmd := exec.Command("git", "hash-object", "-t", kind, "-w", "--stdin", "--literally")
		cmd.Dir, cmd.Stdin = dir, bytes.NewReader(content)
		out, err := cmd.Output()
		require.NoError(t, err)
		return strings.TrimSpace(string(out))
	}
	if wide == 1 {
		build := exec.Command("git", "fast-import", "--quiet", "--force")
		build.Dir, build.Stdin = dir, strings.NewReader("commit refs/heads/main\ncommitter a <a@example.com> 1 +0000\ndata 0\nM 100644 inline "+strings.Repeat("d/", deep)+"f\ndata 0\n\n")
		out, err := build.CombinedOutput()
		require.NoError(t, err, string(out))
		return dir
	}
	of, mode := object("blob", make([]byte, size)), "100644"
	for range deep {
		var tree bytes.Buffer
		raw, err := hex.DecodeString(of)
		require.NoError(t, err)
		for i := range wide {
			fmt.Fprintf(&tree, "%s d%03d\x00%s", mode, i, raw)
		}
		of, mode = object("tree", tree.Bytes()), "40000"
	}
	run("update-ref", "refs/heads/main", run("commit-tree", "-m", "bomb", of))
	return dir
}

// A tree that names more than is allowed is refused before any of it is written, in moments.
func TestBombs(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, git string) {
		for name, c := range map[string]struct {
			wide, deep, size int
			says             string
		}{
			"files without end":  {10, 10, 0, "more than the 500000 files"},
			"bytes without end":  {10, 3, 8 << 20, "larger than the 1073741824 bytes"},
			"folders in folders": {1, 3000, 0, "path of more than 4096 bytes"},
		} {
			if git == "-" && c.deep > 1000 {
				c.says = "maximum tree depth exceeded" // by its own bound
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				dir := bomb(t, c.wide, c.deep, c.size)
				cl := cloner(t, Options{Local: []string{dir}, Git: git, MaxBytes: 1 << 30})
				began := time.Now()
				_, err := cl.Fetch(t.Context(), "default/shop", "a", Source{URL: dir}, nil)
				require.ErrorContains(t, err, c.says)
				require.False(t, providers.Failure(err).Retryable, "%v", err)
				t.Logf("refused after %s", time.Since(began))
			})
		}
	})
}

// What needs too much memory or time is ended.
func TestProcessesAreBounded(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, git string) {
		dir, _ := origin(t)
		c := cloner(t, Options{Local: []string{dir}, Git: git, Memory: 1 << 20})
		_, err := c.Fetch(t.Context(), "default/shop", "a", Source{URL: dir}, nil)
		require.ErrorContains(t, err, "needs more than the 1 MiB of memory")
		require.Equal(t, providers.LimitExceeded, providers.CodeOf(err))
	})
}
