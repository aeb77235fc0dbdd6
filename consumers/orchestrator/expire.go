package orchestrator

// What becomes of tasks that have ended, where they are not kept for ever (KeepEnded): expire has them deleted, a page at a time, so that many of them neither hold the loop up nor come
// at once. stays has those that somebody counts on.

import (
	"slices"
	"time"

	"github.com/bcc94042/instar/kv/index"
	"github.com/bcc94042/instar/machines/repository"
	"github.com/bcc94042/instar/machines/task"
	"github.com/bcc94042/instar/streams/publish"
)

// mostExpired is how many tasks are looked at in one sweep.
const mostExpired = 4096

// expire looks at the next tasks that have ended. One that was queued again meanwhile refuses.
func (l *loop) expire() {
	if l.KeepEnded <= 0 {
		return
	}
	page := l.Tasks.List(index.Query{States: []string{task.Succeeded, task.Failed, task.Canceled}, After: l.passed, Limit: mostExpired})
	l.passed = page.Next
	before := l.clock().Add(-l.KeepEnded)
	for _, item := range page.Items {
		b, _ := item.Value.(*task.Brief)
		if b == nil || item.Problem != "" || item.Since.After(before) || l.stays(item.Key, b) {
			continue
		}
		l.send(publish.Command{
			Machine: task.Machine.Name, Key: item.Key, Name: task.ReportExpired, Body: report(task.Expired{Enqueue: b.Enqueue}),
			Reason: "it ended at " + item.Since.UTC().Format(time.RFC3339) + ", and tasks are kept for " + l.KeepEnded.String(),
		})
	}
}

// stays reports whether a task that has ended is kept for longer: one that comes again by itself, one that is part of its repository, one that others run after, and one whose repository sees to
// its deletion, or is not known.
func (l *loop) stays(key string, b *task.Brief) bool {
	_, repo, id := split(key)
	r := l.repos[repo]
	switch {
	case b.Cron != "", len(l.needs.by[key]) > 0, r == nil, r.parked, r.state == repository.Deleting:
		return true
	}
	return id == repository.CloneTask && r.data.URL != "" || slices.Contains(r.data.Analyses, id) || slices.Contains(r.data.Required, b.Type)
}
