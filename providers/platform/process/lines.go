package process

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/bcc94042/instar/internal/wait"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/providers/platform/app"
	"github.com/bcc94042/instar/providers/process"
	"github.com/bcc94042/instar/providers/process/logfile"
)

const (
	readEvery  = time.Second // between two looks at the logs
	mostAtOnce = 64 << 10    // bytes that are told of one look at a log, the last ones: a release that writes more is not to keep the others' lines from being kept. A longer line is left out
	mostLine   = 4 << 10     // bytes; longer lines are told as several
	mostLines  = 1000        // of one look, with what is said of those that are left out
)

// What is kept of the secrets of a release, which can put new ones there for ever.
const mostWords, mostWordBytes = 256, 64 << 10

// Lines tells what releases have written since this was opened, and write: whole lines, without secrets, without the values of variables of the configuration, and without what steers a terminal.
// It returns when ctx ends, after a last look. It is called once.
func (a *Apps) Lines(ctx context.Context, tell func(app.Line)) {
	r := &reader{Apps: a, tell: tell, logs: map[string]*log{}, before: a.before, values: a.values}
	defer func() {
		for _, l := range r.logs {
			_ = l.file.Close() // it was only read
		}
	}()
	for r.pass(); wait.For(ctx, readEvery); {
		r.pass()
	}
	r.pass()
}

// reader reads the logs of all releases.
type reader struct {
	*Apps
	tell   func(app.Line)
	logs   map[string]*log  // by namespace and release
	before map[string]int64 // what of logs that it has not seen yet was written before
	values []string         // that no line has
}

// log is that of one release. Its file is kept open, as it goes elsewhere when the release ends.
type log struct {
	of   process.Log
	file *os.File
	at   int64 // what is before it was told
	cut  bool  // it was emptied, so it may begin within a line

	// words are the secrets, the first that were seen. They were read when read is set, and sure when a later look has found the release in place: one that is being removed may have lost some of them.
	words      []string
	bytes      int
	read, sure bool
}

// pass tells what was written since the last one.
func (r *reader) pass() {
	there := map[string]bool{}
	for _, of := range r.gateway.Logs() {
		key := machines.Key(of.Namespace, "", of.Name)
		there[key] = true
		info, err := os.Stat(of.Path)
		l := r.logs[key]
		if l != nil && err == nil {
			if has, errHas := l.file.Stat(); errHas != nil || !os.SameFile(info, has) { // it is of another life
				r.end(key)
				l = nil
			}
		}
		if l == nil && err == nil {
			l = r.open(key, of)
		}
		if l == nil {
			continue
		}
		l.sure = l.sure || l.read && !of.Ending
		r.news(l, !of.Ending, false)
	}
	for key := range r.logs {
		if !there[key] {
			r.end(key)
		}
	}
}

// open begins with a log, behind what was written before: nobody knows what was told of that.
func (r *reader) open(key string, of process.Log) *log {
	file, err := os.Open(of.Path)
	if err != nil {
		return nil // it has gone, or the next look can open it
	}
	l := &log{of: of, file: file, at: r.before[of.Path]}
	delete(r.before, of.Path)
	r.logs[key] = l
	return l
}

// end tells the last of a log.
func (r *reader) end(key string) {
	l := r.logs[key]
	r.news(l, false, true)
	_ = l.file.Close() // it was only read
	delete(r.logs, key)
}

// news tells what is new in a log by whole lines, at its end also the rest of one. The secrets are read after it where the release has them still, so that none is in it that was not known.
func (r *reader) news(l *log, learns, last bool) {
	info, err := l.file.Stat()
	if err != nil {
		return
	}
	size := info.Size()
	l.cut = l.cut || size < l.at || logfile.Emptied(l.of.Path)
	if size < l.at {
		l.at = 0
	}
	lines, rest, left := l.unread(size)
	if learns && (size > l.at || !l.read) {
		words, err := app.Secrets(r.gateway.Home(l.of.Namespace, l.of.Name))
		if l.read = l.read || err == nil; err == nil {
			l.learn(words)
		}
	}
	if !l.sure {
		return
	}
	l.at += left + int64(len(lines))
	words := slices.Concat(l.words, r.values)
	text := app.Printable(string(lines))
	if last {
		if rest := app.Printable(string(rest)); app.EndsWithin(rest, words) {
			left += int64(len(rest))
		} else {
			text += rest
		}
	}
	r.say(l, parts(app.Redact(text, words)), left)
}

// unread are the whole lines from where the last look has ended to size, the rest of one behind them, and how many bytes are left out before: what is too much, and what begins within a line, as that may be
// the rest of a secret.
func (l *log) unread(size int64) (lines, rest []byte, left int64) {
	from := max(l.at, size-mostAtOnce)
	text := make([]byte, size-from)
	n, _ := l.file.ReadAt(text, from) // what could not be read is read by the next look
	text = text[:n]
	skip := 0
	if !l.begins(from) {
		if skip = bytes.IndexByte(text, '\n') + 1; skip == 0 {
			skip = len(text)
		}
	}
	text = text[skip:]
	end := bytes.LastIndexByte(text, '\n') + 1
	return text[:end], text[end:], from - l.at + int64(skip)
}

// begins reports whether a line certainly begins at a position.
func (l *log) begins(at int64) bool {
	if at == 0 {
		return !l.cut
	}
	var before [1]byte
	_, err := l.file.ReadAt(before[:], at-1)
	return err == nil && before[0] == '\n'
}

// learn keeps words that it had not, the first ones: those are this server's, but where this server was started later, and the release has put many others there meanwhile.
func (l *log) learn(words []string) {
	for _, w := range words {
		w = app.Printable(w)
		if len(l.words) == mostWords || l.bytes+len(w) > mostWordBytes {
			continue
		}
		if w != "" && !slices.Contains(l.words, w) {
			l.words, l.bytes = append(l.words, w), l.bytes+len(w)
		}
	}
}

// say tells lines of a log, the last ones, and what is left out before them.
func (r *reader) say(l *log, lines []string, left int64) {
	tell := func(text string) { r.tell(app.Line{Owner: l.of.Life, Release: l.of.Name, Text: text}) }
	if left > 0 {
		tell(fmt.Sprintf("(%d bytes are left out here, and are in the file)", left))
	}
	if n := len(lines) - (mostLines - 2); n > 0 { // there are two that say so
		tell(fmt.Sprintf("(%d lines are left out here, and are in the file)", n))
		lines = lines[n:]
	}
	for _, line := range lines {
		tell(line)
	}
}

// parts are the lines of a text, in several where one is long, without those that have nothing.
func parts(text string) (list []string) {
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		for strings.TrimSpace(line) != "" {
			part := line
			if len(line) > mostLine {
				part = strings.ToValidUTF8(line[:mostLine], "") // not in the middle of a rune
			}
			list, line = append(list, part), line[len(part):]
		}
	}
	return list
}
