package task

import (
	"slices"
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

// blocked: it still waits in the enqueuing of which somebody has seen that it cannot start.
var blocked = &guard{
	Name: "waits for it", Doc: "it does not wait for that task in this enqueuing",
	Holds: isBlocked,
}

// cloneTask is what all other tasks of a repository with a URL run after, without naming it.
const cloneTask = "clone"

func isBlocked(s *step) bool {
	b := machines.Body[Blocked](s)
	return b.Enqueue == s.Data.Enqueue && (b.By == cloneTask || slices.Contains(s.Data.RunAfter, b.By))
}

// stillEnded: it was neither queued again nor given a schedule since somebody has seen that its time is over.
var stillEnded = &guard{
	Name: "still ended", Doc: "it was queued again, or has a schedule",
	Holds: func(s *step) bool { return machines.Body[Expired](s).Enqueue == s.Data.Enqueue && s.Data.Cron == "" },
}

var blockedByFailure = &guard{Name: "waits for it, failed", Holds: func(s *step) bool { return isBlocked(s) && !machines.Body[Blocked](s).Canceled }}

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

// unanswered: an attempt that ended without a result, which comes now. That of a canceled one which failed says only that its worker has seen that.
var unanswered = &guard{Name: "unanswered", Holds: func(s *step) bool {
	b := machines.Body[machines.Late](s)
	r := s.Data.record(b.Attempt)
	if r == nil || r.Discarded {
		return false
	}
	switch r.Outcome {
	case OutcomeTimeout, OutcomeStuck:
		return true
	case OutcomeCanceled, OutcomeReset:
		return b.Outcome != machines.LateFailed
	}
	return false
}}

// hadAttempt: the same result again, or one that is told already.
var hadAttempt = &guard{Name: "ended", Doc: "it answers no attempt that is known", Holds: func(s *step) bool {
	return s.Data.record(machines.Body[machines.Late](s).Attempt) != nil
}}

// record is the attempt of that id, if it has ended and is kept.
func (d *Data) record(id string) *Record {
	for i := range d.History {
		if d.History[i].ID == id {
			return &d.History[i]
		}
	}
	return nil
}

var sameSchedule = &guard{Name: "nothing new", Holds: func(s *step) bool {
	cron, zone := machines.Body[ScheduleBody](s).Times()
	return cron == s.Data.Cron && zone == s.Data.TimeZone && (cron == "" || !s.Data.NextRun.IsZero()) // else it is armed anew
}}

// bare: it has never run, so there is nothing to erase.
var bare = &guard{Name: "never ran", Holds: func(s *step) bool { return s.Data.StartedAt.IsZero() && len(s.Data.History) == 0 }}
