package task

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/bcc94042/instar/machines"
)

// Data is what a task keeps.
type Data struct {
	Spec

	Enqueue   uint64    `json:"enqueue,omitempty"` // rises by one each time it is queued, over resets, and never repeats in a later life of the name
	Queued    time.Time `json:"queuedAt,omitzero"` // when that was last; a retry keeps it
	NotBefore time.Time `json:"notBefore,omitzero"`
	Attempt   int       `json:"attempt,omitempty"`   // of this enqueuing: that runs, or was the last; a queued one waits for the next
	AttemptID string    `json:"attemptId,omitempty"` // of the attempt that runs
	Starts    uint64    `json:"starts,omitempty"`    // rises by one with each attempt of all enqueuings, also those that asked to wait, and each snooze of a queued one; never repeats, likewise
	Batch     string    `json:"batch,omitempty"`     // of the run of several that it was queued with
	StopBatch bool      `json:"stopBatch,omitempty"` // what is still queued of its batch is canceled when it fails

	Blocked string `json:"blocked,omitempty"` // the task that it runs after, whose end has ended it; it is queued again when that is

	StartedAt time.Time   `json:"startedAt,omitzero"`
	EndedAt   time.Time   `json:"endedAt,omitzero"`
	Limit     string      `json:"limit,omitempty"`    // the timeout of the attempt, where the task has none of its own: that of its type
	Most      int         `json:"most,omitempty"`     // the attempts, likewise
	Source    *Repository `json:"source,omitempty"`   // as it was when the attempt started
	Progress  *Progress   `json:"progress,omitempty"` // of the attempt that runs
	Result    *Result     `json:"result,omitempty"`   // of the last success
	History   []Record    `json:"history,omitempty"`  // attempts that ended, the last 20
	NextRun   time.Time   `json:"nextRun,omitzero"`   // of its schedule
}

// Spec is what a task is told when it is created.
type Spec struct {
	Type      string          `json:"type" minLength:"1" maxLength:"63" example:"languages" doc:"What is to be done. Limits, timeouts and required tasks go by it"`
	Title     string          `json:"title,omitempty" maxLength:"256"`
	Params    json.RawMessage `json:"params,omitempty" doc:"A JSON object for the worker; at most 64 KiB"`
	Pool      string          `json:"pool,omitempty" maxLength:"32" doc:"Workers that it is for: it waits in their queue fx-task-run=<pool>, and is limited by the entry pool-<pool>. By default nodes, which are those of the server"`
	Priority  int             `json:"priority,omitempty" minimum:"0" maximum:"9" doc:"1 is the first, 9 the last; 5 by default. Waiting raises it"`
	SortOrder int             `json:"sortOrder,omitempty" minimum:"-1000000" maximum:"1000000" doc:"Order among tasks of the same priority that are queued together"`
	Optional  bool            `json:"optional,omitempty" doc:"Its failure is a warning of the repository, not an error"`
	Timeout   string          `json:"timeout,omitempty" example:"10m" doc:"Of one attempt, at most 24h; that of the type, or 10m, by default"`
	Attempts  int             `json:"attempts,omitempty" minimum:"0" maximum:"100" doc:"Attempts in all; those of the type, or 3, by default"`
	Backoff   string          `json:"backoff,omitempty" example:"1s" doc:"Wait before the second attempt, doubled each time up to 20m; 1s by default"`
	RunAfter  []string        `json:"runAfter,omitempty" maxItems:"32" doc:"Tasks of the same repository that must have succeeded before it starts"`
	UniqueKey string          `json:"uniqueKey,omitempty" maxLength:"128" doc:"Of the tasks of a namespace that are queued or running, only one has it"`
	Cron      string          `json:"cron,omitempty" maxLength:"128" example:"0 3 * * *" doc:"When it runs by itself: a cron expression, with seconds first where it has six fields"`
	TimeZone  string          `json:"timeZone,omitempty" maxLength:"64" example:"Europe/Berlin" doc:"Of cron; UTC by default"`
}

// Record is one attempt that has ended.
type Record struct {
	Enqueue   uint64    `json:"enqueue"`
	Attempt   int       `json:"attempt"`
	ID        string    `json:"id"`
	StartedAt time.Time `json:"startedAt"`
	EndedAt   time.Time `json:"endedAt"`
	Outcome   string    `json:"outcome"` // one of the Outcome constants
	Worker    string    `json:"worker,omitempty"`
	Code      string    `json:"code,omitempty"`
	Message   string    `json:"message,omitempty"`   // at most 256 bytes
	Discarded bool      `json:"discarded,omitempty"` // a result came after its end, and was not used
}

// How an attempt ended.
const (
	OutcomeSucceeded = "succeeded"
	OutcomeFailed    = "failed"
	OutcomeTimeout   = "timeout"
	OutcomeStuck     = "stuck"
	OutcomeCanceled  = "canceled"
	OutcomeSnoozed   = "snoozed"
	OutcomeReset     = "reset"
)

// NodesPool is the pool of tasks that name none: the nodes do them. Those of every other pool wait for workers elsewhere, in a queue of their own.
const NodesPool = "nodes"

// MaxParallel is how many tasks can run at a time: their slots are kept in one stored value.
const MaxParallel = 4000

// Defaults and bounds.
const (
	DefaultPriority = 5
	DefaultTimeout  = 10 * time.Minute
	DefaultAttempts = 3
	DefaultBackoff  = time.Second
	MaxTimeout      = 24 * time.Hour
	MaxBackoff      = 20 * time.Minute
	MaxDelay        = 366 * 24 * time.Hour
	MaxSnooze       = 30 * 24 * time.Hour

	maxParams  = 64 << 10
	maxHistory = 20
)

func (d *Data) timeout() time.Duration {
	return span(d.Timeout, span(d.Limit, DefaultTimeout))
}

func (d *Data) attempts() int {
	for _, n := range []int{d.Attempts, d.Most} {
		if n > 0 {
			return n
		}
	}
	return DefaultAttempts
}

// PriorityOf is from 1 to 9.
func (s *Spec) PriorityOf() int {
	if s.Priority == 0 {
		return DefaultPriority
	}
	return s.Priority
}

// span reads a duration that was checked; what is none is def.
func span(text string, def time.Duration) time.Duration {
	if d, err := time.ParseDuration(text); err == nil && d > 0 {
		return d
	}
	return def
}

// CreateBody is the body of create.
type CreateBody struct {
	Spec
	Labels map[string]string `json:"labels,omitempty" maxProperties:"32"`
	Run    bool              `json:"run,omitempty" doc:"Queue it at once"`
	Order
}

// RunBody is the body of run and retry.
type RunBody struct {
	Again bool `json:"again,omitempty" doc:"Also when it has succeeded"`
	Order
}

// Order says how a task is queued.
type Order struct {
	Delay     string    `json:"delay,omitempty" example:"10m" doc:"Start no sooner than after this time, at most 366 days"`
	NotBefore time.Time `json:"notBefore,omitzero" doc:"Start no sooner than at this time; not together with delay"`
	Batch     string    `json:"batch,omitempty" maxLength:"64" doc:"Name of a run of several tasks"`
	StopBatch bool      `json:"stopBatch,omitempty" doc:"When it fails, what is still queued of its batch is canceled"`
}

// SnoozeBody is the body of snooze.
type SnoozeBody struct {
	For string `json:"for" minLength:"1" example:"30s" doc:"How long it waits from now, at most 720h"`
}

// ScheduleBody is the body of schedule.
type ScheduleBody struct {
	Cron     *string `json:"cron,omitempty" maxLength:"128" example:"0 3 * * *" doc:"An empty text ends the schedule, whatever its time zone"`
	TimeZone string  `json:"timeZone,omitempty" maxLength:"64" doc:"Of cron; UTC by default"`
}

// Times are what the body asks for. An empty cron takes the time zone away, which is there from before where a body is laid over what a task has; one that is left out does not, so that nobody ends a schedule
// by its time zone alone.
func (b *ScheduleBody) Times() (cron, zone string) {
	switch {
	case b.Cron == nil:
		return "", b.TimeZone
	case *b.Cron == "":
		return "", ""
	}
	return *b.Cron, b.TimeZone
}

// Started is the body of started: a slot is taken for this try of a queued task.
type Started struct {
	Enqueue  uint64      `json:"enqueue"`
	Start    uint64      `json:"start"` // that begins: one more than [Data.Starts]
	Source   *Repository `json:"source,omitempty"`
	Timeout  string      `json:"timeout,omitempty"`  // of the type
	Attempts int         `json:"attempts,omitempty"` // of the type
}

// Blocked is the body of blocked: a task of the same repository, after which it runs, has ended without success.
type Blocked struct {
	Enqueue  uint64 `json:"enqueue"`
	By       string `json:"by"`                 // its name
	Canceled bool   `json:"canceled,omitempty"` // else it has failed
	Deleted  bool   `json:"deleted,omitempty"`  // together with canceled: it is not there any more
}

// Expired is the body of expired: the task has ended, and is kept no longer.
type Expired struct {
	Enqueue uint64 `json:"enqueue"` // that ended
}

// Progress is how far an attempt is.
type Progress struct {
	Attempt string  `json:"attempt,omitempty"` // its id; another one is ignored
	Worker  string  `json:"worker,omitempty"`
	Percent float64 `json:"percent"`
	Message string  `json:"message,omitempty"`
}

// Stuck is why a running task is given up.
type Stuck struct {
	Reason  string `json:"reason,omitempty"`
	Attempt string `json:"attempt,omitempty"` // its id; empty is the one that runs
}

// Erased is what came of [Erase].
type Erased struct {
	Documents int `json:"documents"`
}

// Validate checks what the types cannot say.
func (b *CreateBody) Validate() *machines.Refusal {
	var f machines.Findings
	b.Spec.check(&f)
	b.Order.check(&f)
	f.Labels(b.Labels, 32)
	if !b.Run && b.Order != (Order{}) {
		f.Add("run", "must be true where delay, notBefore or batch is given")
	}
	return f.Refusal()
}

// Validate checks what the types cannot say.
func (b *RunBody) Validate() *machines.Refusal {
	var f machines.Findings
	b.Order.check(&f)
	return f.Refusal()
}

// Validate checks what the types cannot say.
func (b *SnoozeBody) Validate() *machines.Refusal {
	var f machines.Findings
	within(&f, "for", b.For, time.Millisecond, MaxSnooze)
	return f.Refusal()
}

// Validate checks what the types cannot say.
func (b *ScheduleBody) Validate() *machines.Refusal {
	var f machines.Findings
	cron, zone := b.Times()
	checkCron(&f, cron, zone)
	return f.Refusal()
}

// Validate refuses what could only be left out: a task that succeeds without what came of it has lost that, and nobody would know.
func (r *Result) Validate() *machines.Refusal {
	var f machines.Findings
	if r.Snooze != "" {
		within(&f, "snooze", r.Snooze, time.Millisecond, MaxSnooze)
		return f.Refusal()
	}
	if len(r.Output) > maxOutput {
		f.Add("output", "has %d bytes, %d are possible: put it into a document, or where its address can be returned", len(r.Output), maxOutput)
	}
	if len(r.Documents) > maxDocuments {
		f.Add("documents", "are %d, %d are possible", len(r.Documents), maxDocuments)
	} else if i := slices.IndexFunc(r.Documents, func(d Document) bool { return !NamesDocument(d.Name) }); i >= 0 {
		f.Add(fmt.Sprintf("documents[%d].name", i), "is empty, not UTF-8, or longer than %d bytes", MaxDocumentName)
	}
	return f.Refusal()
}

func (s *Spec) check(f *machines.Findings) {
	if !machines.IsLabel(s.Type) {
		f.Add("type", "is not a name of a-z, 0-9 and inner hyphens, of at most 63 characters")
	}
	if s.Pool != "" && (!machines.IsLabel(s.Pool) || len(s.Pool) > 32) {
		f.Add("pool", "is not a name of a-z, 0-9 and inner hyphens, of at most 32 characters")
	}
	text(f, "title", s.Title, 256)
	text(f, "uniqueKey", s.UniqueKey, 128)
	if p := bytes.TrimSpace(s.Params); len(p) > maxParams {
		f.Add("params", "is larger than %d bytes", maxParams)
	} else if len(p) > 0 && p[0] != '{' && string(p) != "null" {
		f.Add("params", "is not a JSON object")
	}
	f.Between("priority", s.Priority, 0, 9)
	f.Between("sortOrder", s.SortOrder, -1_000_000, 1_000_000)
	f.Between("attempts", s.Attempts, 0, 100)
	optional(f, "timeout", s.Timeout, 100*time.Millisecond, MaxTimeout)
	optional(f, "backoff", s.Backoff, time.Millisecond, MaxBackoff)
	if len(s.RunAfter) > 32 {
		f.Add("runAfter", "has more than 32")
	}
	for i, id := range s.RunAfter {
		if !machines.IsLabel(id) {
			f.Add("runAfter", "%.64q is not the name of a task", id)
		} else if slices.Contains(s.RunAfter[:i], id) {
			f.Add("runAfter", "%s is named twice", id)
		}
	}
	checkCron(f, s.Cron, s.TimeZone)
}

func (o *Order) check(f *machines.Findings) {
	optional(f, "delay", o.Delay, 0, MaxDelay)
	if o.Delay != "" && !o.NotBefore.IsZero() {
		f.Add("notBefore", "is given together with delay")
	}
	if y := o.NotBefore.Year(); !o.NotBefore.IsZero() && (y < 2000 || y > 9000) {
		f.Add("notBefore", "must be from the year 2000 to 9000")
	}
	text(f, "batch", o.Batch, 64)
	if o.StopBatch && o.Batch == "" {
		f.Add("stopBatch", "needs a batch")
	}
}

func text(f *machines.Findings, field, s string, most int) {
	if len(s) > most {
		f.Add(field, "is longer than %d bytes", most)
	}
	if strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		f.Add(field, "contains a control character")
	}
}

func optional(f *machines.Findings, field, s string, least, most time.Duration) {
	if s != "" {
		within(f, field, s, least, most)
	}
}

func within(f *machines.Findings, field, s string, least, most time.Duration) {
	if d, err := time.ParseDuration(s); err != nil {
		f.Add(field, "is not a duration such as 30s")
	} else if d < least || d > most {
		f.Add(field, "must be from %s to %s", least, most)
	}
}
