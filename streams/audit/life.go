package audit

import (
	"encoding/json"
	"maps"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/streams"
)

// Life is how long records of a class are kept. It travels with their stream, so that whoever verifies a chain needs to know nothing else.
type Life struct {
	Kept   int64        `json:"keptSeconds,omitempty" doc:"How long a record is kept; absent it is what the class is kept by default"`
	Before []KeptBefore `json:"keptBefore,omitempty" doc:"Shorter times than that, of before: what had its age then has gone"`
}

// KeptBefore is how long records were kept until a time.
type KeptBefore struct {
	Kept  int64     `json:"keptSeconds"`
	Until time.Time `json:"until"`
}

// ChainEnd is the last record of a chain, whether it is there or not, and how long the records are kept.
type ChainEnd struct {
	Sequence uint64    `json:"sequence"`
	At       time.Time `json:"at"`
	Life
}

// keptBefore is where the metadata of a stream has [Life.Before].
const keptBefore = "instar-kept-before"

// LifeOf is that of the records in a stream of this configuration. Metadata that cannot be read has nothing of before.
func LifeOf(c jetstream.StreamConfig) Life {
	l := Life{Kept: int64(c.MaxAge / time.Second)}
	_ = json.Unmarshal([]byte(c.Metadata[keptBefore]), &l.Before)
	return l
}

// Extend gives the records of a stream another life, and reports whether that is another one than before. Where they had a shorter one, the stream remembers it: what has gone by that was not removed.
func Extend(c jetstream.StreamConfig, kept time.Duration, now time.Time) (jetstream.StreamConfig, bool) {
	if c.MaxAge == kept {
		return c, false
	}
	if c.MaxAge != 0 && c.MaxAge < kept { // 0 removes nothing
		l := LifeOf(c)
		text, _ := json.Marshal(append(l.Before, KeptBefore{l.Kept, now.UTC()})) // it always marshals
		c.Metadata = maps.Clone(c.Metadata)
		if c.Metadata == nil {
			c.Metadata = map[string]string{}
		}
		c.Metadata[keptBefore] = string(text)
	}
	c.MaxAge = kept
	return c, true
}

// slack is how much later than its age a record may go, or earlier by another clock.
const slack = time.Hour

// kept is how long records of a class are kept.
func (l Life) kept(class string) time.Duration {
	if l.Kept == 0 {
		return streams.LifeOf(class)
	}
	return time.Duration(l.Kept) * time.Second
}

// Days is how many whole days records of a class are kept.
func (l Life) Days(class string) int { return int(l.kept(class) / (24 * time.Hour)) }

// gone reports whether a record of a class may have gone by its age: now, or while records were kept for a shorter time.
func (l Life) gone(class string, recorded, now time.Time) bool {
	if now.Sub(recorded) >= l.kept(class)-slack {
		return true
	}
	for _, b := range l.Before {
		until := b.Until
		if now.Before(until) { // what a time that has not come would have removed is still there
			until = now
		}
		if until.Sub(recorded) >= time.Duration(b.Kept)*time.Second-slack {
			return true
		}
	}
	return false
}
