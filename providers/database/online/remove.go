package online

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/bcc94042/instar/internal/wait"
	"github.com/bcc94042/instar/providers/database/pg"
)

// Left reports whether the source has something of the replication.
func (l *Link) Left(ctx context.Context) (left bool, err error) {
	err = l.on(ctx, l.Source, func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx, `select exists (select from pg_publication where pubname = any($1)) or exists (select from pg_replication_slots where slot_name = any($1))`, l.Names()).Scan(&left)
	})
	return left, err
}

// Unsubscribe removes the subscription, without asking the source. A target that has gone has none.
func (l *Link) Unsubscribe(ctx context.Context) error {
	err := l.on(ctx, l.Target, func(conn *pgx.Conn) error {
		there, _, err := l.subscribed(ctx, conn)
		if err != nil || !there {
			return err
		}
		name := pg.Ident(l.Name())
		for _, sql := range []string{`alter subscription ` + name + ` disable`, `alter subscription ` + name + ` set (slot_name = none)`, `drop subscription ` + name} {
			if _, err := conn.Exec(ctx, sql); err != nil {
				return fmt.Errorf("cannot unsubscribe: %w", err)
			}
		}
		return nil
	})
	if pg.State(err) == pg.NoDatabase || pg.State(err) == pg.Closed {
		return nil
	}
	return err
}

// Unslot removes the slots, and those of initial copies that were interrupted.
func (l *Link) Unslot(ctx context.Context, subscription uint32) error {
	return l.unslot(ctx, l.Names(), subscription, nil)
}

// Hold does something in a transaction of the source in which no newer attempt begins.
type Hold func(ctx context.Context, do func(pgx.Tx) error) error

// Unnote removes the slot that notes which rows are written, and keeps the log of the source where nobody reads it. [Link.Note] begins anew. Each try is held: the slot has the same name for every attempt.
func (l *Link) Unnote(ctx context.Context, hold Hold) error {
	return l.unslot(ctx, []string{l.notes()}, 0, hold)
}

// unslot removes slots; without a hold, those of a newer attempt, too.
func (l *Link) unslot(ctx context.Context, names []string, subscription uint32, hold Hold) error {
	return l.on(ctx, l.Source, func(conn *pgx.Conn) error {
		if hold == nil {
			hold = func(ctx context.Context, do func(pgx.Tx) error) error { return pgx.BeginFunc(ctx, conn, do) }
		}
		deadline := time.Now().Add(10 * time.Second)
		for {
			var left, dropped int
			// A slot in use is freed first; the next round drops it.
			err := hold(ctx, func(tx pgx.Tx) error {
				return tx.QueryRow(ctx, `
					with mine as (select slot_name, active_pid from pg_replication_slots where database = current_database() and (slot_name = any($1) or $2 > 0 and slot_name like 'pg\_' || $2 || '\_sync\_%'))
					select count(*), count(*) filter (where case when active_pid is null then pg_drop_replication_slot(slot_name) is not null else pg_terminate_backend(active_pid) is null end) from mine`,
					names, int64(subscription)).Scan(&left, &dropped)
			})
			if err != nil && pg.State(err) != pg.UndefinedObject && pg.State(err) != pg.InUse {
				return fmt.Errorf("cannot drop the replication slot: %w", err)
			}
			if err == nil && left == dropped {
				return nil
			}
			if time.Now().After(deadline) {
				return pg.Later(5*time.Second, "the replication slot %s stays in use", names[0])
			}
			if err := wait.Pause(ctx, 50*time.Millisecond); err != nil {
				return err
			}
		}
	})
}

// Made are the slots and publications of all sessions in a source.
func Made(ctx context.Context, source pg.Address) (slots, publications []string, err error) {
	err = (&Link{}).on(ctx, source, func(conn *pgx.Conn) error {
		return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			slots, publications, err = made(ctx, tx)
			return err
		})
	})
	return slots, publications, err
}

func made(ctx context.Context, tx pgx.Tx) (slots, publications []string, err error) {
	err = tx.QueryRow(ctx, `select
		coalesce((select array_agg(slot_name::text order by slot_name) from pg_replication_slots where database = current_database() and slot_name ~ $1), '{}'),
		coalesce((select array_agg(pubname::text order by pubname) from pg_publication where pubname ~ $1), '{}')`, `^instar_[0-9a-f]{16}(_keys)?$`).Scan(&slots, &publications)
	return slots, publications, err
}

// Strays removes slots and publications of sessions that are not known, as a restored store has lost them: nobody else would. A session is known before it makes any, and takes over what has its
// name. So each is removed in a transaction in which the sessions that are known are asked for again, with alone: from then on none may begin until it ends.
func Strays(ctx context.Context, source pg.Address, sessions func(ctx context.Context, tx pgx.Tx, alone bool) ([]string, error)) error {
	l := &Link{Source: source}
	var slots, publications []string
	var known func(string) bool
	err := l.on(ctx, source, func(conn *pgx.Conn) error {
		return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) (err error) {
			if slots, publications, err = made(ctx, tx); err == nil {
				known, err = knowing(sessions(ctx, tx, false))
			}
			return err
		})
	})
	if err != nil {
		return err
	}
	stray := func(name string) Hold {
		return func(ctx context.Context, do func(pgx.Tx) error) error {
			return l.on(ctx, source, func(conn *pgx.Conn) error {
				return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
					if known, err := knowing(sessions(ctx, tx, true)); err != nil || known(name) {
						return err
					}
					return do(tx)
				})
			})
		}
	}
	for _, slot := range slices.DeleteFunc(slots, known) { // one that stays in use keeps no other
		err = errors.Join(err, l.unslot(ctx, []string{slot}, 0, stray(slot)))
	}
	for _, name := range slices.DeleteFunc(publications, known) {
		err = errors.Join(err, stray(name)(ctx, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `drop publication if exists `+pg.Ident(name))
			return err
		}))
	}
	return err
}

// knowing reports of names whether they are of one of these sessions.
func knowing(sessions []string, err error) (func(string) bool, error) {
	known := map[string]bool{}
	for _, session := range sessions {
		of := &Link{Session: session}
		known[of.Name()], known[of.notes()] = true, true
	}
	return func(name string) bool { return known[name] }, err
}

// Subscription is the number of the subscription, by which Postgres names the slots of initial copies; 0 when there is none.
func (l *Link) Subscription(ctx context.Context) (oid uint32, err error) {
	err = l.on(ctx, l.Target, func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx, `select coalesce((select s.oid from pg_subscription s join pg_database d on d.oid = s.subdbid where s.subname = $1 and d.datname = current_database()), 0)`, l.Name()).Scan(&oid)
	})
	if pg.State(err) == pg.NoDatabase || pg.State(err) == pg.Closed {
		return 0, nil
	}
	return oid, err
}

// Unpublish removes the publication and the marker.
func (l *Link) Unpublish(ctx context.Context) error {
	return l.on(ctx, l.Source, func(conn *pgx.Conn) error {
		if _, err := conn.Exec(ctx, `drop publication if exists `+pg.Ident(l.Name())+`, `+pg.Ident(l.notes())); err != nil {
			return fmt.Errorf("cannot drop the publication: %w", err)
		}
		_, err := conn.Exec(ctx, `delete from instar.marker where session = $1`, l.Session)
		if pg.State(err) == "42P01" { // nothing was set up
			return nil
		}
		return err
	})
}

// Remove removes all of it.
func (l *Link) Remove(ctx context.Context) error {
	oid, err := l.Subscription(ctx)
	if err != nil {
		return err
	}
	if err := l.Unsubscribe(ctx); err != nil {
		return err
	}
	if err := l.Unslot(ctx, oid); err != nil {
		return err
	}
	return l.Unpublish(ctx)
}
