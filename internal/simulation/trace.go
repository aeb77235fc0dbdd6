package simulation

// The trace of a run: a sum over all steps, by which two runs are compared, and, when it is wanted, a line for each of them.

import (
	"context"
	"fmt"
	"hash/crc64"
	"log/slog"
	"strings"
	"time"
)

// trace records what happens. It is used by one goroutine at a time, as everything in a bubble with one processor that does not wait in between.
type trace struct {
	on    bool // lines are kept
	live  bool // and shown at once, which may change what happens
	lines []string
	began time.Time
	sum   uint64
	steps int
}

var polynomial = crc64.MakeTable(crc64.ECMA)

// step adds a step to the sum, and a line.
func (t *trace) step(who, does, subject string, data []byte) {
	t.steps++
	t.sum = crc64.Update(t.sum, polynomial, []byte(who))
	t.sum = crc64.Update(t.sum, polynomial, []byte(does))
	t.sum = crc64.Update(t.sum, polynomial, []byte(subject))
	t.sum = crc64.Update(t.sum, polynomial, data)
	if t.on {
		t.line(fmt.Sprintf("#%d %-10s %s %s %s", t.steps, who, does, subject, short(data)))
	}
}

// note adds a line that is no step.
func (t *trace) note(who, format string, args ...any) {
	if t.on {
		t.line(fmt.Sprintf("     %-10s ", who) + fmt.Sprintf(format, args...))
	}
}

func (t *trace) line(s string) {
	if t.live {
		fmt.Printf("%9.4f %s\n", time.Since(t.began).Seconds(), s)
		return
	}
	t.lines = append(t.lines, fmt.Sprintf("%9.4f %s", time.Since(t.began).Seconds(), s))
}

// short is a text as a line has room for.
func short(b []byte) string {
	s := strings.Map(func(r rune) rune {
		if r < ' ' {
			return ' '
		}
		return r
	}, string(b))
	if len(s) > 300 {
		s = s[:300] + "…"
	}
	return s
}

// handler is where a process logs.
func (t *trace) handler(who string) slog.Handler {
	if !t.on {
		return slog.DiscardHandler
	}
	return &logger{t: t, who: who}
}

// logger makes lines of a log.
type logger struct {
	t   *trace
	who string
}

// Enabled leaves out what is for debugging.
func (l *logger) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }

// Handle writes a line.
func (l *logger) Handle(_ context.Context, r slog.Record) error {
	var b strings.Builder
	r.Attrs(func(a slog.Attr) bool { fmt.Fprintf(&b, " %s=%v", a.Key, a.Value); return true })
	l.t.note(l.who, "%s: %s%s", r.Level, r.Message, b.String())
	return nil
}

// WithAttrs leaves them out.
func (l *logger) WithAttrs([]slog.Attr) slog.Handler { return l }

// WithGroup leaves it out.
func (l *logger) WithGroup(string) slog.Handler { return l }
