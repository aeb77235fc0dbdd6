package runner

import (
	"bytes"
	"strings"
	"sync"
)

// maxLine is where a line without an end is cut.
const maxLine = 4 << 10

// lines makes lines of what is written. It may be written to by several goroutines.
type lines struct {
	to func(string)

	mu   sync.Mutex
	rest []byte
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rest = append(l.rest, p...)
	for {
		i := bytes.IndexByte(l.rest, '\n')
		switch {
		case i >= 0 && i <= maxLine:
			l.tell(l.rest[:i])
			l.rest = l.rest[i+1:]
		case len(l.rest) > maxLine:
			l.tell(l.rest[:maxLine])
			l.rest = l.rest[maxLine:]
		default:
			l.rest = bytes.Clone(l.rest)
			return len(p), nil
		}
	}
}

// flush tells a last line without an end.
func (l *lines) flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.rest) > 0 {
		l.tell(l.rest)
		l.rest = nil
	}
}

// tell drops what steers a terminal.
func (l *lines) tell(line []byte) {
	l.to(strings.Map(func(r rune) rune {
		if r < ' ' && r != '\t' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return -1
		}
		return r
	}, strings.ToValidUTF8(string(line), "?")))
}
