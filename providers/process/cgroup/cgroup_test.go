package cgroup

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The test binary is also a program that enters groups, and is something else then.
func TestMain(m *testing.M) {
	if dir := os.Getenv("ENTER"); dir != "" {
		g := Group{Dir: dir}
		if err := g.Enter(); err != nil {
			panic(err)
		}
		raw, err := os.ReadFile("/proc/self/cgroup")
		if err != nil {
			panic(err)
		}
		_, _ = os.Stdout.Write(raw)
		select {}
	}
	os.Exit(m.Run())
}

const root = "/sys/fs/cgroup"

// What a kernel without such groups says.
func TestWithoutGroupsEachControllerSaysWhy(t *testing.T) {
	t.Parallel()
	k, missing := Probe(t.TempDir())
	require.Len(t, missing, 3)
	for c, err := range missing {
		require.Error(t, err, c)
		require.False(t, k.Has(c))
	}
	require.Empty(t, k.Groups("x", Limits{Memory: 1, Processes: 1, CPU: 1}))
	require.NoError(t, k.Remove("x"))
}

func TestLimitsAreThoseOfTheKernelsVersion(t *testing.T) {
	t.Parallel()
	l := Limits{Memory: 64 << 20, Processes: 9, CPU: 250}
	two := Kernel{unified: true, dirs: map[string]string{Memory: "/own", Processes: "/own", CPU: "/own"}}
	require.Equal(t, []Group{{Dir: "/own/x", Files: map[string]string{"memory.max": "67108864", "pids.max": "9", "cpu.max": "25000 100000"}}}, two.Groups("x", l))
	require.Empty(t, two.Groups("x", Limits{}))
	one := Kernel{dirs: map[string]string{Memory: "/memory", CPU: "/cpu"}}
	require.Equal(t, []Group{
		{Dir: "/cpu/x", Files: map[string]string{"cpu.cfs_quota_us": "25000"}}, {Dir: "/memory/x", Files: map[string]string{"memory.limit_in_bytes": "67108864"}},
	}, one.Groups("x", l))
}

func TestGroupsAreMadeWhereTheyMayBe(t *testing.T) {
	t.Parallel()
	two := Kernel{unified: true}
	for own, want := range map[string][]string{
		"": {root}, "/": {root}, "/server": {root},
		"/system.slice/instar.service":        {root + "/system.slice/instar.service"},
		"/system.slice/instar.service/server": {root + "/system.slice/instar.service"},
	} {
		require.Equal(t, want, two.places(root, Memory, map[string]string{"": own}), own)
	}
	one := Kernel{}
	require.Equal(t, []string{root + "/memory/own", root + "/memory"}, one.places(root, Memory, map[string]string{Memory: "/own"}))
}

// Whatever enters a group is bound, and ends with it.
func TestAGroupOfThisKernel(t *testing.T) {
	t.Parallel()
	k, missing := Probe(root)
	if !k.Has(Processes) {
		t.Skip("this kernel lets the test make no groups: ", missing[Processes])
	}
	name := fmt.Sprint("instar-test-", os.Getpid())
	require.NoError(t, k.Remove(name)) // of a test that was killed
	groups := k.Groups(name, Limits{Processes: 20})
	require.Len(t, groups, 1)
	require.NoError(t, os.MkdirAll(groups[0].Dir, 0o755))
	for file, value := range groups[0].Files {
		require.NoError(t, write(filepath.Join(groups[0].Dir, file), value))
		raw, err := os.ReadFile(filepath.Join(groups[0].Dir, file))
		require.NoError(t, err)
		require.Equal(t, value, strings.TrimSpace(string(raw)))
	}
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self)
	cmd.Env = []string{"ENTER=" + groups[0].Dir}
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	said := make([]byte, 4096)
	n, err := out.Read(said)
	require.NoError(t, err)
	require.Contains(t, string(said[:n]), "/"+name+"\n")
	require.NoError(t, k.Remove(name))
	require.Error(t, cmd.Wait(), "it was killed")
	require.NoDirExists(t, groups[0].Dir)
}
