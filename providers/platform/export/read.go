package export

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/bcc94042/instar/providers"
	"github.com/bcc94042/instar/providers/database/pg"
	"github.com/bcc94042/instar/providers/platform/storage"
)

// tables writes all tables of a database, in one snapshot. A partitioned one has the rows of its partitions; one that others inherit from has its own alone.
func tables(ctx context.Context, dir string, at pg.Address, m *Manifest) error {
	conn, err := pg.Connect(ctx, at)
	if err != nil {
		return err
	}
	defer pg.Close(conn)
	return pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		// A policy is the tenant's: it neither hides a row nor is run by who reads here.
		if _, err := tx.Exec(ctx, `set local row_security = off; set local search_path = pg_catalog`); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, `select n.nspname, c.relname, c.relkind = 'p' from pg_class c join pg_namespace n on n.oid = c.relnamespace
			where c.relkind in ('r', 'p') and not c.relispartition and c.relpersistence <> 't' and n.nspname <> 'information_schema' and n.nspname !~ '^pg_' order by 1, 2`)
		if err != nil {
			return err
		}
		list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[relation])
		if err != nil {
			return err
		}
		for _, r := range list {
			t, err := r.write(ctx, tx, dir)
			if err != nil {
				return fmt.Errorf("table %s: %w", t.Name, err)
			}
			m.Tables = append(m.Tables, t)
		}
		return sequences(ctx, tx, m)
	})
}

// relation is a table as it is found.
type relation struct {
	Schema, Name string
	Whole        bool // with the rows of its partitions
}

func (r *relation) write(ctx context.Context, tx pgx.Tx, dir string) (t Table, err error) {
	only := "only "
	if r.Whole {
		only = ""
	}
	t = Table{Name: r.Schema + "." + r.Name, File: filepath.Join("database", fileName(r.Schema+"."+r.Name)+".csv")}
	err = create(filepath.Join(dir, t.File), func(f *os.File) error {
		tag, err := tx.Conn().PgConn().CopyTo(ctx, f, `copy (select * from `+only+pg.Ident(r.Schema)+`.`+pg.Ident(r.Name)+`) to stdout (format csv, header)`)
		if err != nil {
			return err
		}
		t.Rows = tag.RowsAffected()
		t.Bytes, err = f.Seek(0, io.SeekCurrent)
		return err
	})
	return t, err
}

func sequences(ctx context.Context, tx pgx.Tx, m *Manifest) error {
	rows, err := tx.Query(ctx, `select schemaname || '.' || sequencename, last_value from pg_sequences where last_value is not null`)
	if err != nil {
		return err
	}
	m.Sequences = map[string]int64{}
	var name string
	var last int64
	_, err = pgx.ForEachRow(rows, []any{&name, &last}, func() error {
		m.Sequences[name] = last
		return nil
	})
	return err
}

// objects writes all objects of a bucket; the store compares what each has with its digest.
func (f *Files) objects(ctx context.Context, dir string, bucket storage.Bucket, m *Manifest) error {
	err := f.Buckets.Read(ctx, bucket, func(at storage.Object) error {
		if at.Link != nil {
			m.Links = append(m.Links, Link{Name: at.Name, Bucket: at.Link.Bucket, Object: at.Link.Object})
			return nil
		}
		o := Object{Name: at.Name, File: filepath.Join("bucket", fileName(at.Name)), Bytes: at.Bytes, Digest: at.Digest}
		err := create(filepath.Join(dir, o.File), func(file *os.File) error {
			from, err := at.Open()
			if err != nil {
				return err
			}
			if o.Digest != "" {
				_, err = io.Copy(file, from)
			} else {
				sum := sha256.New()
				_, err = io.Copy(io.MultiWriter(file, sum), from)
				o.Digest = "SHA-256=" + base64.URLEncoding.EncodeToString(sum.Sum(nil))
			}
			return errors.Join(err, from.Close())
		})
		if err != nil {
			return fmt.Errorf("object %q: %w", at.Name, err)
		}
		m.Objects = append(m.Objects, o)
		return nil
	})
	if providers.IsNotFound(err) {
		return providers.Errorf(providers.Invalid, "the bucket %s is not there any more; skip export_data where somebody has saved it", bucket.Name)
	}
	return err
}

// longestName leaves room for what comes behind it.
const longestName = 200

// fileName is one for a name of the tenant's, which may have anything in it. Two names have two.
func fileName(name string) string {
	if name == "" {
		return "%" // which no name is escaped to
	}
	file := url.PathEscape(name)
	if strings.HasPrefix(file, ".") {
		file = "%2E" + file[1:]
	}
	if len(file) > longestName {
		h := fnv.New128a()
		_, _ = h.Write([]byte(name)) // never fails
		file = fmt.Sprintf("%s-%x", file[:longestName-33], h.Sum(nil))
	}
	return file
}
