package index

import (
	"hash/maphash"
	"time"
)

// ending is a row that was written in a state that ends it. Rows are used again, revisions are not.
type ending struct {
	row      *row
	revision uint64
	at       int64 // when that was stored, in nanoseconds
}

// maxPast bounds the keys that are remembered after their end: they take about 60 MB then, and no key is called new any more.
const maxPast = 4_000_000

// seed makes the hashes of keys such that nobody can choose two alike. A wrong answer to [table.left] costs a little time.
var seed = maphash.MakeSeed()

func (t *table) mark(key string) {
	if t.past == nil {
		t.past = map[uint64]struct{}{}
	}
	if len(t.past) < maxPast {
		t.past[maphash.String(seed, key)] = struct{}{}
	}
}

func (t *table) unmark(key string) {
	if len(t.past) > 0 {
		delete(t.past, maphash.String(seed, key))
	}
}

// left reports that the key may have been there before.
func (t *table) left(key string) bool {
	_, was := t.past[maphash.String(seed, key)]
	return was || len(t.past) >= maxPast
}

// unread is how many of the keys that the bucket had are not among those that were read. Nobody knows once ended keys are not
// remembered any more; then all of them may have been there before, see [table.left].
func (t *table) unread(keys int) int {
	if len(t.past) >= maxPast {
		return 0
	}
	return max(0, keys-len(t.rows)-len(t.past))
}

// Ended are the keys that have ended and are forgotten, were last written before a time, and whose values the bucket still has.
func (ix *Index) Ended(before time.Time) []string {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	var keys []string
	for key, at := range ix.table.over {
		if at < before.UnixNano() {
			keys = append(keys, key)
		}
	}
	return keys
}

// Holds reports whether the bucket has a value of the key, as far as the index knows: one that it lists, or that has ended and is forgotten.
func (ix *Index) Holds(key string) bool {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	_, over := ix.table.over[key]
	return over || ix.table.rows[key] != nil
}

// Gone is about how many keys the bucket had and has no value of, as far as the index remembers them: deleted ones.
func (ix *Index) Gone() int {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	if len(ix.table.past) >= maxPast {
		return maxPast
	}
	return max(0, len(ix.table.past)-len(ix.table.over))
}

// atOnce is how many rows are forgotten under one hold of the lock.
const atOnce = 1000

// forget drops rows that ended before the horizon, and remembers that there were such keys.
func (t *table) forget(horizon int64) {
	n := 0
	for ; n < len(t.ending) && t.ending[n].at < horizon && (n < atOnce || !t.sealed); n++ {
		e := t.ending[n]
		if e.row.revision == e.revision {
			if t.over == nil {
				t.over = map[string]int64{}
			}
			t.over[e.row.key] = e.at
			t.mark(e.row.key)
			t.drop(e.row)
		}
	}
	if t.ending = t.ending[n:]; len(t.ending) == 0 {
		t.ending = nil // what was before its first entry may go
	}
}
