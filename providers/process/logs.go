//go:build linux

package process

import (
	"bytes"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bcc94042/instar/internal/ownfile"
	"github.com/bcc94042/instar/providers/process/logfile"
)

func (u *unit) logPath(revision string) string {
	return filepath.Join(u.dir, "logs", revision+".log")
}

// lastLine bounds the last line that is told of what has ended.
const lastLine = 1024

// tail is what a revision wrote last: whole lines, of so many bytes at most. What begins before it is left out, as it may be the rest of a secret, which nobody would find there.
func (u *unit) tail(revision string, most int64) string {
	path := u.logPath(revision)
	end, err := logfile.Tail(path, most)
	if err != nil { // it said nothing
		return ""
	}
	if int64(len(end)) == most || logfile.Emptied(path) {
		_, end, _ = bytes.Cut(end, []byte("\n"))
	}
	return string(bytes.TrimSpace(end))
}

// lastWords is the last line that a revision wrote: mostly the reason why it ended.
func (u *unit) lastWords(revision string) string {
	text := u.tail(revision, lastLine)
	line := strings.TrimSpace(text[strings.LastIndexByte(text, '\n')+1:])
	if line == "" {
		return ""
	}
	return ": " + line
}

// LastLines are what the newest revision of a service wrote last: whole lines, of so many bytes at most. It is empty where nothing was written, or there is no such service.
func (g *Gateway) LastLines(namespace, name string, most int64) string {
	u, err := g.unit(namespace, name, false)
	if err != nil || u == nil {
		return ""
	}
	u.mu.Lock()
	r := u.state.latest()
	u.mu.Unlock()
	if r == nil {
		return ""
	}
	return u.tail(r.Name, most)
}

// Logs are those of the newest revisions of all services that are there.
func (g *Gateway) Logs() (list []Log) {
	g.mu.Lock()
	units := slices.Collect(maps.Values(g.units))
	g.mu.Unlock()
	for _, u := range units {
		u.mu.Lock()
		if r := u.state.latest(); r != nil && !u.state.Gone {
			list = append(list, Log{Namespace: u.state.Namespace, Name: u.state.Name, Life: u.state.Life, Path: u.logPath(r.Name), Ending: u.state.Deleting})
		}
		u.mu.Unlock()
	}
	return list
}

// buryLogs removes the logs, or has them in the place of those that were kept there before.
func (u *unit) buryLogs() error {
	from := filepath.Join(u.dir, "logs")
	if keep := u.gateway.config.Logs; keep != nil {
		to := keep(u.state.Namespace, u.state.Name)
		if _, err := os.Stat(from); err != nil { // there are none, or they were kept by an end that was not completed
			return nil
		}
		err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o700), ownfile.RemoveAll(to))
		if err == nil {
			err = os.Rename(from, to)
		}
		if err == nil {
			return nil
		}
		u.log.Warn("cannot keep the logs", "error", err)
	}
	return ownfile.RemoveAll(from)
}

// trimLogs bounds the logs of what runs.
func (u *unit) trimLogs(revisions []string) {
	for _, name := range revisions {
		if err := logfile.Trim(u.logPath(name), u.gateway.config.LogBytes); err != nil {
			u.log.Warn("cannot truncate a log file", "revision", name, "error", err)
		}
	}
}
