package cutover

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/bcc94042/instar/providers/database/pg"
)

// Source is a shared database, as one session of one tenant sees it.
type Source struct {
	Address    pg.Address
	Runtime    string // the table, as SQL writes it; public.tenant_runtime when empty
	Enterprise string
	Server     string // of the tenants' databases, which an id of one may name; see [Source.Leads]
	Session    string
	Attempt    uint64                                        // the fence of this attempt: a lower one than was seen is refused
	Lost       func(ctx context.Context, table string) error // is called by [Source.Fence] where the fence of a table does not stand before, and nothing is raised there when it fails; may be nil
	Run        string                                        // of a comparison, once [Source.Compare] has begun it: it is refused after a later one of this attempt has begun
}

// name of what is made for the tenant.
func (s *Source) mark() string {
	sum := sha256.Sum256([]byte(s.Enterprise))
	return hex.EncodeToString(sum[:6])
}

func (s *Source) runtime() string {
	if s.Runtime == "" {
		return "public.tenant_runtime"
	}
	return s.Runtime
}

// Connect opens a connection of the attempt.
func (s *Source) Connect(ctx context.Context) (*pgx.Conn, error) {
	a := s.Address
	a.Name = pg.AttemptName(s.Attempt, s.Session)
	conn, err := pg.Connect(ctx, a)
	if err != nil {
		return nil, fmt.Errorf("source: %w", err)
	}
	return conn, nil
}

func (s *Source) with(ctx context.Context, do func(*pgx.Conn) error) error {
	conn, err := s.Connect(ctx)
	if err != nil {
		return err
	}
	defer pg.Close(conn)
	return do(conn)
}

// Setup makes what the provider keeps in the shared database, and the table of the runtime where there is none. Applications read that before each transaction: it is locked where it lacks the epoch only.
func (s *Source) Setup(ctx context.Context) error {
	return s.with(ctx, func(conn *pgx.Conn) error {
		return pg.Patiently(ctx, conn, func(tx pgx.Tx) error {
			if err := pg.Alone(ctx, tx, setUp); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, `
				create schema if not exists instar;
				create table if not exists instar.attempt (
					enterprise_id text primary key, session text not null, fence bigint not null, epoch bigint not null default 0, ended boolean not null default false, previous text
				);
				`+later+`;
				create table if not exists instar.marker (session text primary key, token text not null, set_at timestamptz not null default now());
				create table if not exists `+s.runtime()+` (
					enterprise_id text primary key, isolation_mode text not null default 'shared', database_id text, database_host text, database_name text,
					status text not null default 'active', updated_at timestamptz not null default now()
				);
				`+lacking(s.runtime(), "epoch", "bigint not null default 0"))
			if err != nil {
				return fmt.Errorf("cannot set up the source: %w", err)
			}
			return nil
		})
	})
}

// lacking adds a column to a table that lacks it: ADD COLUMN IF NOT EXISTS would wait for all readers before it looks, and have others wait.
func lacking(table, column, kind string) string {
	return fmt.Sprintf(`
		do $instar$ begin
			if not exists (select from pg_attribute where attrelid = %s::regclass and attname = %s) then
				%s alter table %s add column if not exists %s %s; set local lock_timeout = 0;
			end if;
		end $instar$`, pg.Literal(table), pg.Literal(column), pg.ForAMoment, table, column, kind)
}

// later is what an earlier version may not have made. The table past has the last attempt of sessions that do not have the tenant: one of them that was overtaken by its own undo, and goes on late,
// does not take it from nobody. The table shut has the sessions that keep their tenant out of its own database, settled those that have seen to what it has written there, and what of it is left behind, and compared the last run of a comparison.
var later = `
	create table if not exists instar.past (enterprise_id text, session text, fence bigint not null, primary key (enterprise_id, session));
	create table if not exists instar.shut (enterprise_id text primary key, session text not null);
	create table if not exists instar.settled (enterprise_id text primary key, session text not null);
	create table if not exists instar.compared (enterprise_id text primary key, session text not null, fence bigint not null, run text not null, ended boolean not null default false);` +
	lacking("instar.compared", "result", "text") + `;` + lacking("instar.settled", "left_behind", "text[]")

// setUp is the lock of those who make the same.
const setUp = "instar.attempt"

// Take makes this attempt the current one of its tenant. Another session that has not ended keeps it; that this one was there is noted all the same.
func (s *Source) Take(ctx context.Context) error {
	return s.with(ctx, func(conn *pgx.Conn) error {
		if err := s.overtake(ctx, conn); err != nil {
			return err
		}
		var held *pg.HeldError
		err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			if err := s.take(ctx, tx); !errors.As(err, &held) {
				return err
			}
			return s.note(ctx, tx, s.Session, s.Attempt)
		})
		if err == nil && held != nil {
			return held
		}
		return err
	})
}

// Overtake ends what earlier attempts of the session have under way, as on a node that is frozen: it would hold the row of the tenant. [Source.Take] does it, too.
func (s *Source) Overtake(ctx context.Context) error {
	return s.with(ctx, func(conn *pgx.Conn) error { return s.overtake(ctx, conn) })
}

func (s *Source) overtake(ctx context.Context, conn *pgx.Conn) error {
	_, err := conn.Exec(ctx, `
		select pg_terminate_backend(pid) from pg_stat_activity
		where datname = current_database() and usename = current_user and pid <> pg_backend_pid()
			and case when application_name ~ '^instar [0-9]+ ' then split_part(application_name, ' ', 2)::numeric < $1::numeric and split_part(application_name, ' ', 3) = $2 else false end`, s.Attempt, pg.Label(s.Session))
	if err != nil {
		return fmt.Errorf("source: cannot end earlier attempts: %w", err)
	}
	return nil
}

// How long a transaction that has the row of a tenant may be left alone: what is asked in it comes at once, but for what waits for the other server. Another run of the same attempt waits for that row, too, and ends nothing of this one.
const (
	atOnce    = 5 * time.Second
	elsewhere = time.Minute     // while the other server is asked something
	copying   = 5 * time.Minute // while rows come from there
)

// take locks the row of the tenant until the end of the transaction, which is not left alone for longer than atOnce. What a life of a session has kept of the routing, which ended without restoring it, is not that of the next one.
func (s *Source) take(ctx context.Context, tx pgx.Tx) error {
	if err := pg.Brief(ctx, tx, atOnce); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, `insert into instar.attempt (enterprise_id, session, fence) values ($1, $2, $3) on conflict do nothing`, s.Enterprise, s.Session, s.Attempt); err != nil {
		return err
	}
	var session string
	var fence uint64
	var ended, made bool
	if err := tx.QueryRow(ctx, `select session, fence, ended, to_regclass('instar.past') is not null and exists (select from pg_attribute where attrelid = to_regclass('instar.settled') and attname = 'left_behind')
		and exists (select from pg_attribute where attrelid = to_regclass('instar.compared') and attname = 'result') from instar.attempt where enterprise_id = $1 for update`, s.Enterprise).Scan(&session, &fence, &ended, &made); err != nil {
		return err
	}
	if !made { // the database was set up by an earlier version
		if err := pg.Alone(ctx, tx, setUp); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, later); err != nil {
			return err
		}
	}
	if session != s.Session {
		if !ended {
			return &pg.HeldError{Enterprise: s.Enterprise, Session: session, Asks: s.Session}
		}
		if err := s.note(ctx, tx, session, fence); err != nil {
			return err
		}
		err := tx.QueryRow(ctx, `select fence from instar.past where enterprise_id = $1 and session = $2`, s.Enterprise, s.Session).Scan(&fence)
		if errors.Is(err, pgx.ErrNoRows) {
			fence, err = 0, nil
		}
		if err != nil {
			return err
		}
	}
	if fence > s.Attempt {
		return &pg.ObsoleteError{Fence: s.Attempt, Seen: fence}
	}
	_, err := tx.Exec(ctx, `update instar.attempt set previous = case when session = $2 and not ended then previous end, session = $2, fence = $3, ended = false where enterprise_id = $1`, s.Enterprise, s.Session, s.Attempt)
	if err != nil || s.Run == "" {
		return err
	}
	var current bool
	err = tx.QueryRow(ctx, `select exists (select from instar.compared where enterprise_id = $1 and session = $2 and fence = $3 and run = $4)`, s.Enterprise, s.Session, s.Attempt, s.Run).Scan(&current)
	if err == nil && !current {
		err = pg.AnotherRun()
	}
	return err
}

// note keeps the attempt of a session that does not have the tenant.
func (s *Source) note(ctx context.Context, tx pgx.Tx, session string, fence uint64) error {
	_, err := tx.Exec(ctx, `insert into instar.past as p values ($1, $2, $3) on conflict (enterprise_id, session) do update set fence = greatest(p.fence, excluded.fence)`, s.Enterprise, session, fence)
	return err
}

// Hold does something in a transaction that no newer attempt begins in: it waits for the end of it, or this one is refused.
func (s *Source) Hold(ctx context.Context, do func(pgx.Tx) error) error {
	return s.with(ctx, func(conn *pgx.Conn) error {
		return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			if err := s.take(ctx, tx); err != nil {
				return err
			}
			return do(tx)
		})
	})
}

// KeepsOut notes that this session keeps the tenant out of its own database, or no more. It is noted here, because the server of that database may not answer when it is asked.
func (s *Source) KeepsOut(ctx context.Context, shut bool) error {
	return s.Hold(ctx, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `delete from instar.shut where enterprise_id = $1`, s.Enterprise)
		if err == nil && shut {
			_, err = tx.Exec(ctx, `insert into instar.shut values ($1, $2)`, s.Enterprise, s.Session)
		}
		return cmp.Or(err, s.unsettle(ctx, tx))
	})
}

// Settle notes that this session has seen to all that the tenant has written in its own database, which keeps it out, and what of it is left behind: a routing that leads back from then on is this session's doing. It holds
// until the tenant is let in again, or switched, or [Source.Unsettle], and so for each try of the undo, also of one that has ended already.
func (s *Source) Settle(ctx context.Context, behind []string) error {
	return s.Hold(ctx, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `insert into instar.settled (enterprise_id, session, left_behind) values ($1, $2, $3) on conflict (enterprise_id) do update set session = excluded.session, left_behind = excluded.left_behind`, s.Enterprise, s.Session, behind)
		return err
	})
}

// Unsettle forgets what [Source.Settle] has noted, as of an earlier life of the session.
func (s *Source) Unsettle(ctx context.Context) error {
	return s.Hold(ctx, func(tx pgx.Tx) error { return s.unsettle(ctx, tx) })
}

func (s *Source) unsettle(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, `delete from instar.settled where enterprise_id = $1`, s.Enterprise)
	return err
}

// Settled is what was noted by [Source.Settle], and whether this session has switched the routing, and not led it back.
func (s *Source) Settled(ctx context.Context) (settled, switched bool, behind []string, err error) {
	err = s.with(ctx, func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx, `
			select exists (select from instar.settled where enterprise_id = $1 and session = $2), exists (select from instar.attempt where enterprise_id = $1 and session = $2 and previous is not null),
				(select left_behind from instar.settled where enterprise_id = $1 and session = $2)`,
			s.Enterprise, s.Session).Scan(&settled, &switched, &behind)
	})
	if pg.NotSetUp(err) {
		err = nil
	}
	return settled, switched, behind, err
}

// KeptOut is what was noted by [Source.KeepsOut].
func (s *Source) KeptOut(ctx context.Context) (shut bool, err error) {
	err = s.with(ctx, func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx, `select exists (select from instar.shut where enterprise_id = $1 and session = $2)`, s.Enterprise, s.Session).Scan(&shut)
	})
	return shut, err
}

// End gives the tenant free for another session. One that never had it, or has lost it, changes nothing.
func (s *Source) End(ctx context.Context) error {
	err := s.with(ctx, func(conn *pgx.Conn) error {
		return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			if err := pg.Brief(ctx, tx, atOnce); err != nil {
				return err
			}
			var session string
			var fence uint64
			err := tx.QueryRow(ctx, `select session, fence from instar.attempt where enterprise_id = $1 for update`, s.Enterprise).Scan(&session, &fence)
			switch {
			case err != nil:
				return err
			case session != s.Session:
				return nil
			case fence > s.Attempt:
				return &pg.ObsoleteError{Fence: s.Attempt, Seen: fence}
			}
			_, err = tx.Exec(ctx, `with gone as (delete from instar.shut where enterprise_id = $1) update instar.attempt set ended = true, fence = $2 where enterprise_id = $1`, s.Enterprise, s.Attempt)
			return err
		})
	})
	if errors.Is(err, pgx.ErrNoRows) || pg.NotSetUp(err) {
		return nil
	}
	return err
}
