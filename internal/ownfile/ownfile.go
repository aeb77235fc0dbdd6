// Package ownfile writes files that only their owner may read.
package ownfile

import (
	"errors"
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
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
