// Package powerloss is a disk that can lose its power: a file system in a file, mounted by a loop device, which takes root. What was not
// synced is gone then, as it would be with the machine's own.
package powerloss

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"unsafe"
)

// ErrCannot says that there is no such disk here.
var ErrCannot = errors.New("a file system of its own cannot be made here (it takes root, mkfs.ext4 or mkfs.xfs, and loop devices)")

// Kind is what a disk is formatted with.
type Kind string

// The kinds. XFS needs 300 MB.
const (
	Ext4 Kind = "ext4"
	XFS  Kind = "xfs"
)

// Disk is mounted at Path.
type Disk struct{ image, Path string }

// New makes a disk of so many bytes below dir and mounts it, or returns [ErrCannot].
func New(dir string, kind Kind, size int64) (*Disk, error) {
	d := &Disk{image: filepath.Join(dir, "image"), Path: filepath.Join(dir, "mount")}
	if err := os.MkdirAll(d.Path, 0o700); err != nil {
		return nil, err
	}
	if err := os.WriteFile(d.image, nil, 0o600); err != nil {
		return nil, err
	}
	if err := os.Truncate(d.image, size); err != nil {
		return nil, err
	}
	force := "-F"
	if kind == XFS {
		force = "-f"
	}
	if err := run("mkfs."+string(kind), "-q", force, d.image); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCannot, err)
	}
	if err := d.mount(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCannot, err)
	}
	return d, nil
}

// Cut takes the power away: nothing is written any more, not even the journal of the file system.
func (d *Disk) Cut() error {
	const shutdown = 0x8004587d // EXT4_IOC_SHUTDOWN, XFS_IOC_GOINGDOWN
	noLogFlush := uint32(2)     // EXT4_GOING_FLAGS_NOLOGFLUSH, XFS_FSOP_GOING_FLAGS_NOLOGFLUSH
	f, err := os.Open(d.Path)
	if err != nil {
		return err
	}
	defer f.Close()
	// #nosec G103 -- an ioctl takes an address
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), shutdown, uintptr(unsafe.Pointer(&noLogFlush))); errno != 0 {
		return fmt.Errorf("cannot shut the file system down: %w", errno)
	}
	return nil
}

// Back mounts what is left. Nobody may have a file open in it.
func (d *Disk) Back() error { return errors.Join(run("umount", d.Path), d.mount()) }

// Close takes the disk away, now or when its last file is closed.
func (d *Disk) Close() error { return run("umount", "-l", d.Path) }

func (d *Disk) mount() error { return run("mount", "-o", "loop", d.image, d.Path) }

func run(name string, args ...string) error {
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, strings.TrimSpace(string(out)))
	}
	return nil
}
