package relay

import (
	"time"

	"github.com/bcc94042/instar/machines"
)

// Data is what a relay keeps. It holds no secret: where the database is stands in the configuration of the nodes.
type Data struct {
	Policy    Policy       `json:"policy,omitzero"`
	Seen      *Observation `json:"seen,omitempty"` // the last observation that was worth telling
	SeenAt    time.Time    `json:"seenAt,omitzero"`
	StartedAt time.Time    `json:"startedAt,omitzero"`
}

// Policy holds the thresholds and deadlines of one relay. What is zero has its default.
type Policy struct {
	LagRows              int64 `json:"lagRows,omitempty" minimum:"0" maximum:"1000000000000" doc:"Unpublished rows from which the relay is lagging; 10000 by default"`
	LagSeconds           int   `json:"lagSeconds,omitempty" minimum:"0" maximum:"86400" doc:"Age of the oldest unpublished row, in seconds, from which the relay is lagging; 30 by default"`
	StallSeconds         int   `json:"stallSeconds,omitempty" minimum:"0" maximum:"86400" doc:"Seconds without progress, while rows wait, after which the relay is stalled; 15 by default"`
	StartDeadlineSeconds int   `json:"startDeadlineSeconds,omitempty" minimum:"0" maximum:"86400" doc:"Seconds after which a start counts as failed; 120 by default"`
	DrainDeadlineSeconds int   `json:"drainDeadlineSeconds,omitempty" minimum:"0" maximum:"86400" doc:"Seconds after which a drain ends and the relay is paused; 300 by default"`
}

func or[T int | int64](v, def T) T {
	if v == 0 {
		return def
	}
	return v
}

func seconds(n, def int) time.Duration { return time.Duration(or(n, def)) * time.Second }

func (p Policy) lagRows() int64               { return or(p.LagRows, 10_000) }
func (p Policy) lagSeconds() float64          { return seconds(p.LagSeconds, 30).Seconds() }
func (p Policy) stallSeconds() float64        { return seconds(p.StallSeconds, 15).Seconds() }
func (p Policy) startDeadline() time.Duration { return seconds(p.StartDeadlineSeconds, 120) }
func (p Policy) drainDeadline() time.Duration { return seconds(p.DrainDeadlineSeconds, 300) }
func (p Policy) deleteDeadline() time.Duration {
	return time.Minute
}

// Observation is how a relay stands: the evidence of every decision. Whoever looks fills it without judging.
type Observation struct {
	Mode      string           `json:"mode,omitempty"`
	Active    bool             `json:"active"`                     // an engine of this source runs where it was looked at
	Rows      map[string]int64 `json:"rows,omitempty"`             // by state
	Oldest    float64          `json:"oldestSeconds,omitempty"`    // age of the oldest row that is not sent
	Lag       int64            `json:"lag,omitempty"`              // rows behind
	FenceWait float64          `json:"fenceWaitSeconds,omitempty"` // how long the oldest open writer holds it back
	Still     float64          `json:"stillSeconds,omitempty"`     // how long nothing has moved although something should
	Parked    []Parked         `json:"parked,omitempty"`           // at most 20
	Waiting   int              `json:"parkedAggregates,omitempty"` // how many aggregates are parked in all
	Rate      float64          `json:"rate,omitempty"`             // rows per second over the last minute
	Shards    []Shard          `json:"shards,omitempty"`           // at most 64
	Problem   string           `json:"problem,omitempty"`          // why it stands still; at most 1024 bytes
	Fatal     bool             `json:"fatal,omitempty"`            // waiting does not mend the problem
	Node      string           `json:"node,omitempty"`             // that looked
	At        time.Time        `json:"at,omitzero"`
}

// Parked is an aggregate that waits behind a row that cannot be published.
type Parked struct {
	AggregateType string    `json:"aggregateType"`
	AggregateID   string    `json:"aggregateId"`
	EventID       string    `json:"eventId"`
	State         string    `json:"state"`
	Attempts      int       `json:"attempts"`
	NextTry       time.Time `json:"nextTry,omitzero"`
	Error         string    `json:"error,omitempty"`
	Waiting       int64     `json:"waiting,omitempty"`
}

func (p Parked) key() string { return p.AggregateType + "/" + p.AggregateID }

// Shard is a part of the aggregates.
type Shard struct {
	Number   int    `json:"number"`
	Owner    string `json:"owner,omitempty"`
	Position string `json:"position,omitempty"`
}

// Conditions of a relay.
const (
	Publishing = "Publishing"      // True while rows go into the stream, False while they stand, Unknown on its way
	Behind     = "Lagging"         // more rows wait, or longer, than they should
	Troubled   = "Troubled"        // something holds it up
	HasParked  = "Parked"          // aggregates wait behind a row that cannot be published
	Emptied    = "Drained"         // whether a drain came to its end
	Observed   = "Observed"        // whether it could be looked at
	Stuck      = "DeletionStalled" // the deletion does not come to its end
)

// Codes of the failures that the machine itself finds.
const (
	FailureStart  = "StartDeadlineExceeded"
	FailureDrain  = "DrainDeadlineExceeded"
	FailureDelete = "DeleteDeadlineExceeded"
	FailureFatal  = "CannotWork"
)

// RegisterBody is the body of register.
type RegisterBody struct {
	Policy Policy            `json:"policy,omitzero" doc:"Thresholds and deadlines"`
	Labels map[string]string `json:"labels,omitempty" maxProperties:"32"`
}

// ConfigureBody is the body of configure.
type ConfigureBody struct {
	Policy Policy `json:"policy" doc:"Replaces thresholds and deadlines"`
}

// PurgeBody is the body of purge.
type PurgeBody struct {
	Force bool `json:"force" doc:"Must be true: the relay is deleted even if its reported lag remains in the database"`
}

// Task is the data of every effect. The provider finds the rest by the name of the source in its configuration.
type Task struct {
	Source string `json:"source"`
}

// Validate checks what the types cannot say.
func (b *RegisterBody) Validate() *machines.Refusal { return b.Policy.validate() }

// Validate checks what the types cannot say.
func (b *ConfigureBody) Validate() *machines.Refusal { return b.Policy.validate() }

func (p Policy) validate() *machines.Refusal {
	var found []machines.FieldError
	for _, f := range []struct {
		name       string
		v, highest int64
	}{
		{"policy.lagRows", p.LagRows, 1e12},
		{"policy.lagSeconds", int64(p.LagSeconds), 86400},
		{"policy.stallSeconds", int64(p.StallSeconds), 86400},
		{"policy.startDeadlineSeconds", int64(p.StartDeadlineSeconds), 86400},
		{"policy.drainDeadlineSeconds", int64(p.DrainDeadlineSeconds), 86400},
	} {
		if f.v < 0 || f.v > f.highest {
			found = append(found, machines.FieldError{Field: f.name, Message: "is out of range"})
		}
	}
	if len(found) == 0 {
		return nil
	}
	return machines.Invalid(found...)
}
