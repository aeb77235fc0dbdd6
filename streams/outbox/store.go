package outbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Store is the outbox of one database, for relays and operators. Its connections have the schema of the outbox first in
// their search path; [Open] sees to that.
type Store struct {
	Pool *pgxpool.Pool

	Lease       time.Duration // 30 s, of claimed rows
	Attempts    int           // 10; a row that failed so often is DEAD
	BaseBackoff time.Duration // 1 s; the n-th wait is BaseBackoff*2^(n-1)
	MaxBackoff  time.Duration // 300 s
}

// Open connects to a database whose outbox is in that schema (public when empty). It does not create the outbox; see
// [Init], and [Store.CheckSchema] for whether it is there. It does not wait for the database: the first call tells whether it
// answers. No error shows the DSN. The store is closed with its Pool.
func Open(ctx context.Context, dsn, schema string) (*Store, error) {
	return OpenThrough(ctx, dsn, schema, nil)
}

// OpenThrough is [Open] on connections that dial makes; nil makes those that the DSN says.
func OpenThrough(ctx context.Context, dsn, schema string, dial pgconn.DialFunc) (*Store, error) {
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, errors.New("outbox: cannot read the DSN") // the error may show its password
	}
	if err := Prepare(config.ConnConfig, schema); err != nil {
		return nil, err
	}
	if dial != nil {
		config.ConnConfig.DialFunc = dial
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("outbox: %w", err)
	}
	return &Store{Pool: pool}, nil
}

func (s *Store) lease() float64 { return cmp.Or(s.Lease, 30*time.Second).Seconds() }
func (s *Store) attempts() int  { return cmp.Or(s.Attempts, 10) }

// Publish says how many rows a node's relay of the source is behind with its shards, for the limit of outbox_append: the
// one that is furthest behind counts. What a node said that says nothing for a minute is forgotten, if another one does.
func (s *Store) Publish(ctx context.Context, source, node string, lag int64) error {
	var q pgx.Batch
	q.Queue(sqlPressure, source+"/"+node, lag)
	q.Queue(sqlPressureOld, source)
	if err := s.Pool.SendBatch(ctx, &q).Close(); err != nil {
		return fmt.Errorf("outbox: cannot say how far the relay is: %w", err)
	}
	return nil
}

// Unpublish forgets what relays of the source said, which ends the refusals by the limit: for a relay that is gone for good. One that
// stands for a while leaves it, because nobody publishes what is appended then.
func (s *Store) Unpublish(ctx context.Context, source string) error {
	if _, err := s.Pool.Exec(ctx, `delete from outbox_pressure where source = $1 or starts_with(source, $1 || '/')`, source); err != nil {
		return fmt.Errorf("outbox: cannot forget how far the relay was: %w", err)
	}
	return nil
}

const sqlPressure = `
	insert into outbox_pressure (source, lag) values ($1, $2)
	on conflict (source) do update set lag = excluded.lag, at = now()`

const sqlPressureOld = `
	delete from outbox_pressure where (source = $1 or starts_with(source, $1 || '/')) and at < now() - interval '1 minute'`

// Maintained is what [Store.Maintain] did.
type Maintained struct {
	Made, Dropped int // partitions
	Postponed     int // could not be done without waiting for a lock
}

// Maintain makes the partitions of the days to come and drops the old ones. It is cheap; once an hour is enough.
func (s *Store) Maintain(ctx context.Context) (Maintained, error) {
	var m Maintained
	err := s.Pool.QueryRow(ctx, `select made, dropped, postponed from outbox_maintain()`).Scan(&m.Made, &m.Dropped, &m.Postponed)
	if err != nil {
		return m, fmt.Errorf("outbox: cannot maintain the partitions: %w", err)
	}
	return m, nil
}
