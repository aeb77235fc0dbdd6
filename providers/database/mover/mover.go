package mover

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/time/rate"

	"github.com/bcc94042/instar/providers/database/catalog"
	"github.com/bcc94042/instar/providers/database/pg"
)

// Mover moves the rows of one tenant. Its fields are set before its first use.
type Mover struct {
	Source, Target pg.Address
	Session        string
	Fence          uint64 // of this attempt
	Run            string // of a comparison under this attempt, of which only the one that has called Take last goes on; "" is none
	Enterprise     string
	Tables         []*catalog.Table
	Apart          bool // the target has begun without the rows of the source: what only that has is no difference, and nothing there is replaced
	Fenced         bool // nobody writes the tenant's rows in the source, so that they need not be read in one snapshot

	RangeRows  int            // at most, per range; 0 is 10,000
	RangeBytes int64          // about, per range; 0 is 16 MiB
	Parallel   int            // tables at a time; 0 is 2
	Rate       int64          // bytes per second over all tables; 0 does not limit them
	Told       func(Progress) // of each range that is done; may be nil

	limit   *rate.Limiter
	counted *counter
}

// Names of what is in the target, of the schema instar.
const setup = `
	create schema if not exists instar;
	revoke all on schema instar from public;
	create table if not exists instar.session (id text primary key, fence bigint not null, changed_at timestamptz not null default now(), run text not null default '');
	create table if not exists instar.moved (
		table_name text primary key, session text not null, rows bigint not null, planned_at timestamptz not null default now(), verified_at timestamptz,
		by_bytes boolean not null default true
	);
	do $$ begin -- of an earlier version; ALTER TABLE would wait for readers each time
		if not exists (select from pg_attribute where attrelid = 'instar.moved'::regclass and attname = 'by_bytes') then
			alter table instar.moved add column by_bytes boolean not null default true;
		end if;
		if not exists (select from pg_attribute where attrelid = 'instar.session'::regclass and attname = 'run') then
			alter table instar.session add column run text not null default '';
		end if;
	end $$;
	create table if not exists instar.range (
		table_name text not null references instar.moved on delete cascade, n integer not null, low text[], high text[],
		rows bigint, bytes bigint, done_at timestamptz, primary key (table_name, n)
	);
	create table if not exists instar.marker (session text primary key, token text not null, set_at timestamptz not null default now())`

// installed reports whether setup has nothing to make: to find that out by it takes ten times as long, while a tenant may wait for its switch.
const installed = `
	select count(*) = 2 and to_regclass('instar.range') is not null and to_regclass('instar.marker') is not null from pg_attribute
	where attrelid = to_regclass('instar.moved') and attname = 'by_bytes' or attrelid = to_regclass('instar.session') and attname = 'run'`

// name is what connections of an attempt are called.
func (m *Mover) name() string { return pg.AttemptName(m.Fence, m.Session) }

// Take makes this attempt the only one that can write to the target.
func (m *Mover) Take(ctx context.Context) error {
	conn, err := pg.Connect(ctx, named(m.Target, m.name()))
	if err != nil {
		return err
	}
	defer pg.Close(conn)
	if err := m.install(ctx, conn); err != nil {
		return fmt.Errorf("cannot set up the target: %w", err)
	}
	// What earlier attempts have under way would hold the row; it ends, and its transaction with it.
	_, err = conn.Exec(ctx, `
		select pg_terminate_backend(pid) from pg_stat_activity
		where datname = current_database() and pid <> pg_backend_pid()
			and case when application_name ~ '^instar [0-9]+ ' then split_part(application_name, ' ', 2)::numeric < $1::numeric else false end`, m.Fence)
	if err != nil {
		return fmt.Errorf("cannot end earlier attempts: %w", err)
	}
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if err := pg.Brief(ctx, tx, 5*time.Second); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `insert into instar.session (id, fence) values ($1, $2) on conflict do nothing`, m.Session, m.Fence); err != nil {
			return err
		}
		var seen uint64
		if err := tx.QueryRow(ctx, `select fence from instar.session where id = $1 for update`, m.Session).Scan(&seen); err != nil {
			return err
		}
		if seen > m.Fence {
			return &pg.ObsoleteError{Fence: m.Fence, Seen: seen}
		}
		_, err := tx.Exec(ctx, `update instar.session set fence = $2, run = $3, changed_at = now() where id = $1`, m.Session, m.Fence, m.Run)
		return err
	})
}

// install makes the tables of the mover; two attempts may do so at a time.
func (m *Mover) install(ctx context.Context, conn *pgx.Conn) error {
	var there bool
	if err := conn.QueryRow(ctx, installed).Scan(&there); err != nil || there {
		return err
	}
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if err := pg.Alone(ctx, tx, "instar.session"); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, setup)
		return err
	})
}

func named(a pg.Address, name string) pg.Address {
	a.Name = name
	return a
}

// source opens a connection that reads.
func (m *Mover) source(ctx context.Context) (*pgx.Conn, error) {
	conn, err := pg.Connect(ctx, named(m.Source, m.name()))
	if err != nil {
		return nil, fmt.Errorf("source: %w", err)
	}
	return conn, nil
}

// target opens a connection in which no trigger and no foreign key fires.
func (m *Mover) target(ctx context.Context) (*pgx.Conn, error) {
	a := named(m.Target, m.name())
	a.Replica = true
	conn, err := pg.Connect(ctx, a)
	if err != nil {
		return nil, fmt.Errorf("target: %w", err)
	}
	return conn, nil
}

// fenced runs a transaction in the target that commits only while this attempt is the current one.
func (m *Mover) fenced(ctx context.Context, conn *pgx.Conn, do func(pgx.Tx) error) error {
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if err := pg.Brief(ctx, tx, 5*time.Minute); err != nil { // which rows of the source may take
			return err
		}
		var seen uint64
		var run string
		err := tx.QueryRow(ctx, `select fence, run from instar.session where id = $1 for share`, m.Session).Scan(&seen, &run)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			return pg.Refuse("the target does not know session %s", m.Session)
		case err != nil:
			return err
		case seen != m.Fence:
			return &pg.ObsoleteError{Fence: m.Fence, Seen: seen}
		case run != m.Run:
			return pg.AnotherRun()
		}
		return do(tx)
	})
}

// Progress is how far a copy is.
type Progress struct {
	Table string        `json:"table"` // the last one that moved
	Rows  int64         `json:"rows"`  // copied, of all tables
	Total int64         `json:"total"` // planned; rows that come later are not in it
	Bytes int64         `json:"bytes"`
	Rate  float64       `json:"rate"`            // rows per second, over the last seconds
	ETA   time.Duration `json:"etaNs,omitempty"` // nanoseconds, from the rate; 0 is unknown
}
