package gctune

import (
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPercent(t *testing.T) {
	t.Parallel()
	for live, want := range map[uint64]int{0: 1000, 1 << 20: 1000, 8 << 20: 400, 16 << 20: 200, 32 << 20: 100, 64 << 20: 100, 1 << 40: 100} {
		require.Equal(t, want, percent(live), live)
	}
}

func TestAfterEachCollection(t *testing.T) { // not beside others: it collects garbage
	var calls atomic.Int64
	afterEach(func() { calls.Add(1) })
	for n := range int64(5) {
		require.Eventually(t, func() bool {
			runtime.GC()
			return calls.Load() > n+1
		}, 20*time.Second, time.Millisecond)
	}
}

func TestTheRuntimeIsTold(t *testing.T) { // not beside others: the percentage is that of the process
	before := debug.SetGCPercent(123)
	defer debug.SetGCPercent(before)
	tn := new(tuner)
	runtime.GC() // and so it knows what is in use
	tn.tune()
	require.Equal(t, tn.set, debug.SetGCPercent(123))
	require.Greater(t, tn.set, 100, "tests are small")
	tn.tune()
	require.Equal(t, 123, debug.SetGCPercent(123), "what is as good as set is not set again")
}

func TestTheLimitOfTheControlGroup(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		files map[string]string
		want  int64
	}{
		"another system":     {nil, 0},
		"no limit":           {map[string]string{"/proc/self/cgroup": "0::/a\n", "/sys/fs/cgroup/a/memory.max": "max\n"}, 0},
		"a container":        {map[string]string{"/proc/self/cgroup": "0::/\n", "/sys/fs/cgroup/memory.max": "1073741824\n"}, 1 << 30},
		"a unit":             {map[string]string{"/proc/self/cgroup": "4:memory:/x\n0::/system.slice/instar.service\n", "/sys/fs/cgroup/system.slice/instar.service/memory.max": "536870912\n"}, 512 << 20},
		"a lower one above":  {map[string]string{"/proc/self/cgroup": "0::/a/b\n", "/sys/fs/cgroup/a/memory.max": "1000\n", "/sys/fs/cgroup/a/b/memory.max": "2000\n"}, 1000},
		"a higher one above": {map[string]string{"/proc/self/cgroup": "0::/a/b\n", "/sys/fs/cgroup/a/memory.max": "3000\n", "/sys/fs/cgroup/a/b/memory.max": "2000\n"}, 2000},
		"outside the root":   {map[string]string{"/proc/self/cgroup": "0::/../a\n", "/sys/fs/cgroup/a/memory.max": "7\n"}, 7},
		"cgroup v1 only":     {map[string]string{"/proc/self/cgroup": "4:memory:/x\n", "/sys/fs/cgroup/memory.max": "7\n"}, 0},
	} {
		require.Equal(t, c.want, ofGroup(func(path string) ([]byte, error) {
			if f, ok := c.files[path]; ok {
				return []byte(f), nil
			}
			return nil, os.ErrNotExist
		}), name)
	}
}

func TestALimitThatIsSetStays(t *testing.T) { // not beside others: it is that of the process
	before := debug.SetMemoryLimit(1 << 40)
	defer debug.SetMemoryLimit(before)
	t.Setenv("GOMEMLIMIT", "1TiB")
	Limit()
	require.EqualValues(t, 1<<40, debug.SetMemoryLimit(math.MinInt64), "asking does not change it")
}
