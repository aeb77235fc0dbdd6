package online

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/bcc94042/instar/internal/wait"
	"github.com/bcc94042/instar/providers/database/pg"
)

// What a session takes of both servers while it replicates: slots and WAL senders of the source, workers and origins of the target. Where copies find no room Postgres waits, and fails nothing.

// copies are the tables that Postgres copies at a time, each through a slot and a connection of its own: that is max_sync_workers_per_subscription as it comes.
const copies = 2

// checkRoom: what a session lacks, its copies or those of another would wait for.
func (l *Link) checkRoom(ctx context.Context, conn *pgx.Conn, problems *[]string) error {
	var slots, used, senders, sending int
	err := conn.QueryRow(ctx, `select current_setting('max_replication_slots')::int, (select count(*) from pg_replication_slots), current_setting('max_wal_senders')::int, (select count(*) from pg_stat_replication)`).Scan(&slots, &used, &senders, &sending)
	if err != nil {
		return err
	}
	if needs := 2 + copies; used+needs > slots {
		*problems = append(*problems, fmt.Sprintf("%d of %d replication slots of the source are in use, and %d are needed while tables are copied: raise max_replication_slots, or wait for other moves", used, slots, needs))
	}
	if needs := 1 + copies; sending+needs > senders {
		*problems = append(*problems, fmt.Sprintf("%d of %d WAL senders of the source are in use, and %d are needed while tables are copied: raise max_wal_senders, or wait for other moves", sending, senders, needs))
	}
	return nil
}

// workers are those of logical replication on the server of the target. Each subscription that is enabled there, of any database, takes one, or will.
type workers struct {
	most, processes, origins int      // settings
	subscribed               []string // other subscriptions that are enabled
	tracked                  int      // origins of others
	running, busy            int      // all that run, and those of them that copy
	applying, copying        int      // those of this session
}

func (l *Link) workers(ctx context.Context, conn *pgx.Conn) (w workers, err error) {
	err = conn.QueryRow(ctx, `
		select current_setting('max_logical_replication_workers')::int, current_setting('max_worker_processes')::int, coalesce(current_setting('max_active_replication_origins', true), current_setting('max_replication_slots'))::int,
			(select coalesce(array_agg(subname::text order by subname), '{}') from pg_subscription where subenabled and subname <> $1), (select count(*) from pg_replication_origin where roname not in (select 'pg_' || oid from pg_subscription where subname = $1)),
			count(*), count(relid), count(*) filter (where subname = $1 and relid is null), count(*) filter (where subname = $1 and relid is not null)
		from pg_stat_subscription where pid is not null`, l.Name()).Scan(&w.most, &w.processes, &w.origins, &w.subscribed, &w.tracked, &w.running, &w.busy, &w.applying, &w.copying)
	return w, err
}

// lacks says what one more subscription, and one copy of a table for it, would not get.
func (w *workers) lacks() (problems []string) {
	const needs = 2
	by := ""
	if len(w.subscribed) > 0 { // by their names, which the plans of sessions have: one that is held keeps its worker
		by = " (" + strings.Join(w.subscribed, ", ") + ")"
	}
	says := func(used int, what string, most int, setting string) {
		if used+needs > most {
			problems = append(problems, fmt.Sprintf("%d of %d %s of the tenant's server are in use%s, and %d are needed, one of them to copy tables: raise %s there, or wait for other moves", used, most, what, by, needs, setting))
		}
	}
	says(len(w.subscribed), "workers of logical replication", w.most, "max_logical_replication_workers")
	says(len(w.subscribed)+1, "background workers", w.processes, "max_worker_processes") // one starts the others
	says(w.tracked, "replication origins", w.origins, "max_replication_slots (from Postgres 18 on max_active_replication_origins)")
	return problems
}

// CheckTarget says why the server of the tenant cannot replicate one more. The database of the tenant need not be there.
func (l *Link) CheckTarget(ctx context.Context, server pg.Address) (problems []string, err error) {
	err = l.on(ctx, server, func(conn *pgx.Conn) error {
		w, err := l.workers(ctx, conn)
		problems = w.lacks()
		return err
	})
	return problems, err
}

// room waits for other sessions until there is room, and does something with it before another one looks: what that needs is counted from then on.
func (l *Link) room(ctx context.Context, conn *pgx.Conn, do func() error) error {
	server := l.Target
	server.Database = "" // where all sessions meet: a lock is of one database
	return l.on(ctx, server, func(lock *pgx.Conn) error {
		for until := time.Now().Add(l.patience()); ; {
			lacks, err := l.enter(ctx, lock, conn, do)
			if err != nil || len(lacks) == 0 {
				return err
			}
			if time.Now().After(until) {
				return pg.Later(5*time.Second, "there was no room to replicate for %s: %s", l.patience(), strings.Join(lacks, "; "))
			}
			if err := wait.Pause(ctx, 100*time.Millisecond); err != nil {
				return fmt.Errorf("%s: %w", strings.Join(lacks, "; "), err)
			}
		}
	})
}

// held is how long a session has the lock of those who look for room at most, also one that is frozen: without it, it may go on beside another one.
const held = 30 * time.Second

// enter does something where there is room, or says what lacks.
func (l *Link) enter(ctx context.Context, lock, conn *pgx.Conn, do func() error) (lacks []string, err error) {
	done := false
	err = pgx.BeginFunc(ctx, lock, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, fmt.Sprintf(`set local lock_timeout = %d`, l.patience().Milliseconds())); err != nil {
			return err
		}
		if err := pg.Alone(ctx, tx, "instar.subscription"); err != nil {
			return fmt.Errorf("cannot wait for other sessions that look for room to replicate: %w", err)
		}
		if err := pg.Brief(ctx, tx, held); err != nil {
			return err
		}
		w, err := l.workers(ctx, conn)
		if err != nil {
			return err
		}
		if lacks = w.lacks(); len(lacks) > 0 {
			return nil
		}
		err = do()
		done = err == nil
		return err
	})
	if done { // whatever has become of the lock
		return nil, nil
	}
	return lacks, err
}

func (l *Link) patience() time.Duration { return cmp.Or(l.Patience, time.Minute) }

// standstill tells when nothing has copied for too long, as no worker is left for it. It is no error of Postgres.
type standstill struct{ since time.Time }

// long is asked again and again, with what runs.
func (s *standstill) long(now time.Time, w *workers, patience time.Duration) bool {
	if !w.stand() {
		s.since = time.Time{}
		return false
	}
	if s.since.IsZero() {
		s.since = now
	}
	return now.Sub(s.since) >= patience
}

// stand reports whether no worker copies for this session, and none will. Where all places are taken, one that copies for another session gives its own back, and those that apply keep theirs.
func (w *workers) stand() bool {
	switch {
	case w.copying > 0:
		return false
	case w.running < w.most:
		return w.applying == 0 // one that applies starts those that copy, when it comes to it
	}
	return w.busy == 0
}

// refused is the error of a copy that stands still.
func (w *workers) refused(open []string) error {
	return pg.Later(5*time.Second, "no worker of the tenant's server copies %s: %d of %d workers of logical replication run there, %d of them for this session: raise max_logical_replication_workers there, or wait for other moves; where none runs, the log of that server says why, such as a source that it does not reach",
		strings.Join(open, ", "), w.running, w.most, w.applying)
}

// Subscribe makes the subscription, which begins to copy. It goes on until it is removed, also while its session is held: what the target does not read, the source has to keep.
func (l *Link) Subscribe(ctx context.Context) error {
	from := l.From
	if from == "" {
		from = l.Source.DSN
	}
	return l.on(ctx, l.Target, func(conn *pgx.Conn) error {
		there, _, err := l.subscribed(ctx, conn)
		if err != nil || there {
			return err
		}
		return l.room(ctx, conn, func() error {
			// The slot is there already: where both databases are in one cluster, making it here would wait for this very statement.
			_, err := conn.Exec(ctx, fmt.Sprintf(`create subscription %[1]s connection %[2]s publication %[1]s with (create_slot = false, slot_name = %[3]s, copy_data = true)`,
				pg.Ident(l.Name()), pg.Literal(from), pg.Literal(l.Name())))
			if err != nil {
				return fmt.Errorf("cannot subscribe: %w", err)
			}
			return nil
		})
	})
}

func (l *Link) subscribed(ctx context.Context, conn *pgx.Conn) (there, enabled bool, err error) {
	err = conn.QueryRow(ctx, `select count(*) > 0, coalesce(bool_or(subenabled), false) from pg_subscription s join pg_database d on d.oid = s.subdbid where s.subname = $1 and d.datname = current_database()`, l.Name()).Scan(&there, &enabled)
	return there, enabled, err
}
