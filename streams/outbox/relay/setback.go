package relay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/streams"
)

// A stream can be set back: restored from a backup, made anew, or cut short with a disk. What was stored since counts as
// sent in the database and is missing in the stream. The database notes the last marker of each shard (outbox_stream), so
// that a stream whose last marker is an older one is noticed before anything is written.

// errSetBack says that the stream is at an older state than the database.
var errSetBack = errors.New("the stream is at an older state than the database")

// setBackError is errSetBack of one shard.
type setBackError struct {
	o      *opener
	shard  int
	from   uint64 // the last marker in the stream; 0 for none
	noted  uint64 // the last one that the database knows; 0 when rows told
	before marker
}

func (e *setBackError) Error() string {
	how := fmt.Sprintf("its last position of shard %d is at %d, of %s", e.shard, e.from, e.before.At.UTC().Format(time.RFC3339))
	if e.from == 0 {
		how = fmt.Sprintf("it has no position of shard %d", e.shard)
	}
	if e.noted > 0 {
		how += fmt.Sprintf("; the database knows one at %d", e.noted)
	} else {
		how += "; rows were sent after it and are not there"
	}
	return fmt.Sprintf("relay: %s: %v: stream %s was restored from a backup, made anew, or lost messages: %s. What it held since then is missing there and counts as sent here. %s",
		e.o.source, errSetBack, e.o.stream.Name, how, e.remedy())
}

func (e *setBackError) Unwrap() error { return errSetBack }

// remedy is what an operator may do, in the schema of the outbox.
func (e *setBackError) remedy() string {
	forget := fmt.Sprintf("update outbox_stream set marker = 0 where source = '%s'", e.o.source)
	switch e.o.mode {
	case "claim":
		if since, err := parsePosition(e.before.Position); err == nil && since > 0 { // without it all sent rows are looked for in the stream
			return fmt.Sprintf("To publish that again, in the database: update outbox_event set status = 'NEW', next_retry_at = now() where status = 'SENT' and sent_at > timestamptz 'epoch' + %d * interval '1 microsecond'; %s. To go on without it, purge the position: nats stream purge %s --subject %s; and %s",
				since, forget, e.o.stream.Name, e.o.subject(e.shard), forget)
		}
		return fmt.Sprintf("In the database, to publish all that is still there again: update outbox_event set status = 'NEW', next_retry_at = now() where status = 'SENT'; %s. To go on without it: only %s", forget, forget)
	}
	if e.from > 0 {
		return "Days of the table since that position were dropped. To publish the rest again, in the database: " + forget
	}
	return fmt.Sprintf("In the database, to go on behind what was sent: %s; to publish all again that is still there: that, and delete from outbox_cursor where source = '%s'", forget, e.o.source)
}

// notSetBack refuses a stream that no longer has the marker of a shard that the database knows of, unless somebody said that
// whatever it has is accepted. It is asked before the shard is opened.
func (o *opener) notSetBack(ctx context.Context, pool *pgxpool.Pool, shard int) (accepted bool, err error) {
	var noted uint64
	err = pool.QueryRow(ctx, `select marker from outbox_stream where source = $1 and mode = $2 and shard = $3 and stream = $4 and subject = $5 and cluster = $6`,
		o.source, o.mode, shard, o.stream.Name, o.subject(shard), o.cluster).Scan(&noted)
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
	back := &setBackError{o: o, shard: shard, from: from, noted: noted, before: before}
	if from > 0 {
		return false, back
	}
	// Without any marker they were purged on purpose, or are older than the stream keeps messages; or the stream is another one.
	stream, err := streams.Led(ctx, o.js, o.stream.Name)
	if err != nil {
		return false, fmt.Errorf("relay: cannot open stream %s: %w", o.stream.Name, err)
	}
	if stream.CachedInfo().State.LastSeq < noted {
		return false, back
	}
	m, err := stream.GetMsg(ctx, noted)
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("relay: cannot read message %d of stream %s: %w", noted, o.stream.Name, err)
	case m.Subject != o.subject(shard):
		return false, back
	}
	return false, nil
}

// note tells the database which markers of the sessions are the last ones in the stream.
func (o *opener) note(ctx context.Context, pool *pgxpool.Pool, sessions ...*session) error {
	batch := &pgx.Batch{}
	for _, s := range sessions {
		if s == nil || s.noted == s.guarded {
			continue
		}
		at := s.guarded
		batch.Queue(`insert into outbox_stream as n (source, mode, shard, stream, subject, marker, cluster, generation) values ($1, $2, $3, $4, $5, $6, $7, $8)
			on conflict (source, mode, shard) do update set stream = excluded.stream, subject = excluded.subject, marker = excluded.marker, cluster = excluded.cluster, updated_at = now()
			where (n.stream, n.subject, n.cluster) <> (excluded.stream, excluded.subject, excluded.cluster) or n.marker < excluded.marker or $9`,
			o.source, o.mode, s.shard, o.stream.Name, s.subject, int64(at), o.cluster, s.generation, s.mended).Exec(func(pgconn.CommandTag) error { s.noted, s.mended = at, false; return nil }) // a stream has fewer messages
	}
	if batch.Len() == 0 {
		return nil
	}
	if err := pool.SendBatch(ctx, batch).Close(); err != nil {
		return fmt.Errorf("relay: cannot write outbox_stream: %w", err)
	}
	return nil
}

// whole makes sure that a shard of the log can go on from its position: nothing behind it that the stream has not got may have
// been dropped.
func (e *logEngine) whole(ctx context.Context, s *session, accepted bool) error {
	if s.from == 0 || s.back { // it goes on from where the database believes to be
		return nil
	}
	var dropped int64
	err := e.pool.QueryRow(ctx, `select seq from outbox_dropped where shard = $1`, s.shard).Scan(&dropped)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("relay: cannot read outbox_dropped: %w", err)
	}
	switch {
	case position(dropped) <= max(s.pos, s.seenTo):
		return nil
	case !accepted:
		return permanent(s.setBack())
	}
	if _, err := e.pool.Exec(ctx, `delete from outbox_dropped where shard = $1`, s.shard); err != nil {
		return fmt.Errorf("relay: cannot write outbox_dropped: %w", err)
	}
	return nil
}

// setBack says that rows count as sent that the stream does not have.
func (s *session) setBack() *setBackError {
	return &setBackError{o: s.o, shard: s.shard, from: s.from, before: s.before}
}

// sentUpTo is when the last row was marked as sent, in microseconds by the clock of the database: the position of mode claim.
func (e *claimEngine) sentUpTo(ctx context.Context) (position, error) {
	var at int64
	err := e.store.Pool.QueryRow(ctx, sqlSentUpTo).Scan(&at)
	if err != nil {
		return 0, fmt.Errorf("relay: cannot ask what was sent last: %w", err)
	}
	return position(at), nil // after 1970
}

const sqlSentUpTo = `select coalesce((select (extract(epoch from sent_at) * 1000000)::bigint from outbox_event where phase = 2 order by sent_at desc limit 1), 0)`

// whole makes sure that the stream has what was marked as sent after its last marker: all that was sent before it was marked
// before it. stored is what the stream has since.
func (e *claimEngine) whole(ctx context.Context, s *session, stored []uuid.UUID) error {
	if s.pos == 0 { // the first one, or of a version that kept no position
		return nil
	}
	var missing string
	err := e.store.Pool.QueryRow(ctx, sqlMissing, int64(s.pos), stored).Scan(&missing)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil
	case err != nil:
		return fmt.Errorf("relay: cannot compare what was sent with the stream: %w", err)
	}
	before := marker{Position: s.pos.String(), At: time.UnixMicro(int64(s.pos))}
	return permanent(fmt.Errorf("%w (event %s is the first)", &setBackError{o: s.o, shard: s.shard, from: s.guarded, before: before}, missing))
}

// sqlMissing is the first row that was sent after a time and is not among those.
const sqlMissing = `
	select event_id::text from outbox_event e where phase = 2 and sent_at > timestamptz 'epoch' + $1::bigint * interval '1 microsecond'
		and not exists (select from unnest($2::uuid[]) as s (id) where s.id = e.event_id)
	order by sent_at limit 1`
