package orchestrator

// What becomes of tasks without a repository, such as one that was let in a moment before its repository was deleted, and stored after that. task notes them, and orphans, in each sweep, deletes those whose repository
// is deleted, as the leader says: they would wait for ever, start unasked when the name is created again, or be taken there for tasks of the new repository. Where the leader knows nothing of one, it may have been lost
// with its bucket, and come back with a backup: what is queued there is canceled, and nothing deleted.

import (
	"errors"
	"strconv"
	"time"

	"github.com/bcc94042/instar/consumers/orchestrator/lost"
	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/kv/index"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/repository"
	"github.com/bcc94042/instar/machines/task"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/publish"
)

const (
	orphaned    = time.Minute // for which a task waits for its repository: who publishes commands himself may have created both at once, and partitions change their owners
	mostOrphans = 1024        // that are deleted or canceled in one sweep, or up to as many more: those of one repository
	mostLost    = 256         // repositories in one sweep of which the leader is asked
)

// orphan notes since when the repository of a task was not seen.
func (l *loop) orphan(key, repo, state string) {
	if state == task.Deleting || state == task.Deleted || l.repos[repo] != nil {
		l.lonely.Drop(repo, key)
	} else {
		l.lonely.Note(repo, key, state == task.Queued, l.clock())
	}
}

// orphans deletes some of those whose repository is not there; one that runs is canceled first.
func (l *loop) orphans() {
	asked, sent := 0, 0
	for n := l.lonely.Len(); n > 0 && asked < mostLost && sent < mostOrphans; n-- {
		r := l.lonely.Next()
		due := l.due(r)
		if len(due) == 0 {
			continue
		}
		asked++
		state, err := l.stateOf(r.Name)
		if err != nil {
			return // nor is there an answer for the others
		}
		r.Is(state == machines.None, l.clock())
		for _, item := range due {
			name := task.CommandDelete
			switch {
			case state == repository.Deleted && item.State == task.Running, state == machines.None && item.State == task.Queued:
				name = task.CommandCancel
			case state != repository.Deleted:
				continue
			}
			l.send(publish.Command{Machine: task.Machine.Name, Key: item.Key, Name: name, Expect: strconv.FormatUint(item.Revision, 10), Reason: "its repository is not there any more"}) // unless it has changed meanwhile
			sent++
		}
	}
}

// due are tasks of a repository to which something is done, if the leader says of that what was seen.
func (l *loop) due(r *lost.Repository) (items []index.Item) {
	if stored, _ := l.Repositories.Get(r.Name); l.repos[r.Name] != nil || stored.Problem != "" {
		return nil
	}
	for key := range r.Due(l.clock(), orphaned) {
		item, _ := l.Tasks.Get(key)
		if starts := l.ledger.slots[key] != nil && item.State != task.Running; item.State == "" || item.Problem != "" || starts {
			continue
		}
		if items = append(items, item); len(items) == mostOrphans {
			break
		}
	}
	return items
}

// unknown is the state of a repository that cannot be read.
const unknown = "unknown"

// stateOf is the state of a repository as its leader says it, none where there is no such one. It fails when the leader says nothing.
func (l *loop) stateOf(name string) (string, error) {
	m, err := l.Value(l.ctx, repository.Machine, name)
	switch {
	case errors.Is(err, streams.ErrUnreadable):
		return unknown, nil
	case err != nil:
		return "", err
	case kv.Absent(m):
		return machines.None, nil
	}
	if e, err := repository.Machine.Decode(m.Data); err == nil {
		return e.State, nil
	}
	return unknown, nil
}
