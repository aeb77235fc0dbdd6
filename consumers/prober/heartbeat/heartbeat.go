// Package heartbeat reads heartbeats of instances, and keeps those for a moment that are faster than the news of their registration.
package heartbeat

import (
	"time"

	"github.com/bcc94042/instar/internal/strictjson"
)

// Bounds of what a heartbeat says.
const (
	MaxBody   = 4 << 10 // bytes
	maxWeight = 65535
)

// Beat is the body of a heartbeat. An empty one says that the instance is well.
type Beat struct {
	Generation uint64 `json:"generation"` // of the registration that it is of; 0 is any
	Status     string `json:"status"`     // passing, warning or critical; empty is passing
	Output     string `json:"output"`
	InFlight   *int   `json:"inFlight"`
	Weight     *int   `json:"weight"`
}

// plain is the heartbeat without a body.
var plain Beat

// Read returns nil for a body that is none of a heartbeat. What it returns must not be changed.
func Read(body []byte) *Beat {
	if len(body) == 0 {
		return &plain
	}
	var b Beat
	if len(body) > MaxBody || strictjson.Unmarshal(body, &b) != nil || !b.valid() {
		return nil
	}
	return &b
}

func (b *Beat) valid() bool {
	switch b.Status {
	case "", "passing", "warning", "critical":
	default:
		return false
	}
	return (b.InFlight == nil || *b.InFlight >= 0) && (b.Weight == nil || *b.Weight >= 0 && *b.Weight <= maxWeight)
}

const (
	maxEarly  = 10000
	earlyLife = 5 * time.Second
)

// Early are heartbeats that were faster than the news of their registration, by the key of the instance: 10,000 at most, for 5 s.
type Early struct{ beats map[string]early }

type early struct {
	beat Beat
	at   time.Duration
}

// Keep keeps a heartbeat that names a generation until that is known: it may be the first one after a registration, and
// the next one comes much later. It reports false for one that it does not keep.
func (e *Early) Keep(key string, b *Beat, now time.Duration) bool {
	if b.Generation == 0 || len(e.beats) >= maxEarly {
		return false
	}
	if e.beats == nil {
		e.beats = map[string]early{}
	}
	e.beats[key] = early{*b, now}
	return true
}

// Take takes the heartbeat that came ahead of a generation, or of one before it; nil is that there is none.
func (e *Early) Take(key string, generation uint64) *Beat {
	b, ok := e.beats[key]
	if !ok || b.beat.Generation > generation {
		return nil
	}
	delete(e.beats, key)
	return &b.beat
}

// Expire drops those whose registration does not come, and returns how many.
func (e *Early) Expire(now time.Duration) (dropped int) {
	for key, b := range e.beats {
		if now-b.at > earlyLife {
			delete(e.beats, key)
			dropped++
		}
	}
	return dropped
}
