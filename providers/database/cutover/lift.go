package cutover

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/bcc94042/instar/internal/wait"
	"github.com/bcc94042/instar/providers/database/pg"
)

// passes is the function of a fence that was lifted: it lets everybody through.
const passes = ` begin return null; end `

// How long what fences have left is tried to be dropped, in all: a tenant may wait for the end of [Source.Lift].
const (
	aMoment   = 2 * time.Second
	forAWhile = 5 * time.Minute
)

// Lift lets the tenant's writers in again. It has the fence let everybody through first, which waits neither for readers nor for writers of the tables, and drops it then. To drop a trigger is to wait for all who read the table, and to
// have others wait: where they go on reading, what is left lets everybody through until [Source.Sweep] drops it, or [Source.Fence] raises it again.
func (s *Source) Lift(ctx context.Context) error {
	return s.with(ctx, func(conn *pgx.Conn) error {
		if err := pg.Patiently(ctx, conn, func(tx pgx.Tx) error { return s.letThrough(ctx, tx) }); err != nil {
			return fmt.Errorf("cannot lift the fence: %w", err)
		}
		_ = drop(ctx, conn, fencePrefix+s.mark()+"_", aMoment) // the fence is lifted: what is left goes with the sweep, which says why it cannot
		return nil
	})
}

// letThrough replaces the functions that there are: one has the name that its table had when the fence was raised. One that no trigger calls any more, as its table has gone or was fenced anew under another name, is dropped. As the current attempt, it
// meets neither a fence that rises nor a sweep, which drops only what lets everybody through.
func (s *Source) letThrough(ctx context.Context, tx pgx.Tx) error {
	if err := s.take(ctx, tx); err != nil {
		return err
	}
	rows, err := tx.Query(ctx, `
		select f.oid::regprocedure::text, called from pg_proc f join pg_namespace n on n.oid = f.pronamespace, lateral (select exists (select from pg_trigger where tgfoid = f.oid)) as by (called)
		where nspname = 'instar' and starts_with(proname, $1) and (prosrc <> $2 or not called)`, s.functions(), passes)
	if err != nil {
		return err
	}
	statements := []string{pg.ForAMoment + `set local idle_in_transaction_session_timeout = '5s'`}
	var function string
	var called bool
	if _, err := pgx.ForEachRow(rows, []any{&function, &called}, func() error {
		if called {
			statements = append(statements, define(function, passes))
		} else {
			statements = append(statements, `drop function `+function)
		}
		return nil
	}); err != nil {
		return err
	}
	_, err = tx.Exec(ctx, strings.Join(statements, "; "))
	return err
}

// Sweep drops what fences that were lifted have left, of all tenants.
func (s *Source) Sweep(ctx context.Context) error {
	return s.with(ctx, func(conn *pgx.Conn) error { return drop(ctx, conn, fencePrefix, forAWhile) })
}

// drop drops the triggers whose names begin with a prefix, and that let everybody through. Where others read the tables it tries a few times, and leaves the rest.
func drop(ctx context.Context, conn *pgx.Conn, prefix string, most time.Duration) error {
	until := time.Now().Add(most)
	for try := 2; ; try++ {
		rows, err := conn.Query(ctx, `select distinct tgrelid::regclass::text from pg_trigger join pg_proc p on p.oid = tgfoid where starts_with(tgname, $1) and tgparentid = 0 and prosrc = $2 order by 1`, prefix, passes)
		if err != nil {
			return err
		}
		tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return err
		}
		left := 0
		for _, table := range tables {
			if time.Now().After(until) {
				return nil
			}
			err := dropFrom(ctx, conn, table, prefix)
			if state := pg.State(err); state == pg.LockTimeout || state == "40P01" {
				left++
			} else if err != nil {
				return fmt.Errorf("cannot drop what a fence has left on table %s: %w", table, err)
			}
		}
		if left == 0 || try == 5 || !wait.Backoff(ctx, try) {
			return ctx.Err()
		}
	}
}

// dropFrom looks again once it has the table: who raises the fence has it, too. A function goes with the last table whose triggers call it.
func dropFrom(ctx context.Context, conn *pgx.Conn, table, prefix string) error {
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if err := pg.Brief(ctx, tx, 5*time.Second); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `set local lock_timeout = '200ms'; lock table `+table+` in access exclusive mode`); err != nil {
			return err
		}
		var statements []string
		err := tx.QueryRow(ctx, `
			select coalesce(array_agg(format('drop trigger %I on %s', tgname, $1::text)), '{}') || coalesce(array_agg(distinct format('drop function %s', tgfoid::regprocedure))
				filter (where not exists (select from pg_trigger o where o.tgfoid = t.tgfoid and o.tgparentid = 0 and o.tgrelid <> t.tgrelid)), '{}')
			from pg_trigger t join pg_proc p on p.oid = tgfoid where tgrelid = $1::regclass and starts_with(tgname, $2) and tgparentid = 0 and prosrc = $3`, table, prefix, passes).Scan(&statements)
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, strings.Join(statements, "; "))
		return err
	})
}
