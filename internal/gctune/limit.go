package gctune

import (
	"os"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
)

// Limit has the program collect garbage more often when it comes near what its control group may use, the lowest limit on the way to the root (cgroup v2): the kernel ends a
// process that goes beyond, and the runtime knows nothing of it. It aims at nine tenths, because not all memory is the runtime's. It does nothing when GOMEMLIMIT is set, or without a limit.
func Limit() {
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	if most := ofGroup(os.ReadFile); most > 0 {
		debug.SetMemoryLimit(most / 10 * 9)
	}
}

// ofGroup is the limit of the control group of this process in bytes, or 0.
func ofGroup(read func(string) ([]byte, error)) (least int64) {
	groups, _ := read("/proc/self/cgroup") // absent on other systems
	for line := range strings.Lines(string(groups)) {
		group, unified := strings.CutPrefix(strings.TrimSpace(line), "0::")
		for at := path.Clean("/" + group); unified; at = path.Dir(at) {
			raw, _ := read(path.Join("/sys/fs/cgroup", at, "memory.max")) // the root has none
			if n, err := strconv.ParseInt(strings.TrimSpace(string(raw)), 10, 64); err == nil && n > 0 && (least == 0 || n < least) {
				least = n // "max" is no number
			}
			if at == "/" {
				break
			}
		}
	}
	return least
}
