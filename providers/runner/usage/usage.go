// Package usage watches how much of a disk a directory takes while somebody else writes into it. An rlimit bounds each file; this bounds their sum and their number. It looks every quarter of a
// second, so what is written meanwhile may exceed a bound for as long.
package usage

import (
	"context"
	"io/fs"
	"path/filepath"
	"sync"
	"time"
)

// Of is what there is: bytes of regular files, and entries of all kinds.
type Of struct{ Bytes, Entries int64 }

// every is how often a directory is looked at.
const every = 250 * time.Millisecond

// Look counts a directory, or as much of it as exceeds a bound. What comes and goes meanwhile may be missed.
func Look(dir string, most Of) (n Of) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil // it is gone
		}
		n.Entries++
		if info, err := d.Info(); err == nil && info.Mode().IsRegular() {
			n.Bytes += info.Size()
		}
		if n.Exceeds(most) {
			return fs.SkipAll
		}
		return nil
	})
	return n
}

// Exceeds reports whether it is more than the bound, in which a zero is none.
func (n Of) Exceeds(most Of) bool {
	return most.Bytes > 0 && n.Bytes > most.Bytes || most.Entries > 0 && n.Entries > most.Entries
}

// Watch calls over once when the directory exceeds the bound. It ends with stop, which returns when it has.
func Watch(ctx context.Context, dir string, most Of, over func()) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				if Look(dir, most).Exceeds(most) {
					over()
					return
				}
			}
		}
	})
	return func() { cancel(); watching.Wait() }
}
