package session

import (
	"time"

	"github.com/bcc94042/instar/machines"
)

// Course is how far a session is. It is one of three parts, so that each machine has its own fields between them where they have always been.
type Course struct {
	Phase          Phase     `json:"phase,omitempty"`
	Step           string    `json:"step,omitempty"`     // of a state that has several
	Attempt        int       `json:"attempt,omitempty"`  // in this stage, from 1
	AttemptAt      time.Time `json:"attemptAt,omitzero"` // when the attempt, or the undo, that is told of began
	NextTry        time.Time `json:"nextTry,omitzero"`   // in retry_wait
	LastProgressAt time.Time `json:"lastProgressAt,omitzero"`
}

// Trail is what a session has made, and what became of it.
type Trail struct {
	Ledger        []Entry        `json:"ledger,omitempty"` // in the order of creation
	Epoch         int64          `json:"epoch,omitempty"`  // of the routing, after the switch
	FailedFrom    string         `json:"failedFrom,omitempty"`
	FailedStep    string         `json:"failedStep,omitempty"` // of a state that has several
	FailedAttempt int            `json:"failedAttempt,omitempty"`
	Cancelled     bool           `json:"cancelRequested,omitempty"`
	Intact        bool           `json:"intact,omitempty"` // no undo since the failure has taken anything back; absent it is not known
	Undone        []ActionResult `json:"undone,omitempty"` // of the last undo
	Skip          []string       `json:"skip,omitempty"`
	Writes        string         `json:"writes,omitempty"`    // what an undo does with those since the switch
	LettingIn     bool           `json:"lettingIn,omitempty"` // the undo under way lets the tenant in, and does nothing else
}

// End is when a session came to rest.
type End struct {
	CompletedAt time.Time `json:"completedAt,omitzero"`
}

// Parts are what the data of a machine embeds.
type Parts interface {
	course() *Course
	trail() *Trail
	end() *End
}

func (c *Course) course() *Course { return c }
func (t *Trail) trail() *Trail    { return t }
func (e *End) end() *End          { return e }

// parts are all that Parts asks for.
type parts struct {
	Course
	Trail
	End
}

var _ Parts = (*parts)(nil)

// Phase is what goes on within a state.
type Phase string

// The phases.
const (
	Executing       Phase = "executing"
	RetryWait       Phase = "retry_wait"
	Paused          Phase = "paused"
	WaitingApproval Phase = "waiting_approval"
	Held            Phase = "held"
	RollingBack     Phase = "rolling_back"
	RollbackStuck   Phase = "rollback_stuck"
)

// States that every machine of sessions has.
const (
	Ready      = "ready"
	Failed     = "failed"
	RolledBack = "rolled_back"
	Cancelled  = "cancelled"
)

// Inputs that every machine of sessions has.
const (
	CommandApprove  = "approve"
	CommandPause    = "pause"
	CommandResume   = "resume"
	CommandCancel   = "cancel"
	CommandRetry    = "retry"
	CommandRollback = "rollback"
	CommandResolve  = "resolve"

	ReportHalted     = "halted"
	ReportHaltFailed = "halt-failed"
	ReportUndone     = "undone"
	ReportUndoFailed = "undo-failed"
	Timeout          = "timed-out"
)

// Effects besides those of the stages.
const (
	EffectHalt = "halt"
	EffectUndo = "undo"
)

// Kinds of resources that have a meaning here.
const (
	KindDatabase = "database"
	KindRuntime  = "runtime" // what is about the routing of a tenant
)

// ActionAdmit is all that an undo does before a session is resolved as ready that may have made a database. It tells applications where the tenant is, and reports the epoch of that if it is in
// that database. Once a switch was tried, an earlier undo may have shut the tenant out there: it lets the tenant in first, and fails where it is elsewhere.
const ActionAdmit = "admit_tenant"

// RollbackBody is the body of rollback.
type RollbackBody struct {
	Skip          []string `json:"skip,omitempty" maxItems:"16" doc:"Actions to leave out, by name; somebody has done them by hand"`
	KeepWrites    bool     `json:"keepWrites,omitempty" doc:"What was written since the switch is copied back, as far as the shared database has its tables and columns"`
	DiscardWrites bool     `json:"discardWrites,omitempty" doc:"What was written since the switch is left in the database that is put aside"`
}

// What an undo does with what the tenant has written since the switch.
const (
	RefuseWrites  = "refuse" // there is to be none
	KeepWrites    = "keep"
	DiscardWrites = "discard"
)

// Validate refuses both at once.
func (b *RollbackBody) Validate() *machines.Refusal {
	if b.DiscardWrites && b.KeepWrites {
		return machines.Invalid(machines.FieldError{Field: "keepWrites", Message: "excludes discardWrites"})
	}
	return nil
}

// ResolveBody is the body of resolve.
type ResolveBody struct {
	Outcome string `json:"outcome" enum:"ready,rolled_back" doc:"How it was repaired by hand"`
}

// Validate checks the outcome.
func (b *ResolveBody) Validate() *machines.Refusal {
	if b.Outcome == Ready || b.Outcome == RolledBack {
		return nil
	}
	return machines.Invalid(machines.FieldError{Field: "outcome", Message: "is ready or rolled_back"})
}

// Change is what an event has done to a resource.
type Change struct {
	Type   string `json:"type"` // a kind of entries
	ID     string `json:"id"`
	Action string `json:"action"` // created, updated or deleted
}

// Entry is a resource in the ledger.
type Entry struct {
	Kind  string    `json:"kind"`
	Name  string    `json:"name"`
	State string    `json:"state"` // intended, created, undone
	At    time.Time `json:"at"`
}

// The states of an [Entry].
const (
	Intended = "intended"
	Created  = "created"
	Undone   = "undone"
)

// Action is one step of an undo.
type Action struct {
	Name string `json:"name"`
	Kind string `json:"kind"`
	Stop bool   `json:"stop,omitempty"` // an error stops the undo; others go on, and are shown
}

// ActionResult is what became of one action of an undo.
type ActionResult struct {
	Action  string `json:"action"`
	Done    bool   `json:"done"`
	Skipped bool   `json:"skipped,omitempty"`
	Error   string `json:"error,omitempty"`
	Epoch   int64  `json:"epoch,omitempty"` // of the routing, from [ActionAdmit]; 0 where it does not lead to the database of the session

	LeftBehind []string `json:"leftBehind,omitempty"` // tables and columns that are not compared, and hold something in the tenant's database, or, of tables that say so, in the shared one: from the action that settles writes
}

// Results is what the provider reports of an undo.
type Results struct {
	Actions []ActionResult `json:"actions"`
}
