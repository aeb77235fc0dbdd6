package outbox

// Schema and settings of an outbox. Init, called by instar outbox init and by applications, applies the migrations to a schema without an outbox, and stores the Settings;
// CheckSchema, called by relays and operators before they use the tables, refuses another version. Mode and number of shards change only while no row waits (noneWait), with
// writers locked out.

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"regexp"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
)

//go:embed migrations/*.sql
var files embed.FS

// Migrations are the steps that [Init] applies, in order, for those who run migrations with a tool of their own. They
// create everything in the first schema of the search path.
func Migrations() fs.FS {
	sub, err := fs.Sub(files, "migrations")
	if err != nil {
		panic(err) // the name is a constant
	}
	return sub
}

// schemaVersion is that of the last migration, which is the first one, too: no older schema can be brought up to date.
const schemaVersion = 10

// ErrSchema says that the tables of an outbox are not those that this version works with.
var ErrSchema = errors.New("outbox: the schema is of another version")

var errNone = errors.New("outbox: there is none in this schema (instar outbox init makes it)")

// CheckSchema returns an error that says what to do when there is no outbox, or ErrSchema when it is of another version.
func (s *Store) CheckSchema(ctx context.Context) error {
	return checkSchema(func(query string, to any) error { return s.Pool.QueryRow(ctx, query).Scan(to) })
}

func checkSchema(ask func(query string, to any) error) error {
	there, version := false, 0
	err := ask(`select to_regclass('outbox_settings') is not null`, &there)
	if err == nil && there {
		err = ask(`select coalesce((select (to_jsonb(s) ->> 'version')::int from outbox_settings s), 0)`, &version)
	}
	switch {
	case err != nil:
		return fmt.Errorf("outbox: cannot read the version of the schema: %w", Pooled(err))
	case !there:
		return errNone
	case version > schemaVersion:
		return fmt.Errorf("%w: it is of version %d, this program knows version %d: use a newer one", ErrSchema, version, schemaVersion)
	case version < schemaVersion:
		return fmt.Errorf("%w: it is older than version %d and cannot be brought up to date: let a relay of the program that made it drain it, remove it (docs/outbox.md, Versions, has the statement), and make it again with instar outbox init", ErrSchema, schemaVersion)
	}
	return nil
}

// versions is the table of the migrations that were applied; it is not goose's usual one, which may be the application's.
const versions = "outbox_schema_version"

// Settings are those of the whole outbox of a database. A field that is zero stays as it is; a new outbox has the defaults.
type Settings struct {
	Mode      Mode          // Log; it cannot change while rows wait
	Shards    int           // 4, at most 64; likewise
	Retention time.Duration // 7 days, of what was sent
	MaxLag    int64         // no limit; negative removes it. Beyond it outbox_append refuses, as long as a relay reports its lag

	InboxRetention time.Duration // of what handlers have handled; twice as long as the stream keeps messages, 14 days at least
}

// ErrRowsWait says that rows wait to be published, so that mode and shards cannot change.
var ErrRowsWait = errors.New("rows wait to be published: let a relay drain them, or discard them, before the mode or the number of shards changes")

var schemaName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,62}$`)

// Init creates the outbox in a schema (public when empty; it is created), or brings it up to date, and stores the settings. It may
// be called at any time and by several at once.
func Init(ctx context.Context, dsn, schema string, set Settings) error {
	if set.Mode != "" && set.Mode != Log && set.Mode != Claim {
		return fmt.Errorf("outbox: mode %q is neither %s nor %s", set.Mode, Log, Claim)
	}
	db, err := connect(dsn, schema)
	if err != nil {
		return err
	}
	defer db.Close()
	if schema != "" {
		create := "create schema if not exists " + pgx.Identifier{schema}.Sanitize()
		_, err := db.ExecContext(ctx, create)
		if refused := (*pgconn.PgError)(nil); errors.As(err, &refused) && refused.Code == "23505" { // somebody else was just making it
			_, err = db.ExecContext(ctx, create)
		}
		if err != nil {
			return fmt.Errorf("outbox: schema %s: %w", schema, Pooled(err))
		}
	}
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, 60))
	if err != nil {
		return err
	}
	err = checkSchema(func(query string, to any) error { return db.QueryRowContext(ctx, query).Scan(to) })
	if err == nil { // also when somebody else's tool has made it
		return set.store(ctx, db)
	}
	if !errors.Is(err, errNone) {
		return err
	}
	steps, err := goose.NewProvider(goose.DialectPostgres, db, Migrations(), goose.WithTableName(versions), goose.WithSessionLocker(locker),
		goose.WithSlog(slog.New(slog.DiscardHandler)), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return fmt.Errorf("outbox: migrations: %w", err)
	}
	if _, err := steps.Up(ctx); err != nil {
		return fmt.Errorf("outbox: migrations: %w", err)
	}
	return set.store(ctx, db)
}

// connect opens a database with the schema as its search path.
func connect(dsn, schema string) (*sql.DB, error) {
	pool, err := pgxpool.ParseConfig(dsn) // it may have settings of the pool, as a relay takes them
	if err != nil {
		return nil, errors.New("outbox: cannot read the DSN") // the error may show its password
	}
	config := pool.ConnConfig
	if err := Prepare(config, schema); err != nil {
		return nil, err
	}
	return stdlib.OpenDB(*config), nil
}

// store writes the settings. Whoever appends reads them, and holds a reader's lock until its transaction ends: while they are locked, nobody who has read the old ones is still
// writing, and all others wait for the new ones, or are refused when their snapshot is older.
func (s Settings) store(ctx context.Context, db *sql.DB) error {
	var mode string
	var shards int
	if err := db.QueryRowContext(ctx, `select mode, shards from outbox_settings`).Scan(&mode, &shards); err != nil {
		return fmt.Errorf("outbox: settings: %w", err)
	}
	changes := s.Mode != "" && string(s.Mode) != mode || s.Shards != 0 && s.Shards != shards
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if changes {
		if err := noneWait(ctx, tx, Mode(mode), shards); err != nil {
			return err
		}
	}
	if _, err := tx.ExecContext(ctx, `
		update outbox_settings set mode = coalesce(nullif($1, ''), mode), shards = coalesce(nullif($2::int, 0), shards),
			read_shards = case when exists (select from outbox_log) then greatest(read_shards, $2::int) else coalesce(nullif($2::int, 0), read_shards) end, narrowed = case when $2::int between 1 and shards - 1 then (clock_timestamp() at time zone 'UTC')::date else narrowed end,
			retention = case when $3::float8 > 0 then make_interval(secs => $3) else retention end,
			max_lag = case when $4::bigint < 0 then 0 when $4 > 0 then $4 else max_lag end,
			inbox_retention = case when $5::float8 > 0 then make_interval(secs => $5) else inbox_retention end, updated_at = now()`,
		string(s.Mode), s.Shards, s.Retention.Seconds(), s.MaxLag, s.InboxRetention.Seconds()); err != nil {
		return fmt.Errorf("outbox: settings: %w", err)
	}
	if changes {
		if _, err := tx.ExecContext(ctx, `select outbox_settings_renew()`); err != nil {
			return fmt.Errorf("outbox: settings: %w", err)
		}
	}
	return tx.Commit()
}

// noneWait locks writers out and fails if they have left anything to publish.
func noneWait(ctx context.Context, tx *sql.Tx, mode Mode, shards int) error {
	for _, query := range []string{
		`set local lock_timeout = '10s'`, // applications wait behind it
		`lock table outbox_settings in access exclusive mode`,
	} {
		if _, err := tx.ExecContext(ctx, query); err != nil {
			return fmt.Errorf("outbox: settings: %w (a transaction that has appended is still open, or a dump is under way)", err)
		}
	}
	if _, err := tx.ExecContext(ctx, `lock table outbox_event, outbox_log in share row exclusive mode`); err != nil {
		return fmt.Errorf("outbox: settings: %w", err)
	}
	var waits bool
	if err := tx.QueryRowContext(ctx, anyWaiting).Scan(&waits); err != nil {
		return fmt.Errorf("outbox: settings: %w", err)
	}
	if waits {
		return fmt.Errorf("outbox: mode %s with %d shards: %w", mode, shards, ErrRowsWait)
	}
	return nil
}

// anyWaiting looks for a row that is not published. The orders make it look into the indexes of such rows.
const anyWaiting = `
	select (select 1 from outbox_event where phase < 2 order by shard, next_retry_at limit 1) is not null
		or exists (select 1 from outbox_parked)
		or exists (
			select 1 from outbox_settings s, generate_series(0, s.read_shards - 1) as n
			left join (select shard, min(seq) as seq from outbox_cursor group by shard) c on c.shard = n
			where exists (select 1 from outbox_log l where l.shard = n and l.seq > coalesce(c.seq, 0)))`
