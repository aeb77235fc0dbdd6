package cutover

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/bcc94042/instar/providers/database/catalog"
	"github.com/bcc94042/instar/providers/database/pg"
)

// fenced are the tables that have rows of tenants: what is copied whole is shared with others, who write on.
func fenced(tables []*catalog.Table) []*catalog.Table {
	var list []*catalog.Table
	for _, t := range tables {
		if t.Kind == catalog.Tenant || t.Kind == catalog.Child {
			list = append(list, t)
		}
	}
	return list
}

// Fence stops the tenant's writers. It waits for those that are running.
func (s *Source) Fence(ctx context.Context, tables []*catalog.Table) error {
	return s.with(ctx, func(conn *pgx.Conn) error {
		for _, t := range fenced(tables) {
			if err := s.eachTable(ctx, conn, t, s.missing(t), s.raise(t)); err != nil {
				return fmt.Errorf("cannot fence table %s: %w", t, err)
			}
		}
		return nil
	})
}

// missing calls Lost before the fence of a table is raised that does not stand, in the same transaction: so of the server that it is raised on.
func (s *Source) missing(t *catalog.Table) func(context.Context, pgx.Tx) error {
	if s.Lost == nil {
		return nil
	}
	return func(ctx context.Context, tx pgx.Tx) error {
		open, err := s.open(ctx, tx, []string{t.Quoted()})
		if err == nil && len(open) > 0 {
			err = pg.Brief(ctx, tx, elsewhere)
		}
		if err == nil && len(open) > 0 {
			err = s.Lost(ctx, open[0])
		}
		return err
	}
}

// Fenced are the tables that [Source.Fence] fences, as SQL writes them.
func Fenced(tables []*catalog.Table) (names []string) {
	for _, t := range fenced(tables) {
		names = append(names, t.Quoted())
	}
	return names
}

// Compare begins a run of a comparison under this attempt, after begin has done the same in the target: what an earlier run of it still does is refused from then on. Where one has ended well, it begins none and returns
// the result of that: its fence stands, and a switch may go by it. By an earlier version one may have ended without a result.
func (s *Source) Compare(ctx context.Context, run string, begin func() error) (result string, ended bool, err error) {
	err = s.Hold(ctx, func(tx pgx.Tx) error {
		err := tx.QueryRow(ctx, `
			insert into instar.compared as c (enterprise_id, session, fence, run) values ($1, $2, $3, $4) on conflict (enterprise_id) do update set
				ended = c.ended and (c.session, c.fence) = ($2, $3), result = case when (c.session, c.fence) = ($2, $3) then c.result end, run = $4, session = $2, fence = $3
			returning coalesce(result, ''), ended`, s.Enterprise, s.Session, s.Attempt, run).Scan(&result, &ended)
		if err != nil || result != "" {
			return err
		}
		if err := pg.Brief(ctx, tx, elsewhere); err != nil {
			return err
		}
		return begin()
	})
	if err == nil {
		s.Run = run
	}
	return result, ended, err
}

// Compared ends the run well.
func (s *Source) Compared(ctx context.Context, result string) error {
	return s.Hold(ctx, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `update instar.compared set ended = true, result = $2 where enterprise_id = $1`, s.Enterprise, result)
		return err
	})
}

// open are those of some tables, as SQL writes them, on which the fence does not stand, or not whole, or does not fire always, or lets everybody through; one that has gone is open.
func (s *Source) open(ctx context.Context, q queryer, tables []string) (open []string, err error) {
	err = q.QueryRow(ctx, `select coalesce(array_agg(name), '{}') from unnest($1::text[]) name
		where (select count(*) from pg_trigger join pg_proc p on p.oid = tgfoid where tgrelid = to_regclass(name) and starts_with(tgname, $2) and tgenabled = 'A' and prosrc <> $4) < $3`, tables, fencePrefix+s.mark()+"_", len(events), passes).Scan(&open)
	return open, err
}

// events are those for which a table has a trigger of a fence: insert, update, delete, truncate.
var events = []string{"i", "u", "d", "t"}

// Triggers are the names of those that fence a table: {i,u,d,t} stands for four.
func (s *Source) Triggers() string { return triggers(s.mark()) }

func triggers(mark string) string { return fencePrefix + mark + "_{" + strings.Join(events, ",") + "}" }

// fencePrefix is how the names of triggers of fences begin, before the mark of the tenant.
const fencePrefix = "instar_fence_"

func (s *Source) trigger(event string) string {
	return pg.Ident(fencePrefix + s.mark() + "_" + event)
}

// functions is how the names of the functions of the tenant's fence begin.
func (s *Source) functions() string { return "fence_" + s.mark() + "_" }

// function is that of a table as it is called now.
func (s *Source) function(t *catalog.Table) string {
	sum := sha256.Sum256([]byte(t.String()))
	return pg.Ident("instar", s.functions()+hex.EncodeToString(sum[:6])) + "()"
}

// raise are the statements that fence a table. A function that refuses needs no rights; that of a child reads the parents as its owner.
func (s *Source) raise(t *catalog.Table) []string {
	refuse := fmt.Sprintf(`raise exception using errcode = '25006', message = %s, hint = 'The tenant is being moved: connect again and ask where its data is.';`,
		pg.Literal(fmt.Sprintf("the tenant %s is read-only", s.Enterprise)))
	// Rows that a revert brings back pass: it says so for its own transaction.
	pass := fmt.Sprintf(`if current_setting('instar.fence', true) = %s then return null; end if;`, pg.Literal(s.mark()))
	body := refuse
	if t.Kind == catalog.Child {
		body = fmt.Sprintf(`
			if tg_op = 'TRUNCATE' then %[1]s end if;
			if tg_op in ('UPDATE', 'DELETE') then
				if %[2]s then %[1]s end if;
			end if;
			if tg_op in ('INSERT', 'UPDATE') then
				if %[3]s then %[1]s end if;
				if %[4]s then raise exception using errcode = '40001', message = 'a tenant is being moved, and this transaction cannot see whose row it writes: repeat it'; end if;
			end if;
			return null;`, refuse, t.WhereAs("old", s.Enterprise), t.WhereAs("new", s.Enterprise), t.Orphan("new"))
	}
	list := []string{
		fmt.Sprintf(`lock table only %s in share row exclusive mode`, t.Quoted()), // which the triggers need, before the function: who drops what an earlier fence has left has the table, and a function that goes meanwhile cannot be replaced
		define(s.function(t), fmt.Sprintf(` begin %s %s end `, pass, body)),
	}
	add := func(event, on, each, when string) {
		list = append(list,
			fmt.Sprintf(`create or replace trigger %s %s on %s for each %s %s execute function %s`, s.trigger(event), on, t.Quoted(), each, when, s.function(t)),
			fmt.Sprintf(`alter table %s enable always trigger %s`, t.Quoted(), s.trigger(event)))
	}
	old, fresh := "when ("+t.WhereAs("old", s.Enterprise)+")", "when ("+t.WhereAs("new", s.Enterprise)+")"
	both := "when (" + t.WhereAs("old", s.Enterprise) + " or " + t.WhereAs("new", s.Enterprise) + ")"
	if t.Kind == catalog.Child { // a condition has no subqueries: the function asks
		old, fresh, both = "", "", ""
	}
	add("i", "after insert", "row", fresh)
	add("u", "after update", "row", both)
	add("d", "after delete", "row", old)
	add("t", "before truncate", "statement", "")
	return list
}

// define makes the function of a fence, or replaces it.
func define(function, body string) string {
	return fmt.Sprintf(`create or replace function %s returns trigger language plpgsql security definer set search_path = pg_catalog as $instar$%s$instar$`, function, body)
}

// Through makes a transaction one of the current attempt, whose writes pass the fence.
func (s *Source) Through(ctx context.Context, tx pgx.Tx) error {
	if err := s.take(ctx, tx); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, `select set_config('instar.fence', $1, true)`, s.mark()); err != nil {
		return err
	}
	return pg.Brief(ctx, tx, copying)
}

// eachTable runs statements on one table as the current attempt. It waits a second at a time for the table: who waits for its lock keeps
// all others from it. So does who has it, on a node that is frozen: the statements are sent at once, and nobody waits longer than a few seconds for the commit.
func (s *Source) eachTable(ctx context.Context, conn *pgx.Conn, t *catalog.Table, before func(context.Context, pgx.Tx) error, statements []string) error {
	err := pg.Patiently(ctx, conn, func(tx pgx.Tx) error {
		if err := s.take(ctx, tx); err != nil {
			return err
		}
		if before != nil {
			if err := before(ctx, tx); err != nil {
				return err
			}
		}
		_, err := tx.Exec(ctx, pg.ForAMoment+`set local idle_in_transaction_session_timeout = '5s'; `+strings.Join(statements, "; "))
		return err
	})
	if pg.State(err) != "" && ctx.Err() != nil {
		err = fmt.Errorf("%w: a transaction has been writing to %s all the time", ctx.Err(), t)
	}
	return err
}
