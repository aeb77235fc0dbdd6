package outbox

import (
	"crypto/sha256"
	"time"

	"github.com/google/uuid"
)

// Message is one event of an aggregate on its way into the stream.
type Message struct {
	ID            uuid.UUID         // version 7; the idempotency key, Nats-Msg-Id and ce-id; zero: one is made when it is appended
	OccurredAt    time.Time         // zero: the time of the database when it is appended
	AggregateType string            // one token of a subject: letters, digits, - and _
	AggregateID   string            // likewise, at most 128 bytes
	EventType     string            // dotted, such as order.paid; never the name of a class
	Payload       []byte            // at most MaxPayload; nil is an empty one
	ContentType   string            // application/json by default; with application/cloudevents+json the payload is a CloudEvent of this id and type
	Headers       map[string]string // trace (traceparent), tenant, schemaVersion, …: become headers of the message; at most MaxHeaders, none for NATS
	NotBefore     time.Time         // not published earlier; zero is at once
}

// Mode is how a relay finds what is to be published.
type Mode string

// The modes.
const (
	Claim Mode = "claim" // rows with a state, claimed under a lease: the first design's table
	Log   Mode = "log"   // the default: append-only partitions read behind a cursor
)

// The states of a row, in the table (claim) or in the view outbox_event_status (log).
const (
	StateNew     = "NEW"
	StateSending = "SENDING"
	StateSent    = "SENT"
	StateFailed  = "FAILED" // waits for its next try
	StateDead    = "DEAD"   // tried often enough; an operator redrives or discards it

	StateDiscarded = "DISCARDED" // given up by an operator; mode log; mode claim keeps no such row
)

// Config is one database whose outbox is relayed. What is zero has the default that is named.
type Config struct {
	Name   string // a DNS label: of the entity, the lease, the consumer of wake-ups
	DSN    string // secret
	Schema string // public
	Mode   Mode   // Log
	Stream string // OUTBOX: the relay is the only publisher of its stream
	Prefix string // outbox: first token of its subjects, <prefix>.<aggregateType>.<aggregateId>.<eventType>

	Shards      int           // 4: by hash of the aggregate; each has one active relay. It cannot change while rows wait
	Batch       int           // 100 for Claim, 1000 else
	Poll        time.Duration // 1 s, when nothing wakes it
	Lease       time.Duration // 30 s, of claimed rows and of a shard
	Attempts    int           // 10
	BaseBackoff time.Duration // 1 s; the n-th wait is Base*2^(n-1)
	MaxBackoff  time.Duration // 300 s
	Retention   time.Duration // 7 days, of what was sent
	Types       *Types        // which events there are; others are parked, if their policy says so; nil knows all
	MaxLag      int64         // rows; beyond it the relay says so and Append may be refused by the application; 0 is no limit

	Structured bool // publish CloudEvents in structured mode, one JSON object for each; binary mode has the attributes in headers
}

// Status is how a relay stands.
type Status struct {
	Mode      Mode             `json:"mode"`
	Rows      map[string]int64 `json:"rows"`             // by state; SENT is an estimate for large tables
	Oldest    float64          `json:"oldestSeconds"`    // age of the oldest row that is not sent
	Lag       int64            `json:"lag"`              // rows behind
	FenceWait float64          `json:"fenceWaitSeconds"` // how long the oldest open writer holds the cursor back
	Parked    []Parked         `json:"parked,omitempty"` // aggregates whose first row failed; at most 100
	Rate      float64          `json:"rate"`             // rows per second over the last minute
	Shards    []Shard          `json:"shards"`
	Problem   string           `json:"problem,omitempty"` // why it stands still
	At        time.Time        `json:"at"`
}

// Parked is an aggregate that waits behind a row that cannot be published.
type Parked struct {
	AggregateType string    `json:"aggregateType"`
	AggregateID   string    `json:"aggregateId"`
	EventID       string    `json:"eventId"`
	State         string    `json:"state"` // FAILED or DEAD
	Attempts      int       `json:"attempts"`
	NextTry       time.Time `json:"nextTry,omitzero"`
	Error         string    `json:"error"`
	Waiting       int64     `json:"waiting"` // rows behind it
}

// Shard is a part of the aggregates, by hash.
type Shard struct {
	Number   int    `json:"number"`
	Owner    string `json:"owner,omitempty"`    // node that relays it
	Position string `json:"position,omitempty"` // of the last message in the stream: its sequence number
}

// ShardOf is the shard of an aggregate, from 0 to shards-1, as outbox_shard says it in the database. It panics without shards.
func ShardOf(aggregateType, aggregateID string, shards int) int {
	h := sha256.Sum256([]byte(aggregateType + "/" + aggregateID))
	return (int(h[0])<<16 | int(h[1])<<8 | int(h[2])) % shards
}
