package limits

import (
	"context"
	"math"
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
	share int       // what a client may have that asks for more; 0 is to be found out
	jobs  Jobs
}

// Turns bound what is under way at once in a queue.
type Turns struct {
	All int // of all clients together; 0 is no bound, and no share

	// About makes clients leave one another room: a client that asks for more than all those together who ask for less than it has no more
	// under way than these ask for. What a client asks for is the most that it had under way and waiting within the last About to 2
	// About. So each client that asks for much puts no more before those who ask for little than they have themselves, and clients that
	// all ask for as much share all turns. 0 is no such bound.
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
	waiting []func(end func())
	listed  bool // in next
	most    int  // that it had under way and waiting in this time of Turns.About
	before  int  // and in the one before
}

func (l *line) has() int { return l.held + len(l.waiting) }

// asks is what a client is taken to ask for.
func (l *line) asks() int { return max(l.most, l.before) }

// NewQueue lets clients take such turns.
func NewQueue(pool *Pool, turns Turns) *Queue {
	return &Queue{pool: pool, turns: turns, now: time.Now, of: map[string]*line{}}
}

// Begin calls begin when the client's turn comes, or returns a [*Full]. It does not wait, and begin must not block; the turn
// lasts until end is called, which may be called again.
func (q *Queue) Begin(client string, begin func(end func())) error {
	leave, err := q.pool.Take(client)
	if err != nil {
		return err
	}
	q.mu.Lock()
	q.turn()
	l := q.of[client]
	if l == nil {
		l = &line{}
		q.of[client] = l
	}
	l.waiting = append(l.waiting, func(end func()) {
		begin(sync.OnceFunc(func() {
			leave()
			end()
		}))
	})
	if l.has() > l.most {
		l.most, q.share = l.has(), 0
	}
	q.list(client, l)
	q.dispatch()
	return nil
}

// Take waits for the client's turn, which lasts until leave is called. It returns a [*Full], or the error of ctx.
func (q *Queue) Take(ctx context.Context, client string) (leave func(), err error) {
	turn := make(chan func(), 1)
	if err := q.Begin(client, func(end func()) { turn <- end }); err != nil {
		return nil, err
	}
	select {
	case leave = <-turn:
		return leave, nil
	case <-ctx.Done():
		go func() { (<-turn)() }()
		return nil, ctx.Err()
	}
}

// Do has a job done when its client's turn comes, or returns a [*Full]. It does not wait. The job must not panic.
func (q *Queue) Do(client string, job func()) error {
	q.jobs.Begin()
	err := q.Begin(client, func(end func()) {
		go func() {
			defer q.jobs.End()
			defer end()
			job()
		}()
	})
	if err != nil {
		q.jobs.End()
	}
	return err
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

// turn forgets what was long ago.
func (q *Queue) turn() {
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
	q.since, q.share = q.now(), 0
}

// may reports whether a client may have another turn beside those that it has.
func (q *Queue) may(l *line) bool {
	if l.held < max(1, q.turns.Least) || q.free || q.turns.About == 0 || q.turns.All == 0 {
		return true
	}
	if q.share == 0 {
		q.share = q.least()
	}
	return l.held < q.share
}

// least is what those clients ask for together who ask for no more than that, or the one that asks for least.
func (q *Queue) least() int {
	share := math.MaxInt
	for _, l := range q.of {
		share = min(share, l.asks())
	}
	for share = max(share, q.turns.Least); ; {
		together := 0
		for _, l := range q.of {
			if l.asks() <= share {
				together += l.asks()
			}
		}
		if together <= share {
			return share
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
		if l.listed = false; !q.may(l) {
			continue // it has turns, and is asked again at the end of each
		}
		begin := l.waiting[0]
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
		if l.held--; l.has() == 0 && q.turns.About == 0 {
			delete(q.of, client)
		}
		q.turn()
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
