package store

// The messages of one stream: by sequence, and by subject. A log knows no limits and no consumers; stream.go keeps to them.

import (
	"slices"
	"strings"
)

// Entry is a message as it is stored.
type Entry struct {
	Seq     uint64
	TS      int64
	Subject string
	Header  []byte
	Data    []byte
	Expires int64 // by its own life; 0 never
	Size    uint64
}

// Log has messages from first to last, without those that were removed between. An empty log has first = last+1.
type Log struct {
	First, Last uint64
	FirstTS     int64 // of the first message that is there; 0 for none
	LastTS      int64 // of the last one that was stored
	N, Bytes    uint64
	Subjects    map[string]*Index

	base    uint64 // sequence of entries[0]
	entries []*Entry
	root    node
}

// Index is the sequences under one subject, ascending.
type Index struct {
	Subject string
	Seqs    []uint64
}

// node of a tree of subjects, by tokens.
type node struct {
	kids map[string]*node
	own  *Index
}

// NewLog is an empty log, whose first message gets a sequence; 0 is 1.
func NewLog(first uint64) *Log {
	first = max(first, 1)
	l := &Log{First: first, Last: first - 1, base: first, Subjects: map[string]*Index{}}
	if first == 1 {
		l.First = 0 // as the server says of a stream that has never had a message
	}
	return l
}

// At is the message of a sequence, or nil.
func (l *Log) At(seq uint64) *Entry {
	if seq < l.base || seq-l.base >= uint64(len(l.entries)) {
		return nil
	}
	return l.entries[seq-l.base]
}

// Append stores a message as the next one.
func (l *Log) Append(e *Entry) {
	l.Last++
	e.Seq = l.Last
	if l.N == 0 {
		l.First, l.FirstTS = e.Seq, e.TS
		l.entries, l.base = l.entries[:0], e.Seq
	}
	l.entries = append(l.entries, e)
	l.N++
	l.Bytes += e.Size
	l.LastTS = e.TS
	x := l.Subjects[e.Subject]
	if x == nil {
		x = &Index{Subject: e.Subject}
		l.Subjects[e.Subject] = x
		l.root.insert(e.Subject, x)
	}
	x.Seqs = append(x.Seqs, e.Seq)
}

// Remove takes a message out, and returns it; nil where there is none.
func (l *Log) Remove(seq uint64) *Entry {
	e := l.At(seq)
	if e == nil {
		return nil
	}
	l.entries[seq-l.base] = nil
	l.N--
	l.Bytes -= e.Size
	x := l.Subjects[e.Subject]
	i, _ := slices.BinarySearch(x.Seqs, seq)
	if x.Seqs = slices.Delete(x.Seqs, i, i+1); len(x.Seqs) == 0 {
		delete(l.Subjects, e.Subject)
		l.root.remove(e.Subject)
	}
	if seq == l.First {
		l.advance()
	}
	return e
}

// advance moves first to the next message that is there.
func (l *Log) advance() {
	for l.First <= l.Last && l.At(l.First) == nil {
		l.First++
	}
	l.FirstTS = 0
	if e := l.At(l.First); e != nil {
		l.FirstTS = e.TS
	}
	if drop := l.First - l.base; drop > 64 && drop > uint64(len(l.entries))/2 {
		l.entries = append(l.entries[:0:0], l.entries[min(drop, uint64(len(l.entries))):]...)
		l.base = l.First
	}
}

// Skip makes a sequence the next one; everything before it is gone.
func (l *Log) Skip(next uint64) {
	l.First, l.Last, l.FirstTS, l.base, l.entries = next, next-1, 0, next, nil
	l.N, l.Bytes, l.Subjects, l.root = 0, 0, map[string]*Index{}, node{}
}

// Truncate takes the last messages out, after a sequence, as if they had never been stored.
func (l *Log) Truncate(last uint64) {
	for seq := l.Last; seq > last; seq-- {
		l.Remove(seq)
	}
	l.Last = min(l.Last, last)
	if keep := int(last + 1 - min(l.base, last+1)); keep < len(l.entries) {
		l.entries = l.entries[:keep]
	}
	if l.N == 0 {
		l.First, l.FirstTS = l.Last+1, 0
	}
}

// LastUnder is the last message under a filter, or nil.
func (l *Log) LastUnder(filter string) *Entry {
	if x := l.Subjects[filter]; x != nil {
		return l.At(x.Seqs[len(x.Seqs)-1])
	}
	var last uint64
	if Wild(filter) {
		l.Each(filter, func(x *Index) { last = max(last, x.Seqs[len(x.Seqs)-1]) })
	}
	return l.At(last)
}

// NextUnder is the first message from a sequence on that lies under one of the filters; none is all. It is nil at the end.
func (l *Log) NextUnder(filters []string, from uint64) *Entry {
	for seq := max(from, l.First, l.base); seq <= l.Last; seq++ {
		if e := l.At(seq); e != nil && MatchAny(filters, e.Subject) {
			return e
		}
	}
	return nil
}

// Count is how many messages from a sequence on lie under one of the filters; of each subject only the last one, if so asked.
func (l *Log) Count(filters []string, from uint64, lastOnly bool) (n uint64) {
	if len(filters) == 0 {
		filters = []string{">"}
	}
	if len(filters) == 1 && filters[0] == ">" && from <= l.First && !lastOnly {
		return l.N
	}
	for at, f := range filters {
		l.Each(f, func(x *Index) {
			if at > 0 && MatchAny(filters[:at], x.Subject) {
				return
			}
			i, _ := slices.BinarySearch(x.Seqs, from)
			if left := len(x.Seqs) - i; lastOnly {
				n += uint64(min(left, 1))
			} else {
				n += uint64(left)
			}
		})
	}
	return n
}

// Bounds are the first and the last message under a filter, and their number.
func (l *Log) Bounds(filter string) (first, last, n uint64) {
	l.Each(filter, func(x *Index) {
		if lo := x.Seqs[0]; first == 0 || lo < first {
			first = lo
		}
		last = max(last, x.Seqs[len(x.Seqs)-1])
		n += uint64(len(x.Seqs))
	})
	return first, last, n
}

// Each calls f for each subject under a filter, in no order.
func (l *Log) Each(filter string, f func(*Index)) {
	if !Wild(filter) {
		if x := l.Subjects[filter]; x != nil {
			f(x)
		}
		return
	}
	l.root.walk(filter, f)
}

// Since is the first sequence whose message is not older than a time.
func (l *Log) Since(ts int64) uint64 {
	for seq := max(l.First, l.base); seq <= l.Last; seq++ {
		if e := l.At(seq); e != nil && e.TS >= ts {
			return seq
		}
	}
	return l.Last + 1
}

func (n *node) insert(subject string, x *Index) {
	for {
		t, rest, more := cutToken(subject)
		kid := n.kids[t]
		if kid == nil {
			if n.kids == nil {
				n.kids = map[string]*node{}
			}
			kid = &node{}
			n.kids[strings.Clone(t)] = kid
		}
		if !more {
			kid.own = x
			return
		}
		n, subject = kid, rest
	}
}

// remove reports whether nothing is left of the node.
func (n *node) remove(subject string) bool {
	t, rest, more := cutToken(subject)
	kid := n.kids[t]
	empty := false
	if more {
		empty = kid.remove(rest)
	} else {
		kid.own = nil
		empty = len(kid.kids) == 0
	}
	if empty {
		delete(n.kids, t)
	}
	return n.own == nil && len(n.kids) == 0
}

func (n *node) walk(filter string, f func(*Index)) {
	t, rest, more := cutToken(filter)
	switch t {
	case ">":
		for _, kid := range n.kids {
			kid.all(f)
		}
		return
	case "*":
		for _, kid := range n.kids {
			kid.step(rest, more, f)
		}
		return
	}
	if kid := n.kids[t]; kid != nil {
		kid.step(rest, more, f)
	}
}

func (n *node) step(rest string, more bool, f func(*Index)) {
	if more {
		n.walk(rest, f)
	} else if n.own != nil {
		f(n.own)
	}
}

func (n *node) all(f func(*Index)) {
	if n.own != nil {
		f(n.own)
	}
	for _, kid := range n.kids {
		kid.all(f)
	}
}

// Revive puts a message back that was taken out.
func (l *Log) Revive(e *Entry) {
	if l.At(e.Seq) != nil {
		return
	}
	if e.Seq < l.base || len(l.entries) == 0 {
		grown := make([]*Entry, l.Last-min(e.Seq, l.base)+1)
		if len(l.entries) > 0 {
			copy(grown[l.base-min(e.Seq, l.base):], l.entries)
		}
		l.base, l.entries = min(e.Seq, l.base), grown
	}
	l.entries[e.Seq-l.base] = e
	l.N++
	l.Bytes += e.Size
	if l.N == 1 || e.Seq < l.First {
		l.First, l.FirstTS = e.Seq, e.TS
	}
	x := l.Subjects[e.Subject]
	if x == nil {
		x = &Index{Subject: e.Subject}
		l.Subjects[e.Subject] = x
		l.root.insert(e.Subject, x)
	}
	i, _ := slices.BinarySearch(x.Seqs, e.Seq)
	x.Seqs = slices.Insert(x.Seqs, i, e.Seq)
}

// All calls f for every message, oldest first.
func (l *Log) All(f func(*Entry)) {
	for _, e := range l.entries {
		if e != nil {
			f(e)
		}
	}
}
