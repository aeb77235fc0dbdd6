package orchestrator

// What becomes of tasks without a repository, such as one that was let in a moment before its repository was deleted, and stored after that. task notes them, and orphans, in each sweep, deletes those that the leader
// says are without one: they would wait for ever, start unasked when the name is created again, or be taken there for tasks of the new repository.

import (
	"strconv"
	"time"

	"github.com/bcc94042/instar/kv"
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
	gone := map[string]bool{} // as the leader says it now, of those that were asked for
	sent := 0
	for key, since := range l.lonely {
		item, _ := l.Tasks.Get(key)
		_, repo, _ := split(key)
		starts := l.ledger.slots[key] != nil && item.State != task.Running
		if item.State == "" || item.Problem != "" || starts || l.repos[repo] != nil || l.clock().Sub(since) < orphaned {
			continue
		}
		is, known := gone[repo]
		if !known {
			if len(gone) == mostChecked {
				return
			}
			is = l.gone(repo)
			gone[repo] = is
		}
		if !is {
			continue
		}
		name := task.CommandDelete
		if item.State == task.Running {
			name = task.CommandCancel
		}
		l.send(publish.Command{Machine: task.Machine.Name, Key: key, Name: name, Expect: strconv.FormatUint(item.Revision, 10), Reason: "its repository is not there any more"}) // unless it has changed meanwhile
		if sent++; sent == mostOrphans {
			return
		}
	}
}

// gone reports whether the leader says that there is no repository of a name. One that cannot be read is there.
func (l *loop) gone(name string) bool {
	m, err := l.Value(l.ctx, repository.Machine, name)
	if err != nil || kv.Absent(m) {
		return err == nil
	}
	e, err := repository.Machine.Decode(m.Data)
	return err == nil && e.State == repository.Deleted
}
