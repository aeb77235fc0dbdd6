package database

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/bcc94042/instar/providers/database/cutover"
	"github.com/bcc94042/instar/providers/database/pg"
)

// Routes are where the tenants are whose databases this server has, and those that are in none. Where nothing was moved yet there are none.
func (p *Provider) Routes(ctx context.Context) (list []Route, err error) {
	sealed, err := p.Server.Sealed(ctx)
	if pg.NotSetUp(err) || err == nil && len(sealed) == 0 {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	conn, err := pg.Connect(ctx, p.Source)
	if err != nil {
		return nil, fmt.Errorf("source: %w", err)
	}
	defer pg.Close(conn)
	rows, err := conn.Query(ctx, `
		select a.enterprise_id, coalesce(r.isolation_mode::text, 'shared'), coalesce(r.database_id, ''), coalesce(r.database_host, ''), coalesce(r.database_name, ''), coalesce(r.status::text, 'active'),
			coalesce(r.epoch, a.epoch) from instar.attempt a left join public.tenant_runtime r on `+cutover.SameTenant("public.tenant_runtime")+` where a.epoch > 0 order by 1`)
	if err == nil {
		list, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (r Route, err error) {
			return r, row.Scan(&r.Enterprise, &r.IsolationMode, &r.DatabaseID, &r.DatabaseHost, &r.DatabaseName, &r.Status, &r.Epoch)
		})
	}
	if pg.NotSetUp(err) { // what the server has is of another source, or only a template
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	own := list[:0]
	for _, r := range list {
		text, here := sealed[r.DatabaseName]
		if r.DatabaseName != "" && (!here || r.DatabaseID != p.Server.Name+"/"+r.DatabaseName) {
			continue // on another server
		}
		r.Credentials = text
		own = append(own, r)
	}
	return own, nil
}
