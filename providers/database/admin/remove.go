package admin

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/bcc94042/instar/internal/wait"
	"github.com/bcc94042/instar/providers/database/pg"
)

// Quarantine closes the database of a session and its role, and puts the database away under another name until the grace period has
// passed. It also stops what an earlier attempt still does there. A database that the session does not have is nothing to do.
func (s *Server) Quarantine(ctx context.Context, spec Spec, grace time.Duration) error {
	return s.with(ctx, func(conn *pgx.Conn) error {
		return locked(ctx, conn, spec.Name, func() error {
			known, err := entry(ctx, conn, spec.Name)
			if err != nil {
				return err
			}
			switch {
			case known == nil: // so that a late create is refused
				_, err := conn.Exec(ctx, `insert into instar.tenant_database (name, session, fence, state, stored_as) values ($1, $2, $3, $4, $1)`,
					spec.Name, spec.Session, spec.Fence, Dropped)
				return err
			case known.Session != spec.Session: // nor is a late create to find the name free when the other one has gone
				return noted(ctx, conn, spec.Name, spec.Session, spec.Fence)
			case known.Fence > spec.Fence:
				return &pg.ObsoleteError{Fence: spec.Fence, Seen: known.Fence}
			}
			if _, err := conn.Exec(ctx, `update instar.tenant_database set fence = $2 where name = $1`, spec.Name, spec.Fence); err != nil {
				return err
			}
			if known.State == Quarantined || known.State == Dropped {
				return nil
			}
			return putAway(ctx, conn, spec, grace)
		})
	})
}

// aside is the name of a database in quarantine.
func aside(spec Spec) string { return asideAt(spec, strconv.FormatUint(spec.Fence, 10)) }

// Aside is the name of a session's database in quarantine, with * for the number of the attempt that will put it there.
func Aside(spec Spec) string { return asideAt(spec, "*") }

func asideAt(spec Spec, fence string) string {
	sum := sha256.Sum256([]byte(spec.Name + "\x00" + spec.Session))
	name := "q_" + hex.EncodeToString(sum[:4]) + "_" + fence + "_" + spec.Name
	return name[:min(len(name), 63)]
}

func putAway(ctx context.Context, conn *pgx.Conn, spec Spec, grace time.Duration) error {
	there, err := present(ctx, conn, spec.Name)
	if err != nil {
		return err
	}
	if !there {
		if done, err := renamed(ctx, conn, spec); err != nil || done {
			return err
		}
		return finish(ctx, conn, spec, Dropped, spec.Name, time.Time{})
	}
	if err := lockOut(ctx, conn, spec.Name); err != nil {
		return err
	}
	if err := disconnect(ctx, conn, spec.Name, ""); err != nil {
		return err
	}
	to := aside(spec)
	// First where it will be: if the process ends after the renaming, the next call finds it there.
	_, err = conn.Exec(ctx, `
		with e as (update instar.tenant_database set stored_as = $2, drop_after = now() + $3 where name = $1 returning name, stored_as, drop_after, session)
		insert into instar.put_away (name, stored_as, drop_after, session) select * from e on conflict (stored_as) do update set drop_after = excluded.drop_after`, spec.Name, to, grace)
	if err != nil {
		return err
	}
	if _, err := conn.Exec(ctx, fmt.Sprintf(`alter database %s rename to %s`, pg.Ident(spec.Name), pg.Ident(to))); err != nil {
		return fmt.Errorf("cannot put database %s away: %w", spec.Name, err)
	}
	return finish(ctx, conn, spec, Quarantined, to, time.Now().Add(grace))
}

// renamed finishes what was interrupted after the renaming.
func renamed(ctx context.Context, conn *pgx.Conn, spec Spec) (bool, error) {
	known, err := entry(ctx, conn, spec.Name)
	if err != nil || known == nil || known.StoredAs == spec.Name {
		return false, err
	}
	there, err := present(ctx, conn, known.StoredAs)
	if err != nil || !there {
		return false, err
	}
	return true, finish(ctx, conn, spec, Quarantined, known.StoredAs, known.DropAfter)
}

func finish(ctx context.Context, conn *pgx.Conn, spec Spec, state, storedAs string, dropAfter time.Time) error {
	var after *time.Time
	if !dropAfter.IsZero() {
		after = &dropAfter
	}
	_, err := conn.Exec(ctx, `update instar.tenant_database set state = $2, stored_as = $3, quarantined_at = now(), drop_after = $4 where name = $1`, spec.Name, state, storedAs, after)
	return err
}

// lockOut closes a database and keeps the role of its name, if it was made here, from connecting.
func lockOut(ctx context.Context, conn *pgx.Conn, name string) error {
	if _, err := conn.Exec(ctx, fmt.Sprintf(`alter database %s allow_connections false`, pg.Ident(name))); err != nil {
		return fmt.Errorf("cannot close database %s: %w", name, err)
	}
	var there bool
	if err := conn.QueryRow(ctx, `select exists (select from pg_roles where rolname = $1 and shobj_description(oid, 'pg_authid') like 'instar session %')`, name).Scan(&there); err != nil || !there {
		return err
	}
	if _, err := conn.Exec(ctx, fmt.Sprintf(`alter role %s nologin`, pg.Ident(name))); err != nil {
		return fmt.Errorf("cannot lock out role %s: %w", name, err)
	}
	return nil
}

// disconnect ends all that is connected to a closed database, or one role there that is shut out, and waits until it has gone. A vacuum, which is nobody's, gives way by itself to what is done to the database, and only a superuser may end it.
func disconnect(ctx context.Context, conn *pgx.Conn, name, role string) error {
	deadline := time.Now().Add(10 * time.Second)
	for {
		var left int
		err := conn.QueryRow(ctx, `select count(*) filter (where pg_terminate_backend(pid) is not null) from pg_stat_activity where datname = $1 and ($2 = '' or usename = $2) and usesysid is not null`, name, role).Scan(&left)
		if err != nil {
			return fmt.Errorf("cannot end the connections to %s: %w", name, err)
		}
		if left == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return pg.Later(5*time.Second, "%d connections to %s do not end", left, name)
		}
		if err := wait.Pause(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}

// Away is a database that was put away.
type Away struct{ Name, StoredAs, Session string }

// Sweep drops the databases whose grace period is over at that time, and returns the names that they had. The role goes with the last one of its name. What cannot be
// dropped is told, stays for the next sweep, and keeps no other.
func (s *Server) Sweep(ctx context.Context, now time.Time) (gone []string, err error) {
	err = s.with(ctx, func(conn *pgx.Conn) error {
		if _, err := conn.Exec(ctx, `select from instar.tenant_database limit 0`); err != nil { // where there is no register, nothing was put away
			return err
		}
		if err := register(ctx, conn); err != nil {
			return err
		}
		rows, err := conn.Query(ctx, `
			select name, stored_as, coalesce(session, (select shobj_description(oid, 'pg_database') from pg_database where datname = stored_as), '') from instar.put_away where drop_after <= $1 order by name, stored_as`, now)
		if err != nil {
			return err
		}
		list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Away])
		errs := []error{err}
		for _, a := range list {
			a.Session = strings.TrimPrefix(a.Session, Tag("")) // of an earlier version it is in the comment only
			err := locked(ctx, conn, a.Name, func() error { return s.drop(ctx, conn, a) })
			if err == nil {
				gone = append(gone, a.Name)
			}
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	})
	return gone, err
}

func (s *Server) drop(ctx context.Context, conn *pgx.Conn, a Away) error {
	name, storedAs := a.Name, a.StoredAs
	// Of an earlier version it is in the comment of the database only, and Dropped may have to be called again.
	if _, err := conn.Exec(ctx, `update instar.put_away set session = $2 where stored_as = $1 and session is null and $2 <> ''`, storedAs, a.Session); err != nil {
		return err
	}
	if _, err := conn.Exec(ctx, fmt.Sprintf(`drop database if exists %s with (force)`, pg.Ident(storedAs))); err != nil {
		return fmt.Errorf("cannot drop database %s: %w", storedAs, err)
	}
	if s.Dropped != nil {
		if err := s.Dropped(ctx, a); err != nil {
			return fmt.Errorf("database %s is dropped, and it cannot be told: %w", storedAs, err)
		}
	}
	var last bool
	err := conn.QueryRow(ctx, `
		select exists (select from pg_roles where rolname = $1 and shobj_description(oid, 'pg_authid') like 'instar session %')
			and not exists (select from pg_database where datname = $1) and not exists (select from instar.put_away where name = $1 and stored_as <> $2)`, name, storedAs).Scan(&last)
	if err != nil {
		return err
	}
	if last {
		if _, err := conn.Exec(ctx, fmt.Sprintf(`drop role %s`, pg.Ident(name))); err != nil {
			return fmt.Errorf("cannot drop role %s: %w", name, err)
		}
	}
	if _, err := conn.Exec(ctx, `update instar.tenant_database set state = $3, drop_after = null where name = $1 and stored_as = $2 and state = $4`, name, storedAs, Dropped, Quarantined); err != nil {
		return err
	}
	_, err = conn.Exec(ctx, `delete from instar.put_away where stored_as = $1`, storedAs)
	return err
}
