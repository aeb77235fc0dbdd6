package archive

import (
	"os"

	"golang.org/x/sys/unix"
)

// renameExclusive replaces nothing. Not every file system has it.
func renameExclusive(from, to string) error {
	if err := unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE); err != nil {
		return &os.LinkError{Op: "renameat2", Old: from, New: to, Err: err}
	}
	return nil
}
