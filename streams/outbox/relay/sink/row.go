package sink

import (
	"strconv"
	"strings"

	"github.com/bcc94042/instar/streams/outbox"
)

// Row is one event on its way, with its place in the source.
type Row struct {
	outbox.Message
	Pos      Position
	Shard    int
	Attempts int  // this one included; 0 for the first one of a row that comes for the first time
	Later    bool // not before a time that has not come
	Redrives int  // by operators
	Gone     bool // parked, and no longer in its table
}

// Key tells a row in the stream: its position, or its id where the source has no order.
func (r *Row) Key() string {
	if r.Pos == 0 {
		return r.ID.String()
	}
	return r.Pos.String()
}

// Aggregate is what order is kept for.
type Aggregate struct{ Type, ID string }

// Aggregate is the one that the event is of.
func (r *Row) Aggregate() Aggregate { return Aggregate{r.AggregateType, r.AggregateID} }

// Reason keeps the reason why a row is refused short enough for a table, and free of what text cannot hold.
func Reason(s string) string {
	s = strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", ""), "?")
	if len(s) > 500 {
		s = strings.ToValidUTF8(s[:500], "") + "…"
	}
	return s
}

// Position is where a row stands in its table: its sequence number. In mode claim, where rows have no order, it is the time of the
// last one that was marked as sent, in microseconds.
type Position uint64

func (p Position) String() string { return strconv.FormatUint(uint64(p), 10) }

// ParsePosition reads what String wrote.
func ParsePosition(s string) (Position, error) {
	at, err := strconv.ParseUint(s, 10, 64)
	return Position(at), err
}
