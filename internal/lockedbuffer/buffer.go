// Package lockedbuffer is a buffer for tests, which is read while others write to it.
package lockedbuffer

import (
	"strings"
	"sync"
)

// Buffer keeps what is written to it. The zero value is empty and ready; it must not be copied.
type Buffer struct {
	mu sync.Mutex
	b  strings.Builder
}

// Write never fails.
func (l *Buffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

// String is all that was written so far.
func (l *Buffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
