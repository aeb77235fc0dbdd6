package admin

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/bcc94042/instar/providers/database/pg"
)

// TemplateName is the name of the template of a set of migrations.
func TemplateName(hash string) string { return "instar_template_" + hash }

// Template finds the closed template database of a set of migrations, or has fill make it. It is closed, because Postgres copies no
// database that somebody is connected to.
func (s *Server) Template(ctx context.Context, hash string, fill func(ctx context.Context, a pg.Address) error) (name string, err error) {
	name = TemplateName(hash)
	err = s.with(ctx, func(conn *pgx.Conn) error {
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
