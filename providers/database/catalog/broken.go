package catalog

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/bcc94042/instar/providers/database/pg"
)

// Broken says which demands the tables of another database make that those of the shared one do not, and that rows of the tenant break: that a column is never null, that a check holds, that an index has a key once.
// Only those demands are asked of the rows. It sees none that cannot be asked in the shared database, as a check by a function that is not there, and no exclusion constraint or type of one's own.
func Broken(ctx context.Context, source, target *pgx.Conn, tables []*Table, enterprise string) (list []Problem, err error) {
	for _, t := range tables {
		here, err := demands(ctx, source, t, true)
		if err != nil {
			return nil, err
		}
		there, err := demands(ctx, target, t, false)
		if err != nil {
			return nil, fmt.Errorf("target: %w", err)
		}
		for _, what := range slices.Sorted(maps.Keys(there)) {
			if _, same := here[what]; same {
				continue
			}
			var broken bool
			// offset keeps the planner from asking rows of others first, which may fail a check with an error.
			err := source.QueryRow(ctx, fmt.Sprintf(`select exists (select from (select * from %[1]s %[2]s where %[3]s offset 0) %[2]s where %[4]s)`, t.Quoted(), Alias, t.Where(enterprise), there[what])).Scan(&broken)
			switch {
			case strings.HasPrefix(pg.State(err), "42"): // a function, a column or a type that is not here
			case err != nil:
				return nil, fmt.Errorf("cannot read which rows of %s break %s: %w", t, what, err)
			case broken:
				list = append(list, Problem{Table: t.String(), Reason: "rows of the tenant break what the shared database does not demand: " + what})
			}
		}
	}
	return list, nil
}

// demands are those of a table, each with the condition of rows that break it: those that are made of new rows, or only those that all rows are known to meet.
func demands(ctx context.Context, conn *pgx.Conn, t *Table, met bool) (broken map[string]string, err error) {
	rows, err := conn.Query(ctx, `
		select attname || ' is never null', format('%I is null', attname) from pg_attribute where attrelid = $1::text::regclass and attnum > 0 and not attisdropped and attnotnull
			and not ($2 and exists (select from pg_constraint where conrelid = attrelid and contype = 'n' and conkey = array[attnum] and not convalidated))
		union all select 'check (' || pg_get_expr(conbin, conrelid) || ')', 'not (' || pg_get_expr(conbin, conrelid) || ')' from pg_constraint where conrelid = $1::text::regclass and contype = 'c' and (convalidated or not $2)
		union all select 'unique (' || keys || ')' || coalesce(' where ' || pg_get_expr(indpred, indrelid), ''),
			coalesce('(' || pg_get_expr(indpred, indrelid) || ') and ', '') || case when to_jsonb(i) ->> 'indnullsnotdistinct' = 'true' then 'true' else 'row(' || keys || ') is not null' end
				|| ' group by ' || keys || ' having count(*) > 1'
		from pg_index i, lateral (select string_agg(pg_get_indexdef(indexrelid, n, true), ', ' order by n) from generate_series(1, indnkeyatts) n) k (keys) where indrelid = $1::text::regclass and indisunique
			and (indisvalid and indisready or not $2)`, t.Quoted(), met)
	if err != nil {
		return nil, err
	}
	broken = map[string]string{}
	var what, condition string
	_, err = pgx.ForEachRow(rows, []any{&what, &condition}, func() error {
		broken[what] = condition
		return nil
	})
	return broken, err
}
