package relay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Stream is the stream that a relay writes to.
type Stream struct {
	Name     string        // OUTBOX
	Prefix   string        // outbox: first token of the subjects of events
	Replicas int           // 1
	MaxAge   time.Duration // 7 days; how long a consumer may stay away
}

// Window is how long the server itself drops a message whose id it has seen. Exactness rests on the marker, not on the
// window: it only catches what else publishes the same ids. An id costs about 138 bytes of memory for as long.
const Window = 2 * time.Minute

// refresh is how much of MaxAge may pass before a marker is written again, so that it never expires under a relay.
const refresh = 8

func (s Stream) withDefaults() Stream {
	if s.Name == "" {
		s.Name = "OUTBOX"
	}
	if s.Prefix == "" {
		s.Prefix = "outbox"
	}
	s.Replicas = max(s.Replicas, 1)
	if s.MaxAge == 0 {
		s.MaxAge = 7 * 24 * time.Hour
	}
	return s
}

// Markers is the subject that all markers of the prefix are under.
func (s Stream) markers() string { return s.Prefix + "-pos.>" }

// Config is the configuration that [Stream.Ensure] creates.
func (s Stream) Config() jetstream.StreamConfig {
	s = s.withDefaults()
	return jetstream.StreamConfig{
		Name: s.Name, Description: "Events from the outboxes of databases, in order per aggregate", Subjects: []string{s.Prefix + ".>", s.markers()},
		Storage: jetstream.FileStorage, Retention: jetstream.LimitsPolicy, Discard: jetstream.DiscardOld, Replicas: s.Replicas,
		MaxMsgs: -1, MaxBytes: -1, MaxMsgsPerSubject: -1, MaxConsumers: -1, MaxMsgSize: -1, MaxAge: s.MaxAge, Duplicates: min(Window, s.MaxAge),
		AllowAtomicPublish: true, AllowBatchPublish: true, AllowRollup: true,
	}
}

// abilities are what the stream can do for its publisher.
type abilities struct {
	fast     bool // fast ingest that ends at the first message that is refused
	atomic   bool
	replicas int
	maxAge   time.Duration
	maxBytes int // of one message, headers and payload
}

// Ensure creates the stream when it is missing. It changes nothing that exists, and refuses a stream that cannot carry
// an outbox: one that drops what is not yet old, or takes no rollups.
func (s Stream) Ensure(ctx context.Context, js jetstream.JetStream) error {
	_, err := s.ensure(ctx, js)
	return err
}

func (s Stream) ensure(ctx context.Context, js jetstream.JetStream) (abilities, error) {
	s = s.withDefaults()
	have, err := js.Stream(ctx, s.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		have, err = js.CreateStream(ctx, s.Config())
	}
	if err != nil {
		return abilities{}, fmt.Errorf("relay: cannot open stream %s: %w", s.Name, err)
	}
	c := have.CachedInfo().Config
	for _, subject := range []string{s.Prefix + ".>", s.markers()} {
		if !slices.Contains(c.Subjects, subject) {
			return abilities{}, unfit("stream %s does not take %s: add the subject, or choose another stream", s.Name, subject)
		}
	}
	switch {
	case c.Retention != jetstream.LimitsPolicy:
		return abilities{}, unfit("stream %s has retention %s, only limits keeps the position of the relay", s.Name, c.Retention)
	case c.Storage != jetstream.FileStorage:
		return abilities{}, unfit("stream %s is in memory: events that are marked as sent would be lost with the server", s.Name)
	case !c.AllowRollup:
		return abilities{}, unfit("stream %s takes no rollups, the relay keeps its position with them: set allow_rollup_hdrs", s.Name)
	case c.AllowDirect:
		return abilities{}, unfit("stream %s answers reads from any replica (allow_direct), also from one that is behind, which would be taken for a stream that was set back: nats stream edit %s --no-allow-direct", s.Name, s.Name)
	case c.MaxMsgsPerSubject > 0:
		return abilities{}, unfit("stream %s keeps only %d messages per subject, an aggregate may have more events of one type", s.Name, c.MaxMsgsPerSubject)
	case c.Discard == jetstream.DiscardOld && (c.MaxMsgs > 0 || c.MaxBytes > 0):
		return abilities{}, unfit("stream %s drops the oldest messages at its limit, read or not: set discard to new, then the relay waits, or no limit", s.Name)
	case c.NoAck || c.PersistMode == jetstream.AsyncPersistMode:
		return abilities{}, unfit("stream %s answers before a message is stored: events that are marked as sent could be lost", s.Name)
	}
	a := abilities{fast: c.AllowBatchPublish, atomic: c.AllowAtomicPublish, replicas: c.Replicas, maxAge: c.MaxAge, maxBytes: int(js.Conn().MaxPayload())}
	if c.MaxMsgSize > 0 {
		a.maxBytes = min(a.maxBytes, int(c.MaxMsgSize))
	}
	return a, nil
}

// unfitError says that a stream cannot carry an outbox as it is configured.
type unfitError struct{ text string }

func (e *unfitError) Error() string { return "relay: " + e.text }

func unfit(format string, args ...any) error { return &unfitError{fmt.Sprintf(format, args...)} }
