package cutover

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/bcc94042/instar/providers/database/pg"
)

// IsolationModes of a tenant.
const (
	Shared    = "shared"
	Dedicated = "dedicated_db"
)

// Runtime says where a tenant's data is.
type Runtime struct {
	IsolationMode string `json:"isolationMode"`
	DatabaseID    string `json:"databaseId,omitempty"`
	DatabaseHost  string `json:"databaseHost,omitempty"`
	DatabaseName  string `json:"databaseName,omitempty"`
	Status        string `json:"status"`
	Epoch         int64  `json:"epoch"`
}

// Previous is the row as it was: nil columns are null. Absent says that there was none.
type Previous struct {
	Absent bool            `json:"absent,omitempty"`
	Row    json.RawMessage `json:"row,omitempty"`
}

// Snapshot reads the row whole.
func (s *Source) Snapshot(ctx context.Context) (p Previous, err error) {
	err = s.with(ctx, func(conn *pgx.Conn) error {
		p, err = s.snapshot(ctx, conn)
		return err
	})
	return p, err
}

func (s *Source) snapshot(ctx context.Context, q queryer) (p Previous, err error) {
	var text string
	err = q.QueryRow(ctx, `select to_jsonb(r)::text from `+s.runtime()+` r where r.enterprise_id = $1`, s.Enterprise).Scan(&text)
	if errors.Is(err, pgx.ErrNoRows) {
		return Previous{Absent: true}, nil
	}
	return Previous{Row: json.RawMessage(text)}, err
}

// Read is what the row says now; a tenant without one is shared.
func (s *Source) Read(ctx context.Context) (r Runtime, err error) {
	err = s.with(ctx, func(conn *pgx.Conn) error {
		r, err = s.read(ctx, conn)
		return err
	})
	return r, err
}

// Named is where the row leads, see [Source.Leads].
func (s *Source) Named(ctx context.Context) (database string, err error) {
	r, err := s.named(ctx)
	return s.Leads(r), err
}

// named is what the row says of the database. The table may lack what [Source.Setup] adds.
func (s *Source) named(ctx context.Context) (r Runtime, err error) {
	err = s.with(ctx, func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx, `select coalesce(max(database_id), ''), coalesce(max(database_name), ''), coalesce(max(status::text), '') from `+s.runtime()+` where enterprise_id = $1`, s.Enterprise).Scan(&r.DatabaseID, &r.DatabaseName, &r.Status)
	})
	if pg.NotSetUp(err) {
		err = nil
	}
	return r, err
}

// Leads is the database that a row names, or "". One of another server, as its id says (SERVER/NAME), is named by that: it is another one, whatever it is called.
func (s *Source) Leads(r Runtime) string {
	if server, name, _ := strings.Cut(r.DatabaseID, "/"); s.Server != "" && server != s.Server && name != "" && name == r.DatabaseName {
		return r.DatabaseID
	}
	return r.DatabaseName
}

// Elsewhere refuses a tenant that the row leads to another database than its own, as one that was moved under another name for the same row, or by hand: its rows in the shared database are old.
func (s *Source) Elsewhere(ctx context.Context, own string) error {
	now, err := s.named(ctx)
	if err == nil {
		err = s.Foreign(now, own)
	}
	return err
}

// Foreign is the refusal of a row that leads to another database than the session's own, or nil.
func (s *Source) Foreign(r Runtime, own string) error {
	named := s.Leads(r)
	if named == "" || named == own {
		return nil
	}
	return pg.Refuse("the routing leads the tenant %s to %s, which is not this session's (%s): revert the session that has moved it there, perhaps under another name, or write its row in tenant_runtime without a database if it is to be shared", s.Enterprise, named, own)
}

// SameTenant is the condition in SQL that a row r of the table of the runtime, as SQL writes it, is that of the attempt a: as texts, as their types differ. Of a uuid, which is told in lower case, a tenant may have been moved under its name in upper case.
func SameTenant(runtime string) string {
	return `r.enterprise_id::text = case (select atttypid::regtype::text from pg_attribute where attrelid = ` + pg.Literal(runtime) + `::regclass and attname = 'enterprise_id') when 'uuid' then lower(a.enterprise_id) else a.enterprise_id end`
}

type queryer interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

func (s *Source) read(ctx context.Context, q queryer) (r Runtime, err error) {
	err = q.QueryRow(ctx, `
		select coalesce(r.isolation_mode::text, 'shared'), coalesce(r.database_id, ''), coalesce(r.database_host, ''), coalesce(r.database_name, ''), coalesce(r.status::text, 'active'), coalesce(r.epoch, 0)
		from `+s.runtime()+` r where r.enterprise_id = $1`, s.Enterprise).
		Scan(&r.IsolationMode, &r.DatabaseID, &r.DatabaseHost, &r.DatabaseName, &r.Status, &r.Epoch)
	if errors.Is(err, pgx.ErrNoRows) {
		r = Runtime{IsolationMode: Shared, Status: "active"}
		err = q.QueryRow(ctx, `select coalesce((select epoch from instar.attempt where enterprise_id = $1), 0)`, s.Enterprise).Scan(&r.Epoch)
	}
	return r, err
}

// Switch points the row to another database, or to none, under the next epoch; one that leads to a database that is not the session's own stays. A repetition finds that it was done.
func (s *Source) Switch(ctx context.Context, to Runtime, own string) (now Runtime, err error) {
	return s.change(ctx, to, func(tx pgx.Tx) error {
		now, err := s.read(ctx, tx)
		if err == nil {
			err = s.Foreign(now, own)
		}
		return err
	})
}

// UnfencedError says that the fence of a tenant does not stand where it has to. Nothing was switched.
type UnfencedError struct{ Tables []string }

func (e *UnfencedError) Error() string {
	return fmt.Sprintf("the fence does not stand on %s, as after a failover to a standby that lacked it: what was written since is not compared", strings.Join(e.Tables, ", "))
}

func (e *UnfencedError) Unwrap() error { return &pg.RefusedError{Message: e.Error()} }

// KeepAndSwitch is [Source.Switch] in one transaction with what an undo needs: the row as it was before. The first that was kept stays. Tables, as SQL writes them, have to be fenced, or it
// is an [*UnfencedError]: the source may be another server than the one that was compared. What was switched already is not asked for.
func (s *Source) KeepAndSwitch(ctx context.Context, to Runtime, tables []string) (now Runtime, err error) {
	return s.change(ctx, to, func(tx pgx.Tx) error {
		if err := s.fencedFor(ctx, tx, to, tables); err != nil {
			return err
		}
		p, err := s.snapshot(ctx, tx)
		if err != nil {
			return err
		}
		text, err := json.Marshal(p)
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `update instar.attempt set previous = $2 where enterprise_id = $1 and previous is null`, s.Enterprise, string(text))
		return cmp.Or(err, s.unsettle(ctx, tx))
	})
}

// fencedFor fails where the row would be pointed elsewhere, and tables are not fenced, or it was pointed to another database meanwhile.
func (s *Source) fencedFor(ctx context.Context, tx pgx.Tx, to Runtime, tables []string) error {
	now, err := s.read(ctx, tx)
	if to.Epoch = now.Epoch; err != nil || now == to {
		return err
	}
	if err := s.Foreign(now, to.DatabaseName); err != nil {
		return err
	}
	open, err := s.open(ctx, tx, tables)
	if err == nil && len(open) > 0 {
		err = &UnfencedError{Tables: open}
	}
	return err
}

// change does something before the row is pointed elsewhere.
func (s *Source) change(ctx context.Context, to Runtime, before func(pgx.Tx) error) (now Runtime, err error) {
	err = s.with(ctx, func(conn *pgx.Conn) error {
		return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			if err := s.take(ctx, tx); err != nil {
				return err
			}
			if err := before(tx); err != nil {
				return err
			}
			now, err = s.point(ctx, tx, to)
			return err
		})
	})
	if err != nil {
		return now, fmt.Errorf("cannot switch the runtime of %s: %w", s.Enterprise, err)
	}
	return now, nil
}

func (s *Source) point(ctx context.Context, tx pgx.Tx, to Runtime) (now Runtime, err error) {
	if now, err = s.read(ctx, tx); err != nil {
		return now, err
	}
	to.Epoch = now.Epoch
	if now == to {
		return now, nil
	}
	if to.Epoch, err = s.nextEpoch(ctx, tx, now.Epoch); err != nil {
		return now, err
	}
	// Another session that names the tenant in another way, or somebody by hand, may change the row after it was read: then it is not what was looked at.
	tag, err := tx.Exec(ctx, `
		insert into `+s.runtime()+` as r (enterprise_id, isolation_mode, database_id, database_host, database_name, status, updated_at, epoch)
		values ($1, $2, nullif($3, ''), nullif($4, ''), nullif($5, ''), $6, now(), $7)
		on conflict (enterprise_id) do update set isolation_mode = $2, database_id = nullif($3, ''), database_host = nullif($4, ''), database_name = nullif($5, ''),
			status = $6, updated_at = now(), epoch = $7
		where (coalesce(r.database_id, ''), coalesce(r.database_name, '')) = ($8, $9)`,
		s.Enterprise, to.IsolationMode, to.DatabaseID, to.DatabaseHost, to.DatabaseName, to.Status, to.Epoch, now.DatabaseID, now.DatabaseName)
	if err != nil || tag.RowsAffected() > 0 {
		return to, err
	}
	return now, s.changed(ctx, tx, to.DatabaseName)
}

// changed is why a row is not as it was read a moment ago.
func (s *Source) changed(ctx context.Context, tx pgx.Tx, own string) error {
	now, err := s.read(ctx, tx)
	if err == nil {
		err = s.Foreign(now, own)
	}
	return cmp.Or(err, pg.Later(0, "the row of the tenant %s was changed meanwhile", s.Enterprise))
}

// Renew leaves the row as it is, under the next epoch, which is above one that was seen elsewhere: something about the database has changed that it does not say.
func (s *Source) Renew(ctx context.Context, seen int64) (now Runtime, err error) {
	err = s.with(ctx, func(conn *pgx.Conn) error {
		return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			if err := s.take(ctx, tx); err != nil {
				return err
			}
			if now, err = s.read(ctx, tx); err != nil {
				return err
			}
			if now.Epoch, err = s.nextEpoch(ctx, tx, max(now.Epoch, seen)); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, `update `+s.runtime()+` set epoch = $2, updated_at = now() where enterprise_id = $1`, s.Enterprise, now.Epoch)
			return err
		})
	})
	if err != nil {
		return now, fmt.Errorf("cannot renew the runtime of %s: %w", s.Enterprise, err)
	}
	return now, nil
}

// nextEpoch is above all that the tenant had.
func (s *Source) nextEpoch(ctx context.Context, tx pgx.Tx, seen int64) (epoch int64, err error) {
	err = tx.QueryRow(ctx, `update instar.attempt set epoch = greatest(epoch, $2) + 1 where enterprise_id = $1 returning epoch`, s.Enterprise, seen).Scan(&epoch)
	return epoch, err
}

// Restore gives the row back what the switch has changed in it, under the next epoch; one that leads to a database that is not the session's own stays, and so does what the application has changed since, a status included. A repetition finds that it was done.
func (s *Source) Restore(ctx context.Context, p Previous, own string) (now Runtime, err error) {
	err = s.with(ctx, func(conn *pgx.Conn) error {
		return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			if err := s.take(ctx, tx); err != nil {
				return err
			}
			if now, err = s.read(ctx, tx); err != nil {
				return err
			}
			if err := s.restore(ctx, tx, p, now, own); err != nil {
				return err
			}
			now, err = s.read(ctx, tx)
			return err
		})
	})
	if err != nil {
		return now, fmt.Errorf("cannot restore the runtime of %s: %w", s.Enterprise, err)
	}
	return now, nil
}

// routed are the columns that a switch writes, but for the epoch, which never goes back, and the status, which it makes [switched].
var routed = []string{"isolation_mode", "database_id", "database_host", "database_name", "updated_at"}

const switched = "active"

// ofRoute are these columns of a row.
func ofRoute(row string) string {
	list := make([]string, len(routed))
	for i, c := range routed {
		list[i] = row + "->'" + c + "'"
	}
	return "jsonb_build_array(" + strings.Join(list, ", ") + ")"
}

func (s *Source) restore(ctx context.Context, tx pgx.Tx, p Previous, now Runtime, own string) error {
	if p.Absent {
		if err := s.Foreign(now, own); err != nil {
			return err
		}
		var left bool
		tag, err := tx.Exec(ctx, `delete from `+s.runtime()+` r where enterprise_id = $1 and (coalesce(r.database_id, ''), coalesce(r.database_name, '')) = ($2, $3)`, s.Enterprise, now.DatabaseID, now.DatabaseName)
		if err == nil && tag.RowsAffected() > 0 {
			_, err = s.nextEpoch(ctx, tx, now.Epoch)
		} else if err == nil {
			err = tx.QueryRow(ctx, `select exists (select from `+s.runtime()+` where enterprise_id = $1)`, s.Enterprise).Scan(&left)
		}
		if err == nil && left {
			err = s.changed(ctx, tx, own)
		}
		return err
	}
	var same bool
	err := tx.QueryRow(ctx, `select coalesce((select `+ofRoute("to_jsonb(r)")+` = `+ofRoute("$2::text::jsonb")+` and (coalesce(r.status::text, '') <> $3 or coalesce(r.status::text, '') = coalesce($2::text::jsonb->>'status', '')) from `+s.runtime()+` r where r.enterprise_id = $1), false)`,
		s.Enterprise, string(p.Row), switched).Scan(&same)
	if err == nil && !same {
		err = s.Foreign(now, own)
	}
	if err != nil || same {
		return err
	}
	epoch, err := s.nextEpoch(ctx, tx, now.Epoch)
	if err != nil {
		return err
	}
	set := []string{"epoch = $2", "status = case when r.status = '" + switched + "' then p.status else r.status end"}
	for _, c := range routed {
		set = append(set, c+" = p."+c)
	}
	tag, err := tx.Exec(ctx, `update `+s.runtime()+` r set `+strings.Join(set, ", ")+` from jsonb_populate_record(null::`+s.runtime()+`, $3::text::jsonb) p
		where r.enterprise_id = $1 and (coalesce(r.database_id, ''), coalesce(r.database_name, '')) = ($4, $5)`, s.Enterprise, epoch, string(p.Row), now.DatabaseID, now.DatabaseName)
	if err == nil && tag.RowsAffected() == 0 {
		tag, err = s.again(ctx, tx, p, epoch)
	}
	if err == nil && tag.RowsAffected() == 0 {
		err = s.changed(ctx, tx, own)
	}
	return err
}

// again makes the row as it was, where it is gone, without columns that came since.
func (s *Source) again(ctx context.Context, tx pgx.Tx, p Previous, epoch int64) (tag pgconn.CommandTag, err error) {
	rows, err := tx.Query(ctx, `select quote_ident(attname) from pg_attribute where attrelid = $1::regclass and attnum > 0 and not attisdropped and attgenerated = '' and attidentity <> 'a'
		and attname not in ('epoch', 'enterprise_id') and $2::text::jsonb ? attname::text`, s.runtime(), string(p.Row))
	if err != nil {
		return tag, err
	}
	columns, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return tag, err
	}
	return tx.Exec(ctx, `insert into `+s.runtime()+` (enterprise_id, epoch, `+strings.Join(columns, ", ")+`) select $1, $2, p.`+strings.Join(columns, ", p.")+`
		from jsonb_populate_record(null::`+s.runtime()+`, $3::text::jsonb) p on conflict (enterprise_id) do nothing`, s.Enterprise, epoch, string(p.Row))
}

// RestoreKept restores what KeepAndSwitch has stored, and forgets it. Where nothing was kept, there is nothing to restore, unless the row leads to the session's own database: somebody has written that by hand, and the tenant is
// shared from now on. A row that leads to another one is not the session's to change: somebody has sent the tenant there by hand.
func (s *Source) RestoreKept(ctx context.Context, own string) error {
	var text *string
	err := s.with(ctx, func(conn *pgx.Conn) error {
		err := conn.QueryRow(ctx, `select previous from instar.attempt where enterprise_id = $1 and session = $2`, s.Enterprise, s.Session).Scan(&text)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		return err
	})
	if err != nil {
		return err
	}
	if text == nil {
		named, err := s.Named(ctx)
		if err == nil && named != "" {
			_, err = s.Switch(ctx, Runtime{IsolationMode: Shared, Status: "active"}, own)
		}
		return err
	}
	var p Previous
	if err := json.Unmarshal([]byte(*text), &p); err != nil {
		return fmt.Errorf("cannot read the runtime that %s had: %w", s.Enterprise, err)
	}
	if _, err := s.Restore(ctx, p, own); err != nil {
		return err
	}
	return s.with(ctx, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, `update instar.attempt set previous = null where enterprise_id = $1 and session = $2 and fence = $3`, s.Enterprise, s.Session, s.Attempt)
		return err
	})
}
