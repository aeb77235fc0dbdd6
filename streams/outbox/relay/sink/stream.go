package sink

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Stream is the stream that a relay writes to.
type Stream struct {
	Name     string
	Prefix   string        // first token of the subjects of events
	Replicas int           // 0 is 1
	MaxAge   time.Duration // how long a consumer may stay away; 0 is 7 days
}

// window is how long the server itself drops a message whose id it has seen. Exactness rests on the marker, not on the
// window: it only catches what else publishes the same ids. An id costs about 138 bytes of memory for as long.
const window = 2 * time.Minute

// Markers is the subject of markers: of a source, a mode and a shard, or with wildcards.
func (s Stream) Markers(tokens string) string { return s.Prefix + "-pos." + tokens }

// Config is the configuration that [Stream.Ensure] creates.
func (s Stream) Config() jetstream.StreamConfig {
	age := cmp.Or(s.MaxAge, 7*24*time.Hour)
	return jetstream.StreamConfig{
		Name: s.Name, Description: "Events from the outboxes of databases, in order per aggregate", Subjects: []string{s.Prefix + ".>", s.Markers(">")},
		Storage: jetstream.FileStorage, Retention: jetstream.LimitsPolicy, Discard: jetstream.DiscardOld, Replicas: max(s.Replicas, 1),
		MaxMsgs: -1, MaxBytes: -1, MaxMsgsPerSubject: -1, MaxConsumers: -1, MaxMsgSize: -1, MaxAge: age, Duplicates: min(window, age),
		AllowAtomicPublish: true, AllowBatchPublish: true, AllowRollup: true,
	}
}

// Abilities are what the stream can do for its publisher.
type Abilities struct {
	Fast     bool // fast ingest that ends at the first message that is refused
	Atomic   bool
	Replicas int
	MaxAge   time.Duration
	MaxBytes int // of one message, headers and payload
}

// Ensure creates the stream when it is missing. It changes nothing that exists, and refuses a stream that cannot carry
// an outbox: one that drops what is not yet old, or takes no rollups.
func (s Stream) Ensure(ctx context.Context, js jetstream.JetStream) (Abilities, error) {
	have, err := js.Stream(ctx, s.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		have, err = js.CreateStream(ctx, s.Config())
	}
	if err != nil {
		return Abilities{}, fmt.Errorf("relay: cannot open stream %s: %w", s.Name, err)
	}
	c := have.CachedInfo().Config
	for _, subject := range []string{s.Prefix + ".>", s.Markers(">")} {
		if !slices.Contains(c.Subjects, subject) {
			return Abilities{}, unfit("stream %s does not take %s: add the subject, or choose another stream", s.Name, subject)
		}
	}
	switch {
	case c.Retention != jetstream.LimitsPolicy:
		return Abilities{}, unfit("stream %s has retention %s, only limits keeps the position of the relay", s.Name, c.Retention)
	case c.Storage != jetstream.FileStorage:
		return Abilities{}, unfit("stream %s is in memory: events that are marked as sent would be lost with the server", s.Name)
	case !c.AllowRollup:
		return Abilities{}, unfit("stream %s takes no rollups, the relay keeps its position with them: set allow_rollup_hdrs", s.Name)
	case c.AllowDirect:
		return Abilities{}, unfit("stream %s answers reads from any replica (allow_direct), also from one that is behind, which would be taken for a stream that was set back: nats stream edit %s --no-allow-direct", s.Name, s.Name)
	case c.MaxMsgsPerSubject > 0:
		return Abilities{}, unfit("stream %s keeps only %d messages per subject, an aggregate may have more events of one type", s.Name, c.MaxMsgsPerSubject)
	case c.Discard == jetstream.DiscardOld && (c.MaxMsgs > 0 || c.MaxBytes > 0):
		return Abilities{}, unfit("stream %s drops the oldest messages at its limit, read or not: set discard to new, then the relay waits, or no limit", s.Name)
	case c.NoAck || c.PersistMode == jetstream.AsyncPersistMode:
		return Abilities{}, unfit("stream %s answers before a message is stored: events that are marked as sent could be lost", s.Name)
	}
	a := Abilities{Fast: c.AllowBatchPublish, Atomic: c.AllowAtomicPublish, Replicas: c.Replicas, MaxAge: c.MaxAge, MaxBytes: int(js.Conn().MaxPayload())}
	if c.MaxMsgSize > 0 {
		a.MaxBytes = min(a.MaxBytes, int(c.MaxMsgSize))
	}
	return a, nil
}

// UnfitError says that a stream cannot carry an outbox as it is configured.
type UnfitError struct{ text string }

func (e *UnfitError) Error() string { return "relay: " + e.text }

func unfit(format string, args ...any) error { return &UnfitError{fmt.Sprintf(format, args...)} }
