package audit

import (
	"fmt"
	"time"
)

// Chain checks the records of a class, from the oldest that there is to the last one.
type Chain struct {
	Class string
	Life  Life // of the records; that of the class where nothing is known
	Head  Head // of what was checked
	Begun bool // there was a record
	First uint64
	Count int
}

// BreakError is where a chain is not as it was written, and why that is known.
type BreakError struct {
	Class    string
	Sequence uint64 // of the first record that is not right
	Why      string
}

func (e *BreakError) Error() string {
	return fmt.Sprintf("the records of class %s are not as they were written: record %d: %s", e.Class, e.Sequence, e.Why)
}

func (c *Chain) broken(at uint64, format string, args ...any) error {
	return &BreakError{c.Class, at, fmt.Sprintf(format, args...)}
}

// Next checks that a record follows those before it. The first one may have lost what is older than records of its class become.
func (c *Chain) Next(line []byte, now time.Time) (Record, error) {
	r, err := Parse(line)
	if err != nil {
		return r, c.broken(c.Head.Sequence+1, "%v", err)
	}
	switch {
	case r.Class != c.Class:
		return r, c.broken(r.Sequence, "it is of class %s", r.Class)
	case !c.Begun && r.Sequence > 1 && !c.Life.gone(c.Class, r.PreviousAt, now):
		return r, c.broken(r.Sequence-1, "it was removed before its time: it was recorded at %s", r.PreviousAt.Format(time.RFC3339))
	case c.Begun && r.Sequence <= c.Head.Sequence:
		return r, c.broken(r.Sequence, "it comes after record %d", c.Head.Sequence)
	case c.Begun && r.Sequence > c.Head.Sequence+1 && c.Life.gone(c.Class, r.PreviousAt, now):
		return r, c.broken(c.Head.Sequence+1, "it is older than records of its class become; the next one is %d", r.Sequence)
	case c.Begun && r.Sequence > c.Head.Sequence+1:
		return r, c.broken(c.Head.Sequence+1, "it is missing; the next one is %d", r.Sequence)
	case c.Begun && r.Previous == "" && c.Life.gone(c.Class, c.Head.At, r.RecordedAt): // who wrote it did not have the one before it any more
	case c.Begun && r.Previous != c.Head.Hash:
		return r, c.broken(r.Sequence, "it follows another record than the one before it: one of the two was put in the place of another")
	}
	if !c.Begun {
		c.Begun, c.First = true, r.Sequence
	}
	c.Head, c.Count = r.head(), c.Count+1
	return r, nil
}

// Skip is Next for an export, from which records may be missing that had their age before they were exported: it goes on behind those, and returns how many they are. Whoever wants to hide some has to
// wait until all behind the one before them, too, have their age.
func (c *Chain) Skip(line []byte, now time.Time) (missed uint64, err error) {
	_, err = c.Next(line, now)
	r, unread := Parse(line)
	if err == nil || unread != nil || !c.Begun || r.Sequence <= c.Head.Sequence+1 || r.PreviousAt.Before(c.Head.At) || !c.Life.gone(c.Class, c.Head.At, now) {
		return 0, err
	}
	next := Chain{Class: c.Class, Life: c.Life}
	if _, broken := next.Next(line, now); broken != nil {
		return 0, err
	}
	missed = r.Sequence - c.Head.Sequence - 1
	*c = next
	return missed, nil
}

// End checks that the last record is the last one that there was: the one of which the stream gave out a sequence last, and when.
func (c *Chain) End(last uint64, at, now time.Time) error {
	if c.Head.Sequence < last && (c.Begun || !c.Life.gone(c.Class, at, now)) {
		return c.broken(c.Head.Sequence+1, "it is missing, with all behind it up to %d", last)
	}
	return nil
}
