package limits

import (
	"context"
	"sync"
	"time"
)

// Queue lets clients take turns at what only so many may do at once: one that asks for much waits for itself. What waits for
// its turn and what is under way has places in a pool. It is safe for concurrent use.
type Queue struct {
	pool  *Pool
	turns Turns
	now   func() time.Time

	mu      sync.Mutex
	free    bool // everything begins at once
	held    int  // turns
	waiting int
	of      map[string]*line
	next    []string // clients that may begin something, in turn
	lately  [2]crowd // in this time of Turns.About, and in the one before
	since   time.Time
	work    sync.WaitGroup
}

// Turns bound what is under way at once in a queue.
type Turns struct {
	All int // of all clients together; 0 is no bound, and no share

	// About makes clients leave one another room: while a client is not alone, it has no more under way than all others together
	// have and wait for now, or than the largest of them had within the last About to 2 About, but one turn at least. So one that
	// comes with any number at most doubles what the others find before them. 0 is no such bound.
	About time.Duration

	// Least is how many turns a client may have all the same: one that hardly does anything does not hold others up by much, and is not
	// to slow them down by more.
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
}

// crowd is who had most under way and waiting, and who of the others.
type crowd [2]struct {
	client string
	most   int
}

func (c *crowd) note(client string, n int) {
	switch {
	case c[0].client == client:
		c[0].most = max(c[0].most, n)
	case n > c[0].most:
		c[0], c[1] = struct {
			client string
			most   int
		}{client, n}, c[0]
	case c[1].client == client:
		c[1].most = max(c[1].most, n)
	case n > c[1].most:
		c[1].client, c[1].most = client, n
	}
}

// besides is the most that anybody but a client had.
func (c *crowd) besides(client string) int {
	if c[0].client == client {
		return c[1].most
	}
	return c[0].most
}

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
	q.waiting++
	q.note(client, l)
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
	q.work.Add(1)
	err := q.Begin(client, func(end func()) {
		go func() {
			defer q.work.Done()
			defer end()
			job()
		}()
	})
	if err != nil {
		q.work.Done()
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
func (q *Queue) Wait() { q.work.Wait() }

// note keeps how much a client has and waits for.
func (q *Queue) note(client string, l *line) {
	if q.turns.About == 0 {
		return
	}
	if now := q.now(); now.Sub(q.since) >= q.turns.About {
		if q.lately[1] = q.lately[0]; now.Sub(q.since) >= 2*q.turns.About {
			q.lately[1] = crowd{}
		}
		q.lately[0], q.since = crowd{}, now
	}
	q.lately[0].note(client, l.held+len(l.waiting))
}

// may reports whether a client may have another turn beside those that it has.
func (q *Queue) may(client string, l *line) bool {
	if l.held == 0 || q.free || q.turns.About == 0 || q.turns.All == 0 {
		return true
	}
	others := max(q.held+q.waiting-l.held-len(l.waiting), q.lately[0].besides(client), q.lately[1].besides(client))
	return others == 0 || l.held < max(others, q.turns.Least)
}

// list puts a client among those that may begin something.
func (q *Queue) list(client string, l *line) {
	if !l.listed && len(l.waiting) > 0 && q.may(client, l) {
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
		if l.listed = false; !q.may(client, l) {
			continue // it has turns, and is asked again at the end of each
		}
		begin := l.waiting[0]
		l.waiting[0] = nil
		l.waiting = l.waiting[1:]
		l.held++
		q.held++
		q.waiting--
		q.list(client, l)
		begun = append(begun, func() { begin(q.turn(client, l)) })
	}
	q.mu.Unlock()
	for _, begin := range begun {
		begin()
	}
}

// turn is what ends a turn that a client has begun.
func (q *Queue) turn(client string, l *line) func() {
	end := sync.OnceFunc(func() {
		q.mu.Lock()
		q.held--
		if l.held--; l.held == 0 && len(l.waiting) == 0 {
			delete(q.of, client)
		}
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
