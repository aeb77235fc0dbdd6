package orchestrator

// What becomes of tasks without a repository, such as one that was let in a moment before its repository was deleted, and stored after that. task notes them, and orphans, in each sweep, deletes those whose repository
// is deleted, as the leader says: they would wait for ever, start unasked when the name is created again, or be taken there for tasks of the new repository. Where the leader knows nothing of one, it may have been lost
// with its bucket, and come back with a backup: what is queued there is canceled, and nothing deleted.

import (
	"strconv"
	"time"

	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/repository"
	"github.com/bcc94042/instar/machines/task"
	"github.com/bcc94042/instar/streams/publish"
)

const (
	orphaned    = time.Minute // for which a task waits for its repository: who publishes commands himself may have created both at once, and partitions change their owners
	mostOrphans = 1024        // that are deleted in one sweep
)

// orphan notes since when the repository of a task was not seen.
func (l *loop) orphan(key, repo, state string) {
	if state == task.Deleting || state == task.Deleted || l.repos[repo] != nil {
		delete(l.lonely, key)
	} else if _, noted := l.lonely[key]; !noted {
		l.lonely[key] = l.clock()
	}
}

// orphans deletes some of those whose repository is not there; one that runs is canceled first.
func (l *loop) orphans() {
	states := map[string]string{} // as the leader says it now, of those that were asked for
	sent := 0
	for key, since := range l.lonely {
		item, _ := l.Tasks.Get(key)
		_, repo, _ := split(key)
		starts := l.ledger.slots[key] != nil && item.State != task.Running
		if item.State == "" || item.Problem != "" || starts || l.repos[repo] != nil || l.clock().Sub(since) < orphaned {
			continue
		}
		state, known := states[repo]
		if !known {
			if len(states) == mostChecked {
				return
			}
			state = l.stateOf(repo)
			states[repo] = state
		}
		name := task.CommandDelete
		switch {
		case state == repository.Deleted && item.State == task.Running, state == machines.None && item.State == task.Queued:
			name = task.CommandCancel
		case state != repository.Deleted:
			continue
		}
		l.send(publish.Command{Machine: task.Machine.Name, Key: key, Name: name, Expect: strconv.FormatUint(item.Revision, 10), Reason: "its repository is not there any more"}) // unless it has changed meanwhile
		if sent++; sent == mostOrphans {
			return
		}
	}
}

// unknown is the state of a repository that cannot be read.
const unknown = "unknown"

// stateOf is the state of a repository as its leader says it, none where there is no such one.
func (l *loop) stateOf(name string) string {
	m, err := l.Value(l.ctx, repository.Machine, name)
	if err == nil && kv.Absent(m) {
		return machines.None
	}
	if err == nil {
		if e, err := repository.Machine.Decode(m.Data); err == nil {
			return e.State
		}
	}
	return unknown
}
