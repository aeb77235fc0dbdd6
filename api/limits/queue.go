package limits

import "sync"

// Queue does the work of many clients with a few workers. Clients take turns: one that asks for much waits for itself.
// What waits and what is under way has places in a pool. It is safe for concurrent use.
type Queue struct {
	pool    *Pool
	workers int

	mu      sync.Mutex
	busy    int
	waiting map[string][]func()
	turns   []string // clients of waiting, the next one first
	work    sync.WaitGroup
}

// NewQueue has so many workers.
func NewQueue(pool *Pool, workers int) *Queue {
	return &Queue{pool: pool, workers: workers, waiting: map[string][]func(){}}
}

// Do has a job done when its client's turn comes, or returns a [*Full]. It does not wait. The job must not panic.
func (q *Queue) Do(client string, job func()) error {
	leave, err := q.pool.Take(client)
	if err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting[client]) == 0 {
		q.turns = append(q.turns, client)
	}
	q.waiting[client] = append(q.waiting[client], func() {
		defer leave()
		job()
	})
	if q.busy < q.workers {
		q.busy++
		q.work.Go(q.take)
	}
	return nil
}

// Wait returns when nothing waits and nothing is under way.
func (q *Queue) Wait() { q.work.Wait() }

// take is one worker until nothing waits.
func (q *Queue) take() {
	for {
		job := q.next()
		if job == nil {
			return
		}
		job()
	}
}

func (q *Queue) next() func() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.turns) == 0 {
		q.busy--
		return nil
	}
	client := q.turns[0]
	q.turns = q.turns[1:]
	jobs := q.waiting[client]
	if len(jobs) > 1 {
		q.waiting[client] = jobs[1:]
		q.turns = append(q.turns, client)
	} else {
		delete(q.waiting, client)
	}
	return jobs[0]
}
