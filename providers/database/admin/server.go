package admin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/bcc94042/instar/providers/database/pg"
)

// Server is a Postgres server for tenants' databases.
type Server struct {
	Name   string // in the configuration
	Region string
	DSN    string // to the maintenance database, of a role that [Server.Check] finds nothing lacking of
	Host   string // host:port that applications are told, and that [Server.Try] goes to; that of the DSN when empty

	// Dropped is called for each database that Sweep has dropped, again with the next sweep where it fails. Nil is not.
	Dropped func(ctx context.Context, a Away) error

	Kept *pg.Kept // where connections stay between two calls; each is a new one when nil
}

// Address is where a database of the server is.
func (s *Server) Address(database, name string) pg.Address {
	return pg.Address{DSN: s.DSN, Database: database, Name: name, Kept: s.Kept}
}

// Public is what applications are told of where the server is.
func (s *Server) Public() (string, error) {
	if s.Host != "" {
		return s.Host, nil
	}
	return pg.Host(pg.Address{DSN: s.DSN})
}

// States of a database in the register.
const (
	Intended    = "intended"
	Created     = "created"
	Quarantined = "quarantined"
	Dropped     = "dropped"
)

// Database is an entry of the register.
type Database struct {
	Name      string
	Session   string // that it was made for
	Fence     uint64 // of the last call
	State     string
	StoredAs  string // its name now
	DropAfter time.Time
}

// Setup makes the register.
func (s *Server) Setup(ctx context.Context) error {
	return s.with(ctx, func(conn *pgx.Conn) error { return register(ctx, conn) })
}

// register makes it. What was put away has entries of its own: that of a name is the next life's. The fences of sessions that had a name before, or never got it, are in tenant_past. All tenants wait for who makes it, so its lock is one of a transaction, which a process that is frozen does not keep.
func register(ctx context.Context, conn *pgx.Conn) error {
	return pg.Patiently(ctx, conn, func(tx pgx.Tx) error {
		if err := pg.Alone(ctx, tx, "instar.tenant_database.register"); err != nil {
			return fmt.Errorf("cannot lock the register: %w", err)
		}
		_, err := tx.Exec(ctx, `
			create schema if not exists instar;
			create table if not exists instar.tenant_database (
				name text primary key, session text not null, fence bigint not null, state text not null, stored_as text not null,
				made_at timestamptz not null default now(), quarantined_at timestamptz, drop_after timestamptz
			);
			create table if not exists instar.tenant_past (name text, session text, fence bigint not null, primary key (name, session));
			create table if not exists instar.template (name text primary key, used_at timestamptz not null);
			create table if not exists instar.put_away (stored_as text primary key, name text not null, drop_after timestamptz not null);
			do $$ begin -- of an earlier version; ALTER TABLE would wait for readers each time
				if not exists (select from pg_attribute where attrelid = 'instar.tenant_database'::regclass and attname = 'sealed_fence') then
					`+pg.ForAMoment+`alter table instar.tenant_database add column if not exists sealed text, add column sealed_fence bigint;
				end if;
				if not exists (select from pg_attribute where attrelid = 'instar.put_away'::regclass and attname = 'session') then
					`+pg.ForAMoment+`alter table instar.put_away add column session text;
				end if;
			end $$;
			insert into instar.put_away (stored_as, name, drop_after, session) select stored_as, name, drop_after, session from instar.tenant_database where state = 'quarantined' and drop_after is not null
				on conflict do nothing`)
		return err
	})
}

// Databases are the entries of the register.
func (s *Server) Databases(ctx context.Context) (list []Database, err error) {
	err = s.with(ctx, func(conn *pgx.Conn) error {
		list, err = registered(ctx, conn)
		return err
	})
	return list, err
}

func registered(ctx context.Context, by interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
},
) ([]Database, error) {
	rows, err := by.Query(ctx, `select name, session, fence, state, stored_as, coalesce(drop_after, 'epoch') from instar.tenant_database order by name`)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[Database])
}

// Sealed are the sealed credentials of the databases that are there.
func (s *Server) Sealed(ctx context.Context) (byName map[string]string, err error) {
	byName = map[string]string{}
	err = s.with(ctx, func(conn *pgx.Conn) error {
		rows, err := conn.Query(ctx, `select name, sealed from instar.tenant_database where state = $1 and sealed is not null`, Created)
		if err != nil {
			return err
		}
		var name, sealed string
		_, err = pgx.ForEachRow(rows, []any{&name, &sealed}, func() error {
			byName[name] = sealed
			return nil
		})
		return err
	})
	return byName, err
}

// noted keeps the fence of a session that has not the entry of a name.
func noted(ctx context.Context, conn *pgx.Conn, name, session string, fence uint64) error {
	_, err := conn.Exec(ctx, `insert into instar.tenant_past as p (name, session, fence) values ($1, $2, $3) on conflict (name, session) do update set fence = greatest(p.fence, $3)`, name, session, fence)
	return err
}

// past refuses what is older than what its session has said of a name before another one got it.
func past(ctx context.Context, conn *pgx.Conn, spec Spec) error {
	var seen uint64
	err := conn.QueryRow(ctx, `select coalesce(max(fence), 0) from instar.tenant_past where name = $1 and session = $2`, spec.Name, spec.Session).Scan(&seen)
	if err == nil && seen > spec.Fence {
		err = &pg.ObsoleteError{Fence: spec.Fence, Seen: seen}
	}
	return err
}

// with opens the maintenance database.
func (s *Server) with(ctx context.Context, do func(*pgx.Conn) error) error {
	conn, err := pg.Connect(ctx, pg.Address{DSN: s.DSN, Name: "instar admin", Kept: s.Kept})
	if err != nil {
		return fmt.Errorf("server %s: %w", s.Name, err)
	}
	defer pg.Close(conn)
	if err := do(conn); err != nil {
		return fmt.Errorf("server %s: %w", s.Name, err)
	}
	return nil
}

// locked runs with the lock of a name. The lock ends with the connection, too.
func locked(ctx context.Context, conn *pgx.Conn, name string, do func() error) error {
	if _, err := conn.Exec(ctx, `select pg_advisory_lock(hashtextextended('instar.tenant_database.' || $1::text, 0))`, name); err != nil {
		return fmt.Errorf("cannot lock %s: %w", name, err)
	}
	defer func() {
		_, _ = conn.Exec(context.WithoutCancel(ctx), `select pg_advisory_unlock(hashtextextended('instar.tenant_database.' || $1::text, 0))`, name)
	}()
	return do()
}

// entry reads one; nil is none.
func entry(ctx context.Context, conn *pgx.Conn, name string) (*Database, error) {
	d := Database{Name: name}
	err := conn.QueryRow(ctx, `select session, fence, state, stored_as, coalesce(drop_after, 'epoch') from instar.tenant_database where name = $1`, name).
		Scan(&d.Session, &d.Fence, &d.State, &d.StoredAs, &d.DropAfter)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	return &d, err
}

// present reports whether there is a database.
func present(ctx context.Context, conn *pgx.Conn, name string) (there bool, err error) {
	err = conn.QueryRow(ctx, `select exists (select from pg_database where datname = $1)`, name).Scan(&there)
	return there, err
}

// Tag is the comment on what was made for a session.
func Tag(session string) string { return "instar session " + session }
