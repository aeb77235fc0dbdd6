package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// A group with processes hands on some controllers all the same, and no process can enter what is below it.
func TestAGroupThatNoProcessCanEnterIsNone(t *testing.T) {
	t.Parallel()
	at := t.TempDir()
	if err := unix.Mount("none", at, "cgroup2", 0, ""); err != nil {
		t.Skip("cannot mount control groups: ", err)
	}
	t.Cleanup(func() { require.NoError(t, unix.Unmount(at, unix.MNT_DETACH)) })
	dir := filepath.Join(at, fmt.Sprint("instar-test-", os.Getpid()))
	for _, name := range []string{"", "threads", "below"} {
		name = filepath.Join(dir, name)
		require.NoError(t, os.Mkdir(name, 0o755))
		t.Cleanup(func() { require.NoError(t, unix.Rmdir(name)) })
	}
	if err := enterable(dir); err != nil {
		t.Skip("somebody has the group of all hand on what processes cannot enter: ", err)
	}
	require.NoError(t, enterable(filepath.Join(dir, "below")))
	require.NoError(t, write(filepath.Join(dir, "threads", "cgroup.type"), "threaded")) // as the kernel does by itself where a group has processes
	require.ErrorContains(t, enterable(filepath.Join(dir, "below")), "domain invalid")
	g := Group{Dir: filepath.Join(dir, "below")}
	require.ErrorIs(t, g.Enter(), unix.EOPNOTSUPP)
}
