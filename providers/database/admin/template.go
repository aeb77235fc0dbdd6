package admin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/bcc94042/instar/providers/database/pg"
)

// TemplateName is the name of the template of a set of migrations.
func TemplateName(hash string) string { return "instar_template_" + hash }

// Template finds the closed template database of a set of migrations, or has fill make it, and notes that it is used. It is closed, because Postgres copies no
// database that somebody is connected to. It needs the register.
func (s *Server) Template(ctx context.Context, hash string, fill func(ctx context.Context, a pg.Address) error) (name string, err error) {
	name = TemplateName(hash)
	err = s.with(ctx, func(conn *pgx.Conn) error {
		// First: what is used is not dropped by a sweep.
		if _, err := conn.Exec(ctx, `insert into instar.template values ($1, now()) on conflict (name) do update set used_at = now()`, name); err != nil {
			return err
		}
		if there, err := present(ctx, conn, name); err != nil || there {
			return err
		}
		return locked(ctx, conn, name, func() error { return s.template(ctx, conn, name, fill) })
	})
	return name, err
}

func (s *Server) template(ctx context.Context, conn *pgx.Conn, name string, fill func(ctx context.Context, a pg.Address) error) error {
	if there, err := present(ctx, conn, name); err != nil || there {
		return err
	}
	raw := name + "_new" // it has its name when it is whole
	for _, sql := range []string{
		fmt.Sprintf(`drop database if exists %s with (force)`, pg.Ident(raw)),
		fmt.Sprintf(`create database %s template template0`, pg.Ident(raw)),
		fmt.Sprintf(`comment on database %s is 'instar template'`, pg.Ident(raw)),
	} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return fmt.Errorf("cannot make template %s: %w", name, err)
		}
	}
	if err := fill(ctx, s.Address(raw, "instar template")); err != nil {
		_, _ = conn.Exec(context.WithoutCancel(ctx), fmt.Sprintf(`drop database if exists %s with (force)`, pg.Ident(raw))) // or the next call
		return err
	}
	if _, err := conn.Exec(ctx, fmt.Sprintf(`alter database %s allow_connections false`, pg.Ident(raw))); err != nil {
		return fmt.Errorf("cannot close template %s: %w", name, err)
	}
	if err := disconnect(ctx, conn, raw, ""); err != nil {
		return err
	}
	if _, err := conn.Exec(ctx, fmt.Sprintf(`alter database %s rename to %s`, pg.Ident(raw), pg.Ident(name))); err != nil {
		return fmt.Errorf("cannot name template %s: %w", name, err)
	}
	return nil
}

// SweepTemplates drops the templates of other migrations than the present ones that were used last before a time, and returns their names. One that was not used since that is noted stays. It needs the register.
func (s *Server) SweepTemplates(ctx context.Context, present string, before time.Time) (gone []string, err error) {
	err = s.with(ctx, func(conn *pgx.Conn) error {
		rows, err := conn.Query(ctx, `select name from instar.template where name <> $1 and used_at < $2 order by name`, present, before)
		if err != nil {
			return err
		}
		list, err := pgx.CollectRows(rows, pgx.RowTo[string])
		errs := []error{err}
		for _, name := range list {
			err := locked(ctx, conn, name, func() error { return dropTemplate(ctx, conn, name, before) })
			if err == nil {
				gone = append(gone, name)
			}
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	})
	return gone, err
}

func dropTemplate(ctx context.Context, conn *pgx.Conn, name string, before time.Time) error {
	var still bool
	if err := conn.QueryRow(ctx, `select exists (select from instar.template where name = $1 and used_at < $2)`, name, before).Scan(&still); err != nil || !still {
		return err
	}
	if _, err := conn.Exec(ctx, fmt.Sprintf(`drop database if exists %s with (force)`, pg.Ident(name))); err != nil {
		return fmt.Errorf("cannot drop template %s: %w", name, err)
	}
	_, err := conn.Exec(ctx, `delete from instar.template where name = $1 and used_at < $2`, name, before)
	return err
}
