package orchestrator

// What becomes of queued tasks without a repository, such as one that was let in a moment before its repository was deleted, and stored after that. task notes them, and orphans, in each sweep, cancels those that
// the leader says are without one: they would wait for ever, and start unasked when the name is created again.

import (
	"strconv"
	"time"

	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/machines/repository"
	"github.com/bcc94042/instar/machines/task"
	"github.com/bcc94042/instar/streams/publish"
)

// orphaned is for how long a queued task waits for its repository: who publishes commands himself may have created both at once, and partitions change their owners.
const orphaned = time.Minute

// orphan notes a queued task whose repository was not seen.
func (l *loop) orphan(key, repo, state string) {
	if state == task.Queued && l.repos[repo] == nil {
		l.lonely[key] = struct{}{}
	} else {
		delete(l.lonely, key)
	}
}

// orphans cancels some of those whose repository is not there.
func (l *loop) orphans() {
	gone := map[string]bool{} // as the leader says it now, of those that were asked for
	for key := range l.lonely {
		item, _ := l.Tasks.Get(key)
		_, repo, _ := split(key)
		if item.State != task.Queued || item.Problem != "" || l.ledger.slots[key] != nil || l.repos[repo] != nil || l.clock().Sub(item.Since) < orphaned {
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
		if is { // unless it has changed meanwhile
			l.send(publish.Command{Machine: task.Machine.Name, Key: key, Name: task.CommandCancel, Expect: strconv.FormatUint(item.Revision, 10), Reason: "its repository is not there any more"})
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
