package shop

// The invariants of an outbox. I13: each committed row becomes an event exactly once, in order per aggregate, not before its time, and nothing else becomes one.

import (
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/bcc94042/instar/internal/simulation/tables"
	"github.com/bcc94042/instar/streams/outbox"
)

// Tables are the database as the judge sees it.
type Tables interface {
	// Rows are all that are committed and were not discarded, in the order of their numbers. Appended and Committed may be positions or times, as long as one can be compared with the other.
	Rows() []tables.Row

	// Durable says whether the commit of an event was on disk once, as far as that is known.
	Durable(id uuid.UUID) bool

	// Lost says whether the commit of an event was undone once.
	Lost(id uuid.UUID) bool
}

// Judge holds the stream against the tables, and both against what applications know.
type Judge struct {
	Options Options
	Tables  Tables
	Apps    []*App
	Fail    func(format string, args ...any)

	SetBack bool // the database was set back to an older state: what it has promised may be gone
	Stepped bool // its clock was stepped: nothing is asked of what comes after a row whose time had come
	Cuts    int  // how many faults have struck that can cut off an attempt

	seen map[uuid.UUID]uint64
}

// Seen is how many events the stream has.
func (j *Judge) Seen() int { return len(j.seen) }

// Stored tells the judge of an event in the stream, in the order of the stream. The clock of the database has not been later than now up to then.
func (j *Judge) Stored(id uuid.UUID, at uint64, now time.Time) {
	f, known := j.fate(id)
	switch {
	case j.seen[id] > 0:
		j.Fail("event %s is stored at %d and again at %d", id, j.seen[id], at)
	case !known:
		j.Fail("event %s is stored at %d, and nobody has appended it", id, at)
	case f.Undone:
		j.Fail("event %s is of a transaction that was rolled back", id)
	case f.Strange:
		j.Fail("event %s is of a type that is not published", id)
	case f.NotBefore.After(now):
		j.Fail("event %s is stored at %d, %s before its time", id, at, f.NotBefore.Sub(now))
	case !j.Tables.Durable(id):
		j.Fail("event %s is stored at %d before its commit is on the disk of the database", id, at)
	}
	if j.seen == nil {
		j.seen = map[uuid.UUID]uint64{}
	}
	j.seen[id] = at
}

func (j *Judge) fate(id uuid.UUID) (Fate, bool) {
	for _, a := range j.Apps {
		if f, ok := a.Fate(id); ok {
			return f, true
		}
	}
	return Fate{}, false
}

// Unrest is what keeps the outbox from rest; empty for nothing. At rest, each row is in the stream, or DEAD, or behind one that is; settled, each is in the stream.
func (j *Judge) Unrest(settled bool) string {
	dead, waiting, first := map[string]bool{}, 0, tables.Row{}
	for _, r := range j.Tables.Rows() {
		switch {
		case r.State == outbox.StateDead && !settled:
			dead[r.Aggregate] = true
		case j.seen[r.ID] == 0 && !dead[r.Aggregate]:
			if waiting++; waiting == 1 {
				first = r
			}
		}
	}
	if waiting > 0 {
		return fmt.Sprintf("%d rows are not in the stream, the first of them %+v", waiting, first)
	}
	return ""
}

// row is one with its fate.
type row struct {
	tables.Row
	Fate
	at uint64 // in the stream
}

// Check holds the stream against the tables, at rest.
func (j *Judge) Check() {
	before, dead := map[string][]row{}, map[string]bool{} // by aggregate: rows in their order, and whether one of them waits for an operator
	there := map[uuid.UUID]bool{}
	for _, t := range j.Tables.Rows() {
		f, _ := j.fate(t.ID)
		r := row{t, f, j.seen[t.ID]}
		there[r.ID] = true
		switch {
		case r.State == outbox.StateDead:
			j.dead(r)
			dead[r.Aggregate] = true
		case r.at == 0 && !dead[r.Aggregate]:
			j.Fail("row %d, event %s of %s, is not in the stream, and nothing tells why", r.Seq, r.ID, r.Aggregate)
		}
		if j.Tables.Lost(r.ID) { // it has another number now than when it was published
			continue
		}
		for _, b := range before[r.Aggregate] {
			if r.at > 0 && (b.at == 0 || b.at > r.at) && j.precedes(b, r) {
				j.Fail("row %d, event %s of %s, is stored at %d, and row %d, event %s, which comes before it, at %d; 0 is not at all", r.Seq, r.ID, r.Aggregate, r.at, b.Seq, b.ID, b.at)
			}
		}
		before[r.Aggregate] = append(before[r.Aggregate], r)
	}
	j.kept(there)
}

// dead judges a row that waits for an operator: it is of a type that is not published, or each of its attempts was cut off by something.
func (j *Judge) dead(r row) {
	switch {
	case r.at > 0:
		j.Fail("event %s waits for an operator, and is stored at %d", r.ID, r.at)
	case r.Attempts < attempts:
		j.Fail("event %s waits for an operator after %d attempts, not %d", r.ID, r.Attempts, attempts)
	case !r.Strange && (j.Options.Mode == outbox.Log || j.Cuts < attempts):
		j.Fail("event %s waits for an operator, and nothing is wrong with it; %d faults could have cut off an attempt", r.ID, j.Cuts)
	}
}

// precedes says whether a row of an aggregate has to be published before a later one. One that is not to be published before a time is overtaken; in mode claim not by what comes when its time has come.
func (j *Judge) precedes(b, r row) bool {
	switch claim := j.Options.Mode == outbox.Claim; {
	case claim && b.Committed > r.Appended && b.Committed != r.Committed: // their transactions were open at the same time
		return false
	case b.NotBefore.IsZero():
		return true
	default:
		return claim && (!r.NotBefore.IsZero() && !b.NotBefore.After(r.NotBefore) || !j.Stepped && r.Created.After(b.NotBefore))
	}
}

// kept looks for what has gone from the tables: the database keeps what it has promised, and what the stream has.
func (j *Judge) kept(there map[uuid.UUID]bool) {
	if j.SetBack {
		return
	}
	for _, a := range j.Apps {
		for _, id := range a.promised() {
			if f, _ := a.Fate(id); !there[id] && !f.Strange { // those the operator discards
				j.Fail("the database has lost event %s, whose commit it had answered", id)
			}
		}
	}
	for id, at := range j.seen {
		if !there[id] {
			j.Fail("event %s is stored at %d, and the database has no row of it", id, at)
		}
	}
}
