package tables

// The tables of the outbox, as far as the statements read them. Times that are null are zero.

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
)

type id = uuid.UUID

// infinity is later than every time.
var infinity = time.Unix(1<<36, 0).UTC()

type settings struct {
	mode         string
	shards, read int64
	source       string // empty is null
	retention    time.Duration
}

// event is what is to be published, in both modes.
type event struct {
	seq               int64
	shard             int64
	id                id
	occurred, created time.Time
	typ, agg, name    string
	content           string
	notBefore         time.Time
	headers           string
	payload           []byte
	at                uint64 // in the log, when it was appended
}

// aggregate is what events are of, and in order of which they are published.
type aggregate struct{ typ, agg string }

type logRow struct {
	event
	day time.Time
}

// claimRow is a row of outbox_event.
type claimRow struct {
	event
	status      string
	attempts    int64
	retry       time.Time
	sent        time.Time
	lockedBy    string // empty is null
	lockedUntil time.Time
	token       id // nil is null
	lastError   *string
	redrives    int64
}

func (r *claimRow) phase() int {
	switch r.status {
	case "SENT":
		return 2
	case "FAILED", "DEAD":
		return 1
	}
	return 0
}

type cursorKey struct {
	source string
	shard  int64
}

type cursorRow struct {
	cursorKey
	seq           int64
	system, owner string
}

type streamKey struct {
	source, mode string
	shard        int64
}

type streamRow struct {
	streamKey
	stream, subject, cluster string
	marker, generation       int64
}

type rowKey struct{ shard, seq int64 }

type parkedRow struct {
	rowKey
	id             id
	day            time.Time
	typ, agg, name string
	state          string
	attempts       int64
	retry          time.Time // zero is null: it waits behind another one
	notBefore      time.Time
	redrives       int64
	parked         time.Time
}

type lateKey struct {
	rowKey
	id id
}

type lateRow struct {
	lateKey
	day    time.Time
	marker int64 // 0 is null: it was discarded
}

type pressureRow struct {
	source string
	lag    int64
	at     time.Time
}

// database is the outbox, and what Postgres knows of it.
type database struct {
	now  func() time.Time
	ids  uint64 // of transactions
	open []*txn

	settings *table[bool, settings]
	log      *table[rowKey, logRow] // by number alone
	events   *table[id, claimRow]
	cursor   *table[cursorKey, cursorRow]
	stream   *table[streamKey, streamRow]
	parked   *table[rowKey, parkedRow]
	late     *table[lateKey, lateRow]
	pressure *table[string, pressureRow]

	last, logged int64 // of the sequence of outbox_log: given out, and written to the log
	claimed      int64 // of that of outbox_event
	numbers      []number

	written, flushed, durableAt uint64
	commits                     []commit
	durable, lost               map[id]bool   // events that were once on disk, and that were undone
	committed                   map[id]uint64 // where in the log
}

func byRow(a, b rowKey) int { return cmp.Or(cmp.Compare(a.shard, b.shard), cmp.Compare(a.seq, b.seq)) }

func newDatabase(o Options) *database {
	d := &database{
		now:      o.Now,
		settings: newTable[bool, settings](func(bool, bool) int { return 0 }),
		log:      newTable[rowKey, logRow](func(a, b rowKey) int { return cmp.Compare(a.seq, b.seq) }),
		events:   newTable[id, claimRow](func(a, b id) int { return bytes.Compare(a[:], b[:]) }),
		cursor: newTable[cursorKey, cursorRow](func(a, b cursorKey) int {
			return cmp.Or(cmp.Compare(a.source, b.source), cmp.Compare(a.shard, b.shard))
		}),
		stream: newTable[streamKey, streamRow](func(a, b streamKey) int {
			return cmp.Or(cmp.Compare(a.source, b.source), cmp.Compare(a.mode, b.mode), cmp.Compare(a.shard, b.shard))
		}),
		parked: newTable[rowKey, parkedRow](byRow),
		late: newTable[lateKey, lateRow](func(a, b lateKey) int {
			return cmp.Or(byRow(a.rowKey, b.rowKey), bytes.Compare(a.id[:], b.id[:]))
		}),
		pressure: newTable[string, pressureRow](cmp.Compare[string]),
		durable:  map[id]bool{}, lost: map[id]bool{}, committed: map[id]uint64{},
	}
	d.settings.rows[true] = &row[settings]{now: &settings{mode: o.Mode, shards: int64(o.Shards), read: int64(o.Shards), retention: 7 * 24 * time.Hour}}
	return d
}

func (d *database) begin(block bool) *txn {
	d.ids++
	x := &txn{d: d, id: d.ids, now: d.clock(), block: block}
	d.open = append(d.open, x)
	return x
}

// waiting are the rows of outbox_event that are not sent, in the order of their numbers.
func (d *database) waiting(x *txn) []*claimRow {
	all := slices.DeleteFunc(d.events.all(x), func(r *claimRow) bool { return r.phase() == 2 })
	slices.SortFunc(all, func(a, b *claimRow) int { return cmp.Compare(a.seq, b.seq) })
	return all
}

// virtual is the name of a transaction in the list of locks.
func (x *txn) virtual() string { return fmt.Sprintf("%d/%d", 3+x.id%50, x.id) }

// seconds is how long it is until then.
func seconds(until, now time.Time) float64 {
	if until.Equal(infinity) {
		return 1e9
	}
	return until.Sub(now).Seconds()
}

// after is a time so many seconds later.
func after(t time.Time, s float64) time.Time {
	return t.Add(time.Duration(s * float64(time.Second))).Truncate(time.Microsecond)
}

// later says that something is not to be published yet.
func later(notBefore, now time.Time) bool { return notBefore.After(now) }
