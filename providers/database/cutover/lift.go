package cutover

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/bcc94042/instar/internal/wait"
	"github.com/bcc94042/instar/providers/database/catalog"
	"github.com/bcc94042/instar/providers/database/pg"
)

// passes is the function of a fence that was lifted: it lets everybody through.
const passes = ` begin return null; end `

// Lift lets the tenant's writers in again. It has the fence let everybody through first, which waits neither for readers nor for writers of the table, and drops it then. To drop a trigger is to wait for all who read the table, and to
// have others wait: where they go on reading, what is left lets everybody through until [Source.Sweep] drops it, or [Source.Fence] raises it again.
func (s *Source) Lift(ctx context.Context, tables []*catalog.Table) error {
	return s.with(ctx, func(conn *pgx.Conn) error {
		for _, t := range fenced(tables) {
			open := s.define(t, passes)
			if standing, err := s.stands(ctx, conn, t); err != nil {
				return err
			} else if !standing {
				open = fmt.Sprintf(`drop function if exists %s()`, s.function(t))
			}
			if err := s.eachTable(ctx, conn, t, nil, []string{open}); err != nil {
				return fmt.Errorf("cannot lift the fence of table %s: %w", t, err)
			}
		}
		return drop(ctx, conn, fencePrefix+s.mark()+"_")
	})
}

// Sweep drops what fences that were lifted have left, of all tenants.
func (s *Source) Sweep(ctx context.Context) error {
	return s.with(ctx, func(conn *pgx.Conn) error { return drop(ctx, conn, fencePrefix) })
}

// remains are the triggers on a table whose function lets everybody through.
type remains struct {
	Table, Function string
	Triggers        []string
}

// drop drops what begins with a prefix and lets everybody through. Where others read the tables it tries a few times, and leaves the rest.
func drop(ctx context.Context, conn *pgx.Conn, prefix string) error {
	for try := 2; ; try++ {
		rows, err := conn.Query(ctx, `select tgrelid::regclass::text, tgfoid::regprocedure::text, array_agg(tgname::text) from pg_trigger join pg_proc p on p.oid = tgfoid
			where starts_with(tgname, $1) and tgparentid = 0 and prosrc = $2 group by tgrelid, tgfoid order by 1`, prefix, passes)
		if err != nil {
			return err
		}
		list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[remains])
		if err != nil {
			return err
		}
		left := 0
		for _, r := range list {
			err := r.drop(ctx, conn)
			if state := pg.State(err); state == pg.LockTimeout || state == "40P01" {
				left++
			} else if err != nil {
				return fmt.Errorf("cannot drop what a fence has left on table %s: %w", r.Table, err)
			}
		}
		if left == 0 || try == 5 || !wait.Backoff(ctx, try) {
			return ctx.Err()
		}
	}
}

// drop looks again once it has the table: who raises the fence has it, too.
func (r *remains) drop(ctx context.Context, conn *pgx.Conn) error {
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if err := pg.Brief(ctx, tx, 5*time.Second); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `set local lock_timeout = '200ms'; lock table `+r.Table+` in access exclusive mode`); err != nil {
			return err
		}
		var still bool
		if err := tx.QueryRow(ctx, `select exists (select from pg_proc where oid = to_regprocedure($1) and prosrc = $2)`, r.Function, passes).Scan(&still); err != nil || !still {
			return err
		}
		list := make([]string, len(r.Triggers))
		for i, name := range r.Triggers {
			list[i] = fmt.Sprintf(`drop trigger %s on %s`, pg.Ident(name), r.Table)
		}
		_, err := tx.Exec(ctx, strings.Join(append(list, `drop function `+r.Function), "; "))
		return err
	})
}
