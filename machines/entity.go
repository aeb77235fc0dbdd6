package machines

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/bcc94042/instar/internal/strictjson"
)

// Entity is one thing and its stage: the value under its key in the bucket of its machine, and a public contract.
// All of it but the bookkeeping of the commit protocol (Mark, LastEvent, Commands, Outbox) is written by [Machine.Step].
type Entity struct {
	Schema     int               `json:"schema"` // of its machine, see [Machine.Schema]
	Machine    string            `json:"machine"`
	Namespace  string            `json:"namespace"`
	ID         string            `json:"id"`
	Parent     string            `json:"parent,omitempty"`
	State      string            `json:"state"`
	Version    uint64            `json:"version"`         // rises by one per transition, over all lives of the id
	Generation uint64            `json:"generation"`      // rises with every accepted specification, over all lives of the id
	Since      time.Time         `json:"since"`           // when State was entered
	CreatedAt  time.Time         `json:"createdAt"`       // when this life began
	Birth      string            `json:"birth,omitempty"` // random, of this life: its events have it in a header
	UpdatedAt  time.Time         `json:"updatedAt"`       // when the last transition happened
	Labels     map[string]string `json:"labels,omitempty"`

	// Data is a pointer to the data type of the machine (see [Machine.Decode]). Readers that do not know the machine
	// set it to a *json.RawMessage before they unmarshal.
	Data       any                `json:"data,omitempty"`
	Conditions []Condition        `json:"conditions,omitempty"`
	Timers     map[string]Timer   `json:"timers,omitempty"`
	Effects    map[string]Attempt `json:"effects,omitempty"` // what is being done for it now, by effect
	LastError  *Failure           `json:"lastError,omitempty"`

	// Mark is the stream sequence of the last command that the entity took: one at or below it was taken before.
	Mark uint64 `json:"mark"`
	// MarkedAt is the latest time at which the stream took a command that the entity took.
	MarkedAt time.Time `json:"markedAt,omitzero"`
	// LastEvent is the stream sequence of the entity's last event as far as it was known at this write: at least the
	// last one before those of Outbox.
	LastEvent uint64    `json:"lastEvent"`
	Replaced  uint64    `json:"replaced,omitempty"` // of what remains of a dropped value: the revision that it had
	Commands  []Outcome `json:"commands,omitempty"` // those that the last write ended, and earlier ones whose answers were not kept then
	Outbox    []Message `json:"outbox,omitempty"`   // what the last write emits; published before the next one

	rest strictjson.Unknown // what a newer program has stored beside it
}

// Key is the entity's key in its bucket and in subjects: <namespace>.<id>, or <namespace>.<parent>.<id>.
func (e *Entity) Key() string { return Key(e.Namespace, e.Parent, e.ID) }

// Key joins what identifies an entity of one machine; parent is empty for a machine that declares none.
func Key(namespace, parent, id string) string {
	if parent == "" {
		return namespace + "." + id
	}
	return namespace + "." + parent + "." + id
}

// Exists reports whether the entity was ever created (it may have ended since).
func (e *Entity) Exists() bool { return e.State != None }

// Condition is one observed aspect of an entity in the Kubernetes style.
type Condition struct {
	Type               string    `json:"type"`
	Status             Status    `json:"status"`
	Reason             string    `json:"reason,omitempty"`
	Message            string    `json:"message,omitempty"`
	ObservedGeneration uint64    `json:"observedGeneration,omitempty"`
	LastTransitionTime time.Time `json:"lastTransitionTime"` // when Status last changed
}

// Status has three values: what is not known is neither true nor false.
type Status string

// The three values of a [Status].
const (
	True    Status = "True"
	False   Status = "False"
	Unknown Status = "Unknown"
)

// Condition returns the condition of that type, if the entity has it.
func (e *Entity) Condition(typ string) (Condition, bool) {
	for _, c := range e.Conditions {
		if c.Type == typ {
			return c, true
		}
	}
	return Condition{}, false
}

// Timer is a point in time at which the entity gets an input, unless it has moved on by then.
type Timer struct {
	At    time.Time `json:"at"`
	Armed uint64    `json:"armed"` // the version at which it was armed; a firing with another one is outdated
}

// Attempt is one effect that the entity waits for.
type Attempt struct {
	ID      string     `json:"id"`                // carried by the effect and by its result; another one is stale
	Try     int        `json:"try"`               // counts from 1
	Fence   uint64     `json:"fence,omitempty"`   // what its task carries: the version that started it, or that it was reconciled at
	Since   time.Time  `json:"since"`             // when this try was started
	NextTry *time.Time `json:"nextTry,omitempty"` // set while it waits to be tried again
	Error   *Failure   `json:"error,omitempty"`   // why the try before failed
}

// Failure says what went wrong, in words for a person and a code for a program.
type Failure struct {
	Code       string        `json:"code"`
	Message    string        `json:"message"`
	Retryable  bool          `json:"retryable,omitempty"`
	RetryAfter time.Duration `json:"retryAfter,omitempty"` // nanoseconds; the least wait that the provider asks for
	Fence      uint64        `json:"fence,omitempty"`      // the one that the provider has seen, when it refuses an older one: the next try comes with a higher one
	At         time.Time     `json:"at,omitzero"`

	Details json.RawMessage `json:"details,omitempty"` // for a program; what it says depends on the code. At most MaxDetails bytes, or there are none
}

func (f *Failure) Error() string { return f.Code + ": " + f.Message }

// Outcome is what became of one command.
type Outcome struct {
	ID         string   `json:"id"`
	Command    string   `json:"command"`
	Seq        uint64   `json:"seq"`           // its sequence in COMMANDS
	Result     string   `json:"result"`        // applied, unchanged, refused, dead
	State      string   `json:"state"`         // the state after it
	Version    uint64   `json:"version"`       // the version after it
	Generation uint64   `json:"generation"`    // the generation after it
	Hash       string   `json:"hash"`          // of command and body: another body under the same id is told apart
	Refusal    *Refusal `json:"why,omitempty"` // when refused or dead

	// Revision is that of the value after it; absent in the value that was written with it, whose own it is, and where State is empty, which is that there was none.
	Revision uint64 `json:"revision,omitempty"`
	Kept     bool   `json:"-"` // what it has beside the value is stored, or need not be: its answer under its key, its dead letter
}

// The results of a command.
const (
	Applied   = "applied"   // a transition happened
	Unchanged = "unchanged" // accepted, but there was nothing to do
	Refused   = "refused"   // see Refusal
	Dead      = "dead"      // could not be processed; it lies in DEAD_LETTERS
	Ignored   = "ignored"   // an outdated timer or a late result
)

// Message is one thing that a transition emits. Its id is derived, so that publishing it again changes nothing.
type Message struct {
	Kind    string          `json:"kind"` // event, effect, timer
	Name    string          `json:"name"` // event type, effect, or timer
	Version uint64          `json:"version"`
	N       int             `json:"n"`                // its place among the messages of that version
	At      time.Time       `json:"at"`               // when the transition happened; of a timer, when it fires
	Body    json.RawMessage `json:"body,omitempty"`   // what is published
	Trace   string          `json:"trace,omitempty"`  // W3C traceparent of the command
	Route   string          `json:"route,omitempty"`  // of an effect: the queue that it goes to, if it is not that of all
	Refusal uint64          `json:"refuse,omitempty"` // sequence of the command that it tells of, for events that no version has
}

// The kinds of a [Message].
const (
	KindEvent  = "event"
	KindEffect = "effect"
	KindTimer  = "timer"
)

// Queue is the name of the effect, and of the queue that it goes to where that is one of its own: run, or run=gpu.
func (m *Message) Queue() string { return Queue(m.Name, m.Route) }

// Queue is the name of the queue of an effect for a route; an empty one is that of the effect. Neither can hold the sign that joins them.
func Queue(effect, route string) string {
	if route == "" {
		return effect
	}
	return effect + "=" + route
}

// ID is the message's deduplication id: <machine>/<key>/<version>/<n>, or <machine>/<key>/refused/<sequence>/<time>/<n>
// for the event of a refusal. The time, in nanoseconds, is that of the command: a stream that lost its last messages gives
// their sequences out again. So does a bucket with versions, while the stream of effects still has what the lost one emitted: the id of
// an effect is <machine>/<key>/<version>/<n>/<time>.
func (m *Message) ID(machine, key string) string {
	if m.Refusal != 0 {
		return fmt.Sprintf("%s/%s/refused/%d/%d/%d", machine, key, m.Refusal, m.At.UnixNano(), m.N)
	}
	if m.Kind == KindEffect {
		return fmt.Sprintf("%s/%s/%d/%d/%d", machine, key, m.Version, m.N, m.At.UnixNano())
	}
	return fmt.Sprintf("%s/%s/%d/%d", machine, key, m.Version, m.N)
}

// Event is the body of an event.
type Event struct {
	From       string    `json:"from"`
	To         string    `json:"to"`
	Version    uint64    `json:"version"`
	Generation uint64    `json:"generation"`
	Time       time.Time `json:"time"`
	Command    string    `json:"command"`
	CommandID  string    `json:"commandId,omitempty"`
	Actor      string    `json:"actor,omitempty"`
	Reason     string    `json:"reason,omitempty"`
	Data       any       `json:"data,omitempty"`
}

// Task is the body of an effect: what a provider gets.
type Task struct {
	Machine   string          `json:"machine"`
	Namespace string          `json:"namespace"`
	ID        string          `json:"id"`
	Parent    string          `json:"parent,omitempty"`
	Effect    string          `json:"effect"`
	Attempt   string          `json:"attempt"`
	Try       int             `json:"try"`
	Fence     uint64          `json:"fence"` // the version that started the attempt, the same in each message of it: a provider refuses one that is older than it has seen
	Data      json.RawMessage `json:"data,omitempty"`
}

// Key is the key of the entity that the task is for.
func (t *Task) Key() string { return Key(t.Namespace, t.Parent, t.ID) }

// Result is what a provider made of a [Task]. Without Failure, Data becomes the body of the command that the effect
// names as Done.
type Result struct {
	Data    any
	Failure *Failure
}

// Report is the body of a result command: Data of the result, under the attempt that it answers.
type Report struct {
	Attempt string          `json:"attempt,omitempty"`
	Data    json.RawMessage `json:"data,omitempty"`
}

// Late is a result that came after the end of its attempt. Of what it says nothing is used.
type Late struct {
	Attempt string `json:"attempt"`
	Outcome string `json:"outcome"` // done or failed
	Code    string `json:"code,omitempty"`
}

// The outcomes of a [Late] result.
const LateDone, LateFailed = "done", "failed"

// EffectFailed is the body of the engine's own command "failed".
type EffectFailed struct {
	Effect  string  `json:"effect"`
	Attempt string  `json:"attempt"`
	Failure Failure `json:"failure"`
}

// Elapsed is the body of the engine's own command "elapsed".
type Elapsed struct {
	Timer string `json:"timer"`
	Armed uint64 `json:"armed"`
}

// Answer is what the sender of a command gets.
type Answer struct {
	Outcome    string   `json:"outcome"` // applied, unchanged, refused, dead, ignored
	Machine    string   `json:"machine"`
	Namespace  string   `json:"namespace"`
	ID         string   `json:"id"`
	Parent     string   `json:"parent,omitempty"`
	Command    string   `json:"command"`
	CommandID  string   `json:"commandId,omitempty"`
	State      string   `json:"state"`
	Version    uint64   `json:"version"`
	Revision   uint64   `json:"revision"`
	Generation uint64   `json:"generation"`
	Refusal    *Refusal `json:"refusal,omitempty"`

	// Replayed says that this is the answer of an earlier command under the same key. It is a header of the answer, so
	// that the body is the same, byte for byte.
	Replayed bool `json:"-"`
}

// Refusal says why an input changes nothing, and what would be possible. It is an answer, not an error to retry.
type Refusal struct {
	Code    string       `json:"code"` // one of the Code constants
	Message string       `json:"message"`
	State   string       `json:"state,omitempty"`
	Command string       `json:"command,omitempty"`
	Allowed []string     `json:"allowed,omitempty"`
	Fields  []FieldError `json:"fields,omitempty"`
}

// FieldError points at one wrong value of a body.
type FieldError struct {
	Field   string `json:"field"` // dotted path from the body, such as spec.port
	Message string `json:"message"`
}

// The codes of a [Refusal]; each is the last part of the type of an HTTP problem.
const (
	CodeNotFound     = "not-found"
	CodeExists       = "already-exists"
	CodeTransition   = "transition-not-allowed"
	CodeEvaluation   = "evaluation-failed" // see [Tx.Abort]
	CodeGuard        = "guard-rejected"
	CodeValidation   = "validation"
	CodePrecondition = "precondition-failed"
	CodeKeyReused    = "idempotency-key-reused"
	CodeUnknown      = "outcome-unknown"
	CodeStale        = "stale-attempt"
	CodeParked       = "entity-parked"
	CodeDead         = "dead"
)

// RefusalCodes are all of them.
var RefusalCodes = []string{
	CodeNotFound, CodeExists, CodeTransition, CodeGuard, CodeEvaluation, CodeValidation, CodePrecondition, CodeKeyReused, CodeUnknown, CodeStale, CodeParked, CodeDead,
}

func (r *Refusal) Error() string { return r.Message }

// Invalid is a refusal for wrong values in a body.
func Invalid(fields ...FieldError) *Refusal {
	msgs := make([]string, len(fields))
	for i, f := range fields {
		msgs[i] = f.Field + ": " + f.Message
	}
	return &Refusal{Code: CodeValidation, Message: strings.Join(msgs, "; "), Fields: fields}
}

// Finding is what looking at the world for one entity brought: the report to send, or nothing when Input is empty.
type Finding struct {
	Input string
	Data  any
	Until time.Time // when it is worth looking again if nothing changes; zero is at the next poll
}
