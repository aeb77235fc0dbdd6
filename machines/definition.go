package machines

import (
	"encoding/json"
	"time"
)

// None is the state of an entity that was never created. It is not stored and has no name in a table.
const None = ""

// Same as the target of an edge keeps the state: timers and effects under way stay.
const Same = "="

// Engine commands: every machine takes them, and no table may name them.
const (
	CommandElapsed = "elapsed" // a timer fired; body Elapsed
	CommandFailed  = "failed"  // a provider could not perform an effect; body EffectFailed

	// CommandReconcile has the owner load the entity anew and compare it with its streams. It changes nothing where
	// nothing is missing.
	CommandReconcile = "reconcile"

	// CommandRepair gives a parked entity another value; body Repair.
	CommandRepair = "repair-value"

	// CommandDrop drops the value of an entity that ended long enough ago. It changes nothing elsewhere.
	CommandDrop = "drop-ended"
)

// Engine events: every machine emits them.
const (
	EventRefused  = "command.refused"
	EventDead     = "command.dead"
	EventRetrying = "effect.retrying" // a try failed, the next one is planned
	EventRetried  = "effect.retried"  // the next try was started

	// EventReconciled says that the stored value and the streams of its events did not belong together, as after a power
	// loss or a restore, and what could not be kept.
	EventReconciled = "entity.reconciled"
)

// Class decides how long an event is kept.
type Class string

// The classes of events, with the life that the streams package gives them.
const (
	ClassState    Class = "state"    // 3 years
	ClassResource Class = "resource" // 3 years
	ClassError    Class = "error"    // 1 year
	ClassProgress Class = "progress" // 90 days
)

// Definition is a lifecycle as its author writes it. D is the type of the entity's data: a struct that marshals to
// JSON, whose zero value is what an entity starts with.
type Definition[D any] struct {
	Name    string // singular, as in subjects: "service"
	Plural  string // as in paths and the name of the bucket: "services"
	Parent  string // what the parent is called ("service" for an instance), or empty
	Doc     string
	States  []State[D]
	Effects []Effect[D]
	Events  []EventType
	Inputs  []Command
	Edges   []Edge[D]
	Alarms  []Alarm[D]
	Columns []Column
	Views   []View

	// Upcasts bring stored values of earlier schemas up to the one of this table. A field that is added needs none: older programs keep what they
	// do not know. One that is renamed, removed or means something else does, and the state of a value may not change by it.
	Upcasts []Upcast
}

// State is one stage. One with a Timeout is transitional.
type State[D any] struct {
	Name     string
	Doc      string
	Timeout  *Timeout[D]
	Poll     *Poll
	Terminal bool // the entity has ended; only an input that is a Birth leads out
	Failed   bool // an operator should look at it

	Transitional bool // it is left without a further command, as each state with a Timeout is: who waits for the entity to settle waits on
}

// Timeout gives a state its deadline: a time After it was entered, or the point in time Until which it may last.
type Timeout[D any] struct {
	Input string // fed to the table when the time is over
	After func(*D) time.Duration
	Until func(*Tx[D]) time.Time // instead of After; a zero time sets no deadline
}

// Alarm is a deadline of the data, whatever the state is: its timer is armed for as long as Until names a time, survives
// every transition, and is set anew when that time changes. An entity that has ended has none. Its input must change the
// time or take it away; one that does neither is fed again at once.
type Alarm[D any] struct {
	Name  string             // of the timer
	Input string             // fed to the table at that time
	Until func(*D) time.Time // the zero time is none
}

// Poll says that the world is looked at while an entity is in the state.
type Poll struct {
	Every  time.Duration `json:"every"`
	Effect string        `json:"effect"`
}

// Effect is something done in the world for an entity by a provider.
type Effect[D any] struct {
	Name    string // a verb: "apply"
	Doc     string
	Done    string // the input that carries the provider's result
	Failed  string // the input that follows the last failed try
	Retry   Retry
	Timeout time.Duration // of one try; 0 is 60 s
	Payload func(*Tx[D]) any
	Task    any // a value of the type that Payload returns, for the documents; nil when there is none to be read

	// Route names the queue that a task goes to: that of the effect if it is empty, and otherwise one of its own, from which workers elsewhere take
	// it. It is a function of the data, as Payload is, and should stay the same while the effect is under way: a task may come again under another one.
	// What is no DNS label ([IsLabel]) is as empty. Nil has one queue for all.
	Route func(*Tx[D]) string

	// Late is the input that a result becomes which answers an attempt that is not under way any more, with a [Late] as its body, so that the table can note
	// it. Where no edge is open for it, or Late is empty, the result is refused with [CodeStale], as ever.
	Late string

	// Parallel is how many tasks may be under way at a time, in all, for an effect that something else bounds; 0 is what the workers are told.
	Parallel int

	// Looks says that it only looks at the world: its failures say nothing about the entity, so LastError stays.
	Looks bool
}

// Retry plans the tries of an effect: the wait before try n+1 is random between 0 and min(Cap, Base*Factor^(n-1))
// ("full jitter", AWS Architecture Blog, Exponential Backoff And Jitter), and never less than a provider asks for.
type Retry struct {
	Attempts int           `json:"attempts"` // tries in all; 0 is 10
	Base     time.Duration `json:"base"`     // 0 is 500 ms
	Factor   float64       `json:"factor"`   // 0 is 2
	Cap      time.Duration `json:"cap"`      // 0 is 60 s
}

// EventType is one type of event that a machine emits.
type EventType struct {
	Name    string `json:"name"`    // as in ce-type and the timeline
	Subject string `json:"subject"` // as in the subject; Name if empty
	Class   Class  `json:"class"`
	Doc     string `json:"doc"`
}

// Command is one input. A command comes from a user; a report comes from a provider or an observer.
type Command struct {
	Name        string
	Doc         string
	Body        any  // a value of the struct type of its body, or nil for none
	Birth       bool // creates the entity, and a new life of an ended one; of a live one it is an input like others
	Report      bool // not offered to users
	Admin       bool // needs the role admin, not only operate
	Destructive bool // a user is asked before it is sent
	Replaces    bool // what the data and the labels have under the names of the body becomes what the body says, nothing where it says nothing: forms begin with what is there
}

// Validator is implemented by bodies that check themselves beyond their types. It returns nil, or a [*Refusal] from [Invalid].
type Validator interface{ Validate() *Refusal }

// Edge is one row of the table. Among the edges of a state and an input the first whose guard holds is taken.
type Edge[D any] struct {
	From    []string
	On      string
	If      *Guard[D] // nil always holds
	To      string
	Do      func(*Tx[D]) // changes the data; nil changes nothing
	Emit    []string     // event types, in order
	Effects []string     // started after Do
	Reenter bool         // with To Same: as if the state were entered anew (deadline, effects)
	Rearm   bool         // with To Same: the deadline is set anew, and nothing else
	Noop    bool         // accepted, but nothing is to be done: no version, no event, and Do is not called
}

// Guard decides whether an edge is open. It must not change anything, and gets the body from [Body] only: so it is known which commands are refused whatever their bodies say.
type Guard[D any] struct {
	Name  string // as in the diagram: "converged"
	Doc   string // said when it was the reason of a refusal: "needs …"
	Holds func(*Tx[D]) bool
}

// Column is a value that lists show.
type Column struct {
	Title string `json:"title"`
	Path  string `json:"path"` // dotted path from the entity, such as data.snapshot.url

	Selects bool   `json:"selects,omitempty"` // lists and batches select by it, as by a label of the name .data.type; the path is that of a text right in the data
	Absent  string `json:"absent,omitempty"`  // what an entity is selected as that does not have the text, or an empty one
}

// View is a read model: what a run of events adds up to for one entity, kept in the bucket <plural>_<name>.
type View struct {
	Name    string   `json:"name"` // as in paths: "revisions"
	Doc     string   `json:"doc"`
	Events  []string `json:"events"` // the types that it is made of
	Project Project  `json:"-"`
}

// Project folds one event of a type into a view. previous is nil for the first one; data is Event.Data as it was
// written. A nil result leaves the view as it is.
type Project func(previous json.RawMessage, event string, e Event, data json.RawMessage) (any, error)

// Folded is the stored value of a view, with the last event in it. An event was folded before if it is not later than At and
// has a number of at most Version and N.
type Folded struct {
	Seq     uint64          `json:"seq"`               // in EVENTS; it may be given out again when the stream is made anew
	Version uint64          `json:"version,omitempty"` // of the entity; 0 where no event in it has one
	N       uint64          `json:"n,omitempty"`       // among the events of the version
	At      time.Time       `json:"at"`                // the latest time of an event in it
	Value   json.RawMessage `json:"value"`
}

// Tx is what guards, actions and payloads see of one step.
type Tx[D any] struct {
	Data *D // a shallow copy that the action may change
	Body any
	In   *Input

	entity *Entity
	out    *Output
	due    time.Time      // of the timer that fired
	detail map[string]any // of the events that the edge emits, by type
	own    map[int]any    // of the events that the action emits, by their place among the messages
	failed error          // see Abort
}

// Input is a command as it reaches [Machine.Step].
type Input struct {
	Command string
	ID      string
	Seq     uint64    // in COMMANDS
	Time    time.Time // when the stream took it: the clock of the step
	Actor   string
	Reason  string
	Trace   string
	Wait    time.Duration // how long the sender waits for what comes of it; 0 if it does not. Edges may tell, not depend on it
	Body    json.RawMessage
	Unsent  bool   // nobody has written a body yet: what looks at one panics, and whoever asks takes that for not known
	Attempt string // of a report, from its Report

	// Nonce ends the attempt ids of the step, so that nobody can send a result under the id of an attempt that he was not
	// told of. An input that comes again may come with another one: of the first nothing was kept then.
	Nonce string
}

// Output is what a step wants done.
type Output struct {
	Result   string // Applied, Unchanged or Ignored
	From, To string
	Edge     *EdgeInfo // that was taken, to be read only; nil for a step of the engine itself (a retry)
	Messages []Message
}

// Body is the decoded body of the input, whose [Validator] has passed it. It panics when the table names another type for it,
// or none. Of an input that a timer feeds it is the zero value, of the failure of an effect the [*Failure].
func Body[B, D any](t *Tx[D]) *B { return t.Body.(*B) }

// Abort says that a guard, an action or a payload cannot do its part, and why; what it returns and has changed counts for
// nothing. What happens depends on the input, so that no entity is stuck by it:
//
//   - a command is refused with [CodeEvaluation], and nothing changes;
//   - the result of an effect becomes the failure of the effect, which is not tried again;
//   - a timer, and the failure of an effect, must lead on: a guard counts as shut; the edge is taken without its action, and
//     the entity keeps the reason as its last error. An effect whose payload fails is not started.
//
// A panic is a defect of the table: the command becomes a dead letter.
func (t *Tx[D]) Abort(err error) {
	if t.failed == nil {
		t.failed = err
	}
}

// Now is the time of the step: when the stream took the input, the same whenever and wherever the step is run.
func (t *Tx[D]) Now() time.Time { return t.In.Time }

// Late is how long after its time a timer fired; 0 where the input is none.
func (t *Tx[D]) Late() time.Duration {
	if t.due.IsZero() {
		return 0
	}
	return max(t.Now().Sub(t.due), 0)
}

// Fired reports whether the input is a timer of the entity: its time has come, whatever the clock of the step says.
func (t *Tx[D]) Fired() bool { return !t.due.IsZero() }

// State is the state before the step, also in an action.
func (t *Tx[D]) State() string { return t.out.From }

// Entity is the entity without its data, to be read only.
func (t *Tx[D]) Entity() *Entity { return t.entity }

// AttemptID is the id that the first try of an effect has which the edge starts, for an action that keeps it: when the attempt ends, the entity may not wait for it any more.
func (t *Tx[D]) AttemptID(effect string) string {
	return attemptID(effect, t.entity.Version, 1, t.In.Nonce)
}

// Emit adds an event to those that the edge emits by itself, after them. The same type may be emitted several times. The
// step fails when the table does not have the type, or when the data does not marshal to JSON; nil is no data.
func (t *Tx[D]) Emit(event string, data any) {
	if t.own == nil {
		t.own = map[int]any{}
	}
	t.own[len(t.out.Messages)] = data
	t.out.Messages = append(t.out.Messages, Message{Kind: KindEvent, Name: event})
}

// Detail gives an event that the edge emits its data, which must marshal to JSON; the last call counts. For a type that the
// edge does not emit it does nothing.
func (t *Tx[D]) Detail(event string, data any) { t.detail[event] = data }

// NextGeneration counts a newly accepted specification. Events and conditions that are made after it in the step have the new one.
func (t *Tx[D]) NextGeneration() { t.entity.Generation++ }

// Label replaces the entity's labels; nil takes them away. The map is kept, and must not be written to afterwards.
func (t *Tx[D]) Label(labels map[string]string) { t.entity.Labels = labels }

// Fail keeps the reason of a failure where every reader finds it, as LastError of the entity; nil forgets it. Without a time
// of its own it has that of the step. It stays over transitions until it is forgotten, or until the next failure or life.
func (t *Tx[D]) Fail(f *Failure) {
	if f != nil && f.At.IsZero() {
		c := *f
		c.At = t.Now()
		f = &c
	}
	t.entity.LastError = f
}

// Condition sets one condition, for the generation of now; its time moves only when its status does.
func (t *Tx[D]) Condition(typ string, status Status, reason, message string) {
	c := Condition{Type: typ, Status: status, Reason: reason, Message: message, ObservedGeneration: t.entity.Generation, LastTransitionTime: t.Now()}
	next := make([]Condition, 0, len(t.entity.Conditions)+1)
	found := false
	for _, old := range t.entity.Conditions {
		if old.Type == typ {
			found = true
			if old.Status == status {
				c.LastTransitionTime = old.LastTransitionTime
			}
			old = c
		}
		next = append(next, old)
	}
	if !found {
		next = append(next, c)
	}
	t.entity.Conditions = next
}

// Forget drops a condition; one that the entity does not have is fine.
func (t *Tx[D]) Forget(typ string) {
	var next []Condition
	for _, c := range t.entity.Conditions {
		if c.Type != typ {
			next = append(next, c)
		}
	}
	t.entity.Conditions = next
}
