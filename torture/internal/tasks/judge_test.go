package tasks

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines/task"
)

func TestAttemptsAreHeldAgainstTheLog(t *testing.T) {
	t.Parallel()
	start := func(key, attempt string) told { return told{typ: task.EventStarted, key: key, attempt: attempt} }
	end := func(typ, key, attempt string) told { return told{typ: typ, key: key, attempt: attempt} }
	const key = "default.r0.t"
	for name, x := range map[string]struct {
		log   []told
		ended int
		wrong []string
	}{
		"one end each": {
			log:   []told{start(key, "1"), end(task.EventRetrying, key, "1"), start(key, "2"), end(task.EventSnoozed, key, "2"), start(key, "3"), end(task.EventSucceeded, key, "3"), end(task.EventCanceled, key, "")},
			ended: 3,
		},
		"an end comes twice": {
			log:   []told{start(key, "1"), end(task.EventSucceeded, key, "1"), end(task.EventFailed, key, "1")},
			ended: 1, wrong: []string{"the attempt default.r0.t/1 ended twice", "the attempt default.r0.t/1 ended, and did not run"},
		},
		"it comes again while the next one runs": {
			log:   []told{start(key, "1"), end(task.EventRetrying, key, "1"), start(key, "2"), end(task.EventSucceeded, key, "1"), end(task.EventSucceeded, key, "2")},
			ended: 2, wrong: []string{"the attempt default.r0.t/1 ended twice", "the attempt default.r0.t/1 ended, and did not run"},
		},
		"no end": {log: []told{start(key, "1")}, wrong: []string{"1 attempts have no end"}},
		"started twice": {
			log:   []told{start(key, "1"), start(key, "2"), end(task.EventSucceeded, key, "2")},
			ended: 1, wrong: []string{"default.r0.t was started while it ran"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var wrong []string
			n := attempts(x.log, func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) })
			require.Equal(t, x.wrong, wrong)
			require.Equal(t, x.ended, n)
		})
	}
	var log []told
	for i := range atOnce + 1 {
		log = append(log, told{typ: task.EventStarted, key: fmt.Sprintf("default.x%d.t", i), attempt: "1", at: time.Unix(0, 0)})
	}
	said := 0
	attempts(log, func(string, ...any) { said++ })
	require.Equal(t, 2, said, "more run than may, and they have no end")
}
