// Package ownfile writes files that only their owner may read, and removes what is the owner's.
package ownfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Replace writes a file for its owner only, with its directory. Nobody sees a part of it, and after any crash either the old or the new
// content is there.
func Replace(path string, raw []byte) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".part-*")
	if err != nil {
		return err
	}
	_, err = f.Write(raw)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil { // else a crash leaves the new name without content
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return err
	}
	return SyncDir(dir)
}

// SyncDir has the names of a directory on the disk: of what was made, renamed or removed in it.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// RemoveAll removes a path with all that is below it, also from directories whose mode would not let their owner do so.
func RemoveAll(path string) error {
	err := os.RemoveAll(path)
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
