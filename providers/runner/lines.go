package runner

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/bcc94042/instar/providers/runner/analyze"
)

const (
	maxLine = 4 << 10  // of a longer line each such piece is a line
	maxHeld = 64 << 10 // of a line that is longer than this the rest is left out
	unsure  = 4 << 10  // the end of what is not whole: it may be the beginning of a credential, which does not look like one
)

// lines makes lines of what is written, without what looks like a credential: that is seen in whole lines only. It may be written to by several goroutines.
type lines struct {
	to func(string)

	mu   sync.Mutex
	rest []byte
	cut  int64 // bytes behind rest that were left out
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range bytes.Lines(p) {
		text, ended := bytes.CutSuffix(line, []byte("\n"))
		take := text[:min(len(text), maxHeld-len(l.rest))]
		l.rest = append(l.rest, take...)
		l.cut += int64(len(text) - len(take))
		if ended {
			l.tell()
		}
	}
	return len(p), nil
}

// leftOut is for what whoever writes has left out behind the last that was written.
func (l *lines) leftOut(bytes int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut += bytes
}

// flush tells a last line without an end.
func (l *lines) flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.rest) > 0 || l.cut > 0 {
		l.tell()
	}
}

// tell drops what steers a terminal, and what looks like a credential. The lock is held.
func (l *lines) tell() {
	text := analyze.Mask(strings.Map(func(r rune) rune {
		if r < ' ' && r != '\t' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return -1
		}
		return r
	}, strings.ToValidUTF8(string(l.rest), "?")))
	if l.cut > 0 {
		kept := before(text, len(text)-unsure)
		text = kept + fmt.Sprintf("… %d more bytes of output were left out", l.cut+int64(len(text)-len(kept)))
	}
	l.rest, l.cut = l.rest[:0], 0
	for len(text) > maxLine {
		piece := before(text, maxLine)
		l.to(piece)
		text = text[len(piece):]
	}
	l.to(text)
}

// before is the text up to a byte, or to the beginning of the character that this is in.
func before(text string, i int) string {
	for i > 0 && !utf8.RuneStart(text[i]) {
		i--
	}
	return text[:max(i, 0)]
}
