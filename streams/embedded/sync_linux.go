package embedded

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// syncFiles syncs the file system of a directory. What a process that was killed had written and not synced is read from the page cache by the next one, which would
// take it for stored: only new writes mark a block as one to sync.
func syncFiles(dir string) error {
	d, err := os.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("streams: cannot sync %s: %w", dir, err)
	}
	err = unix.Syncfs(int(d.Fd()))
	if err = errors.Join(err, d.Close()); err != nil {
		return fmt.Errorf("streams: cannot sync %s: %w", dir, err)
	}
	return nil
}
