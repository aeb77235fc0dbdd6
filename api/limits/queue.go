package limits

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"
)

// Queue lets clients take turns at what only so many may do at once: one that asks for much waits for itself. What waits for
// its turn and what is under way has places in a pool. It is safe for concurrent use.
type Queue struct {
	pool  *Pool
	turns Turns
	now   func() time.Time

	mu    sync.Mutex
	free  bool // everything begins at once
	held  int  // turns
	of    map[string]*line
	next  []string  // clients that may begin something, in turn
	since time.Time // of this time of Turns.About
	share int       // what a client may have that asks for more
	stale bool      // share is of other asks
	found time.Time // when it was found
	jobs  Jobs
}

// Turns bound what is under way at once in a queue.
type Turns struct {
	All int // of all clients together; 0 is no bound, and no share

	// About makes clients leave one another room: those who ask for more than all those together who ask for less have no more under way each
	// than these ask for, or together than a thirty-second part of all turns, whichever is more. What a client asks for is the most that it had under way and
	// waiting within the last About to 2 About. So what those who ask for little find before them is bounded, however many ask for how much, and
	// clients that all ask for as much share all turns. 0 is no such bound.
	About time.Duration

	// Least is how many turns a client may have all the same: one that hardly does anything is not held up by so few, and is not to slow
	// others down by more.
	Least int

	// Hold is after how long a turn passes although what it was for is still under way: what hangs keeps nobody waiting. 0 is
	// never.
	Hold time.Duration
}

// line is what one client has.
type line struct {
	held    int
	waiting []*asked
	listed  bool // in next
	most    int  // that it had under way and waiting in this time of Turns.About
	before  int  // and in the one before
}

func (l *line) has() int { return l.held + len(l.waiting) }

// asks is what a client is taken to ask for.
func (l *line) asks() int { return max(l.most, l.before) }

// asked is something that waits for its turn.
type asked struct{ begin func(end func()) }

// NewQueue lets clients take such turns.
func NewQueue(pool *Pool, turns Turns) *Queue {
	return &Queue{pool: pool, turns: turns, now: time.Now, of: map[string]*line{}}
}

// Begin calls begin when the client's turn comes, or returns a [*Full]. It does not wait, and begin must not block; the turn
// lasts until end is called, which may be called again. What has not begun can be taken back, which gives its place in the line to others.
func (q *Queue) Begin(client string, begin func(end func())) (takeBack func() bool, err error) {
	leave, err := q.pool.Take(client)
	if err != nil {
		return nil, err
	}
	q.mu.Lock()
	q.age()
	l := q.of[client]
	if l == nil {
		l = &line{}
		q.of[client], q.stale = l, true
	}
	a := &asked{func(end func()) {
		begin(sync.OnceFunc(func() {
			leave()
			end()
		}))
	}}
	l.waiting = append(l.waiting, a)
	if l.most < l.has() {
		q.stale = q.stale || l.has() > l.before
		l.most = l.has()
	}
	q.list(client, l)
	q.dispatch()
	return func() bool {
		q.mu.Lock()
		defer q.mu.Unlock()
		i := slices.Index(l.waiting, a)
		if i < 0 {
			return false
		}
		l.waiting = slices.Delete(l.waiting, i, i+1)
		q.drop(client, l)
		leave()
		return true
	}, nil
}

// Take waits for the client's turn, which lasts until leave is called. It returns a [*Full], or the error of ctx.
func (q *Queue) Take(ctx context.Context, client string) (leave func(), err error) {
	turn := make(chan func(), 1)
	takeBack, err := q.Begin(client, func(end func()) { turn <- end })
	if err != nil {
		return nil, err
	}
	select {
	case leave = <-turn:
		return leave, nil
	case <-ctx.Done():
		if !takeBack() {
			(<-turn)()
		}
		return nil, ctx.Err()
	}
}

// Do has a job done when its client's turn comes, or returns a [*Full]. It does not wait. The job must not panic. One that has not begun can be
// taken back.
func (q *Queue) Do(client string, job func()) (takeBack func() bool, err error) {
	q.jobs.Begin()
	back, err := q.Begin(client, func(end func()) {
		go func() {
			defer q.jobs.End()
			defer end()
			job()
		}()
	})
	if err != nil {
		q.jobs.End()
		return nil, err
	}
	return func() bool {
		if !back() {
			return false
		}
		q.jobs.End()
		return true
	}, nil
}

// Release begins all that waits, and from then on everything at once: so that what waits can end.
func (q *Queue) Release() {
	q.mu.Lock()
	q.free = true
	for client, l := range q.of {
		q.list(client, l)
	}
	q.dispatch()
}

// Wait returns when no job of [Queue.Do] waits and none is under way.
func (q *Queue) Wait() { q.jobs.Wait() }

// age forgets what was asked for long ago.
func (q *Queue) age() {
	passed := q.now().Sub(q.since)
	if q.turns.About == 0 || passed < q.turns.About {
		return
	}
	for client, l := range q.of {
		if l.before = l.most; passed >= 2*q.turns.About {
			l.before = 0
		}
		if l.most = l.has(); l.asks() == 0 {
			delete(q.of, client)
		}
	}
	q.since, q.stale = q.now(), true
}

// drop ends a line that nobody stands in, where nothing is remembered.
func (q *Queue) drop(client string, l *line) {
	if l.has() == 0 && q.turns.About == 0 {
		delete(q.of, client)
	}
}

// may reports whether a client may have another turn beside those that it has.
func (q *Queue) may(l *line) bool {
	if l.held < max(1, q.turns.Least) || q.free || q.turns.About == 0 || q.turns.All == 0 {
		return true
	}
	// With many clients one more hardly changes it, and each is looked at.
	if q.stale && (len(q.of) <= fewClients || q.now().Sub(q.found) > foundFor) {
		q.share, q.stale, q.found = q.shareOf(), false, q.now()
	}
	return l.held < q.share
}

const (
	fewClients = 100
	foundFor   = 10 * time.Millisecond
	muchOf     = 32 // those who ask for much may have a thirty-second part of all turns: as these pass, what is slow is not to fall behind by them
)

// shareOf is what each of those may have that ask for more than it.
func (q *Queue) shareOf() int {
	share := math.MaxInt
	for _, l := range q.of {
		share = min(share, l.asks())
	}
	for share = max(share, q.turns.Least); ; {
		together, larger := 0, 0
		for _, l := range q.of {
			if l.asks() <= share {
				together += l.asks()
			} else {
				larger++
			}
		}
		if together <= share {
			return max(share, q.turns.All/muchOf/max(larger, 1))
		}
		share = together
	}
}

// list puts a client among those that may begin something.
func (q *Queue) list(client string, l *line) {
	if !l.listed && len(l.waiting) > 0 && q.may(l) {
		l.listed = true
		q.next = append(q.next, client)
	}
}

// dispatch begins what may begin. It is called with the lock held, and gives it back.
func (q *Queue) dispatch() {
	var begun []func()
	for (q.free || q.turns.All == 0 || q.held < q.turns.All) && len(q.next) > 0 {
		client := q.next[0]
		q.next = q.next[1:]
		l := q.of[client]
		if l == nil { // all was taken back
			continue
		}
		if l.listed = false; len(l.waiting) == 0 || !q.may(l) {
			continue // it has turns, and is asked again at the end of each
		}
		begin := l.waiting[0].begin
		l.waiting[0] = nil
		l.waiting = l.waiting[1:]
		l.held++
		q.held++
		q.list(client, l)
		begun = append(begun, func() { begin(q.ends(client, l)) })
	}
	q.mu.Unlock()
	for _, begin := range begun {
		begin()
	}
}

// ends is what ends a turn that a client has begun.
func (q *Queue) ends(client string, l *line) func() {
	end := sync.OnceFunc(func() {
		q.mu.Lock()
		q.held--
		l.held--
		q.drop(client, l)
		q.age()
		q.list(client, l)
		q.dispatch()
	})
	if q.turns.Hold == 0 {
		return end
	}
	passing := time.AfterFunc(q.turns.Hold, end)
	return func() {
		passing.Stop()
		end()
	}
}
