//go:build !linux

package embedded

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// syncFiles syncs all files below a directory; see the one for Linux, where one call does so.
func syncFiles(dir string) error {
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() && !d.Type().IsRegular() {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		return errors.Join(f.Sync(), f.Close())
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("streams: cannot sync %s: %w", dir, err)
	}
	return nil
}

// mounting is known on Linux only.
func mounting(string) string { return "" }
