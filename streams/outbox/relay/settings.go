package relay

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/bcc94042/instar/streams/outbox"
)

// errNamed says that a database is relayed under another name: each of the two would publish everything.
var errNamed = errors.New("relay: the database is relayed under another name")

// settings are what the database says of its outbox.
type settings struct {
	mode    outbox.Mode
	shards  int
	read    int    // those that were more once have rows, too: all of mode log, those of mode claim that wait
	source  string // the name under which it is relayed
	renamed string // the one before
}

func readSettings(ctx context.Context, pool *pgxpool.Pool) (settings, error) {
	var s settings
	err := pool.QueryRow(ctx, `select mode, shards, case mode when 'claim' then greatest(shards, (select max(shard) + 1 from outbox_event where phase < 2)) else read_shards end, coalesce(source, ''), coalesce(renamed, '') from outbox_settings`).Scan(&s.mode, &s.shards, &s.read, &s.source, &s.renamed)
	if err != nil {
		return s, fmt.Errorf("relay: cannot read outbox_settings (instar outbox init makes the tables): %w", err)
	}
	return s, nil
}

// ask asks the database who it is and what its settings are, and refuses one that this relay is not for.
func (r *Relay) ask(ctx context.Context, store *outbox.Store) (cluster string, how settings, err error) {
	if cluster, err = identify(ctx, store.Pool); err != nil {
		return "", how, err
	}
	if err := store.CheckSchema(ctx); err != nil {
		return "", how, fmt.Errorf("relay: %s: %w", r.Config.Name, err)
	}
	if how, err = readSettings(ctx, store.Pool); err != nil {
		return "", how, err
	}
	if how.mode != r.Config.Mode {
		return "", how, &PermanentError{fmt.Errorf("relay: %s is configured for a database in mode %s, it is in mode %s: change one of them (instar outbox init)", r.Config.Name, r.Config.Mode, how.mode)}
	}
	return cluster, how, nil
}

// identify names the cluster, the database and the schema that positions belong to. It refuses a standby: rows appear there in
// another order than they were fenced in.
func identify(ctx context.Context, pool *pgxpool.Pool) (string, error) {
	var cluster string
	var standby bool
	err := pool.QueryRow(ctx, `select (select system_identifier from pg_control_system()) || '/' || current_database() || '/' || (select oid from pg_database where datname = current_database()) || '/' || coalesce(current_schema(), ''), pg_is_in_recovery()`).Scan(&cluster, &standby)
	if err := outbox.Pooled(err); errors.Is(err, outbox.ErrPooler) {
		return "", err
	}
	if err != nil {
		return "", fmt.Errorf("relay: cannot ask the database who it is: %w", err)
	}
	if standby {
		return "", errors.New("relay: the database is a standby; the relay reads the primary")
	}
	return cluster, nil
}

// nameSource gives the outbox the name of this relay, if it had none, and refuses one that is relayed under another name.
func (r *Relay) nameSource(ctx context.Context, pool *pgxpool.Pool) error {
	name, is := r.Config.Name, ""
	batch := &pgx.Batch{}
	batch.Queue(`update outbox_settings set source = $1 where source is null`, name)
	batch.Queue(`select source from outbox_settings`).QueryRow(func(r pgx.Row) error { return r.Scan(&is) })
	if err := pool.SendBatch(ctx, batch).Close(); err != nil {
		return fmt.Errorf("relay: cannot write outbox_settings: %w", err)
	}
	if is != name {
		return fmt.Errorf("%w: it is %s, this relay is called %s. Call it %s; or, to rename it on purpose, end its relay and, in the database: select outbox_rename_source('%s')", errNamed, is, name, is, name)
	}
	return nil
}
