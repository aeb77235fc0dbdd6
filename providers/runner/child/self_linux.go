package child

import (
	"bytes"
	"os"
	"strconv"
)

// rename shows in lists of processes what this one does: its file is called exe there.
func rename(name string) { _ = os.WriteFile("/proc/self/comm", []byte("instar-"+name), 0) } // for whoever looks only

// written is how much private memory this process has, in bytes, as the kernel counts it for the limit.
func written() int64 {
	raw, _ := os.ReadFile("/proc/self/status") // without it the limit is a little narrower
	_, after, _ := bytes.Cut(raw, []byte("VmData:"))
	fields := bytes.Fields(after)
	if len(fields) == 0 {
		return 0
	}
	n, _ := strconv.ParseInt(string(fields[0]), 10, 64) // the kernel writes it
	return n << 10
}
