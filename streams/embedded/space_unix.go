//go:build unix

package embedded

import (
	"fmt"
	"syscall"
)

// DiskSpace is how many bytes are free for this user on the disk of a directory, and how many there are.
func DiskSpace(dir string) (free, size int64, err error) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return 0, 0, fmt.Errorf("streams: cannot ask how full the disk of %s is: %w", dir, err)
	}
	block := int64(s.Bsize)
	return int64(s.Bavail) * block, int64(s.Blocks) * block, nil // no disk is that large
}
