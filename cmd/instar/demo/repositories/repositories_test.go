package repositories

import (
	"context"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/cmd/instar/demo/demotest"
	"github.com/bcc94042/instar/internal/lockedbuffer"
)

func TestMain(m *testing.M) { demotest.Main(m, Commands()...) }

func TestDemoTasks(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not here")
	}
	out := &lockedbuffer.Buffer{}
	d := &tasksDemo{out: out, began: time.Now(), commits: 3}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	err := d.run(ctx)
	t.Cleanup(func() { _ = os.RemoveAll(d.dir) })
	require.NoError(t, err, out)
	require.Regexp(t, `(?m)^26 tasks, \d+ attempts, each ended once · at most [12] at a time \(limit 2\), 1 of a repository \(limit 1\) · 1 kill · 1 canceled, 1 redriven · 3 repositories completed$`, out.String())
	for _, name := range []string{"shop/structure.md", "web/dependencies.cdx.json", "billing/hotspots.md"} {
		require.FileExists(t, d.dir+"/documents/"+name)
	}
}

// Of repositories whose URLs are given it makes none.
func TestDemoTasksOfURLs(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not here")
	}
	out := &lockedbuffer.Buffer{}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	made := &tasksDemo{out: out, dir: t.TempDir(), commits: 3}
	require.NoError(t, made.makeRepositories(ctx))
	d := &tasksDemo{out: out, began: time.Now(), urls: []string{"file://" + made.urls[0]}}
	err := d.run(ctx)
	t.Cleanup(func() { _ = os.RemoveAll(d.dir) })
	require.NoError(t, err, out)
	require.Regexp(t, `(?m)^10 tasks, .* · 1 kill · 1 canceled, 1 redriven · 1 repositories completed$`, out.String())
	require.FileExists(t, d.dir+"/documents/given-1/structure.md")
}

func TestTogether(t *testing.T) {
	t.Parallel()
	at := func(n int) time.Time { return time.Unix(int64(n), 0) }
	require.Equal(t, 2, together([]span{{"a", at(1), at(3)}, {"b", at(2), at(4)}, {"c", at(3), at(5)}}))
	require.Equal(t, 3, together([]span{{"a", at(1), at(4)}, {"b", at(2), at(4)}, {"c", at(3), at(5)}}))
	require.Zero(t, together(nil))
}
