package limits

// Queue, where clients wait for their turn at what is bounded: commands under way (package commands) and reads of storage
// (package rest). Join gives a client a Place at the end of its line, Wait returns when its turn comes, Leave ends it;
// dispatch gives turns to the clients one after the other. Places are bounded by a Pool (pool.go), which refuses with Full.

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Queue lets clients take turns at what only so many may do at once: one that asks for much waits behind its own requests. What
// waits for its turn and what is under way has places in a pool. It is safe for concurrent use.
type Queue struct {
	pool  *Pool
	turns Turns

	mu     sync.Mutex
	free   bool // everything begins at once
	held   int  // turns
	passed int
	of     map[string]*line
	next   []*line // that may begin something, in turn
	count  [3]int  // lines of each size
	since  time.Time

	late atomic.Uint64
}

// Turns bound what is under way at once in a queue.
type Turns struct {
	// All is how many of all clients together; 0 is no bound, and everything begins at once.
	All int

	// Small is how much a small client has under way and waiting at most; less than 2 is taken for 2. Clients with more are large. While a small one has
	// anything, or had within the last half second to second, the large ones share that many turns, but each may have 2. So what a small client finds before it is
	// bounded, however much others ask for, as long as more is done in the time of Hold than the large ones have turns: from then on turns pass, because
	// what is queued cannot be told from what hangs. Otherwise, and among small clients, each begins one thing in turn until all turns are taken.
	Small int

	// Hold is after how long a turn passes to another client although its work is still under way: work that hangs keeps others waiting for no
	// longer than that. One client has no more than All under way, turns that have passed included. 0 is never.
	Hold time.Duration
}

const (
	least         = 2 // turns that a large client may have while there are small ones
	rememberedFor = 500 * time.Millisecond
)

// size of a client, by the most that it had under way and waiting at once within the last rememberedFor to twice that.
type size int

const (
	silent size = iota // nothing
	small
	large
)

// line is what one client has under way and waiting.
type line struct {
	size    size
	held    int
	passed  int // under way, without a turn any more
	waiting []*Place
	listed  bool // in next
	active  bool // had something under way or waiting in the current period of rememberedFor
	busy    bool // had more than Small then
}

func (l *line) has() int { return l.held + l.passed + len(l.waiting) }

// Place is one in the line of a client, from [Queue.Join] to [Place.Leave].
type Place struct {
	q       *Queue
	l       *line
	stage   stage
	turn    chan struct{} // closed when it has come
	passing *time.Timer
	leave   func() // the pool
}

type stage int

const (
	waiting stage = iota
	begun
	passed
	left
)

// NewQueue lets clients take such turns.
func NewQueue(pool *Pool, turns Turns) *Queue {
	turns.Small = max(turns.Small, least)
	return &Queue{pool: pool, turns: turns, of: map[string]*line{}}
}

// Join takes the last place in the line of a client, or returns a [*Full]. It does not wait.
func (q *Queue) Join(client string) (*Place, error) {
	leave, err := q.pool.Take(client)
	if err != nil {
		return nil, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.age()
	l := q.of[client]
	if l == nil {
		l = &line{}
		q.of[client] = l
		q.count[silent]++
	}
	p := &Place{q: q, l: l, turn: make(chan struct{}), leave: leave}
	l.waiting = append(l.waiting, p)
	l.active, l.busy = true, l.busy || l.has() > q.turns.Small
	switch {
	case l.busy:
		q.setSize(l, large)
	case l.size == silent:
		q.setSize(l, small)
	}
	q.list(l)
	q.dispatch()
	return p, nil
}

// Take waits for the client's turn, which lasts until leave is called. It returns a [*Full], or the error of ctx.
func (q *Queue) Take(ctx context.Context, client string) (leave func(), err error) {
	p, err := q.Join(client)
	if err != nil {
		return nil, err
	}
	if err := p.Wait(ctx); err != nil {
		return nil, err
	}
	return p.Leave, nil
}

// Wait returns when the turn has come, or leaves the line with the error of ctx.
func (p *Place) Wait(ctx context.Context) error {
	select {
	case <-p.turn:
		return nil
	case <-ctx.Done():
	}
	p.Leave()
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		p.q.late.Add(1)
	}
	return ctx.Err()
}

// Begun reports whether the turn has come.
func (p *Place) Begun() bool {
	select {
	case <-p.turn:
		return true
	default:
		return false
	}
}

// Leave gives the place back, and the turn. It may be called again.
func (p *Place) Leave() {
	q, l := p.q, p.l
	q.mu.Lock()
	defer q.mu.Unlock()
	q.age() // while it is still here
	if p.stage == left {
		return
	}
	p.end()
	p.stage = left
	p.leave()
	q.advance(l)
}

// Again gives the turn back and goes to the end of the client's line, with the same place in the pool. Only the goroutine that waits may call it.
func (p *Place) Again() {
	q, l := p.q, p.l
	q.mu.Lock()
	defer q.mu.Unlock()
	q.age()
	if p.stage == left {
		return
	}
	p.end()
	p.stage, p.turn = waiting, make(chan struct{})
	l.waiting = append(l.waiting, p)
	q.advance(l)
}

// end takes it out of the line, or gives its turn back.
func (p *Place) end() {
	q, l := p.q, p.l
	switch p.stage {
	case waiting:
		i := slices.Index(l.waiting, p)
		l.waiting = slices.Delete(l.waiting, i, i+1)
	case begun:
		l.held--
		q.held--
	case passed:
		l.passed--
		q.passed--
	}
	if p.passing != nil {
		p.passing.Stop()
	}
}

// pass gives a turn to others, unless it has ended.
func (p *Place) pass(turn chan struct{}) {
	q, l := p.q, p.l
	q.mu.Lock()
	defer q.mu.Unlock()
	if p.stage != begun || p.turn != turn {
		return
	}
	q.age()
	p.stage = passed
	l.held--
	q.held--
	l.passed++
	q.passed++
	q.advance(l)
}

// Release begins everything that waits, and from then on whatever comes, at once: so that what waits can end.
func (q *Queue) Release() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.free = true
	for _, l := range q.of {
		q.list(l)
	}
	q.dispatch()
}

// UnderWay is how much has begun and not ended, with what has passed.
func (q *Queue) UnderWay() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.held + q.passed
}

// setSize notes the size of a client.
func (q *Queue) setSize(l *line, s size) {
	q.count[l.size]--
	q.count[s]++
	l.size = s
}

// age updates the sizes of clients by what they had lately. It is called before anything changes.
func (q *Queue) age() {
	passed := time.Since(q.since)
	if passed < rememberedFor {
		return
	}
	q.since = time.Now()
	for client, l := range q.of {
		active, busy := l.has() > 0, l.has() > q.turns.Small // since the last call
		if passed >= 2*rememberedFor {
			l.active, l.busy = active, busy
		}
		switch {
		case l.busy:
			q.setSize(l, large)
		case l.active:
			q.setSize(l, small)
		default:
			q.setSize(l, silent)
		}
		l.active, l.busy = active, busy
		if l.size == silent {
			q.count[silent]--
			delete(q.of, client)
		}
	}
	for _, l := range q.of { // there may be room for them now
		q.list(l)
	}
}

// may reports whether a client may have another turn beside those that it has.
func (q *Queue) may(l *line) bool {
	switch {
	case q.free || q.turns.All == 0:
		return true
	case l.held+l.passed >= q.turns.All:
		return false
	case l.size == large && q.count[small] > 0:
		return l.held < max(least, q.turns.Small/q.count[large])
	}
	return true
}

// list puts a client among those that may begin something.
func (q *Queue) list(l *line) {
	if !l.listed && len(l.waiting) > 0 && q.may(l) {
		l.listed = true
		q.next = append(q.next, l)
	}
}

// advance begins what may begin when something of a client has ended or passed.
func (q *Queue) advance(l *line) {
	q.list(l)
	q.dispatch()
}

// dispatch begins what may begin.
func (q *Queue) dispatch() {
	for (q.free || q.turns.All == 0 || q.held < q.turns.All) && len(q.next) > 0 {
		l := q.next[0]
		q.next = q.next[1:]
		if l.listed = false; len(l.waiting) == 0 || !q.may(l) {
			continue // it is listed again when something of it ends
		}
		p := l.waiting[0]
		l.waiting[0] = nil
		l.waiting = l.waiting[1:]
		l.held++
		q.held++
		p.stage = begun
		close(p.turn)
		if q.turns.Hold > 0 {
			turn := p.turn
			p.passing = time.AfterFunc(q.turns.Hold, func() { p.pass(turn) })
		}
		q.list(l)
	}
}
