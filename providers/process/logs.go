//go:build linux

package process

import (
	"bytes"
	"path/filepath"
	"strings"

	"github.com/bcc94042/instar/providers/process/logfile"
)

func (u *unit) logPath(revision string) string {
	return filepath.Join(u.dir, "logs", revision+".log")
}

// lastWords is the last line that a revision wrote: mostly the reason why it ended.
func (u *unit) lastWords(revision string) string {
	end, err := logfile.Tail(u.logPath(revision), 512)
	if err != nil { // it said nothing
		return ""
	}
	full := len(end) == 512
	end = bytes.TrimSpace(end)
	line := strings.TrimSpace(string(end[bytes.LastIndexByte(end, '\n')+1:]))
	if full && !bytes.Contains(end, []byte("\n")) { // it begins within a word, which may be the rest of a secret
		_, line, _ = strings.Cut(line, " ")
	}
	if line == "" {
		return ""
	}
	return ": " + line
}

// trimLogs bounds the logs of what runs.
func (u *unit) trimLogs(revisions []string) {
	for _, name := range revisions {
		if err := logfile.Trim(u.logPath(name), u.gateway.config.LogBytes); err != nil {
			u.log.Warn("cannot truncate a log file", "revision", name, "error", err)
		}
	}
}
