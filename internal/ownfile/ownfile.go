// Package ownfile writes files that only their owner may read, and removes what is the owner's.
package ownfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Replace writes a file for its owner only, with its directory. Nobody sees a part of it, and after any crash either the old or the new
// content is there. What a crash leaves beside it, the next Replace or RemoveAll of the path takes away.
func Replace(path string, raw []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := begin(partOf(path))
	if err != nil {
		return err
	}
	defer f.Close() // and the lock with it: when it has its name, or none
	_, err = f.Write(raw)
	if err = errors.Join(err, f.Sync()); err == nil { // else a crash leaves the new name without content
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return err
	}
	return SyncDir(filepath.Dir(path))
}

// partOf is where the new content of a path is written: always the same file, so that what a crash leaves is found. It does not end as the path does, as who looks for such files would find it.
func partOf(path string) string {
	return filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".part")
}

// begin opens a part, empty and for nobody else until it is closed: its lock ends with the process that has it.
func begin(part string) (*os.File, error) {
	for {
		f, err := os.OpenFile(part, os.O_WRONLY|os.O_CREATE|syscall.O_NOFOLLOW, 0o600) // #nosec G304 -- beside the file of the caller
		if err != nil {
			return nil, err
		}
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
		if err == nil && !names(part, f) { // who had it before has given it its name, or removed it
			_ = f.Close()
			continue
		}
		if err == nil {
			err = f.Truncate(0)
		}
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		return f, nil
	}
}

// names reports whether a path leads to a file that is open.
func names(path string, f *os.File) bool {
	there, err := os.Lstat(path)
	if err != nil {
		return false
	}
	is, err := f.Stat()
	return err == nil && os.SameFile(there, is)
}

// SyncDir has the names of a directory on the disk: of what was made, renamed or removed in it.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// RemoveAll removes a path with all that is below it, also from directories whose mode would not let their owner do so, and what a Replace of it has left that was interrupted.
func RemoveAll(path string) error {
	err := errors.Join(os.RemoveAll(path), os.RemoveAll(partOf(path)))
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	_ = filepath.WalkDir(path, func(at string, d fs.DirEntry, _ error) error { // what is still in the way, the second try tells
		if d != nil && d.IsDir() {
			_ = os.Chmod(at, 0o700) // #nosec G302 -- of a directory
		}
		return nil
	})
	return os.RemoveAll(path)
}
