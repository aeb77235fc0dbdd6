package limits

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/internal/simulation/seen"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/queue"
	"github.com/bcc94042/instar/machines/repository"
	"github.com/bcc94042/instar/machines/task"
)

// told is a log that is told a story: in each line a command, whose value and event are seen at once, or, behind "late", when the line is called by its number.
type told struct {
	Log
	seq      uint64
	versions map[string]uint64
	of       map[string]*seen.Entity
	wrong    string
}

func (l *told) say(m *machines.Machine, key, typ, from, to, attempt string, data any) (tell func()) {
	if l.of == nil {
		l.versions, l.of = map[string]uint64{}, map[string]*seen.Entity{}
	}
	id := m.Name + "/" + key
	if l.of[id] == nil {
		l.of[id] = seen.New(m, key, 1)
	}
	l.seq++
	l.versions[id]++
	raw, _ := json.Marshal(data)
	command := ""
	if attempt != "" {
		command = task.ReportDone
	}
	ev := seen.Event{EventID: fmt.Sprint(id, "/", l.versions[id]), Type: typ, Numbered: true, Version: l.versions[id], From: from, To: to, Command: command, Attempt: attempt, Data: raw}
	l.Command(l.seq)
	l.Value(l.of[id], &seen.Value{Version: ev.Version, Mark: l.seq})
	return func() {
		if wrong := l.Event(l.of[id], &ev); wrong != "" {
			l.wrong = wrong
		}
	}
}

// tells takes lines such as "p.a queued", "p.a started 1", "p.a succeeded 1", "p.a succeeded 1 by 2", "all limit 1", "p limit 2", "all pause". A line that begins with "late" is told at the end.
func tells(t *testing.T, story string) *told {
	t.Helper()
	l := &told{}
	var late []func()
	for line := range strings.Lines(story) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		isLate := words[0] == "late"
		if isLate {
			words = words[1:]
		}
		key, at := "default."+words[0], func(i int) string { return append(words, "", "", "", "")[i] }
		var n int
		_, _ = fmt.Sscan(at(2), &n)
		detail := map[string]string{"attemptId": at(2), "type": "x"}
		var tell func()
		switch what := words[1]; {
		case what == "limit" && strings.Contains("pq", words[0]):
			tell = l.say(repository.Machine, key, repository.EventConfigured, "ready", "ready", "", repository.Spec{Concurrency: n})
		case what == "limit":
			tell = l.say(queue.Machine, key, queue.EventConfigured, "", "active", "", queue.Settings{Limit: n})
		case what == "pause":
			tell = l.say(queue.Machine, key, queue.EventPaused, "active", "paused", "", nil)
		case what == "queued":
			tell = l.say(task.Machine, key, task.EventQueued, "pending", task.Queued, "", nil)
		case what == "started":
			tell = l.say(task.Machine, key, task.EventStarted, task.Queued, task.Running, "", detail)
		default:
			tell = l.say(task.Machine, key, "task."+what, task.Running, what, at(4), detail)
		}
		if isLate {
			late = append(late, tell)
			continue
		}
		tell()
	}
	for _, tell := range late {
		tell()
	}
	return l
}

func TestWhatIsWrongIsSaid(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ story, wrong, exceeded string }{
		"one after the other": {story: "p limit 1\n p.a queued\n p.b queued\n p.a started 1\n p.a succeeded 1\n p.b started 2\n p.b succeeded 2"},
		"two of a repository": {"p limit 1\n p.a queued\n p.b queued\n p.a started 1\n p.b started 2\n p.a succeeded 1\n p.b succeeded 2", "", "2 of repository default.p ran, and at most 1"},
		"two of a type":       {"type-x limit 1\n p.a queued\n q.b queued\n p.a started 1\n q.b started 2", "", "2 of default.type-x ran"},
		"two of a pool":       {"pool-nodes limit 1\n p.a queued\n q.b queued\n p.a started 1\n q.b started 2", "", "2 of default.pool-nodes ran"},
		"five of all":         {"p.a queued\n p.a started 1\n p.b queued\n p.b started 2\n p.c queued\n p.c started 3\n p.d queued\n p.d started 4\n p.e queued\n p.e started 5", "", "5 of default.cluster ran, and at most 4"},
		"one while paused":    {"all pause\n p.a queued\n p.a started 1", "", "1 of default.all ran, and at most 0"},
		"a limit that was lowered while a task was queued": {story: "all limit 2\n p.a queued\n p.b queued\n all limit 1\n p.a started 1\n p.b started 2"},
		"a limit that was lowered before":                  {"all limit 2\n all limit 1\n p.a queued\n p.b queued\n p.a started 1\n p.b started 2", "", "2 of default.all ran, and at most 1"},
		"a lower limit that nobody was told before":        {story: "all limit 2\n late all limit 1\n p.a queued\n p.b queued\n p.a started 1\n p.b started 2"},
		"a limit that was raised after the start":          {"all limit 1\n p.a queued\n p.b queued\n p.a started 1\n p.b started 2\n all limit 2", "", "2 of default.all ran, and at most 1"},
		"an end that is told after the next start":         {story: "all limit 1\n p.a queued\n p.b queued\n p.a started 1\n late p.a succeeded 1\n p.b started 2"},
		"an attempt that ends twice":                       {"p.a queued\n p.a started 1\n p.a succeeded 1\n p.a failed 1", "ends attempt 1 by a result of 1: that has ended", ""},
		"an attempt that never began":                      {"p.a queued\n p.a started 1\n p.a succeeded 2", "ends attempt 2 by a result of 2: that was never started", ""},
		"the result of one that has ended":                 {"p.a queued\n p.a started 1\n p.a failed 1\n p.a queued\n p.a started 2\n p.a succeeded 2 by 1", "ends attempt 2 by a result of 1: that has ended", ""},
		"two attempts at a time":                           {"all limit 5\n p.a queued\n p.a started 1\n p.a started 2", "attempt 2 was started, and 1 has not ended", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := tells(t, c.story)
			says(t, c.wrong, l.wrong)
			says(t, c.exceeded, l.Exceeded())
		})
	}
}

func says(t *testing.T, want, got string) {
	t.Helper()
	if want == "" {
		require.Empty(t, got)
		return
	}
	require.Contains(t, got, want)
}

func TestAnAttemptWithoutAnEndIsLeft(t *testing.T) {
	t.Parallel()
	l := tells(t, "p.a queued\n p.a started 1")
	x := l.of["task/default.p.a"]
	x.Values = []seen.Value{{State: task.Running, Data: json.RawMessage(`{"attemptId":"1"}`), Effects: map[string]machines.Attempt{"run": {ID: "1"}}}}
	require.Empty(t, l.Left(x))
	x.Values[0].Effects = nil
	require.Contains(t, l.Left(x), "attempt 1 of task default.p.a has no end, and it is running")
	require.Empty(t, tells(t, "p.a queued\n p.a started 1\n p.a canceled 1").Left(x))
}
