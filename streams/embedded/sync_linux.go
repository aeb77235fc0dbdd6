package embedded

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

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

// mounting names how the file system of dir is mounted now: under the same name, what was written to it is there, on disk or not. It is empty where that is not known.
func mounting(dir string) string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	var at unix.Statx_t
	if err != nil || unix.Statx(unix.AT_FDCWD, dir, 0, unix.STATX_MNT_ID_UNIQUE, &at) != nil || at.Mask&unix.STATX_MNT_ID_UNIQUE == 0 { // Linux 6.8
		return ""
	}
	return fmt.Sprintf("%s %d\n", strings.TrimSpace(string(boot)), at.Mnt_id)
}
