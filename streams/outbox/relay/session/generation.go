package session

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/bcc94042/instar/streams/outbox/relay/sink"
)

// A database can be set back, too: a standby that had not received everything is promoted, a backup is restored in place, up to a
// point in time or as a copy of its directory. It stays the same cluster by name, gives numbers and positions out again, and
// knows less than the stream of what was sent, parked and marked. So it counts the markers: before each one a transaction
// raises the generation, and the marker names it. All that the marker relies on was committed before. A database with a lower
// generation than the last marker has lost some of it.
//
// What then helps is what helps without any marker: go on from where the database believes to be, and pass over what the stream
// has, told by number and event id.

// generation is the one that the database has; 0 for none.
func (o *Opener) generation(ctx context.Context, shard int) (n uint64, err error) {
	if o.Pool == nil {
		return 0, nil
	}
	err = o.Pool.QueryRow(ctx, `select generation from outbox_stream where source = $1 and mode = $2 and shard = $3`, o.Source, o.Mode, shard).Scan(&n)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return 0, fmt.Errorf("relay: cannot read outbox_stream: %w", err)
	}
	return n, nil
}

// enter raises the generation for a session whose opening marker is stored: from now on no earlier one writes into the database, as
// none writes into the stream. A database that was set back goes on from here; the opening marker says by now that the stream has
// to be read back.
func (o *Opener) enter(ctx context.Context, s *Session, kept uint64) error {
	if o.Pool == nil {
		return nil
	}
	tag, err := o.Pool.Exec(ctx, `insert into outbox_stream as n (source, mode, shard, stream, subject, marker, cluster, generation) values ($1, $2, $3, $4, $5, $6, $7, $8)
		on conflict (source, mode, shard) do update set generation = excluded.generation where n.generation = $9`,
		o.Source, o.Mode, s.Shard, o.Stream.Name, s.subject, int64(s.Guarded), o.Cluster, s.generation+1, kept) // a stream has fewer messages
	if err != nil {
		return fmt.Errorf("relay: cannot write outbox_stream: %w", err)
	}
	if tag.RowsAffected() == 0 {
		return fmt.Errorf("%w: another relay opens shard %d", sink.ErrFenced, s.Shard)
	}
	s.generation++
	return nil
}

// Entered lets a statement find nothing to do once a later session has entered, and makes one that enters wait for it.
const Entered = `(select from outbox_stream where source = @source and mode = @mode and shard = @shard and generation = @generation for share) as entered`

// Args are the parameters of [Entered].
func (s *Session) Args() pgx.NamedArgs {
	return pgx.NamedArgs{"source": s.o.Source, "mode": s.o.Mode, "shard": s.Shard, "generation": s.generation}
}

// raise gives the sessions their next generation, on disk, before they write a marker.
func (o *Opener) raise(ctx context.Context, sessions ...*Session) error {
	if o.Pool == nil || len(sessions) == 0 {
		return nil
	}
	batch := &pgx.Batch{} // one transaction
	batch.Queue(`select set_config('synchronous_commit', 'on', true)`)
	for _, s := range sessions {
		batch.Queue(`update outbox_stream set generation = generation + 1 where source = $1 and mode = $2 and shard = $3 and generation = $4`, o.Source, o.Mode, s.Shard, s.generation).Exec(func(tag pgconn.CommandTag) error {
			if tag.RowsAffected() == 0 {
				return fmt.Errorf("%w: the database does not have the generation of shard %d that was written last", sink.ErrFenced, s.Shard)
			}
			return nil
		})
	}
	if err := o.Pool.SendBatch(ctx, batch).Close(); err != nil {
		return fmt.Errorf("relay: cannot write outbox_stream: %w", err)
	}
	for _, s := range sessions {
		s.generation++
	}
	return nil
}

// Publish is [sink.Publisher.Publish], with what a marker needs before it.
func (o *Opener) Publish(ctx context.Context, items []sink.Item, marks []*Session) (int, error) {
	if err := o.raise(ctx, marks...); err != nil {
		return 0, err
	}
	with := make([]sink.Session, len(marks))
	for i, s := range marks {
		with[i] = s
	}
	return o.Pub.Publish(ctx, items, with)
}
