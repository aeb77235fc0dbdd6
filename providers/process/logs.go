//go:build linux

package process

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/bcc94042/instar/internal/ownfile"
)

// Processes write to their log files themselves, appending, because a pipe to the control plane would break with it.
// The control plane bounds the files: it keeps the end of a file that has grown too long beside it and empties it.

func (u *unit) logPath(revision string) string {
	return filepath.Join(u.dir, "logs", revision+".log")
}

func openLog(path string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	return os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
}

// trim bounds one log file. What is written between the copy and the cut is lost.
func trim(path string, limit int64) error {
	info, err := os.Stat(path)
	if err != nil || info.Size() <= limit {
		return ignoreMissing(err)
	}
	end, err := tail(path, limit)
	if err != nil {
		return err
	}
	if err := ownfile.Replace(path+".1", end); err != nil {
		return err
	}
	return os.Truncate(path, 0)
}

// tail is the end of a file.
func tail(path string, limit int64) ([]byte, error) {
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

// lastWords is the last line that a revision wrote: mostly the reason why it ended.
func (u *unit) lastWords(revision string) string {
	end, err := tail(u.logPath(revision), 512)
	if err != nil { // it said nothing
		return ""
	}
	end = bytes.TrimSpace(end)
	line := strings.TrimSpace(string(end[bytes.LastIndexByte(end, '\n')+1:]))
	if line == "" {
		return ""
	}
	return ": " + line
}

// trimLogs bounds the logs of what runs.
func (u *unit) trimLogs(revisions []string) {
	for _, name := range revisions {
		if err := trim(u.logPath(name), u.gateway.config.LogBytes); err != nil {
			u.log.Warn("cannot bound a log file", "revision", name, "error", err)
		}
	}
}

func removeLog(path string) {
	_ = os.Remove(path) // a log that stays is no harm
	_ = os.Remove(path + ".1")
}

func ignoreMissing(err error) error {
	if os.IsNotExist(err) {
		return nil
	}
	return err
}
