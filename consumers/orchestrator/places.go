package orchestrator

// Places: what a task counts for on the board from when it is let in until that is seen, so that what comes at once does not get in beyond a cap, or past a unique key, together. A place belongs to one command, which may be
// refused or not be stored, and then takes back nothing that another command has.

import (
	"slices"
	"time"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/repository"
	"github.com/bcc94042/instar/machines/task"
	"github.com/bcc94042/instar/streams/publish"
)

// Place is what a command has that queues a task.
type Place struct {
	board *Board
	key   string
	as    seen
	last  uint64 // revision of the task that was seen last
	at    uint64 // from which on it is seen; 0 while that is not known
	until time.Time
	gone  bool
}

// promised is how long a place counts at most whose command is not under way any more, although nothing was seen of it.
const promised = time.Minute

// Obstacle is what keeps a task out: another one that is queued or running under its unique key, or is about to be (Asked), so many pools that it cannot have another one (Crowded), or the queue
// or the repository that takes no more, and its cap. The zero value is nothing.
type Obstacle struct {
	Holder  string
	Asked   bool
	Crowded bool
	Full    string
	Most    int
}

// Obstacle says what keeps a task out now. What it was given before does not stand in its own way. Nothing is full for a task that queued ones wait for: they keep their places until it has run.
func (b *Board) Obstacle(key string, brief *task.Brief) Obstacle {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lapse(time.Now())
	b.count(key, -1)
	defer b.count(key, 1)
	return b.obstacle(key, seenAs(key, brief))
}

// Place is Obstacle, and where there is none the task has its place and its unique key from now on. Left must be called then.
func (b *Board) Place(key string, brief *task.Brief) (*Place, Obstacle) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lapse(time.Now())
	b.count(key, -1)
	defer b.count(key, 1)
	item, _ := b.Tasks.Get(key)
	p := &Place{board: b, key: key, as: seenAs(key, brief), last: item.Revision}
	if o := b.obstacle(key, p.as); o != (Obstacle{}) {
		return nil, o
	}
	p.as.queued = true
	if b.given == nil {
		b.given = map[string][]*Place{}
	}
	b.given[key] = append(b.given[key], p)
	return p, Obstacle{}
}

// obstacle is that of a task which is not counted. The lock is held.
func (b *Board) obstacle(key string, s seen) Obstacle {
	if s.pool != "" && len(b.pools) >= MaxPools && b.pools[s.pool] == 0 {
		return Obstacle{Crowded: true}
	}
	if s.unique != "" && len(b.uniques[s.unique]) > 0 {
		holder := b.uniques[s.unique][0]
		_, active := b.at[holder]
		return Obstacle{Holder: holder, Asked: !active}
	}
	_, repo, id := split(key)
	awaited := b.awaited[key] > 0 || id == repository.CloneTask && b.queued["repository "+repo] > 0
	for _, name := range capsOf(key, s.typ, s.pool) {
		if most := b.capOf(name); most > 0 && b.queued[name] >= most && !awaited {
			return Obstacle{Full: name, Most: most}
		}
	}
	return Obstacle{}
}

// Left says what has become of the command: its answer, or why there is none; neither is that it was not sent. The place is free where the command has queued nothing, and else when that is seen, or was not for a minute.
func (p *Place) Left(a *machines.Answer, err error) {
	b := p.board
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case publish.NotStored(err), err == nil && (a == nil || a.Outcome != machines.Applied):
		b.free(p)
		return
	case err == nil:
		p.at = a.Revision
	default: // it may still be decided
		p.at = p.last + 1
	}
	if p.last >= p.at {
		b.free(p)
		return
	}
	p.until = time.Now().Add(promised)
	b.over = append(b.over, p)
}

// came takes in that a revision of a task is seen. The lock is held, and the task not counted.
func (b *Board) came(key string, revision uint64) {
	places, has := b.given[key]
	if !has {
		return
	}
	b.given[key] = slices.DeleteFunc(places, func(p *Place) bool {
		p.last = max(p.last, revision)
		p.gone = p.at != 0 && p.last >= p.at
		return p.gone
	})
	if len(b.given[key]) == 0 {
		delete(b.given, key)
	}
}

// free takes a place back. The lock is held.
func (b *Board) free(p *Place) {
	if p.gone {
		return
	}
	b.count(p.key, -1)
	defer b.count(p.key, 1)
	p.gone = true
	b.given[p.key] = slices.DeleteFunc(b.given[p.key], func(one *Place) bool { return one == p })
	if len(b.given[p.key]) == 0 {
		delete(b.given, p.key)
	}
}

// lapse takes places back that nobody came for. The lock is held.
func (b *Board) lapse(now time.Time) {
	for len(b.over) > 0 && (b.over[0].gone || !now.Before(b.over[0].until)) {
		b.free(b.over[0])
		b.over[0] = nil
		b.over = b.over[1:]
	}
}
