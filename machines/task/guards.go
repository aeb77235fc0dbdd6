package task

import (
	"time"

	"github.com/bcc94042/instar/machines"
)

type (
	step  = machines.Tx[Data]
	guard = machines.Guard[Data]
)

var atOnce = &guard{Name: "run", Holds: func(s *step) bool { return machines.Body[CreateBody](s).Run }}

var again = &guard{
	Name: "again", Doc: "it has succeeded; reset it first, or send again: true",
	Holds: func(s *step) bool { return machines.Body[RunBody](s).Again },
}

// waitsFor: the start was decided for this enqueuing and try.
var waitsFor = &guard{
	Name: "waits for it", Doc: "the start is of an earlier enqueuing or try",
	Holds: func(s *step) bool {
		b := machines.Body[Started](s)
		return b.Enqueue == s.Data.Enqueue && b.Start == s.Data.Starts+1
	},
}

// runsIt: the same start, sent again.
var runsIt = &guard{
	Name: "runs it", Doc: "another attempt runs",
	Holds: func(s *step) bool {
		b := machines.Body[Started](s)
		return b.Enqueue == s.Data.Enqueue && b.Start == s.Data.Starts
	},
}

// answers: a result says which attempt it is of, so nobody ends one that he does not know.
var answers = &guard{Name: "of the attempt", Doc: "a result needs the id of the attempt that runs", Holds: isAnswer}

func isAnswer(s *step) bool { return s.In.Attempt != "" && s.In.Attempt == s.Data.AttemptID }

var snoozes = &guard{Name: "of the attempt, snooze", Holds: func(s *step) bool { return isAnswer(s) && snoozeOf(machines.Body[Result](s)) > 0 }}

func snoozeOf(r *Result) time.Duration { return min(span(r.Snooze, 0), MaxSnooze) }

// mayRetry: the failure says that another attempt can help, and there is one left.
var mayRetry = &guard{
	Name: "of the attempt, retryable, attempts remain",
	Holds: func(s *step) bool {
		return isAnswer(s) && machines.Body[machines.Failure](s).Retryable && s.Data.Attempt < s.Data.attempts()
	},
}

var attemptsRemain = &guard{Name: "attempts remain", Holds: func(s *step) bool { return s.Data.Attempt < s.Data.attempts() }}

var ofAttempt = &guard{Name: "of the attempt", Holds: func(s *step) bool { return machines.Body[Progress](s).Attempt == s.Data.AttemptID }}

var stuckAttempt = &guard{
	Name: "of the attempt", Doc: "another attempt runs",
	Holds: func(s *step) bool {
		id := machines.Body[Stuck](s).Attempt
		return id == "" || id == s.Data.AttemptID
	},
}

// knownAttempt: an attempt that has ended, whose late result is not noted yet.
var knownAttempt = &guard{Name: "ended attempt", Holds: func(s *step) bool {
	for i := range s.Data.History {
		if r := &s.Data.History[i]; r.ID == machines.Body[Discarded](s).Attempt && !r.Discarded {
			return true
		}
	}
	return false
}}

var sameSchedule = &guard{Name: "nothing new", Holds: func(s *step) bool {
	b := machines.Body[ScheduleBody](s)
	return b.Cron == s.Data.Cron && b.TimeZone == s.Data.TimeZone
}}

// bare: it has never run, so there is nothing to erase.
var bare = &guard{Name: "never ran", Holds: func(s *step) bool { return s.Data.StartedAt.IsZero() && len(s.Data.History) == 0 }}
