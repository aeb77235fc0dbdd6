package orchestrator

// Board: how many tasks are queued for each entry and repository, and who has which unique key, as far as the index of this node knows, so that every door can refuse at once what would not fit. It is a
// bound for clients, not a promise: nodes that do not see each other's last commands yet may let some more in.

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"

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
	given   map[string][]*Place // by task
	over    []*Place            // those whose commands are not under way any more, the oldest first
	queued  map[string]int
	awaited map[string]int      // queued tasks that run after one, by its key
	uniques map[string][]string // keys of active tasks, by namespace and unique key: mostly one
	pools   map[string]int      // of active tasks, besides that of the nodes
	changed chan struct{}       // closed when pools has others
}

// MaxPools is how many pools can have active tasks at a time: each costs a queue.
const MaxPools = 64

type seen struct {
	namespace, typ, pool string
	unique               string
	queued               bool
	after                []string // keys of what it runs after, if it is queued
}

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
	b.begin()
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

// begin forgets what was seen, and counts the places. The lock is held.
func (b *Board) begin() {
	b.at, b.queued, b.awaited, b.uniques, b.pools = map[string]seen{}, map[string]int{}, map[string]int{}, map[string][]string{}, map[string]int{}
	for key := range b.given {
		b.count(key, 1)
	}
}

func (b *Board) take(item index.Item, deleted bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.count(item.Key, -1)
	defer b.count(item.Key, 1)
	delete(b.at, item.Key)
	b.came(item.Key, item.Revision)
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
	b.at[item.Key] = s
}

func seenAs(key string, brief *task.Brief) seen {
	namespace, _, _ := split(key)
	s := seen{namespace: namespace, typ: brief.Type, pool: brief.Pool}
	if s.pool == task.NodesPool {
		s.pool = ""
	}
	if brief.UniqueKey != "" {
		s.unique = namespace + "/" + brief.UniqueKey
	}
	return s
}

// count adds what a task counts for, or takes that away: once, whether it was seen, has places, or both. The lock is held.
func (b *Board) count(key string, n int) {
	if b.at == nil {
		b.begin()
	}
	own, was := b.at[key]
	var caps, uniques, pools []string
	stake := func(s seen) {
		if s.queued {
			caps = append(caps, capsOf(key, s.typ, s.pool)...)
		}
		if s.unique != "" {
			uniques = append(uniques, s.unique)
		}
		if s.pool != "" {
			pools = append(pools, s.pool)
		}
	}
	if was {
		stake(own)
	}
	for _, p := range b.given[key] {
		stake(p.as)
	}
	for _, list := range []*[]string{&caps, &uniques, &pools} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	for _, name := range caps {
		sum(b.queued, name, n)
	}
	for _, up := range own.after {
		sum(b.awaited, up, n)
	}
	for _, pool := range pools {
		if sum(b.pools, pool, n); n > 0 && b.pools[pool] == 1 {
			b.announce()
		}
	}
	for _, u := range uniques {
		if n > 0 {
			b.uniques[u] = append(b.uniques[u], key)
		} else if b.uniques[u] = slices.DeleteFunc(b.uniques[u], func(k string) bool { return k == key }); len(b.uniques[u]) == 0 {
			delete(b.uniques, u)
		}
	}
}

func sum(counts map[string]int, name string, n int) {
	if counts[name] += n; counts[name] == 0 {
		delete(counts, name)
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
