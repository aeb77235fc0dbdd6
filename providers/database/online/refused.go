package online

import (
	"context"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/bcc94042/instar/providers/database/pg"
)

// Postgres repeats for ever what it cannot copy or apply, and says why in its log alone. It counts that, though (from version 15 on), so that a move fails before its time is over.

// mostErrors are those of a subscription after which it is not waited for any more: what is applied fails once in wal_retrieve_retry_interval (5 s), and a connection that was lost once is none to end a move for.
const mostErrors = 5

// errors are those of the initial copies, and of what is applied, since there is the subscription. One that is disabled gets no further.
func (l *Link) errors(ctx context.Context, conn *pgx.Conn) (copied, applied int64, err error) {
	if there, enabled, err := l.subscribed(ctx, conn); err != nil {
		return 0, 0, err
	} else if there && !enabled {
		return 0, 0, pg.Later(time.Second, "the subscription %[1]s was disabled, by hand or by Postgres, whose log says why: ALTER SUBSCRIPTION %[1]s ENABLE in the tenant's database", l.Name())
	}
	var counts bool
	if err := conn.QueryRow(ctx, `select to_regclass('pg_catalog.pg_stat_subscription_stats') is not null`).Scan(&counts); err != nil || !counts {
		return 0, 0, err
	}
	err = conn.QueryRow(ctx, `select coalesce(sum(t.sync_error_count), 0)::bigint, coalesce(sum(t.apply_error_count), 0)::bigint
		from pg_stat_subscription_stats t join pg_subscription s on s.oid = t.subid join pg_database d on d.oid = s.subdbid where s.subname = $1 and d.datname = current_database()`, l.Name()).Scan(&copied, &applied)
	return copied, applied, err
}

// refusals tells when errors go on too long since it last came further. Each table is tried again by itself, so that five may fail in one moment, as by a lack of slots, which ends by itself: of copies, patience is what tells that from what lasts.
type refusals struct {
	patience time.Duration // from the first of them on

	known        bool
	tables       int   // that were whole when it last came further
	rows         int64 // the most that were read of those that were not: a copy that fails begins anew
	errors, last int64
	since        time.Time
}

// many is asked again and again, with the tables that are whole, the rows of those that are being copied, and the errors of the subscription.
func (r *refusals) many(now time.Time, tables int, rows, errors int64) bool {
	if !r.known || tables > r.tables || rows > r.rows {
		*r = refusals{patience: r.patience, known: true, tables: tables, rows: rows, errors: errors, last: errors}
		return false
	}
	rises := errors > r.last
	if rises && r.since.IsZero() {
		r.since = now
	}
	r.last = errors
	return rises && errors-r.errors >= mostErrors && now.Sub(r.since) >= r.patience
}

// refused is the error of tables that Postgres does not get whole.
func (s *Status) refused() error {
	return pg.Later(5*time.Second, "Postgres has failed to copy %s: the log of the tenant's server says why, such as a row that the tenant's database refuses, a table that the role of tenants.source.from may not read, or a lack of replication slots", strings.Join(s.Open, ", "))
}

// pair is one of those that the text of a connection may be made of; a backslash in its value stands before a character that is meant as it is.
var (
	pair    = regexp.MustCompile(`(\w+)\s*=\s*(?:'((?:[^'\\]|\\.)*)'|((?:[^\s\\]|\\.)*))`)
	escaped = regexp.MustCompile(`\\(.)`)
)

// named is the user in the text of a connection, as libpq finds it there, or empty. Nothing else of it is read: its files are those of the tenant's server.
func named(text string) (user string) {
	_, rest, is := strings.Cut(text, "://")
	if !is || !strings.HasPrefix(text, "postgres://") && !strings.HasPrefix(text, "postgresql://") {
		for _, p := range pair.FindAllStringSubmatch(text, -1) {
			if p[1] == "user" {
				user = escaped.ReplaceAllString(p[2]+p[3], "$1")
			}
		}
		return user
	}
	if i := strings.IndexAny(rest, "@/"); i >= 0 && rest[i] == '@' {
		user, _, _ = strings.Cut(rest[:i], ":")
		user, _ = url.PathUnescape(user)
		rest = rest[i:]
	}
	_, query, _ := strings.Cut(rest, "?")
	if q, _ := url.ParseQuery(strings.ReplaceAll(query, "+", "%2B")); q.Has("user") {
		user = q.Get("user")
	}
	return user
}

// role is the one as whom the target enters the source, or "" where that is not known, as the server of the tenant finds one, or it is the one that makes the publication.
func (l *Link) role(ctx context.Context, conn *pgx.Conn) (role string, err error) {
	user := named(l.From)
	if user == "" {
		return "", nil
	}
	err = conn.QueryRow(ctx, `select coalesce((select rolname::text from pg_roles where rolname = $1 and rolname <> current_user), '')`, user).Scan(&role)
	return role, err
}

// checkReader says what the role lacks as whom the target reads the source.
func (l *Link) checkReader(ctx context.Context, conn *pgx.Conn, problems *[]string) error {
	role, err := l.role(ctx, conn)
	if err != nil || role == "" {
		return err
	}
	var tables []string
	for _, t := range l.replicated() {
		tables = append(tables, t.Quoted())
	}
	rows, err := conn.Query(ctx, `
		select format(gives, r.rolname, name) from pg_roles r, lateral (
			select rolreplication or exists (select from pg_roles m where m.rolname in ('rds_replication', 'rds_superuser') and pg_has_role(r.oid, m.oid, 'USAGE')), 'ALTER ROLE %1$I REPLICATION', ''
			union all select distinct has_schema_privilege(r.oid, c.relnamespace, 'USAGE'), 'GRANT USAGE ON SCHEMA %2$s TO %1$I', c.relnamespace::regnamespace::text from pg_class c where c.oid = any($2::text[]::regclass[])
			union all select not exists (select from pg_attribute a where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped and not has_column_privilege(r.oid, c.oid, a.attnum, 'SELECT')), 'GRANT SELECT ON %2$s TO %1$I', c.oid::regclass::text
				from pg_class c where c.oid = any($2::text[]::regclass[])
		) as needs (has, gives, name) where r.rolname = $1 and not r.rolsuper and not has order by 1`, role, tables)
	if err != nil {
		return err
	}
	lacks, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err == nil && len(lacks) > 0 {
		*problems = append(*problems, "the role of tenants.source.from lacks: "+strings.Join(lacks, ", "))
	}
	return err
}

// admit lets the role read the marker, as whom the target reads the source: nobody else can, as it is made by this program.
func (l *Link) admit(ctx context.Context, conn *pgx.Conn) error {
	role, err := l.role(ctx, conn)
	if err != nil || role == "" {
		return err
	}
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error { return admitTo(ctx, tx, role) })
}

// admitTo grants it, one session after the other: Postgres refuses two who grant the same at once.
func admitTo(ctx context.Context, tx pgx.Tx, role string) error {
	if err := pg.Alone(ctx, tx, "instar.marker"); err != nil {
		return err
	}
	var reads bool
	if err := tx.QueryRow(ctx, `select has_schema_privilege($1, 'instar', 'USAGE') and has_table_privilege($1, 'instar.marker', 'SELECT')`, role).Scan(&reads); err != nil || reads {
		return err
	}
	if _, err := tx.Exec(ctx, fmt.Sprintf(`grant usage on schema instar to %[1]s; grant select on instar.marker to %[1]s`, pg.Ident(role))); err != nil {
		return fmt.Errorf("cannot let the role of tenants.source.from read the marker: %w", err)
	}
	return nil
}
