package orchestrator

// What a change of a task means: task compares it with the slot that it has, if any (keeps), gives that back or takes one for a task that runs without, and puts what waits into the scheduler.
// Entries of queues come here as well, since they limit tasks.

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/bcc94042/instar/consumers/orchestrator/schedule"
	"github.com/bcc94042/instar/internal/jsonscan"
	"github.com/bcc94042/instar/kv/index"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/queue"
	"github.com/bcc94042/instar/machines/repository"
	"github.com/bcc94042/instar/machines/task"
	"github.com/bcc94042/instar/streams/publish"
)

const (
	clusterEntry = "default." + queue.Cluster
)

// TaskValue reads a stored task for the index that the orchestrator follows: a [*task.Brief].
func TaskValue(_ string, value []byte) (any, error) {
	var data []byte
	err := jsonscan.Object(value, func(name, member []byte) error {
		if string(name) == "data" {
			data = member
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("cannot read a stored task: %w", err)
	}
	return task.BriefOf(data)
}

// QueueValue reads a stored entry for the index that the orchestrator follows: a [*queue.Data].
func QueueValue(_ string, value []byte) (any, error) {
	e, err := queue.Machine.Decode(value)
	return e.Data, err
}

// RepositoryValue reads a stored repository for the index that the orchestrator follows: a [*repository.Data].
func RepositoryValue(_ string, value []byte) (any, error) {
	e, err := repository.Machine.Decode(value)
	return e.Data, err
}

// split takes the key of a task apart.
func split(key string) (namespace, repo, id string) {
	namespace, rest, _ := strings.Cut(key, ".")
	parent, id, _ := strings.Cut(rest, ".")
	return namespace, namespace + "." + parent, id
}

// entriesOf are the names of the entries that limit a task.
func entriesOf(namespace, typ, pool string) []string {
	of := queue.Of(typ, pool)
	return []string{clusterEntry, namespace + "." + of[0], namespace + "." + of[1], namespace + "." + of[2]}
}

// entryNames keeps those of the tasks that are known once for all that have them.
type entryNames struct {
	lists     map[[3]string][]string
	elsewhere bool // also the pool of the nodes is that of workers elsewhere
}

// of are the entries that limit a task, and that of its workers, or of the nodes.
func (n entryNames) of(namespace, typ, pool string) []string {
	key := [3]string{namespace, typ, pool}
	list := n.lists[key]
	if list == nil {
		if len(n.lists) > 4096 {
			clear(n.lists)
		}
		list = entriesOf(namespace, typ, pool)
		if workers := n.workers(pool); workers != "" {
			list = append(list, workers)
		} else {
			list = append(list, nodesEntry)
		}
		n.lists[key] = list
	}
	return list
}

// workers is the entry of those who take the tasks of a pool; empty where the nodes do, which are there.
func (n entryNames) workers(pool string) string {
	switch {
	case pool != "" && pool != task.NodesPool:
		return "pool " + pool
	case n.elsewhere:
		return "pool " + task.NodesPool
	}
	return ""
}

// task is a slot as it is held.
func (s *slot) task(names entryNames) schedule.Task {
	namespace, repo, _ := split(s.Key)
	return schedule.Task{
		Key: s.Key, Repository: repo, Namespace: namespace, Type: s.Type, Pool: s.Pool, Entries: names.of(namespace, s.Type, s.Pool), Enqueue: s.Enqueue, Start: s.Start, Version: s.Version, Unique: s.Unique,
	}
}

// queue takes what an entry allows now.
func (l *loop) queue(item index.Item, deleted bool) {
	if item.Problem != "" && !deleted { // what it said last goes on; where that is not known, nothing may start
		if l.types[item.Key] == nil {
			l.sched.SetEntry(item.Key, schedule.Limits{Paused: true})
		}
		return
	}
	d, _ := item.Value.(*queue.Data)
	if deleted || item.State == queue.Deleted {
		d = nil
	}
	l.sched.SetEntry(item.Key, limitsOf(item.Key, d))
	if item.Key == clusterEntry {
		aging := queue.DefaultAging
		if d != nil {
			aging = d.AgingOf()
		}
		l.sched.SetAging(aging)
	}
	if d == nil {
		delete(l.types, item.Key)
		return
	}
	l.types[item.Key] = d
}

// limitsOf are those of an entry; of one that is not there, nil.
func limitsOf(name string, d *queue.Data) schedule.Limits {
	limits := schedule.Limits{}
	if d != nil {
		limits = schedule.Limits{Held: d.Limit, Rate: d.Rate, Interval: d.IntervalOf(), Paused: d.Paused != nil}
		if d.Paused != nil {
			limits.Why = pausedBy(d.Paused.By, d.Paused.Reason)
		}
	}
	if name == clusterEntry && limits.Held == 0 {
		limits.Held = queue.DefaultLimit
	}
	return limits
}

// task takes a change of a task.
func (l *loop) task(item index.Item, deleted bool) {
	b, _ := item.Value.(*task.Brief)
	if item.Problem != "" { // it is parked: nothing is known of it, so it is not started, and its slot stays
		l.sched.Drop(item.Key)
		return
	}
	namespace, repo, id := split(item.Key)
	gone := deleted || b == nil || item.State == task.Deleted
	state := item.State
	if gone {
		state = task.Deleted
	}
	l.orphan(item.Key, repo, state)
	changed := l.count(repo, id, item.State, b, gone)
	s := l.ledger.slots[item.Key]
	if s != nil && !deleted && item.Version < s.Version {
		if changed { // which is told once
			l.behind(item.Key)
		}
		return // older than the grant
	}
	l.need(repo, item.Key, b, gone)
	l.batch(repo, &item, b, gone)
	l.depend(repo, &item, b, gone, changed)
	if s != nil && !gone && s.keeps(item.State, b) {
		if item.State == task.Running {
			s.runs, s.Version = true, item.Version
		}
		return
	}
	now := l.clock()
	if s != nil {
		l.ledger.drop(s)
		l.sched.Release(item.Key, now)
	}
	switch {
	case gone:
		l.sched.Drop(item.Key)
	case item.State == task.Running:
		s := &slot{Key: item.Key, Type: b.Type, Pool: b.Pool, Enqueue: b.Enqueue, Start: b.Starts, Version: item.Version, Unique: uniqueOf(namespace, b.UniqueKey), runs: true}
		l.ledger.add(s)
		l.sched.Hold(s.task(l.names))
	case item.State == task.Queued && l.startable(repo):
		l.sched.Wait(l.waiting(namespace, repo, &item, b), now)
	default:
		l.sched.Drop(item.Key)
	}
	if l.serves(item) {
		l.sched.Succeeded(item.Key, now)
	}
}

// serves reports whether what runs after a task may start. A clone that was run again and canceled serves as well: its repository stays cloned, as [repository.Data.Derive] has it.
func (l *loop) serves(item index.Item) bool {
	if item.State != task.Canceled {
		return item.State == task.Succeeded
	}
	_, name, id := split(item.Key)
	b, _ := item.Value.(*task.Brief)
	r := l.repos[name]
	return id == repository.CloneTask && b != nil && b.HasResult && r != nil && r.data.URL != ""
}

// keeps reports whether a task, as it is stored, has a slot or may still be started by the grant of it.
func (s *slot) keeps(state string, b *task.Brief) bool {
	switch state {
	case task.Running:
		return b.Enqueue == s.Enqueue && b.Starts == s.Start
	case task.Queued:
		return b.Enqueue == s.Enqueue && b.Starts+1 == s.Start
	}
	return false
}

func (l *loop) waiting(namespace, repo string, item *index.Item, b *task.Brief) schedule.Task {
	l.pool(b.Pool)
	return schedule.Task{
		Key: item.Key, Repository: repo, Namespace: namespace, Type: b.Type, Pool: b.Pool, Entries: l.names.of(namespace, b.Type, b.Pool),
		Priority: b.Priority, Order: b.SortOrder, Queued: b.Queued, NotBefore: b.NotBefore, Enqueue: b.Enqueue, Start: b.Starts + 1, Version: item.Version,
		After: l.after(repo, item.Key, b), Unique: uniqueOf(namespace, b.UniqueKey),
	}
}

// uniqueOf is short, whatever the key is, because the ledger has it; empty for no key.
func uniqueOf(namespace, key string) string {
	if key == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(namespace + "/" + key))
	return base64.RawURLEncoding.EncodeToString(sum[:12])
}

// count keeps the tally, and reports whether the task counts as another one than before.
func (l *loop) count(repo, id, state string, b *task.Brief, gone bool) (changed bool) {
	if gone {
		changed = l.tally.Remove(repo, id)
	} else {
		changed = l.tally.Set(repo, repository.Of{ID: id, Type: b.Type, State: state, Optional: b.Optional, HasResult: b.HasResult, Blocked: b.Blocked})
	}
	if !changed {
		return false
	}
	l.dirty[repo] = struct{}{}
	if r := l.repos[repo]; r != nil && r.state == repository.Deleting {
		r.changed(id, gone)
	}
	return true
}

// stop is the task that stops a batch, and when it failed.
type stop struct {
	key string
	at  time.Time
}

// batch keeps who is queued in a batch, and cancels those when a task that stops it has failed. What is queued later under the same name is another batch, unless the name is
// that of one run only.
func (l *loop) batch(repo string, item *index.Item, b *task.Brief, gone bool) {
	key := item.Key
	if name := l.batchOf[key]; name != "" {
		delete(l.batchOf, key)
		if delete(l.batches[name], key); len(l.batches[name]) == 0 {
			delete(l.batches, name)
		}
	}
	if name := l.stopOf[key]; name != "" {
		delete(l.stopOf, key)
		if l.stops[name].key == key {
			delete(l.stops, name)
		}
	}
	if gone || b.Batch == "" {
		return
	}
	name := repo + "/" + b.Batch
	switch {
	case item.State == task.Queued:
		if l.batches[name] == nil {
			l.batches[name] = map[string]bool{}
		}
		l.batches[name][key], l.batchOf[key] = true, name
		l.stopOne(name, item, b)
	case item.State == task.Failed && b.StopBatch && b.Blocked == "": // what ends another one with it stops for that, too
		l.stops[name], l.stopOf[key] = stop{key, item.Since}, name
		l.stopBatch(name)
	}
}

// stopOne cancels a queued task of a batch in which another one has failed. What waits for that one ends with it, and comes back with it, as one that was canceled would not.
func (l *loop) stopOne(batch string, item *index.Item, b *task.Brief) {
	failed := l.stops[batch]
	if l.loading || failed.key == "" || b.Queued.After(failed.at) && !task.IsNewBatch(b.Batch) || l.waitsFor(item.Key, failed.key) {
		return
	}
	l.send(publish.Command{Machine: task.Machine.Name, Key: item.Key, Name: task.CommandCancel, Reason: fmt.Sprintf("%s of its batch has failed", failed.key)})
}

func (l *loop) stopBatch(batch string) {
	for key := range l.batches[batch] {
		item, _ := l.Tasks.Get(key)
		if b, _ := item.Value.(*task.Brief); b != nil && item.State == task.Queued && l.ledger.slots[key] == nil { // one with a slot is about to run
			l.stopOne(batch, &item, b)
		}
	}
}

// restop looks at all batches that are stopped again: a command may have been lost.
func (l *loop) restop() {
	for batch := range l.stops {
		l.stopBatch(batch)
	}
}

// send stores a command without waiting. What is lost of it is sent again by a later sweep, or by whoever loads next.
func (l *loop) send(c publish.Command) {
	c.Actor = actor
	if err := l.Commands.Start(c, "", func(r publish.Result) {
		if r.Err != nil {
			l.Log.Warn("cannot store a command; it is sent again", "command", c.Name, "key", c.Key, "error", r.Err)
		}
	}); err != nil {
		l.Log.Warn("cannot send a command; it is sent again", "command", c.Name, "key", c.Key, "error", err)
	}
}

// report is the body of a report of no effect.
func report(data any) []byte {
	raw, err := json.Marshal(data)
	if err == nil {
		raw, err = json.Marshal(machines.Report{Data: raw})
	}
	if err != nil {
		panic("orchestrator: a report cannot be written: " + err.Error()) // texts and numbers
	}
	return raw
}

// ago is how long something has been due.
func ago(now time.Time, t *schedule.Task) time.Duration {
	due := t.Queued
	if t.NotBefore.After(due) {
		due = t.NotBefore
	}
	return now.Sub(due)
}
