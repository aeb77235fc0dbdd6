package limits

import "sync"

// Jobs counts what is under way. Unlike a [sync.WaitGroup] something may begin while somebody waits. The zero value is ready.
type Jobs struct {
	mu   sync.Mutex
	n    int
	none chan struct{} // closed when n is 0 again; nil when nobody waits
}

// Begin counts one more.
func (j *Jobs) Begin() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.n++
}

// End counts one less.
func (j *Jobs) End() {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.n--; j.n == 0 && j.none != nil {
		close(j.none)
		j.none = nil
	}
}

// Wait returns when there were none.
func (j *Jobs) Wait() {
	j.mu.Lock()
	if j.n == 0 {
		j.mu.Unlock()
		return
	}
	if j.none == nil {
		j.none = make(chan struct{})
	}
	none := j.none
	j.mu.Unlock()
	<-none
}
