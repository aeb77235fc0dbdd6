//go:build failpoint

package failpoint

import (
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
)

// The place, and how often it is passed: INSTAR_FAILPOINT=after-kv:3.
var (
	failName, failAt = parseFailpoint(os.Getenv("INSTAR_FAILPOINT"))
	failHits         atomic.Int64
)

func parseFailpoint(s string) (string, int64) {
	name, at, ok := strings.Cut(s, ":")
	if !ok {
		return name, 1
	}
	n, err := strconv.ParseInt(at, 10, 64)
	if err != nil {
		panic("INSTAR_FAILPOINT is not name:n")
	}
	return name, n
}

// Hit marks a place: the process kills itself there, as kill -9 would, the n-th time that it comes to it.
func Hit(name string) {
	if name == failName && failHits.Add(1) == failAt {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // the signal is on its way
	}
}
