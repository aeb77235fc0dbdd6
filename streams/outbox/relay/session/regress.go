package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/outbox/relay/sink"
)

// A stream can be set back: restored from a backup, made anew, or cut short with a disk. What was stored since counts as
// sent in the database and is missing in the stream. The database notes the last marker of each shard (outbox_stream), so
// that a stream whose last marker is an older one is noticed before anything is written.

// ErrStreamRegressed says that the stream is at an older state than the database.
var ErrStreamRegressed = errors.New("the stream is at an older state than the database")

// StreamRegressedError is ErrStreamRegressed of one shard.
type StreamRegressedError struct {
	From uint64 // the last marker in the stream; 0 for none

	o      *Opener
	shard  int
	noted  uint64 // the last one that the database knows; 0 when rows told
	before marker
}

// Position is that of the last marker in the stream.
func (e *StreamRegressedError) Position() string { return e.before.Position }

func (e *StreamRegressedError) Error() string {
	how := fmt.Sprintf("its last position of shard %d is at %d, of %s", e.shard, e.From, e.before.At.UTC().Format(time.RFC3339))
	if e.From == 0 {
		how = fmt.Sprintf("it has no position of shard %d", e.shard)
	}
	if e.noted > 0 {
		how += fmt.Sprintf("; the database knows one at %d", e.noted)
	} else {
		how += "; rows were sent after it and are not there"
	}
	return fmt.Sprintf("relay: %s: %v: stream %s was restored from a backup, made anew, or lost messages: %s. What it held since then is missing there and counts as sent here. %s",
		e.o.Source, ErrStreamRegressed, e.o.Stream.Name, how, e.remedy())
}

func (e *StreamRegressedError) Unwrap() error { return ErrStreamRegressed }

// remedy is what an operator may do, in the schema of the outbox.
func (e *StreamRegressedError) remedy() string {
	forget := fmt.Sprintf("update outbox_stream set marker = 0 where source = '%s'", e.o.Source)
	switch e.o.Mode {
	case "claim":
		if since, err := sink.ParsePosition(e.before.Position); err == nil && since > 0 { // without it all sent rows are looked for in the stream
			return fmt.Sprintf("To publish that again, in the database: update outbox_event set status = 'NEW', next_retry_at = now() where status = 'SENT' and sent_at > timestamptz 'epoch' + %d * interval '1 microsecond'; %s. To go on without it, purge the position: nats stream purge %s --subject %s; and %s",
				since, forget, e.o.Stream.Name, e.o.subject(e.shard), forget)
		}
		return fmt.Sprintf("In the database, to publish all that is still there again: update outbox_event set status = 'NEW', next_retry_at = now() where status = 'SENT'; %s. To go on without it: only %s", forget, forget)
	}
	if e.From > 0 {
		return "Days of the table since that position were dropped. To publish the rest again, in the database: " + forget
	}
	return fmt.Sprintf("In the database, to go on behind what was sent: %s; to publish all again that is still there: that, and delete from outbox_cursor where source = '%s'", forget, e.o.Source)
}

// NotRegressed refuses a stream that no longer has the marker of a shard that the database knows of, unless somebody said that
// whatever it has is accepted. It is asked before the shard is opened.
func (o *Opener) NotRegressed(ctx context.Context, shard int) (accepted bool, err error) {
	var noted uint64
	err = o.Pool.QueryRow(ctx, `select marker from outbox_stream where source = $1 and mode = $2 and shard = $3 and stream = $4 and subject = $5 and cluster = $6`,
		o.Source, o.Mode, shard, o.Stream.Name, o.subject(shard), o.Cluster).Scan(&noted)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("relay: cannot read outbox_stream: %w", err)
	}
	before, from, err := o.last(ctx, o.subject(shard)) // after the note: it rises
	if err != nil || from >= noted {
		return err == nil && noted == 0, err
	}
	back := &StreamRegressedError{o: o, shard: shard, From: from, noted: noted, before: before}
	if from > 0 {
		return false, back
	}
	// Without any marker they were purged on purpose, or are older than the stream keeps messages; or the stream is another one.
	stream, err := streams.Led(ctx, o.JS, o.Stream.Name)
	if err != nil {
		return false, fmt.Errorf("relay: cannot open stream %s: %w", o.Stream.Name, err)
	}
	if stream.CachedInfo().State.LastSeq < noted {
		return false, back
	}
	m, err := stream.GetMsg(ctx, noted)
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("relay: cannot read message %d of stream %s: %w", noted, o.Stream.Name, err)
	case m.Subject != o.subject(shard):
		return false, back
	}
	return false, nil
}

// Note tells the database which markers of the sessions are the last ones in the stream.
func (o *Opener) Note(ctx context.Context, sessions ...*Session) error {
	batch := &pgx.Batch{}
	for _, s := range sessions {
		if s.noted == s.Guarded {
			continue
		}
		at := s.Guarded
		batch.Queue(`insert into outbox_stream as n (source, mode, shard, stream, subject, marker, cluster, generation) values ($1, $2, $3, $4, $5, $6, $7, $8)
			on conflict (source, mode, shard) do update set stream = excluded.stream, subject = excluded.subject, marker = excluded.marker, cluster = excluded.cluster, updated_at = now()
			where (n.stream, n.subject, n.cluster) <> (excluded.stream, excluded.subject, excluded.cluster) or n.marker < excluded.marker or $9`,
			o.Source, o.Mode, s.Shard, o.Stream.Name, s.subject, int64(at), o.Cluster, s.generation, s.Mended).Exec(func(pgconn.CommandTag) error { s.noted, s.Mended = at, false; return nil }) // a stream has fewer messages
	}
	if batch.Len() == 0 {
		return nil
	}
	if err := o.Pool.SendBatch(ctx, batch).Close(); err != nil {
		return fmt.Errorf("relay: cannot write outbox_stream: %w", err)
	}
	return nil
}

// Regressed says that rows count as sent that the stream does not have.
func (s *Session) Regressed() *StreamRegressedError {
	return &StreamRegressedError{o: s.o, shard: s.Shard, From: s.From, before: s.before}
}
