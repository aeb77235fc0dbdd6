package check

import (
	"encoding/json"
	"time"
)

// Command is one command as the client that sent it knows it.
type Command struct {
	ID, Key, Name string
	Body          string
	Sent          time.Time // first try
	Answered      time.Time // zero when there never was an answer
	Tries         int
	Stored        bool   // an answer said that it was stored and not decided yet
	Outcome       string // applied, unchanged, ignored, refused, dead, unknown, or empty
	Code          string // of a refusal
	State         string
	Version       uint64
	Revision      uint64
	Duplicate     bool
}

// The outcomes of a [Command].
const (
	Applied   = "applied"
	Unchanged = "unchanged"
	Ignored   = "ignored"
	Refused   = "refused"
	Dead      = "dead"
	Unknown   = "unknown" // processed, but its outcome was forgotten
)

// Event is one message of the event stream.
type Event struct {
	Seq     uint64 // in the stream
	ID      string // <machine>/<key>/<version>/<n>, or <machine>/<key>/refused/<sequence>/<time>/<n>
	Type    string
	Subject string
	Key     string
	Body    Body
}

// Body is what an event says.
type Body struct {
	From       string          `json:"from"`
	To         string          `json:"to"`
	Version    uint64          `json:"version"`
	Generation uint64          `json:"generation"`
	Time       time.Time       `json:"time"`
	Command    string          `json:"command"`
	CommandID  string          `json:"commandId"`
	Data       json.RawMessage `json:"data"`
}

// Value is a stored entity, as far as it is judged.
type Value struct {
	Revision uint64 `json:"-"`
	Raw      []byte `json:"-"`

	ID         string             `json:"id"`
	State      string             `json:"state"`
	Version    uint64             `json:"version"`
	Generation uint64             `json:"generation"`
	Labels     map[string]string  `json:"labels"`
	Timers     map[string]Timer   `json:"timers"`
	Effects    map[string]Attempt `json:"effects"`
	Outbox     []Message          `json:"outbox"`
}

// Timer is an armed timer of an entity.
type Timer struct {
	At time.Time `json:"at"`
}

// Attempt is an effect that an entity waits for.
type Attempt struct {
	ID      string     `json:"id"`
	NextTry *time.Time `json:"nextTry"`
}

// Message is what the last write of an entity emits.
type Message struct {
	Kind    string    `json:"kind"`
	Name    string    `json:"name"`
	Version uint64    `json:"version"`
	N       int       `json:"n"`
	At      time.Time `json:"at"`
	Refusal uint64    `json:"refuse"`
}

// Transitional reports whether an entity of that state is on its way.
func Transitional(state string) bool {
	return state == creating || state == updating || state == deleting
}

// History is all that is judged: it was read while nothing was under way.
type History struct {
	Commands  []Command
	Events    []Event // in the order of the stream
	Values    map[string]Value
	Schedules map[string]time.Time // by <key>/<timer>
	Pending   []string             // subjects in COMMANDS that are no schedules
	Effects   []string             // subjects in EFFECTS
	Letters   []string             // dead letters, in words

	Read      time.Time                // when it was read
	Deadlines map[string]time.Duration // entities that must have failed by their deadline, and which
	Late      time.Duration            // how late a deadline may be noticed
	Foreign   map[string]bool          // keys whose promises were broken on purpose: they are not judged
	Buried    int                      // dead letters that were provoked
}

// Violation is one broken promise.
type Violation struct {
	Rule string
	Key  string // of the entity, if it is about one
	Text string
}

func (v Violation) String() string {
	if v.Key == "" {
		return v.Rule + ": " + v.Text
	}
	return v.Rule + ": " + v.Key + ": " + v.Text
}
