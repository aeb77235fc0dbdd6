package watch

// What a fan-out has sent and not all of its readers have yet. publish adds events with the ids under which a client resumes. A reader that
// has everything before the last frame is given the frame, which is the same bytes for all. One that is slower is given what it
// lacks event by event, of each entity only the newest, at the place of the oldest that it lacks. One that lacks something that had to be dropped is lost.

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	"github.com/bcc94042/instar/api/sse"
)

// event is one that was sent; it does not change any more, but for dead.
type event struct {
	seq  uint64
	of   int // which machine's
	key  string
	rev  uint64
	told witness
	text []byte // event and data; nil for one that only moves the id
	id   string
	mark []uint64 // by machine, up to where everything was sent before this one
	dead bool     // there is a newer one of the key
}

type name struct {
	of  int
	key string
}

type log struct {
	mu      sync.Mutex
	f       *fanout
	readers map[*reader]struct{}
	behind  int    // how many of them lack something
	next    uint64 // of the next event
	gone    uint64 // those before it were dropped
	events  []*event
	size    int // bytes of their texts
	dead    int
	newest  map[name]*event
	marks   []uint64 // as the last id has them
	frame   struct {
		from uint64
		text []byte
	}
	lost bool
}

// reader is one watch. Until the fan-out has sent all that the snapshot of the watch held, the watch looks at each event, and makes ids of its own.
type reader struct {
	f    *fanout
	wake chan struct{}
	all  []*watched
	at   uint64 // the next event

	early  map[name]uint64 // revisions that it had at the place of an older one
	shared bool
	joined uint64 // events from here on name what the snapshot held
}

func marksOf(all []*watched) []uint64 {
	marks := make([]uint64, len(all))
	for i, one := range all {
		marks[i] = one.mark
	}
	return marks
}

func (l *log) join(all []*watched) *reader {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := &reader{f: l.f, wake: make(chan struct{}, 1), all: all, at: l.next}
	l.readers[r] = struct{}{}
	l.kick()
	return r
}

func (l *log) leave(r *reader) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.readers, r)
	if r.at < l.next {
		l.caughtUp()
	}
	l.kick()
}

// caughtUp counts a reader that has everything. When all have, nothing needs to be kept.
func (l *log) caughtUp() {
	if l.behind--; l.behind == 0 {
		l.events, l.size, l.dead, l.frame.text = nil, 0, 0, nil
		clear(l.newest)
	}
	l.kick()
}

func (l *log) kick() {
	select {
	case l.f.kick <- struct{}{}:
	default:
	}
}

// busy reports that no reader has everything.
func (l *log) busy() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.readers) > 0 && l.behind == len(l.readers)
}

func (l *log) list() []*reader {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Keys(l.readers))
}

// lose ends all readers.
func (l *log) lose() {
	l.mu.Lock()
	l.lost = true
	l.mu.Unlock()
	for _, r := range l.list() {
		r.signal()
	}
}

// publish adds events, after which everything up to the marks was sent, and returns how many bytes that are for each reader.
func (l *log) publish(events []*event, marks []uint64, settle bool) (sent int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	from, all := l.next, l.f.all
	for _, e := range events {
		one := all[e.of]
		if one.filter.Key != "" && e.rev > one.mark {
			one.mark = e.rev // there is no other key whose change could wait
		}
		one.note(e.told)
		l.add(e)
	}
	for i, one := range all {
		one.mark = max(one.mark, marks[i])
	}
	if len(events) == 0 && settle && !slices.Equal(l.marks, marksOf(all)) {
		l.add(&event{})
	}
	if from == l.next {
		return 0
	}
	if l.behind = len(l.readers); l.behind == 0 {
		l.behind++
		l.caughtUp()
		return 0
	}
	l.trim()
	var b []byte
	for _, e := range l.events[l.find(from):] {
		if !e.dead {
			b = append(append(append(b, "id: "...), e.id...), '\n')
			b = append(b, e.text...)
			if e.text == nil {
				b = append(b, '\n')
			}
		}
	}
	l.frame.from, l.frame.text = from, b
	return len(b)
}

// add gives an event its place and its id.
func (l *log) add(e *event) {
	if now := marksOf(l.f.all); !slices.Equal(l.marks, now) {
		l.marks = now
	}
	e.seq, e.id, e.mark = l.next, idOf(l.f.all), l.marks
	l.next++
	l.size += len(e.text)
	l.events = append(l.events, e)
	if e.text == nil {
		return
	}
	at := name{e.of, e.key}
	if old := l.newest[at]; old != nil {
		old.dead = true
		l.dead++
	}
	l.newest[at] = e
}

// trim keeps the log within its bounds.
func (l *log) trim() {
	if l.dead > len(l.events)/2 || l.dead > 0 && l.size > WaitingBytes {
		l.compact()
	}
	for len(l.events)-l.dead > Waiting || l.size > WaitingBytes {
		e := l.events[0]
		l.events = l.events[1:]
		l.size -= len(e.text)
		if e.dead {
			l.dead--
			continue
		}
		l.gone = e.seq + 1
		delete(l.newest, name{e.of, e.key})
	}
}

// compact leaves of the dead events of a key the oldest that a reader has still to come to: it is the place of the key's newest.
func (l *log) compact() {
	first := l.next
	for r := range l.readers {
		first = min(first, r.at)
	}
	places := map[name]bool{}
	l.events = slices.DeleteFunc(l.events, func(e *event) bool {
		at := name{e.of, e.key}
		if e.dead && (e.seq < first || places[at]) {
			l.size -= len(e.text)
			return true
		}
		if e.dead {
			places[at] = true
		}
		return false
	})
	l.dead = len(places)
}

func (l *log) find(seq uint64) int {
	at, _ := slices.BinarySearchFunc(l.events, seq, func(e *event, seq uint64) int { return cmp.Compare(e.seq, seq) })
	return at
}

func (r *reader) signal() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// next is what the reader lacks, up to the size of a frame: as it was written for all, or by events.
func (r *reader) next() (text []byte, events []*event, more, lost bool) {
	l := &r.f.log
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.lost || r.at < l.gone:
		return nil, nil, false, true
	case r.at == l.next:
		return nil, nil, false, false
	case r.shared && r.at == l.frame.from:
		text, r.at = l.frame.text, l.next
	default:
		i, size := l.find(r.at), 0
		for ; i < len(l.events) && size < frameSize; i++ {
			e := l.events[i]
			at := name{e.of, e.key}
			newest := l.newest[at]
			switch {
			case e.dead && newest != nil && newest.rev > r.early[at]: // or a key that changes all the time would be ahead of a slow reader for ever
				if r.early == nil {
					r.early = map[name]uint64{}
				}
				r.early[at] = newest.rev
				e = &event{seq: e.seq, of: e.of, key: e.key, rev: newest.rev, told: newest.told, text: newest.text, id: e.id, mark: e.mark}
			case e.dead:
				continue
			case e.text != nil && e.rev <= r.early[at]:
				delete(r.early, at)
				e = &event{seq: e.seq, of: e.of, key: e.key, id: e.id, mark: e.mark} // only its id
			}
			events, size = append(events, e), size+len(e.text)
		}
		if r.at = l.next; i < len(l.events) {
			r.at = l.events[i].seq
		}
	}
	if r.at == l.next {
		clear(r.early) // it had the frame instead of their events
		l.caughtUp()
	}
	return text, events, r.at < l.next, false
}

// send writes what the reader lacks, up to the size of a frame.
func (r *reader) send(w *sse.Writer) (more, lost bool) {
	text, events, more, lost := r.next()
	if text != nil {
		w.Raw(text)
		return more, lost
	}
	for _, e := range events {
		switch {
		case !r.shared:
			r.sendOwn(w, e)
		case e.text == nil:
			w.Id(e.id)
		default:
			w.Text(e.id, e.text)
		}
	}
	w.Flush()
	return more, lost
}

// sendOwn writes an event, unless the snapshot had it, with an id of what this reader was told.
func (r *reader) sendOwn(w *sse.Writer, e *event) {
	raised := false
	for i, one := range r.all {
		if e.mark[i] > one.mark {
			one.mark, raised = e.mark[i], true
		}
	}
	switch one := r.all[e.of]; {
	case e.text == nil:
		if raised {
			w.Id(idOf(r.all))
		}
	case e.rev > one.base && e.rev > one.newer[e.key]:
		delete(one.newer, e.key)
		one.note(e.told)
		w.Text(idOf(r.all), e.text)
	}
	r.shared = e.seq >= r.joined
	for i, one := range r.all {
		r.shared = r.shared && e.mark[i] >= one.seen && !slices.ContainsFunc(one.told, func(o witness) bool { return slices.Contains(one.kept, o) })
	}
}

// has says that the reader was sent its snapshot: from now on, ids of the fan-out name what it held.
func (r *reader) has() {
	l := &r.f.log
	l.mu.Lock()
	defer l.mu.Unlock()
	r.joined = l.next
	for i, one := range r.all {
		all := l.f.all[i]
		for _, o := range one.told {
			newer := func(was witness) bool { return was.key == o.key && was.rev >= o.rev }
			if !slices.Contains(one.kept, o) && !slices.ContainsFunc(all.told, newer) {
				all.note(o)
			}
		}
	}
}
