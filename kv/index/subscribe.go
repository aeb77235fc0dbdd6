package index

// Changes as they happen, for many readers. Index.take calls publish for each update that it applies; registry finds the subscriptions
// that want it, and offer puts it into their queues, in which a newer change of a key replaces an older one. pump passes the queue to the
// reader's channel (readers of batches.go take from it instead). A subscription whose queue is full is lost, as are all when the index is built anew.

import (
	"slices"
	"strings"
	"sync"
)

// Filter says which changes a subscription gets. Fields that are set must all match; the zero value matches all.
type Filter struct {
	Key       string
	Prefix    string // of the key; "default.web." names the children of web
	Namespace string
	// States matches a key that is in one of them, and one that has just left them, so that the reader can drop it.
	States []string
}

// Change is one change of a key. Of a deleted key the item has the key and the revision only.
type Change struct {
	Item    Item
	Value   []byte // as stored; it is shared and must not be changed
	Deleted bool
	Text    *Text
}

// Text is what readers make of a change, once for all of them.
type Text struct {
	once sync.Once
	text []byte
}

// Of is what the first caller makes. It is shared and must not be changed.
func (t *Text) Of(make func() []byte) []byte {
	t.once.Do(func() { t.text = make() })
	return t.text
}

// Subscription is a reader of an index's changes.
type Subscription struct {
	// C gives the changes after Revision, each key's in order. It is closed when the subscription is closed or lost.
	C <-chan Change
	// Revision is where the subscription begins: a list that is made after it holds everything before.
	Revision uint64

	ix     *Index
	filter Filter
	bound  int
	wake   chan struct{} // the queue, or the revision, has changed
	quit   chan struct{} // the reader has gone
	gone   chan struct{} // the pump has gone
	once   sync.Once

	mu    sync.Mutex
	bytes int            // of the values in queue
	queue []Change       // waiting, oldest first, one per key
	head  int            // queue[:head] was given
	place map[string]int // of a key in queue
	given uint64         // how many were taken from a [Queue]
	lost  bool
}

// WaitingBytes bounds the values that wait for a reader, beside one of any size; see [BytesFor].
const WaitingBytes = 32 << 20

// BytesFor bounds the values that wait for a reader for which so many keys may wait: [WaitingBytes], and 2 KiB for each where more than 16,384 may.
func BytesFor(keys int) int { return max(WaitingBytes, keys<<11) }

// Subscribe begins a subscription in which up to buffer keys, and [WaitingBytes] of their values, may wait for the reader. It must be closed. One that
// begins before the index is ready is lost when it becomes so.
func (ix *Index) Subscribe(filter Filter, buffer int) *Subscription {
	c := make(chan Change)
	s := &Subscription{
		C: c, ix: ix, filter: filter, bound: max(buffer, 1),
		wake: make(chan struct{}, 1), quit: make(chan struct{}), gone: make(chan struct{}), place: make(map[string]int),
	}
	ix.mu.Lock()
	s.Revision = ix.rev.Load()
	ix.subs.add(s)
	ix.mu.Unlock()
	go s.pump(c)
	return s
}

// Lost reports that changes were dropped, because the reader was too slow or the index was built anew: subscribe and
// list again.
func (s *Subscription) Lost() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lost
}

// Close ends the subscription. It may be called again.
func (s *Subscription) Close() {
	s.once.Do(func() {
		s.ix.mu.Lock()
		s.ix.subs.remove(s)
		s.ix.mu.Unlock()
		close(s.quit)
	})
	<-s.gone
}

// pump hands the queue to the reader, one change at a time, so that those still waiting can become newer ones.
func (s *Subscription) pump(c chan<- Change) {
	defer close(s.gone)
	defer close(c)
	for {
		change, ok, lost := s.take()
		if lost {
			return
		}
		if !ok {
			select {
			case <-s.wake:
				continue
			case <-s.quit:
				return
			}
		}
		select {
		case c <- change:
		case <-s.quit:
			return
		}
	}
}

func (s *Subscription) take() (c Change, ok, lost bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lost {
		return c, false, true
	}
	c, ok = s.pop()
	return c, ok, false
}

// pop takes what waits longest. The lock is held.
func (s *Subscription) pop() (c Change, ok bool) {
	if s.head == len(s.queue) {
		return c, false
	}
	c, s.queue[s.head] = s.queue[s.head], Change{}
	delete(s.place, c.Item.Key)
	s.bytes -= len(c.Value)
	if s.head++; s.head == len(s.queue) {
		s.queue, s.head = s.queue[:0], 0
	}
	return c, true
}

// offer queues a change and never waits for the reader. It reports false when the subscription is lost for lack of room.
func (s *Subscription) offer(c Change) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lost {
		return false
	}
	i, waits := s.place[c.Item.Key]
	keys, bytes := len(s.queue)-s.head+1, s.bytes+len(c.Value)
	if waits {
		keys, bytes = keys-1, bytes-len(s.queue[i].Value)
	}
	if !waits && keys > s.bound || bytes > s.bytes && keys > 1 && bytes > BytesFor(s.bound) { // what takes no more room than before is taken, also after the bound was lowered
		s.lose()
		return false
	}
	s.bytes = bytes
	if waits {
		s.queue[i] = c
		return true
	}
	if s.head >= s.bound { // room is at the front
		s.queue = slices.Delete(s.queue, 0, s.head)
		for k := range s.place {
			s.place[k] -= s.head
		}
		s.head = 0
	}
	s.place[c.Item.Key] = len(s.queue)
	s.queue = append(s.queue, c)
	s.signal()
	return true
}

// lose drops what waits. The lock is held.
func (s *Subscription) lose() {
	s.lost, s.queue, s.place, s.head, s.bytes = true, nil, nil, 0, 0
	s.signal()
}

func (s *Subscription) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (f *Filter) match(key, before, after string, had, has bool) bool {
	if f.Key != "" && f.Key != key || f.Namespace != "" && f.Namespace != namespace(key) || !strings.HasPrefix(key, f.Prefix) {
		return false
	}
	return len(f.States) == 0 || had && slices.Contains(f.States, before) || has && slices.Contains(f.States, after)
}

// registry finds the subscriptions of a change without a visit to all of them: most are for one key.
type registry struct {
	keys   map[string]map[*Subscription]struct{}
	spaces map[string]map[*Subscription]struct{} // by namespace; "" for those that have none
	drawn  map[*Subscription]struct{}            // those that are woken when the revision rises, too (batches.go)
	n      int
}

func newRegistry() registry {
	return registry{
		keys: make(map[string]map[*Subscription]struct{}), spaces: make(map[string]map[*Subscription]struct{}), drawn: make(map[*Subscription]struct{}),
	}
}

func (g *registry) len() int { return g.n }

// slot is the map and the name under which a subscription stands.
func (g *registry) slot(f *Filter) (map[string]map[*Subscription]struct{}, string) {
	if f.Key != "" {
		return g.keys, f.Key
	}
	if ns, _, whole := strings.Cut(f.Prefix, "."); whole && f.Namespace == "" {
		return g.spaces, ns
	}
	return g.spaces, f.Namespace
}

func (g *registry) add(s *Subscription) {
	m, name := g.slot(&s.filter)
	if m[name] == nil {
		m[name] = make(map[*Subscription]struct{})
	}
	m[name][s] = struct{}{}
	g.n++
}

func (g *registry) remove(s *Subscription) {
	m, name := g.slot(&s.filter)
	if _, ok := m[name][s]; !ok {
		return
	}
	if delete(m[name], s); len(m[name]) == 0 {
		delete(m, name)
	}
	delete(g.drawn, s)
	g.n--
}

// publish offers a change to those who want it. The index's lock is held.
func (ix *Index) publish(t *table, o *op, r *row, before *state) {
	if ix.subs.n == 0 || r == nil && before == nil {
		return
	}
	c := Change{Item: Item{Key: o.Key, Revision: o.Revision}, Deleted: true, Text: &Text{}}
	var was, is string
	if before != nil {
		was = before.name
	}
	if r != nil {
		is = r.state.name
	}
	made := false
	for _, subs := range [...]map[*Subscription]struct{}{ix.subs.keys[o.Key], ix.subs.spaces[namespace(o.Key)], ix.subs.spaces[""]} {
		for s := range subs {
			if !s.filter.match(o.Key, was, is, before != nil, r != nil) {
				continue
			}
			if r != nil && !made {
				c, made = Change{Item: t.item(r), Value: o.Value, Text: c.Text}, true
			}
			if !s.offer(c) {
				ix.lost.Add(1)
				ix.subs.remove(s)
			}
		}
	}
}

// loseAll ends all subscriptions as lost. The index's lock is held.
func (ix *Index) loseAll() {
	for _, m := range [...]map[string]map[*Subscription]struct{}{ix.subs.keys, ix.subs.spaces} {
		for _, subs := range m {
			for s := range subs {
				s.mu.Lock()
				s.lose()
				s.mu.Unlock()
				ix.lost.Add(1)
			}
		}
	}
	ix.subs = newRegistry()
}
