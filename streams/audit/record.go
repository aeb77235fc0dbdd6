package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Record tells of one change, or of one that failed.
type Record struct {
	Class      string    `json:"class" doc:"state, resource, error or progress: decides how long it is kept"`
	Sequence   uint64    `json:"sequence" doc:"In the chain of its class"`
	Previous   string    `json:"previous,omitempty" doc:"Hash of the record before it in the chain; empty where that had gone by its age"`
	PreviousAt time.Time `json:"previousAt,omitzero" doc:"When that one was recorded"`
	RecordedAt time.Time `json:"recordedAt" doc:"Not before that of the record before it"`

	EventID    string          `json:"eventId" doc:"ce-id of the event that it is about"`
	EventType  string          `json:"eventType"`
	Timestamp  time.Time       `json:"timestamp" doc:"When it happened"`
	DurationMs int64           `json:"durationMs,omitempty"`
	Actor      RecordActor     `json:"actor"`
	Target     RecordTarget    `json:"target"`
	Resource   *RecordResource `json:"resource,omitempty"`
	Change     *RecordChange   `json:"stateChange,omitempty"`
	Result     RecordResult    `json:"result"`
	Command    string          `json:"command,omitempty" doc:"The input that led to it"`
	Reason     string          `json:"reason,omitempty"`
	Metadata   any             `json:"metadata,omitempty" doc:"What the event says besides"`

	Hash string `json:"hash,omitempty" doc:"SHA-256 of the record as it is written, without this member"`
}

// Types of actors.
const (
	User      = "user"
	System    = "system"    // the program itself, which has finished something
	Scheduler = "scheduler" // a time that has come
)

// RecordActor is who has changed something.
type RecordActor struct {
	Type string `json:"type" enum:"user,system,scheduler"`
	ID   string `json:"id"`
}

// RecordTarget is what was changed.
type RecordTarget struct {
	Machine      string `json:"machine"`
	SessionID    string `json:"sessionId" doc:"Key of the session"`
	TenantID     string `json:"tenantId"`
	EnterpriseID string `json:"enterpriseId" doc:"The tenant, as its rows name it"`
}

// RecordResource is what was made, changed or taken away.
type RecordResource struct {
	Type   string `json:"type"`
	ID     string `json:"id"`
	Action string `json:"action" enum:"created,updated,deleted"`
}

// RecordChange is that of a state.
type RecordChange struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// RecordResult is how it went.
type RecordResult struct {
	Success bool         `json:"success"`
	Error   *RecordError `json:"error,omitempty"`
}

// RecordError is why it failed.
type RecordError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// Head is the last record of a chain: what the next one follows. The zero value is that of a chain without records.
type Head struct {
	Sequence uint64
	Hash     string
	At       time.Time // when it was recorded
}

const (
	hashBefore = `,"hash":"`
	hashAfter  = `"}`
)

// Seal writes the record that follows a head, and returns the new head. No record is older than the one before it, also where the clock of whoever writes it was put back, or is
// slower than that of another one who wrote before.
func (h Head) Seal(r Record, now time.Time) ([]byte, Head, error) {
	if now.Before(h.At) {
		now = h.At
	}
	r.Sequence, r.Previous, r.PreviousAt, r.RecordedAt, r.Hash = h.Sequence+1, h.Hash, h.At, now.UTC(), ""
	text, err := json.Marshal(r)
	if err != nil {
		return nil, h, err
	}
	hash := hashOf(text)
	text = append(text[:len(text)-1], hashBefore+hash+hashAfter...)
	return text, Head{r.Sequence, hash, r.RecordedAt}, nil
}

func hashOf(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// ErrChanged says that a record is not as it was written.
var ErrChanged = errors.New("its hash is another one: it was changed")

// Parse reads a record as it was written. Its error is [ErrChanged] when the record has another hash than it says.
func Parse(line []byte) (r Record, err error) {
	if err := json.Unmarshal(line, &r); err != nil {
		return r, fmt.Errorf("it cannot be read: %w", err)
	}
	text, ok := bytes.CutSuffix(line, []byte(hashBefore+r.Hash+hashAfter))
	if !ok || hashOf(append(bytes.Clone(text), '}')) != r.Hash {
		return r, ErrChanged
	}
	return r, nil
}

// head is what follows a record.
func (r *Record) head() Head { return Head{r.Sequence, r.Hash, r.RecordedAt} }

// HeadOf is the head of a chain whose last record was written as text.
func HeadOf(text []byte) (Head, Record, error) {
	r, err := Parse(text)
	return r.head(), r, err
}
