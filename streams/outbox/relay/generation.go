package relay

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
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
func (o *opener) generation(ctx context.Context, shard int) (n uint64, err error) {
	if o.pool == nil {
		return 0, nil
	}
	err = o.pool.QueryRow(ctx, `select generation from outbox_stream where source = $1 and mode = $2 and shard = $3`, o.source, o.mode, shard).Scan(&n)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return 0, fmt.Errorf("relay: cannot read outbox_stream: %w", err)
	}
	return n, nil
}

// enter raises the generation for a session whose opening marker is stored: from now on no earlier one writes into the database, as
// none writes into the stream. A database that was set back goes on from here; the opening marker says by now that the stream has
// to be read back.
func (o *opener) enter(ctx context.Context, s *session, kept uint64) error {
	if o.pool == nil {
		return nil
	}
	tag, err := o.pool.Exec(ctx, `insert into outbox_stream as n (source, mode, shard, stream, subject, marker, cluster, generation) values ($1, $2, $3, $4, $5, $6, $7, $8)
		on conflict (source, mode, shard) do update set generation = excluded.generation where n.generation = $9`,
		o.source, o.mode, s.shard, o.stream.Name, s.subject, int64(s.guarded), o.cluster, s.generation+1, kept) // a stream has fewer messages
	if err != nil {
		return fmt.Errorf("relay: cannot write outbox_stream: %w", err)
	}
	if tag.RowsAffected() == 0 {
		return fmt.Errorf("%w: another relay opens shard %d", errFenced, s.shard)
	}
	s.generation++
	return nil
}

// sqlEntered lets a statement find nothing to do once a later session has entered, and makes one that enters wait for it.
const sqlEntered = `(select from outbox_stream where source = @source and mode = @mode and shard = @shard and generation = @generation for share) as entered`

// raise gives the sessions their next generation, on disk, before they write a marker.
func (o *opener) raise(ctx context.Context, sessions ...*session) error {
	if o.pool == nil || len(sessions) == 0 {
		return nil
	}
	batch := &pgx.Batch{} // one transaction
	batch.Queue(`select set_config('synchronous_commit', 'on', true)`)
	for _, s := range sessions {
		batch.Queue(`update outbox_stream set generation = generation + 1 where source = $1 and mode = $2 and shard = $3 and generation = $4`, o.source, o.mode, s.shard, s.generation).Exec(func(tag pgconn.CommandTag) error {
			if tag.RowsAffected() == 0 {
				return fmt.Errorf("%w: the database does not have the generation of shard %d that was written last", errFenced, s.shard)
			}
			return nil
		})
	}
	if err := o.pool.SendBatch(ctx, batch).Close(); err != nil {
		return fmt.Errorf("relay: cannot write outbox_stream: %w", err)
	}
	for _, s := range sessions {
		s.generation++
	}
	return nil
}

// publish is [publisher.publish], with what a marker needs before it.
func (o *opener) publish(ctx context.Context, items []item, marks []*session) (int, error) {
	if err := o.raise(ctx, marks...); err != nil {
		return 0, err
	}
	return o.pub.publish(ctx, items, marks)
}
