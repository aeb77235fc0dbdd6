package catalog

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/bcc94042/instar/providers/database/pg"
)

// relation is a table as the catalogue has it.
type relation struct {
	OID          uint32
	Schema, Name string
	Kind         string // r, p, f
	Rows         int64
	Persistence  string
	Inherits     bool
	Policies     bool // of row-level security, for this role
	Replica      string
	Partitions   int // whose own replica identity does not have the columns
}

// read fills a report with all tables of the schemas.
func (i *inspection) read(ctx context.Context) error {
	for _, step := range []func(context.Context) error{i.relations, i.columns, i.keys, i.sequences, i.foreignKeys, i.others} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// tables are those of a database, but partitions, and what extensions and goose have made.
const tables = `from pg_class c join pg_namespace n on n.oid = c.relnamespace
		where c.relkind in ('r', 'p', 'f') and not c.relispartition
			and not exists (select from pg_depend d where d.classid = 'pg_class'::regclass and d.objid = c.oid and d.deptype = 'e')
			and c.relname <> 'goose_db_version'`

func (i *inspection) relations(ctx context.Context) error {
	rows, err := i.conn.Query(ctx, `
		select c.oid, n.nspname, c.relname, c.relkind::text, c.reltuples::bigint, c.relpersistence::text,
			exists (select from pg_inherits h join pg_class p on p.oid = h.inhparent where (h.inhrelid = c.oid or h.inhparent = c.oid) and p.relkind = 'r'),
			c.relrowsecurity and not (select rolsuper or rolbypassrls from pg_roles where rolname = current_user) and (c.relforcerowsecurity or not pg_has_role(c.relowner, 'usage')),
			c.relreplident::text, 0
		`+tables+` and n.nspname = any ($1) order by n.nspname, c.relname`, i.schemas())
	if err != nil {
		return fmt.Errorf("cannot read the tables: %w", err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[relation])
	if err != nil {
		return fmt.Errorf("cannot read the tables: %w", err)
	}
	for n := range list {
		r := &list[n]
		t := &Table{Schema: r.Schema, Name: r.Name, Partitioned: r.Kind == "p", Rows: r.Rows, oid: r.OID}
		i.all, i.of[r.OID], i.raw[r.OID] = append(i.all, t), t, r
	}
	return nil
}

// columns: by its support function 4, btree says of a type whether values that are equal are the same. Of arrays it does not; and the hash of an enum's value is another one in each database.
func (i *inspection) columns(ctx context.Context) error {
	rows, err := i.conn.Query(ctx, `
		with recursive base (oid, typ) as (
			select t.oid, t.oid from pg_type t
			union all
			select b.oid, t.typbasetype from base b join pg_type t on t.oid = b.typ where t.typtype = 'd'
		)
		select a.attrelid, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attgenerated <> '',
			(select count(distinct m.amname) = 2 from pg_opclass o join pg_am m on m.oid = o.opcmethod left join pg_amproc f on f.amprocfamily = o.opcfamily and f.amproclefttype = o.opcintype and f.amprocrighttype = o.opcintype and f.amprocnum = 4
				where o.opcdefault and (o.opcintype = r.typ_oid or not exists (select from pg_opclass own where own.opcmethod = o.opcmethod and own.opcdefault and own.opcintype = r.typ_oid)
						and exists (select from pg_cast k where k.castsource = r.typ_oid and k.casttarget = o.opcintype and k.castmethod = 'b' and k.castcontext = 'i'))
					and case m.amname when 'hash' then true when 'btree' then f.amproc = 'btequalimage'::regproc
						or f.amproc = 'btvarstrequalimage'::regproc and exists (select from pg_collation l where l.oid = a.attcollation and l.collisdeterministic) else false end),
			r.typtype = 'c' or r.typcategory = 'A' and r.typelem >= 16384,
			a.attcollation <> 0, format_type(r.typ_oid, null), case when a.atttypmod >= 0 then a.atttypmod else d.typtypmod end, a.attnotnull and not a.atthasdef and a.attidentity = '' and d.typdefault is null
		from pg_attribute a join pg_type d on d.oid = a.atttypid join (select b.oid as attr_type, t.oid as typ_oid, t.typtype, t.typcategory, t.typelem from base b join pg_type t on t.oid = b.typ where t.typtype <> 'd') r
			on r.attr_type = a.atttypid
		where a.attrelid = any ($1) and a.attnum > 0 and not a.attisdropped
		order by a.attrelid, a.attnum`, i.oids())
	if err != nil {
		return fmt.Errorf("cannot read the columns: %w", err)
	}
	var table uint32
	var c Column
	_, err = pgx.ForEachRow(rows, []any{&table, &c.Name, &c.Type, &c.NotNull, &c.Generated, &c.Hashable, &c.Text, &c.Collated, &c.Base, &c.Modifier, &c.Required}, func() error {
		t := i.of[table]
		t.Columns = append(t.Columns, c)
		return nil
	})
	if err != nil {
		return fmt.Errorf("cannot read the columns: %w", err)
	}
	return nil
}

// keys reads of each table the primary key, else a unique index on columns that are never null; and what its replica identity has.
func (i *inspection) keys(ctx context.Context) error {
	rows, err := i.conn.Query(ctx, `
		select x.indrelid, x.indisprimary, x.indisreplident,
			(select array_agg(a.attname::text order by k.n) from unnest(x.indkey[0:x.indnkeyatts - 1]) with ordinality k (att, n) join pg_attribute a on a.attrelid = x.indrelid and a.attnum = k.att)
		from pg_index x
		where x.indrelid = any ($1) and x.indisunique and x.indisvalid and x.indimmediate and x.indpred is null and x.indexprs is null
			and not exists (select from unnest(x.indkey[0:x.indnkeyatts - 1]) k (att) join pg_attribute a on a.attrelid = x.indrelid and a.attnum = k.att where not a.attnotnull)
		order by x.indrelid, x.indisprimary desc, x.indnkeyatts, x.indexrelid`, i.oids())
	if err != nil {
		return fmt.Errorf("cannot read the keys: %w", err)
	}
	var table uint32
	var primary, replica bool
	var names []string
	_, err = pgx.ForEachRow(rows, []any{&table, &primary, &replica, &names}, func() error {
		t, r := i.of[table], i.raw[table]
		if len(t.Key) == 0 {
			for _, name := range names {
				t.Key = append(t.Key, *t.column(name))
			}
		}
		if replica || primary && r.Replica == "d" {
			i.identity[table] = names
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("cannot read the keys: %w", err)
	}
	return nil
}

func (t *Table) column(name string) *Column {
	for n := range t.Columns {
		if t.Columns[n].Name == name {
			return &t.Columns[n]
		}
	}
	return nil
}

// sequences: those that belong to a column, and those that a default takes values from.
func (i *inspection) sequences(ctx context.Context) error {
	rows, err := i.conn.Query(ctx, `
		select distinct d.table_oid, n.nspname, s.relname from (
			select refobjid as table_oid, objid as seq from pg_depend where classid = 'pg_class'::regclass and refclassid = 'pg_class'::regclass and deptype in ('a', 'i') and refobjsubid > 0
			union
			select f.adrelid, d.refobjid from pg_depend d join pg_attrdef f on f.oid = d.objid where d.classid = 'pg_attrdef'::regclass and d.refclassid = 'pg_class'::regclass
		) d join pg_class s on s.oid = d.seq and s.relkind = 'S' join pg_namespace n on n.oid = s.relnamespace
		where d.table_oid = any ($1) order by 1, 2, 3`, i.oids())
	if err != nil {
		return fmt.Errorf("cannot read the sequences: %w", err)
	}
	var table uint32
	var schema, name string
	_, err = pgx.ForEachRow(rows, []any{&table, &schema, &name}, func() error {
		t := i.of[table]
		t.Sequences = append(t.Sequences, pg.Ident(schema, name))
		return nil
	})
	if err != nil {
		return fmt.Errorf("cannot read the sequences: %w", err)
	}
	return nil
}

func (i *inspection) foreignKeys(ctx context.Context) error {
	rows, err := i.conn.Query(ctx, `
		select k.conrelid, k.confrelid, k.conname,
			(select array_agg(a.attname::text order by c.n) from unnest(k.conkey) with ordinality c (att, n) join pg_attribute a on a.attrelid = k.conrelid and a.attnum = c.att),
			(select array_agg(a.attname::text order by c.n) from unnest(k.confkey) with ordinality c (att, n) join pg_attribute a on a.attrelid = k.confrelid and a.attnum = c.att)
		from pg_constraint k where k.contype = 'f' and k.conrelid = any ($1) and k.conparentid = 0 order by k.conrelid, k.conname`, i.oids())
	if err != nil {
		return fmt.Errorf("cannot read the foreign keys: %w", err)
	}
	var from, to uint32
	var l Link
	_, err = pgx.ForEachRow(rows, []any{&from, &to, &l.Name, &l.From, &l.On}, func() error {
		link := l
		link.To = i.of[to] // nil: it leads out of the schemas
		i.links[from] = append(i.links[from], &link)
		return nil
	})
	if err != nil {
		return fmt.Errorf("cannot read the foreign keys: %w", err)
	}
	return nil
}

// others are what is in the schemas besides tables, large objects, and the names of all tables that there are.
func (i *inspection) others(ctx context.Context) error {
	if err := i.conn.QueryRow(ctx, `select exists (select from pg_largeobject_metadata), (select array_agg(n.nspname || '.' || c.relname) `+tables+`)`).Scan(&i.large, &i.AllTables); err != nil {
		return fmt.Errorf("cannot look for large objects and tables: %w", err)
	}
	rows, err := i.conn.Query(ctx, `
		select n.nspname, c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace where n.nspname = any ($1) and c.relkind = 'm' order by 1, 2`, i.schemas())
	if err != nil {
		return fmt.Errorf("cannot read the materialized views: %w", err)
	}
	var schema, name string
	_, err = pgx.ForEachRow(rows, []any{&schema, &name}, func() error {
		i.Notes = append(i.Notes, fmt.Sprintf("the materialized view %s.%s is not copied: refresh it in the tenant's database", schema, name))
		return nil
	})
	return err
}
