package orchestrator

// Board: how many tasks are queued for each entry and repository, and who has which unique key, as far as the index of this node knows, so that every door can refuse at once what would not fit. It is a
// bound for clients, not a promise: nodes that do not see each other's last commands yet may let some more in.

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bcc94042/instar/consumers/orchestrator/schedule"
	"github.com/bcc94042/instar/kv/index"
	"github.com/bcc94042/instar/machines/queue"
	"github.com/bcc94042/instar/machines/repository"
	"github.com/bcc94042/instar/machines/task"
)

// Board follows the tasks. Its indexes are those of [Orchestrator].
type Board struct {
	Tasks, Queues, Repositories *index.Index

	mu      sync.Mutex
	at      map[string]seen
	queued  map[string]int
	awaited map[string]int      // queued tasks that run after one, by its key
	uniques map[string][]string // keys of active tasks, by namespace and unique key: mostly one
	pools   map[string]int      // of active tasks, besides that of the nodes
	given   []promise           // the oldest first
	changed chan struct{}       // closed when pools has others
}

// MaxPools is how many pools can have active tasks at a time: each costs a queue.
const MaxPools = 64

type seen struct {
	namespace, typ, pool string
	unique               string
	queued               bool
	after                []string  // keys of what it runs after, if it is queued
	promised             time.Time // until then it counts, although it was not seen yet; zero is of one that was seen
}

// promise is a place of a task that was let in a moment ago.
type promise struct {
	key   string
	until time.Time
}

// promised is how long a place counts that nobody takes: as when the command was refused.
const promised = time.Second

// Run follows until ctx ends, and returns nil then.
func (b *Board) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		select {
		case <-b.Tasks.Ready():
		case <-ctx.Done():
			return nil
		}
		b.follow(ctx)
	}
	return nil
}

func (b *Board) follow(ctx context.Context) {
	changes := b.Tasks.Batches(index.Filter{}, Buffered)
	defer changes.Close()
	b.mu.Lock()
	b.at, b.queued, b.awaited, b.uniques, b.pools, b.given = map[string]seen{}, map[string]int{}, map[string]int{}, map[string][]string{}, map[string]int{}, nil
	b.mu.Unlock()
	for after := ""; ; {
		page := b.Tasks.List(index.Query{States: []string{task.Queued, task.Running}, After: after, Limit: 4096})
		for _, item := range page.Items {
			b.take(item, false)
		}
		if after = page.Next; after == "" {
			break
		}
	}
	for {
		list, _, err := changes.Next(ctx)
		if err != nil {
			return
		}
		for _, c := range list {
			b.take(c.Item, c.Deleted)
		}
	}
}

func (b *Board) take(item index.Item, deleted bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if item.State == task.Pending && !b.at[item.Key].promised.IsZero() { // as it was before it was let in
		return
	}
	b.forget(item.Key)
	brief, _ := item.Value.(*task.Brief)
	if deleted || brief == nil || item.State != task.Queued && item.State != task.Running {
		return
	}
	_, repo, _ := split(item.Key)
	s := seenAs(item.Key, brief)
	s.queued = item.State == task.Queued
	for _, id := range brief.RunAfter {
		if s.queued {
			s.after = append(s.after, repo+"."+id)
		}
	}
	b.put(item.Key, s)
}

func seenAs(key string, brief *task.Brief) seen {
	namespace, _, _ := split(key)
	s := seen{namespace: namespace, typ: brief.Type, pool: brief.Pool}
	if brief.UniqueKey != "" {
		s.unique = namespace + "/" + brief.UniqueKey
	}
	return s
}

// put counts a task. The lock is held.
func (b *Board) put(key string, s seen) {
	if s.pool == task.NodesPool {
		s.pool = ""
	}
	if s.unique != "" {
		b.uniques[s.unique] = append(b.uniques[s.unique], key)
	}
	b.at[key] = s
	if s.pool != "" {
		if b.pools[s.pool]++; b.pools[s.pool] == 1 {
			b.announce()
		}
	}
	if s.queued {
		for _, e := range capsOf(key, s.typ, s.pool) {
			b.queued[e]++
		}
	}
	for _, up := range s.after {
		b.awaited[up]++
	}
}

// forget takes back what was counted for a task. The lock is held.
func (b *Board) forget(key string) {
	old, was := b.at[key]
	if !was {
		return
	}
	delete(b.at, key)
	if old.queued {
		for _, e := range capsOf(key, old.typ, old.pool) {
			if b.queued[e]--; b.queued[e] == 0 {
				delete(b.queued, e)
			}
		}
	}
	for _, up := range old.after {
		if b.awaited[up]--; b.awaited[up] == 0 {
			delete(b.awaited, up)
		}
	}
	if old.pool != "" {
		if b.pools[old.pool]--; b.pools[old.pool] == 0 {
			delete(b.pools, old.pool)
		}
	}
	if old.unique != "" {
		rest := slices.DeleteFunc(b.uniques[old.unique], func(k string) bool { return k == key })
		if b.uniques[old.unique] = rest; len(rest) == 0 {
			delete(b.uniques, old.unique)
		}
	}
}

// promise counts a task as queued before it is seen, for a moment, so that what comes at once does not get in beyond a cap together. The lock is held.
func (b *Board) promise(key string, s seen) {
	if _, is := b.at[key]; is || b.at == nil {
		return
	}
	s.queued, s.promised = true, time.Now().Add(promised)
	b.given = append(b.given, promise{key, s.promised})
	b.put(key, s)
}

// lapse takes promises back that nobody came for. The lock is held.
func (b *Board) lapse(now time.Time) {
	for len(b.given) > 0 && !now.Before(b.given[0].until) {
		if p := b.given[0]; b.at[p.key].promised.Equal(p.until) {
			b.forget(p.key)
		}
		b.given = b.given[1:]
	}
}

func (b *Board) announce() {
	if b.changed != nil {
		close(b.changed)
		b.changed = nil
	}
}

// Pools are those of active tasks, and those that have an entry, so that their workers find a queue before there is a task. They may be other ones when changed is closed.
func (b *Board) Pools() (list []string, changed <-chan struct{}) {
	for after := ""; ; {
		page := b.Queues.List(index.Query{After: after, Limit: 4096})
		for _, item := range page.Items {
			_, id, _ := strings.Cut(item.Key, ".")
			if pool, ok := strings.CutPrefix(id, queue.PoolPrefix); ok && pool != task.NodesPool && item.State != queue.Deleted {
				list = append(list, pool)
			}
		}
		if after = page.Next; after == "" {
			break
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.changed == nil {
		b.changed = make(chan struct{})
	}
	list = slices.AppendSeq(list, maps.Keys(b.pools))
	slices.Sort(list)
	return slices.Compact(list), b.changed
}

// Crowded reports whether there are so many pools that a task cannot have another one.
func (b *Board) Crowded(pool string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lapse(time.Now())
	return pool != "" && pool != task.NodesPool && len(b.pools) >= MaxPools && b.pools[pool] == 0
}

// Rated reports whether as many other entries have a rate as may have one: the ledger keeps how far each of them is.
func (b *Board) Rated(key string) bool {
	rated := 0
	for after := ""; ; {
		page := b.Queues.List(index.Query{After: after, Limit: 4096})
		for _, item := range page.Items {
			if d, _ := item.Value.(*queue.Data); d != nil && d.Rate > 0 && item.Key != key && item.State != queue.Deleted {
				rated++
			}
		}
		if after = page.Next; after == "" {
			return rated >= MaxRates
		}
	}
}

// MaxRates is how many entries can have a rate.
const MaxRates = 1000

// capsOf are those that may have a cap on a queued task: the entries that limit it, as queue <name>, and its repository, as repository <name>; but not for the clone, without which none of the
// others starts.
func capsOf(key, typ, pool string) []string {
	namespace, repo, id := split(key)
	list := entriesOf(namespace, typ, pool)
	for i := range list {
		list[i] = "queue " + list[i]
	}
	if id == repository.CloneTask {
		return list
	}
	return append(list, "repository "+repo)
}

// capOf is the cap of one of them; 0 is none.
func (b *Board) capOf(name string) int {
	if repo, ok := strings.CutPrefix(name, "repository "); ok {
		item, _ := b.Repositories.Get(repo)
		if d, _ := item.Value.(*repository.Data); d != nil {
			return d.Cap
		}
		return 0
	}
	item, _ := b.Queues.Get(strings.TrimPrefix(name, "queue "))
	if d, _ := item.Value.(*queue.Data); d != nil && item.State != queue.Deleted {
		return d.Cap
	}
	return 0
}

// Obstacle is what keeps a task out: another one that is queued or running under its unique key, or the queue or the repository that takes no more, and its cap. The zero value is nothing.
type Obstacle struct {
	Holder string
	Full   string
	Most   int
}

// Place says what keeps a task out. Where nothing does, the task has a place and its unique key from now on, which lapse soon unless it is seen to be queued.
// What it was given before does not stand in its own way. Nothing is full for a task that queued ones wait for: they keep their places until it has run.
func (b *Board) Place(key string, brief *task.Brief) Obstacle {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lapse(time.Now())
	_, repo, id := split(key)
	s := seenAs(key, brief)
	b.retract(key)
	for _, k := range b.uniques[s.unique] {
		if k != key {
			return Obstacle{Holder: k}
		}
	}
	awaited := b.awaited[key] > 0 || id == repository.CloneTask && b.queued["repository "+repo] > 0
	for _, name := range capsOf(key, s.typ, s.pool) {
		if most := b.capOf(name); most > 0 && b.queued[name] >= most && !awaited {
			return Obstacle{Full: name, Most: most}
		}
	}
	b.promise(key, s)
	return Obstacle{}
}

// Withdraw takes back what Place has given to a task, unless the task was seen to be queued.
func (b *Board) Withdraw(key string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.retract(key)
}

// retract takes back a promise. The lock is held.
func (b *Board) retract(key string) {
	if !b.at[key].promised.IsZero() {
		b.forget(key)
	}
}

// Unfit says why a task cannot run after others: one is not there, or it would run after itself. stored reports whether a task is there that was not seen yet.
func (b *Board) Unfit(key string, runAfter []string, stored func(key string) bool) string {
	_, repo, id := split(key)
	if id == repository.CloneTask && len(runAfter) > 0 {
		return "runAfter: the task " + id + " runs after none, since all others of a repository with a URL run after it"
	}
	var after []string
	for _, id := range runAfter {
		item, ok := b.Tasks.Get(repo + "." + id)
		if repo+"."+id != key && (!ok || item.State == task.Deleted) && !stored(repo+"."+id) {
			return "runAfter: its repository has no task " + id
		}
		after = append(after, repo+"."+id)
	}
	cycle := schedule.Cycle(key, after, func(key string) (next []string) {
		item, _ := b.Tasks.Get(key)
		if brief, _ := item.Value.(*task.Brief); brief != nil {
			for _, id := range brief.RunAfter {
				next = append(next, repo+"."+id)
			}
		}
		return next
	})
	if cycle == nil {
		return ""
	}
	var ids []string
	for _, k := range cycle {
		_, _, id := split(k)
		ids = append(ids, id)
	}
	return "runAfter: it would run after itself: " + strings.Join(ids, " after ")
}
