package task

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	"github.com/bcc94042/instar/machines"
)

// create counts on from the version, which no count of an earlier life of the name has passed: nothing that was made, or decided, for one of its runs is taken for that of a later one.
func create(s *step) {
	b := machines.Body[CreateBody](s)
	s.NextGeneration()
	s.Data.Enqueue = s.Entity().Version - 1
	s.Data.Starts = s.Data.Enqueue
	s.Label(b.Labels)
	s.Data.Spec = b.Spec
	if string(b.Params) == "null" {
		s.Data.Params = nil
	}
	s.Data.Priority = b.PriorityOf()
	s.Data.NextRun = next(b.Cron, b.TimeZone, s.Now())
	s.Detail(EventCreated, map[string]any{"type": b.Type, "pool": b.Pool, "priority": s.Data.Priority, "runAfter": b.RunAfter, "cron": b.Cron})
}

func createQueued(s *step) {
	create(s)
	enqueue(s, machines.Body[CreateBody](s).Order)
}

func run(s *step) { enqueue(s, machines.Body[RunBody](s).Order) }

// enqueue begins a new run of the task: its attempts count anew.
func enqueue(s *step, o Order) {
	d := s.Data
	d.Enqueue++
	d.Queued, d.NotBefore, d.Attempt, d.AttemptID = s.Now(), o.NotBefore, 0, ""
	if wait := span(o.Delay, 0); wait > 0 {
		d.NotBefore = s.Now().Add(wait)
	}
	d.Batch, d.StopBatch, d.Progress = o.Batch, o.StopBatch, nil
	d.EndedAt, d.Blocked = time.Time{}, ""
	s.Fail(nil)
	s.Detail(EventQueued, queuedDetail{Enqueue: d.Enqueue, NotBefore: d.NotBefore, Batch: d.Batch})
}

type queuedDetail struct {
	Enqueue   uint64    `json:"enqueue"`
	Attempt   int       `json:"attempt,omitempty"`
	ID        string    `json:"attemptId,omitempty"` // that ended by asking to wait
	NotBefore time.Time `json:"notBefore,omitzero"`
	Batch     string    `json:"batch,omitempty"`
}

// cronRun queues it at its time.
func cronRun(s *step) {
	enqueue(s, Order{})
	reschedule(s)
}

func skip(s *step) {
	s.Detail(EventSkipped, map[string]any{"at": s.Data.NextRun})
	reschedule(s)
}

func reschedule(s *step) {
	after := s.Now()
	if s.Data.NextRun.After(after) { // the clock of the stream is behind its schedules
		after = s.Data.NextRun
	}
	s.Data.NextRun = next(s.Data.Cron, s.Data.TimeZone, after)
}

func schedule(s *step) {
	d := s.Data
	s.NextGeneration()
	d.Cron, d.TimeZone = machines.Body[ScheduleBody](s).Times()
	d.NextRun = next(d.Cron, d.TimeZone, s.Now())
	s.Detail(EventScheduled, map[string]any{"cron": d.Cron, "timeZone": d.TimeZone, "nextRun": d.NextRun})
}

// Attempts.

func start(s *step) {
	b, d := machines.Body[Started](s), s.Data
	d.Attempt++
	d.Starts++
	d.StartedAt, d.EndedAt, d.NotBefore, d.Progress = s.Now(), time.Time{}, time.Time{}, nil
	d.Source, d.Limit, d.Most = b.Source, b.Timeout, b.Attempts
	d.AttemptID = s.AttemptID(EffectRun)
	s.Detail(EventStarted, attemptDetail{Enqueue: d.Enqueue, Attempt: d.Attempt, Of: d.attempts(), ID: d.AttemptID, Type: d.Type, Pool: d.Pool})
}

// attemptDetail is what events say of an attempt: limits and ends are checked by it.
type attemptDetail struct {
	Enqueue   uint64            `json:"enqueue"`
	Attempt   int               `json:"attempt"`
	Of        int               `json:"of,omitempty"`
	ID        string            `json:"attemptId,omitempty"`
	Type      string            `json:"type,omitempty"`
	Pool      string            `json:"pool,omitempty"`
	Outcome   string            `json:"outcome,omitempty"`
	Worker    string            `json:"worker,omitempty"`
	Summary   string            `json:"summary,omitempty"`
	Documents int               `json:"documents,omitempty"`
	NotBefore time.Time         `json:"notBefore,omitzero"`
	Error     *machines.Failure `json:"error,omitempty"`
}

// end closes the attempt that runs, and says of it what events tell.
func end(s *step, outcome, worker string, f *machines.Failure) attemptDetail {
	d := s.Data
	r := Record{Enqueue: d.Enqueue, Attempt: d.Attempt, ID: d.AttemptID, StartedAt: d.StartedAt, EndedAt: s.Now(), Outcome: outcome, Worker: clip(worker, 128)}
	if r.Worker == "" && d.Progress != nil {
		r.Worker = d.Progress.Worker
	}
	if f != nil {
		r.Code, r.Message = clip(f.Code, 64), clip(f.Message, 256)
	}
	kept := d.History[max(0, len(d.History)+1-maxHistory):]
	d.History = append(append(make([]Record, 0, len(kept)+1), kept...), r)
	d.EndedAt, d.AttemptID, d.Progress = s.Now(), "", nil
	return attemptDetail{Enqueue: r.Enqueue, Attempt: r.Attempt, ID: r.ID, Type: d.Type, Pool: d.Pool, Outcome: outcome, Worker: r.Worker, Error: f}
}

func progress(s *step) {
	p := *machines.Body[Progress](s)
	p.Attempt, p.Worker, p.Message = "", clip(p.Worker, 128), clip(p.Message, 256)
	if !(p.Percent >= 0) {
		p.Percent = 0
	}
	p.Percent = min(p.Percent, 100)
	s.Data.Progress = &p
	s.Detail(EventProgress, &p)
}

func succeed(s *step) {
	r := *machines.Body[Result](s)
	r.Summary, r.Snooze = clip(r.Summary, 1024), ""
	e := s.Entity()
	for _, d := range r.Documents {
		if mine := Prefix(e.Namespace, e.Parent, e.ID); !strings.HasPrefix(d.Name, mine) {
			s.Abort(fmt.Errorf("the document %q is not below %s", d.Name, mine))
			return
		}
	}
	if string(r.Output) == "null" {
		r.Output = nil
	}
	d := end(s, OutcomeSucceeded, r.Worker, nil)
	r.Worker = ""
	d.Summary, d.Documents = r.Summary, len(r.Documents)
	s.Data.Result = &r
	s.Fail(nil)
	s.Detail(EventSucceeded, d)
}

// retry queues it again after a failed attempt.
func retry(s *step) {
	retryAfter(s, OutcomeFailed, machines.Body[machines.Failure](s))
}

func retryLate(s *step) { retryAfter(s, OutcomeTimeout, late(s)) }

func retryAfter(s *step, outcome string, f *machines.Failure) {
	d := end(s, outcome, "", f)
	s.Data.NotBefore = s.Now().Add(max(s.Data.backoff(s.Entity().Key()), f.RetryAfter))
	d.NotBefore = s.Data.NotBefore
	s.Fail(f)
	s.Detail(EventRetrying, d)
	s.Detail(EventQueued, queuedDetail{Enqueue: s.Data.Enqueue, Attempt: s.Data.Attempt, NotBefore: s.Data.NotBefore, Batch: s.Data.Batch})
}

// backoff doubles with each attempt; up to a quarter is taken off, by the key, so that what failed together does not come back together.
func (d *Data) backoff(key string) time.Duration {
	wait := span(d.Backoff, DefaultBackoff)
	for range min(d.Attempt-1, 32) {
		wait = min(2*wait, MaxBackoff)
	}
	h := fnv.New32a()
	fmt.Fprintf(h, "%s/%d/%d", key, d.Enqueue, d.Attempt)                              // never fails
	return wait - time.Duration(float64(wait)/4*float64(h.Sum32()*0x9e3779b1)/(1<<32)) // the last byte of a hash like this moves its lower bits only
}

func fail(s *step) { giveUp(s, OutcomeFailed, machines.Body[machines.Failure](s)) }

func failLate(s *step) { giveUp(s, OutcomeTimeout, late(s)) }

func failStuck(s *step) {
	b := machines.Body[Stuck](s)
	reason := "it was found stuck"
	if b.Reason != "" {
		reason = clip(b.Reason, 256)
	}
	giveUp(s, OutcomeStuck, &machines.Failure{Code: "stuck", Message: reason, Retryable: true})
}

func giveUp(s *step, outcome string, f *machines.Failure) {
	d := end(s, outcome, "", f)
	s.Fail(f)
	s.Detail(EventFailed, d)
}

func late(s *step) *machines.Failure {
	return &machines.Failure{Code: "timeout", Message: fmt.Sprintf("no result within %s", s.Data.timeout()), Retryable: true, At: s.Now()}
}

// Waiting longer.

// snooze counts as a start: one that was decided before it, and arrives later, is of no use any more.
func snooze(s *step) {
	s.Data.Starts++
	wait(s, span(machines.Body[SnoozeBody](s).For, 0), "")
}

// snoozed: the worker has asked for it, so the attempt does not count.
func snoozed(s *step) {
	r := machines.Body[Result](s)
	d := end(s, OutcomeSnoozed, r.Worker, nil)
	s.Data.Attempt--
	wait(s, snoozeOf(r), d.ID)
}

// wait tells of which attempt that is the end, if of one.
func wait(s *step, d time.Duration, attempt string) {
	s.Data.NotBefore = s.Now().Add(d)
	s.Detail(EventSnoozed, queuedDetail{Enqueue: s.Data.Enqueue, Attempt: s.Data.Attempt, ID: attempt, NotBefore: s.Data.NotBefore})
}

// Ends.

func cancel(s *step) {
	d := attemptDetail{Enqueue: s.Data.Enqueue, Attempt: s.Data.Attempt, Type: s.Data.Type, Pool: s.Data.Pool}
	if s.State() == Running {
		d = end(s, OutcomeCanceled, "", nil)
	}
	s.Data.EndedAt, s.Data.NotBefore = s.Now(), time.Time{}
	s.Fail(nil)
	s.Detail(EventCanceled, d)
}

func blockFailed(s *step) { block(s, EventFailed, "has failed") }

func blockCanceled(s *step) {
	what := "was canceled"
	if machines.Body[Blocked](s).Deleted {
		what = "was deleted"
	}
	block(s, EventCanceled, what)
}

// block ends what cannot start, because a task that it runs after has ended without success. Its time stays: it comes back with that task, and starts no sooner.
func block(s *step, event, what string) {
	d, by := s.Data, machines.Body[Blocked](s).By
	d.EndedAt, d.Blocked = s.Now(), by
	f := &machines.Failure{Code: "upstream", Message: fmt.Sprintf("it runs after %s, which %s; it is queued again when that is", by, what), At: s.Now()}
	s.Fail(f)
	s.Detail(event, attemptDetail{Enqueue: d.Enqueue, Type: d.Type, Pool: d.Pool, Error: f})
}

// reset makes it as if it had never run, but for its number of enqueuings and its history.
func reset(s *step) {
	d := attemptDetail{Enqueue: s.Data.Enqueue, Attempt: s.Data.Attempt}
	if s.State() == Running {
		d = end(s, OutcomeReset, "", nil)
	}
	s.Data.NotBefore, s.Data.Queued, s.Data.EndedAt, s.Data.StartedAt = time.Time{}, time.Time{}, time.Time{}, time.Time{}
	s.Data.Attempt, s.Data.Batch, s.Data.StopBatch, s.Data.Blocked, s.Data.Result, s.Data.Source = 0, "", false, "", nil, nil
	s.Fail(nil)
	s.Detail(EventReset, d)
}

func erased(s *step) { s.Detail(EventErased, machines.Body[Erased](s)) }

func eraseFailed(s *step) {
	f := machines.Body[machines.Failure](s)
	s.Fail(f)
	s.Detail(EventEraseFailed, f)
}

func discard(s *step) {
	b := machines.Body[machines.Late](s)
	s.Data.History = slices.Clone(s.Data.History)
	r := s.Data.record(b.Attempt)
	r.Discarded = true
	s.Detail(EventDiscarded, attemptDetail{Enqueue: r.Enqueue, Attempt: r.Attempt, ID: r.ID, Type: s.Data.Type, Pool: s.Data.Pool, Outcome: clip(b.Outcome, 32), Worker: r.Worker})
}

// markDeleting ends the schedule; what has ended keeps its record until the name is used again.
func markDeleting(s *step) {
	s.Data.NextRun, s.Data.NotBefore = time.Time{}, time.Time{}
	s.Fail(nil)
}

func markDeleted(s *step) {
	s.Data.NextRun, s.Data.NotBefore, s.Data.Result = time.Time{}, time.Time{}, nil
}

func eraseLate(s *step) {
	markDeleted(s)
	f := &machines.Failure{Code: "erase-deadline", Message: "its documents could not be erased in time", At: s.Now()}
	s.Fail(f)
	s.Detail(EventEraseFailed, f)
}

func deletedEraseFailed(s *step) {
	markDeleted(s)
	eraseFailed(s)
}

func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}
