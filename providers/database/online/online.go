// Package online copies a tenant's rows while it is written to: by a row-filtered publication in the shared database and a subscription in
// the tenant's own, both of Postgres itself.
//
// The contract:
//   - Publication, slot and subscription have names made of the session, are found again, and are removed by [Link.Remove] in the order in
//     which nothing is left: also the slots of the initial copies of single tables.
//   - Sessions subscribe one after the other on the server of the target, by a lock in the database that its address names: none counts on the workers that another one takes.
//   - Only tables of kind tenant are replicated: a filter has no subqueries. A second slot notes the keys of all rows that are written
//     ([Link.Note], [Link.Touched], [Link.Forget]), so that children are copied again row by row, and nothing else has to be compared under the fence.
//   - [Link.Mark] writes a marker into a table of the publication. [Link.Arrived] returns when it is in the target, and with it all that was
//     committed before; [Link.Touched] ends there, so that it ends however much is written meanwhile.
//   - The target connects to the source: the address for it may differ from the one that this program uses. It is stored in the target,
//     where superusers can read it.
package online

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"github.com/bcc94042/instar/internal/wait"
	"github.com/bcc94042/instar/providers/database/catalog"
	"github.com/bcc94042/instar/providers/database/pg"
)

// Link is the replication of one session.
type Link struct {
	Source, Target pg.Address
	From           string // the address of the source, for the target; that of Source when empty
	Session        string
	Enterprise     string
	Tables         []*catalog.Table
	Patience       time.Duration // how long initial copies may fail, and get no further; 0 is a minute
}

// Name is that of publication, slot and subscription.
func (l *Link) Name() string {
	sum := sha256.Sum256([]byte(l.Session))
	return "instar_" + hex.EncodeToString(sum[:8])
}

// Names are those of its slots, and of its publications: of what is replicated, and of what notes which rows are written.
func (l *Link) Names() []string { return []string{l.Name(), l.notes()} }

func (l *Link) replicated() []*catalog.Table {
	var list []*catalog.Table
	for _, t := range l.Tables {
		if t.Kind == catalog.Tenant {
			list = append(list, t)
		}
	}
	return list
}

func (l *Link) on(ctx context.Context, a pg.Address, do func(*pgx.Conn) error) error {
	if a.Name == "" {
		a.Name = "instar online " + l.Session
	}
	conn, err := pg.Connect(ctx, a)
	if err != nil {
		return err
	}
	defer pg.Close(conn)
	return do(conn)
}

// Check says why the source cannot be replicated from.
func (l *Link) Check(ctx context.Context) (problems []string, err error) {
	err = l.on(ctx, l.Source, func(conn *pgx.Conn) error {
		var level string
		if err := conn.QueryRow(ctx, `select current_setting('wal_level')`).Scan(&level); err != nil {
			return err
		}
		if level != "logical" {
			problems = append(problems, fmt.Sprintf("wal_level of the source is %s, and has to be logical", level))
		}
		if err := l.checkRoom(ctx, conn, &problems); err != nil {
			return err
		}
		if err := l.checkReader(ctx, conn, &problems); err != nil {
			return err
		}
		return l.checkNotes(ctx, conn, &problems)
	})
	return problems, err
}

// CheckTables names the tables of which it could not be seen which rows are written. [Link.Check] does, too; a table may have come since.
func (l *Link) CheckTables(ctx context.Context) (problems []string, err error) {
	err = l.on(ctx, l.Source, func(conn *pgx.Conn) error { return l.checkNotes(ctx, conn, &problems) })
	return problems, err
}

// checkNotes: of rows of tenants the log has to tell all.
func (l *Link) checkNotes(ctx context.Context, conn *pgx.Conn, problems *[]string) error {
	for _, t := range l.Tables {
		if t.Kind != catalog.Tenant && t.Kind != catalog.Child {
			continue
		}
		if n := slices.IndexFunc(t.Key, func(c catalog.Column) bool { return c.Generated }); n >= 0 {
			*problems = append(*problems, fmt.Sprintf("%s: its key has the generated column %s, so that it cannot be seen which rows are written: move it offline", t, t.Key[n].Name))
			continue
		}
		told, err := ask(ctx, conn, t, tells)
		if err != nil {
			return err
		}
		if !told {
			*problems = append(*problems, fmt.Sprintf("%s: its replica identity does not have its key (%s), so that it cannot be seen which rows are deleted: ALTER TABLE %s REPLICA IDENTITY FULL, or use an index that has it", t, strings.Join(names(t.Key), ", "), t.Quoted()))
		}
		if t.Parent == nil {
			continue
		}
		for _, on := range t.Parent.On {
			if !slices.ContainsFunc(t.Parent.To.Key, func(c catalog.Column) bool { return c.Name == on }) {
				*problems = append(*problems, fmt.Sprintf("%s: its foreign key %s leads to %s.%s, which is not of its key: move it offline", t, t.Parent.Name, t.Parent.To, on))
			}
		}
	}
	return nil
}

// Publish makes the publication.
func (l *Link) Publish(ctx context.Context) error {
	return l.on(ctx, l.Source, func(conn *pgx.Conn) error {
		if err := l.admit(ctx, conn); err != nil {
			return err
		}
		var there bool
		if err := conn.QueryRow(ctx, `select exists (select from pg_publication where pubname = $1)`, l.Name()).Scan(&there); err != nil || there {
			return err
		}
		list := []string{fmt.Sprintf(`table instar.marker where (session = %s)`, pg.Literal(l.Session))}
		for _, t := range l.replicated() {
			list = append(list, fmt.Sprintf(`table %s where (%s)`, t.Quoted(), t.WhereAs(pg.Ident(t.Name), l.Enterprise)))
		}
		_, err := conn.Exec(ctx, fmt.Sprintf(`create publication %s for %s with (publish = 'insert, update, delete')`, pg.Ident(l.Name()), strings.Join(list, ", ")))
		if err != nil {
			return fmt.Errorf("cannot publish the tables: %w", err)
		}
		return nil
	})
}

// Slot makes the replication slot. It waits for transactions that are open.
func (l *Link) Slot(ctx context.Context) error {
	return l.on(ctx, l.Source, func(conn *pgx.Conn) error {
		_, err := l.lag(ctx, conn)
		if !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
		if _, err := conn.Exec(ctx, `select pg_create_logical_replication_slot($1, 'pgoutput')`, l.Name()); err != nil {
			return fmt.Errorf("cannot make the replication slot: %w", err)
		}
		return nil
	})
}

// lag is how many bytes of the log the target has not confirmed. Of a slot that was lost, nothing comes any more.
func (l *Link) lag(ctx context.Context, conn *pgx.Conn) (bytes int64, err error) {
	var lost bool
	err = conn.QueryRow(ctx, `select coalesce(pg_wal_lsn_diff(pg_current_wal_lsn(), confirmed_flush_lsn), 0)::bigint, coalesce(wal_status = 'lost', false) from pg_replication_slots where slot_name = $1`, l.Name()).Scan(&bytes, &lost)
	if err == nil && lost {
		err = pg.Refuse("the replication slot %s was lost: the target was away for longer than the source keeps its log (max_slot_wal_keep_size). Roll back, and request again", l.Name())
	}
	return bytes, err
}

// behind is the same for those who need the slot.
func (l *Link) behind(ctx context.Context) (bytes int64, err error) {
	err = l.on(ctx, l.Source, func(conn *pgx.Conn) error {
		bytes, err = l.lag(ctx, conn)
		if errors.Is(err, pgx.ErrNoRows) {
			err = pg.Refuse("the replication slot %s has gone, as in a failover of the source. Retry the copy; from the comparison on, roll back, and request again", l.Name())
		}
		return err
	})
	return bytes, err
}

// Status is how far the replication is.
type Status struct {
	Tables  int      // that are replicated
	Lag     int64    // bytes of WAL that the target has not confirmed
	Copying int64    // rows of the tables that are being copied
	Bytes   int64    // that all of them take in the target
	Whole   []string // tables whose initial copy is done, as [catalog.Table.String] names them
	Open    []string // those whose is not
}

// Status asks both sides.
func (l *Link) Status(ctx context.Context) (s Status, err error) {
	err = l.on(ctx, l.Target, func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx, `
			select coalesce(array_agg(name) filter (where whole), '{}'), coalesce(array_agg(name order by name) filter (where not whole), '{}'), count(*),
				coalesce((select sum(tuples_processed)::bigint from pg_stat_progress_copy where datname = current_database()), 0), coalesce(sum(pg_table_size(oid)), 0)::bigint
			from (select c.oid, case nspname when 'public' then '' else nspname || '.' end || relname as name, r.srsubstate in ('r', 's') as whole from pg_subscription_rel r join pg_subscription s on s.oid = r.srsubid join pg_class c on c.oid = r.srrelid join pg_namespace n on n.oid = c.relnamespace where s.subname = $1) t`, l.Name()).Scan(&s.Whole, &s.Open, &s.Tables, &s.Copying, &s.Bytes)
	})
	if err != nil {
		return s, err
	}
	s.Lag, err = l.behind(ctx)
	return s, err
}

// AwaitCopy returns when the initial copy of every table is done, and fails where Postgres fails to do one again and again, and none gets any further, or where no worker is left for one.
func (l *Link) AwaitCopy(ctx context.Context) error {
	refused, stands := refusals{patience: l.patience()}, standstill{}
	for {
		s, err := l.Status(ctx)
		if err != nil {
			return err
		}
		if s.Tables > 0 && len(s.Whole) == s.Tables {
			return nil
		}
		var errors int64
		var w workers
		err = l.on(ctx, l.Target, func(conn *pgx.Conn) (err error) {
			if errors, _, err = l.errors(ctx, conn); err == nil {
				w, err = l.workers(ctx, conn)
			}
			return err
		})
		if err != nil {
			return err
		}
		if refused.many(time.Now(), len(s.Whole), s.Copying, errors) {
			return s.refused()
		}
		if stands.long(time.Now(), &w, l.patience()) {
			return w.refused(s.Open)
		}
		if err := wait.Pause(ctx, 100*time.Millisecond); err != nil {
			return fmt.Errorf("%d of %d tables were copied: %w", len(s.Whole), s.Tables, err)
		}
	}
}

// Mark is a place in the log of the source: everything that was committed before it was made lies before it.
type Mark struct {
	At    pglogrepl.LSN
	token string
}

// Mark makes a mark.
func (l *Link) Mark(ctx context.Context) (m Mark, err error) {
	m.token = rand.Text()
	err = l.on(ctx, l.Source, func(conn *pgx.Conn) error {
		if _, err := conn.Exec(ctx, `insert into instar.marker (session, token) values ($1, $2) on conflict (session) do update set token = $2, set_at = now()`, l.Session, m.token); err != nil {
			return err
		}
		// The commit has waited for the log, and so for all before it, also of those who do not wait for theirs: only what is flushed can be read.
		var at string
		if err := conn.QueryRow(ctx, `select pg_current_wal_flush_lsn()::text`).Scan(&at); err != nil {
			return err
		}
		m.At, err = pglogrepl.ParseLSN(at)
		return err
	})
	if err != nil {
		return Mark{}, fmt.Errorf("cannot mark where the source is: %w", err)
	}
	return m, nil
}

// Arrived returns when the target has what was committed in the source before the mark was made, and fails where the target refuses it again and again, or the source has nothing more for it.
func (l *Link) Arrived(ctx context.Context, m Mark) error {
	return l.on(ctx, l.Target, func(conn *pgx.Conn) error {
		var refused refusals
		for n := 0; ; n++ {
			var there bool
			if err := conn.QueryRow(ctx, `select exists (select from instar.marker where session = $1 and token = $2)`, l.Session, m.token).Scan(&there); err != nil {
				return err
			}
			if there {
				return nil
			}
			if n%100 == 99 { // the tenant may wait for this
				_, errors, err := l.errors(ctx, conn)
				if err != nil {
					return err
				}
				if err := l.ended(ctx); err != nil {
					return err
				}
				if refused.many(time.Now(), 0, 0, errors) {
					return pg.Later(5*time.Second, "the tenant's database refuses what was written in the shared one: the log of its server says why")
				}
			}
			if err := wait.Pause(ctx, 5*time.Millisecond); err != nil {
				return fmt.Errorf("the target has not caught up: %w", err)
			}
		}
	})
}

// ended says why nothing more comes. A source that is away for a moment is none, as the target comes back to it.
func (l *Link) ended(ctx context.Context) error {
	_, err := l.behind(ctx)
	if again, _ := pg.Transient(err); again {
		return nil
	}
	return err
}

// CatchUp returns when the target has what was committed in the source until now.
func (l *Link) CatchUp(ctx context.Context) error {
	m, err := l.Mark(ctx)
	if err != nil {
		return err
	}
	return l.Arrived(ctx, m)
}
