package databasetest

import (
	"strings"
	"sync"
	"testing"

	"github.com/bcc94042/instar/providers/database/pg"
)

// Freeze is the same address for a process that stands still once: after a statement with that text, before it sends the next one, until it goes on, or the test ends.
func Freeze(t *testing.T, a pg.Address, after string) (through pg.Address, at <-chan struct{}, goesOn func()) {
	t.Helper()
	still, thaw := make(chan struct{}), make(chan struct{})
	var mu sync.Mutex
	begun, frozen := false, false
	through = Through(t, a, func(sql string) Fault {
		mu.Lock()
		now := begun && !frozen
		frozen, begun = frozen || now, begun || strings.Contains(sql, after)
		mu.Unlock()
		if now {
			close(still)
			<-thaw
		}
		return None
	})
	goesOn = sync.OnceFunc(func() { close(thaw) })
	t.Cleanup(goesOn)
	return through, still, goesOn
}
