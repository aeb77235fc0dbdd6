//go:build !unix

package embedded

import "errors"

// DiskSpace is not known here.
func DiskSpace(string) (free, size int64, err error) {
	return 0, 0, errors.New("streams: this operating system is not asked how full its disks are; say how much may be stored")
}
