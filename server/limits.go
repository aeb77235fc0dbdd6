package server

import (
	"fmt"
	"syscall"

	"github.com/bcc94042/instar/api"
)

// tellLimits says what the limits come to: also where the files that may be open leave fewer connections, and with them fewer
// watches, than are configured.
func (a *app) tellLimits(l api.Limits) {
	watches := "without bound"
	if n := least(l.Watches.All, l.Connections.All); n > 0 {
		watches = fmt.Sprintf("up to %d, of up to %d KiB each: up to %d MiB", n, api.WatchMemory>>10, n*(api.WatchMemory>>10)>>10)
	}
	connections := fmt.Sprint(l.Connections.All)
	if configured := a.cfg.Limits.Connections; l.Connections.All > 0 && (configured == 0 || l.Connections.All < configured) {
		connections += ", as many as the limit of open files leaves"
	}
	a.log.Info("limits", "connections", connections, "watches", watches, "waits", l.Waits.All, "commands", l.Commands.All, "questions", l.Questions.All, "requests per second of a client", l.Rate)
}

// least is the smaller of two bounds, of which 0 is none.
func least(a, b int) int {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}

// OpenFiles is how many this process may have open. Go programs raise the soft limit to the hard one.
func OpenFiles() (uint64, error) {
	var lim syscall.Rlimit
	err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &lim)
	return lim.Max, err
}
