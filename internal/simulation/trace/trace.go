// Package trace is what a run of the simulation leaves behind: a sum over all steps, by which two runs are compared, and, when it is wanted, a line for each of them.
package trace

import (
	"context"
	"fmt"
	"hash/crc64"
	"log/slog"
	"strings"
	"time"
)

// Trace records what happens. It is used by one goroutine at a time, as everything in a bubble with one processor that does not wait in between.
type Trace struct {
	On    bool // lines are kept
	Live  bool // and shown at once, which may change what happens
	Lines []string
	Began time.Time
	Sum   uint64
	Steps int

	Keep  bool // Taken has each step, without what it carried: what two processes are compared by
	Taken []Taken
}

// Failure is a broken invariant.
type Failure struct{ Invariant, What string }

// Taken is one step, and the sum up to it.
type Taken struct {
	Who, Does, Subject string
	Sum                uint64
	At                 time.Duration
}

func (s Taken) String() string {
	return fmt.Sprintf("%9.4f %016x %-10s %s %s", s.At.Seconds(), s.Sum, s.Who, s.Does, s.Subject)
}

var polynomial = crc64.MakeTable(crc64.ECMA)

// Step adds a step to the sum, and a line.
func (t *Trace) Step(who, does, subject string, data []byte) {
	t.Steps++
	t.Sum = crc64.Update(t.Sum, polynomial, []byte(who))
	t.Sum = crc64.Update(t.Sum, polynomial, []byte(does))
	t.Sum = crc64.Update(t.Sum, polynomial, []byte(subject))
	t.Sum = crc64.Update(t.Sum, polynomial, data)
	if t.Keep {
		t.Taken = append(t.Taken, Taken{who, does, subject, t.Sum, time.Since(t.Began)})
	}
	if t.On {
		t.line(fmt.Sprintf("#%d %04x %-10s %s %s %s", t.Steps, t.Sum&0xffff, who, does, subject, Short(data)))
	}
}

// Note adds a line that is no step.
func (t *Trace) Note(who, format string, args ...any) {
	if t.On {
		t.line(fmt.Sprintf("     %-10s ", who) + fmt.Sprintf(format, args...))
	}
}

func (t *Trace) line(s string) {
	if t.Live {
		fmt.Printf("%9.4f %s\n", time.Since(t.Began).Seconds(), s)
		return
	}
	t.Lines = append(t.Lines, fmt.Sprintf("%9.4f %s", time.Since(t.Began).Seconds(), s))
}

// Short is a text as a line has room for.
func Short(b []byte) string {
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

// Handler is where a process logs.
func (t *Trace) Handler(who string) slog.Handler {
	if !t.On {
		return slog.DiscardHandler
	}
	return &logger{t: t, who: who}
}

// logger makes lines of a log.
type logger struct {
	t   *Trace
	who string
}

// Enabled leaves out what is for debugging.
func (l *logger) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }

// Handle writes a line.
func (l *logger) Handle(_ context.Context, r slog.Record) error {
	var b strings.Builder
	r.Attrs(func(a slog.Attr) bool { fmt.Fprintf(&b, " %s=%v", a.Key, a.Value); return true })
	l.t.Note(l.who, "%s: %s%s", r.Level, r.Message, b.String())
	return nil
}

// WithAttrs leaves them out.
func (l *logger) WithAttrs([]slog.Attr) slog.Handler { return l }

// WithGroup leaves it out.
func (l *logger) WithGroup(string) slog.Handler { return l }
