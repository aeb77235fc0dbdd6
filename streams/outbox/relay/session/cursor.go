package session

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/jackc/pgx/v5"

	"github.com/bcc94042/instar/streams/outbox/relay/sink"
)

// SavedPosition is what outbox_cursor says, for a stream that has no position. That of another cluster is refused: whether the
// stream has what was sent from there is not known.
func (o *Opener) SavedPosition(ctx context.Context, shard int) (sink.Position, error) {
	var seq int64
	var cluster string
	err := o.Pool.QueryRow(ctx, `select seq, system_identifier from outbox_cursor where source = $1 and shard = $2`, o.Source, shard).Scan(&seq, &cluster)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("relay: cannot read outbox_cursor: %w", err)
	}
	if cluster != "" && cluster != o.Cluster {
		return 0, fmt.Errorf("%w: outbox_cursor has a position of %s, this is %s (cluster, database, oid, schema): the tables of %s were restored here. In the database, to go on behind what was sent from there: update outbox_cursor set system_identifier = '' where source = '%s'; to publish all that the stream does not have: delete from outbox_cursor where source = '%s'",
			ErrForeign, cluster, o.Cluster, o.Source, o.Source, o.Source)
	}
	return sink.Position(seq), nil
}

// SavePositions tells those who look into the database how far the shards are. A database that has another generation was set
// back meanwhile, and keeps what it believes.
func (o *Opener) SavePositions(ctx context.Context, sessions ...*Session) error {
	batch := &pgx.Batch{}
	for _, s := range sessions {
		batch.Queue(`insert into outbox_cursor as c (source, shard, seq, reading, system_identifier, owner)
			select $1, $2, $3, $3, $4, $5 where exists (select from outbox_stream where source = $1 and mode = $6 and shard = $2 and generation = $7)
			on conflict (source, shard) do update set seq = excluded.seq, reading = excluded.reading, system_identifier = excluded.system_identifier, owner = excluded.owner, updated_at = now()
			where (c.seq, c.owner, c.system_identifier) <> (excluded.seq, excluded.owner, excluded.system_identifier)`,
			o.Source, s.Shard, int64(min(s.Pos, math.MaxInt64)), o.Cluster, o.Node, o.Mode, s.generation)
	}
	if err := o.Pool.SendBatch(ctx, batch).Close(); err != nil {
		return fmt.Errorf("relay: cannot write outbox_cursor: %w", err)
	}
	return nil
}
