package queue

import (
	"strings"
	"time"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/task"
)

// Data is what an entry keeps.
type Data struct {
	Settings
	Paused *Pause `json:"paused,omitempty"`
}

// Settings are what an entry allows. Zero is no limit, but for that of cluster.
type Settings struct {
	Limit    int    `json:"limit,omitempty" minimum:"0" maximum:"100000" doc:"Tasks that run at a time; 0 is no limit, and 4 for cluster"`
	Rate     int    `json:"rate,omitempty" minimum:"0" maximum:"1000000" doc:"Starts in each interval, at most; 0 is no limit"`
	Interval string `json:"interval,omitempty" example:"1m" doc:"Of rate, from 1s to 24h; 1s by default"`
	Cap      int    `json:"cap,omitempty" minimum:"0" maximum:"100000000" doc:"Tasks that may be queued; more are refused with 429. 0 is no limit"`
	Timeout  string `json:"timeout,omitempty" example:"10m" doc:"Of attempts of tasks that have none; for types only"`
	Attempts int    `json:"attempts,omitempty" minimum:"0" maximum:"100" doc:"Of tasks that have no number of them; for types only"`
	Aging    string `json:"aging,omitempty" example:"1m" doc:"After this time a waiting task counts as one of the next priority; 1m by default, for cluster only"`
}

// Pause says that nothing is started.
type Pause struct {
	Reason string `json:"reason,omitempty"`
	By     string `json:"by,omitempty"`
}

// Names of entries, and of the pool of the nodes.
const (
	Cluster    = "cluster"
	All        = "all"
	TypePrefix = "type-"
	PoolPrefix = "pool-"
	NodesPool  = task.NodesPool
)

// Defaults.
const (
	DefaultLimit    = 4
	DefaultAging    = time.Minute
	DefaultInterval = time.Second
)

// Valid reports whether an entry of a namespace may have that name.
func Valid(namespace, id string) bool {
	typ, isType := strings.CutPrefix(id, TypePrefix)
	pool, isPool := strings.CutPrefix(id, PoolPrefix)
	return id == Cluster && namespace == "default" || id == All || isType && machines.IsLabel(typ) || isPool && machines.IsLabel(pool)
}

// Of are the names of the entries of the namespace of a task, besides cluster. A type whose name is too long for an entry has none of its own.
func Of(typ, pool string) [3]string {
	if pool == "" {
		pool = NodesPool
	}
	return [3]string{All, TypePrefix + typ, PoolPrefix + pool}
}

// IntervalOf is the interval of the rate.
func (s *Settings) IntervalOf() time.Duration { return span(s.Interval, DefaultInterval) }

// AgingOf is the time after which a task counts as one of the next priority.
func (s *Settings) AgingOf() time.Duration { return span(s.Aging, DefaultAging) }

func span(text string, def time.Duration) time.Duration {
	if d, err := time.ParseDuration(text); err == nil && d > 0 {
		return d
	}
	return def
}

// ConfigureBody is the body of configure.
type ConfigureBody struct {
	Settings
}

// PauseBody is the body of pause.
type PauseBody struct {
	Reason string `json:"reason,omitempty" maxLength:"256"`
}

// Validate checks what the types cannot say.
func (b *ConfigureBody) Validate() *machines.Refusal {
	var f machines.Findings
	f.Between("limit", b.Limit, 0, 100_000)
	f.Between("rate", b.Rate, 0, 1_000_000)
	f.Between("cap", b.Cap, 0, 100_000_000)
	f.Between("attempts", b.Attempts, 0, 100)
	within(&f, "interval", b.Interval, time.Second, 24*time.Hour)
	within(&f, "timeout", b.Timeout, 100*time.Millisecond, task.MaxTimeout)
	within(&f, "aging", b.Aging, time.Second, 24*time.Hour)
	if b.Interval != "" && b.Rate == 0 {
		f.Add("interval", "is given without rate")
	}
	return f.Refusal()
}

func within(f *machines.Findings, field, s string, least, most time.Duration) {
	if s == "" {
		return
	}
	if d, err := time.ParseDuration(s); err != nil {
		f.Add(field, "is not a duration such as 30s")
	} else if d < least || d > most {
		f.Add(field, "must be from %s to %s", least, most)
	}
}

// Validate checks what the types cannot say.
func (b *PauseBody) Validate() *machines.Refusal {
	var f machines.Findings
	if len(b.Reason) > 256 {
		f.Add("reason", "is longer than 256 bytes")
	}
	return f.Refusal()
}
