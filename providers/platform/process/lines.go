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
)

const (
	readEvery  = time.Second // between two looks at the logs
	mostAtOnce = 64 << 10    // bytes that are told of one look at a log, the last ones: a release that writes more is not to keep the others' lines from being kept
	mostLine   = 4 << 10     // bytes; longer lines are told as several
)

// Lines tells what releases have written since this was opened, and write: whole lines, without secrets and without what steers a terminal. It returns when ctx ends. It is called once.
func (a *Apps) Lines(ctx context.Context, tell func(app.Line)) {
	r := &reader{Apps: a, tell: tell, logs: map[string]*log{}, before: a.before}
	defer func() {
		for _, l := range r.logs {
			_ = l.file.Close() // it was only read
		}
	}()
	for r.pass(); wait.For(ctx, readEvery); {
		r.pass()
	}
}

// reader reads the logs of all releases.
type reader struct {
	*Apps
	tell   func(app.Line)
	logs   map[string]*log  // by namespace and release
	before map[string]int64 // what of logs that it has not seen yet was written before
}

// log is that of one release. Its file is kept open, as it goes elsewhere when the release ends.
type log struct {
	of   process.Log
	file *os.File
	at   int64 // what is before it was told

	// words are the secrets, as they were read before the last look that found the release in place: until then, one that is being removed may have lost some of them. Nil are not known.
	words, read []string
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
		if !of.Ending {
			l.words = l.read
			r.learn(l)
		}
		r.news(l, false)
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

// learn reads the secrets of a release. It keeps those that it had before.
func (r *reader) learn(l *log) {
	words, err := app.Secrets(r.gateway.Home(l.of.Namespace, l.of.Name))
	if err == nil {
		all := append(append(make([]string, 0, len(words)+len(l.words)), words...), l.words...)
		slices.Sort(all)
		l.read = slices.Compact(all)
	}
}

// end tells the last of a log.
func (r *reader) end(key string) {
	l := r.logs[key]
	r.news(l, true)
	_ = l.file.Close() // it was only read
	delete(r.logs, key)
}

// news tells what is new in a log by whole lines, at its end also the rest of one.
func (r *reader) news(l *log, last bool) {
	info, err := l.file.Stat()
	if err != nil || l.words == nil {
		return
	}
	if info.Size() < l.at { // it was emptied
		l.at = 0
	}
	left := max(info.Size()-l.at-mostAtOnce, 0)
	text := make([]byte, info.Size()-l.at-left)
	n, _ := l.file.ReadAt(text, l.at+left) // what could not be read is read by the next look
	text = text[:n]
	if left > 0 { // it begins within a line, which may be the rest of a secret
		_, rest, _ := bytes.Cut(text, []byte("\n"))
		left, text = left+int64(len(text)-len(rest)), rest
		r.say(l, fmt.Sprintf("(%d bytes are left out here, and are in the file)", left))
	}
	if end := bytes.LastIndexByte(text, '\n') + 1; !last && (end > 0 || len(text) < mostAtOnce) {
		text = text[:end]
	}
	l.at += left + int64(len(text))
	for line := range strings.Lines(app.Redact(string(text), l.words)) {
		r.say(l, strings.Map(printed, strings.ToValidUTF8(line, "?")))
	}
}

// say tells a line, in parts where it is long.
func (r *reader) say(l *log, line string) {
	for {
		part := line
		if len(line) > mostLine {
			part = strings.ToValidUTF8(line[:mostLine], "") // not in the middle of a rune
		}
		r.tell(app.Line{Owner: l.of.Life, Release: l.of.Name, Text: part})
		if line = line[len(part):]; line == "" {
			return
		}
	}
}

// printed drops what steers a terminal.
func printed(r rune) rune {
	if r < ' ' && r != '\t' || r >= 0x7f && r < 0xa0 {
		return -1
	}
	return r
}
