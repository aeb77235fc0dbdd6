package mover

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/bcc94042/instar/providers/database/pg"
)

// Known are the tables that an earlier attempt of this session has found to be the same on both sides, with their rows: the ranges that were copied, or copied again, are all that they have.
func (m *Mover) Known(ctx context.Context) (rows map[string]int64, err error) {
	conn, err := m.target(ctx)
	if err != nil {
		return nil, err
	}
	defer pg.Close(conn)
	found, err := conn.Query(ctx, `
		select m.table_name, coalesce(sum(r.rows), 0)::bigint from instar.moved m left join instar.range r using (table_name) where m.session = $1 and m.verified_at is not null group by 1`, m.Session)
	if err != nil {
		return nil, err
	}
	rows = map[string]int64{}
	var table string
	var n int64
	_, err = pgx.ForEachRow(found, []any{&table, &n}, func() error {
		rows[table] = n
		return nil
	})
	return rows, err
}

// Doubt forgets which tables were found to be the same.
func (m *Mover) Doubt(ctx context.Context) error {
	conn, err := m.target(ctx)
	if err != nil {
		return err
	}
	defer pg.Close(conn)
	return m.fenced(ctx, conn, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `update instar.moved set verified_at = null where session = $1 and verified_at is not null`, m.Session)
		return err
	})
}
