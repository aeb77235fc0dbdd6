package streams

// What package backup needs of the server. Snapshot passes a stream part by part, in the server's format, to a function; RestoreSnapshot sends such parts to a server. Plan.Begin
// creates the streams of a restore with a mark in their metadata, on which Ensure fails (Unfinished), so that no server uses them half restored; Plan.Finish removes it, and
// records the version that new entities begin above (Above).

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// snapshotSilence is how long a server may take for the next part of a snapshot, or for its last answer, before which it writes the stream's index.
const snapshotSilence = time.Minute

// SnapshotHead is what a snapshot of a stream begins with, as its server has it.
type SnapshotHead struct {
	Config json.RawMessage `json:"config"`
	State  json.RawMessage `json:"state"`
}

// Snapshot passes a stream, as it is at one moment and with its durable consumers, to a function, part by part, in the server's own format. It does not keep the parts.
func Snapshot(ctx context.Context, nc *nats.Conn, stream string, begin func(SnapshotHead) error, part func([]byte) error) error {
	inbox := nc.NewInbox()
	sub, err := nc.SubscribeSync(inbox)
	if err != nil {
		return fmt.Errorf("streams: cannot listen for a snapshot of %s: %w", stream, err)
	}
	defer func() { _ = sub.Unsubscribe() }() // fails only on a closed connection
	var head struct {
		SnapshotHead
		answered
	}
	if err := askSnapshot(ctx, nc, "SNAPSHOT", stream, map[string]any{"deliver_subject": inbox}, &head); err != nil {
		return err
	}
	if err := begin(head.SnapshotHead); err != nil {
		return err
	}
	for {
		wait, cancel := context.WithTimeout(ctx, snapshotSilence)
		m, err := sub.NextMsgWithContext(wait)
		cancel()
		if err != nil {
			return fmt.Errorf("streams: the snapshot of %s is not complete: %w", stream, err)
		}
		if len(m.Data) == 0 {
			if status := m.Header.Get("Status"); status != "204" && status != "" {
				return fmt.Errorf("streams: the snapshot of %s is not complete: %s %s", stream, status, m.Header.Get("Description"))
			}
			return nil
		}
		if err := part(m.Data); err != nil {
			return err
		}
		if m.Reply != "" { // the server sends only some of them ahead
			if err := m.Respond(nil); err != nil {
				return fmt.Errorf("streams: the snapshot of %s is not complete: %w", stream, err)
			}
		}
	}
}

// RestoreSnapshot makes a stream that does not exist out of its snapshot. Next returns nil after the last part.
func RestoreSnapshot(ctx context.Context, nc *nats.Conn, stream string, head SnapshotHead, next func() ([]byte, error)) error {
	var to struct {
		DeliverSubject string `json:"deliver_subject"`
		answered
	}
	if err := askSnapshot(ctx, nc, "RESTORE", stream, head, &to); err != nil {
		return err
	}
	for {
		part, err := next()
		if err != nil {
			return err // the server discards what it has when nothing more comes
		}
		wait, cancel := context.WithTimeout(ctx, snapshotSilence)
		m, err := nc.RequestWithContext(wait, to.DeliverSubject, part)
		cancel()
		if errors.Is(err, nats.ErrNoResponders) {
			return fmt.Errorf("streams: cannot restore %s: the server has given up, as it does when nothing is sent for 5 s: %w", stream, err)
		}
		if err != nil {
			return fmt.Errorf("streams: cannot restore %s: %w", stream, err)
		}
		var answer answered
		if len(m.Data) > 0 && json.Unmarshal(m.Data, &answer) == nil && answer.Error != nil {
			return fmt.Errorf("streams: cannot restore %s: %w", stream, answer.Error)
		}
		if len(part) == 0 {
			return nil
		}
	}
}

func askSnapshot(ctx context.Context, nc *nats.Conn, verb, stream string, body any, into refusing) error {
	ctx, cancel := context.WithTimeout(ctx, snapshotSilence)
	defer cancel()
	if err := request(ctx, nc, verb, stream, body, into); err != nil {
		return fmt.Errorf("streams: %s of %s: %w", verb, stream, err)
	}
	return nil
}

// ErrUnfinished says that streams are there that a restore has left unfinished.
var ErrUnfinished = errors.New("a restore of these streams did not end")

// What the metadata of streams says of a restore.
const (
	unfinishedIs = "instar.restoring" // since when: on all streams of the plan, until it has ended
	aboveIs      = "instar.above"     // versions that may have been given out before it: on the stream of commands
)

// Unfinished is an [ErrUnfinished] where the metadata of a stream say so.
func Unfinished(metadata map[string]string) error {
	if since, unfinished := metadata[unfinishedIs]; unfinished {
		return fmt.Errorf("streams: %w: it began at %s. Wait until it ends; if it was ended, remove what it has left, and restore again", ErrUnfinished, since)
	}
	return nil
}

// ErrOccupied says that there are streams where a restore was to make some.
var ErrOccupied = errors.New("a restore takes an empty place")

// Begin creates the streams of a restore. None of them may exist, nor any of others, except those that an earlier call has created under the same mark. Until [Plan.Finish] no
// server uses any of them. An [ErrUnfinished] without [ErrOccupied] says that it may have created some.
func (p Plan) Begin(ctx context.Context, js jetstream.JetStream, first uint64, mark string, others []string) error {
	p.FirstSeq = first
	configs := p.Configs()
	var missing []jetstream.StreamConfig
	for _, c := range configs {
		info, err := find(ctx, js, c)
		switch {
		case err != nil:
			return err
		case info == nil:
			missing = append(missing, c)
		case info.Config.Metadata[unfinishedIs] == mark:
		case Unfinished(info.Config.Metadata) != nil:
			return fmt.Errorf("%w; %w", Unfinished(info.Config.Metadata), ErrOccupied)
		default:
			return fmt.Errorf("streams: %w: %s is there already", ErrOccupied, c.Name)
		}
	}
	for _, name := range others {
		if info, err := find(ctx, js, jetstream.StreamConfig{Name: name, Replicas: p.Replicas}); err != nil || info != nil {
			return cmp.Or(err, fmt.Errorf("streams: %w: %s is there already", ErrOccupied, name)) // the first one that is not nil
		}
	}
	for _, c := range missing {
		c.Metadata = maps.Clone(c.Metadata)
		if c.Metadata == nil {
			c.Metadata = map[string]string{}
		}
		c.Metadata[unfinishedIs] = mark
		if _, err := create(ctx, js, c); err != nil {
			return fmt.Errorf("%w: %w", ErrUnfinished, err)
		}
	}
	return nil
}

// Restoring is the progress of a restore that another process does.
type Restoring int

const (
	NotBegun Restoring = iota // there are no streams
	Begun
	Ended
)

// Restoring asks for the progress of a restore of the streams. It fails with [ErrOccupied] for streams that no restore has created.
func (p Plan) Restoring(ctx context.Context, js jetstream.JetStream) (Restoring, error) {
	s, err := js.Stream(ctx, p.Names.Stream(CommandStream))
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return NotBegun, nil
	}
	if err != nil {
		return NotBegun, fmt.Errorf("streams: cannot look at stream %s: %w", p.Names.Stream(CommandStream), err)
	}
	metadata := s.CachedInfo().Config.Metadata
	switch {
	case Unfinished(metadata) != nil:
		return Begun, nil
	case Above(metadata) == 0:
		return NotBegun, fmt.Errorf("streams: %w: %s is there already", ErrOccupied, p.Names.Stream(CommandStream))
	}
	return Ended, nil
}

// Finish makes the streams of a restore usable by whoever starts next. Entities that begin then have versions above the one given. It may be called again when it fails.
func (p Plan) Finish(ctx context.Context, js jetstream.JetStream, above uint64) error {
	configs := p.Configs()
	slices.Reverse(configs) // that of the commands is the last, and says that it has ended
	for _, c := range configs {
		if err := p.unmark(ctx, js, c, above); err != nil {
			return fmt.Errorf("streams: cannot end the restore: stream %s: %w", c.Name, err)
		}
	}
	return nil
}

func (p Plan) unmark(ctx context.Context, js jetstream.JetStream, of jetstream.StreamConfig, above uint64) error {
	s, err := js.Stream(ctx, of.Name)
	if err != nil {
		return err
	}
	c := s.CachedInfo().Config
	if Unfinished(c.Metadata) == nil { // it was called before
		return nil
	}
	delete(c.Metadata, unfinishedIs)
	if c.Name == p.Names.Stream(CommandStream) {
		c.Metadata[aboveIs] = utoa(above)
	}
	_, err = js.UpdateStream(ctx, c)
	return err
}

// Above is what the metadata of the stream of commands says of versions that may have been given out before it was restored; 0 of one that never was.
func Above(metadata map[string]string) uint64 {
	above, _ := strconv.ParseUint(metadata[aboveIs], 10, 53) // absent, it is 0
	return above
}
