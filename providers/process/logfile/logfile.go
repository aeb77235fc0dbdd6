// Package logfile bounds files that processes append to themselves: a pipe to the control plane would break with it. What has
// grown too long is kept beside the file, the end of it, and the file is emptied.
package logfile

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/bcc94042/instar/internal/ownfile"
)

// Open opens a file for appending; it and its directory are made when they are missing, for this user alone.
func Open(path string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	return os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
}

// Trim empties a file of more than limit bytes and keeps as many of its end in path+".1". What is written between the
// copy and the cut is lost. A missing file is not an error.
func Trim(path string, limit int64) error {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil || info.Size() <= limit {
		return err
	}
	end, err := Tail(path, limit)
	if err != nil {
		return err
	}
	if err := ownfile.Replace(path+".1", end); err != nil {
		return err
	}
	return os.Truncate(path, 0)
}

// Emptied reports whether [Trim] has emptied a file once: its first line may be the rest of one.
func Emptied(path string) bool {
	_, err := os.Stat(path + ".1")
	return err == nil
}

// Tail is the end of a file, of limit bytes at most.
func Tail(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, err
	}
	if _, err := f.Seek(max(0, size-limit), io.SeekStart); err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(f, limit))
}

// Remove removes a file and what was kept beside it. One that stays is no harm.
func Remove(path string) {
	_ = os.Remove(path)
	_ = os.Remove(path + ".1")
}
