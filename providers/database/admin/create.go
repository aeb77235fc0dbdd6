package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/bcc94042/instar/providers/database/pg"
	"github.com/bcc94042/instar/providers/database/secret"
)

// Spec says which database is wanted.
type Spec struct {
	Name        string
	Session     string
	Fence       uint64
	Template    string // a closed database; template0 when empty
	Connections int    // at a time; 0 does not limit them
}

// Create makes the database of a session, or finds it.
func (s *Server) Create(ctx context.Context, spec Spec) error {
	return s.with(ctx, func(conn *pgx.Conn) error {
		return locked(ctx, conn, spec.Name, func() error { return create(ctx, conn, spec) })
	})
}

func create(ctx context.Context, conn *pgx.Conn, spec Spec) error {
	if err := claim(ctx, conn, spec); err != nil {
		return err
	}
	there, err := present(ctx, conn, spec.Name)
	if err != nil {
		return err
	}
	if !there {
		template, limit := spec.Template, spec.Connections
		if template == "" {
			template = "template0"
		}
		if limit <= 0 {
			limit = -1
		}
		_, err := conn.Exec(ctx, fmt.Sprintf(`create database %s template %s connection limit %d`, pg.Ident(spec.Name), pg.Ident(template), limit))
		if err != nil && pg.State(err) != pg.Duplicate {
			return fmt.Errorf("cannot create database %s: %w", spec.Name, err)
		}
	}
	for _, sql := range []string{
		fmt.Sprintf(`comment on database %s is %s`, pg.Ident(spec.Name), pg.Literal(Tag(spec.Session))),
		fmt.Sprintf(`revoke all on database %s from public`, pg.Ident(spec.Name)),
	} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return fmt.Errorf("cannot prepare database %s: %w", spec.Name, err)
		}
	}
	_, err = conn.Exec(ctx, `update instar.tenant_database set state = $2 where name = $1`, spec.Name, Created)
	return err
}

// claim writes the entry of the database, or checks the one that is there.
func claim(ctx context.Context, conn *pgx.Conn, spec Spec) error {
	known, err := entry(ctx, conn, spec.Name)
	if err != nil {
		return err
	}
	if err := past(ctx, conn, spec); err != nil {
		return err
	}
	over := known != nil && (known.State == Quarantined || known.State == Dropped)
	switch {
	case known == nil, known.Session != spec.Session: // which the caller has taken the tenant from: that one is over, or was resolved by hand
		there, err := present(ctx, conn, spec.Name)
		switch {
		case err != nil:
			return err
		case there && known != nil && !over:
			return pg.Refuse("database %s belongs to %s: roll that one back, or rename or drop the database", spec.Name, pg.Another(known.Session, spec.Session))
		case there:
			return pg.Refuse("there is a database %s that was not made here: rename or drop it", spec.Name)
		}
		if known != nil {
			if err := noted(ctx, conn, known.Name, known.Session, known.Fence); err != nil {
				return err
			}
		}
	case known.Fence > spec.Fence:
		return &pg.ObsoleteError{Fence: spec.Fence, Seen: known.Fence}
	}
	_, err = conn.Exec(ctx, `
		insert into instar.tenant_database as d (name, session, fence, state, stored_as) values ($1, $2, $3, $4, $1)
		on conflict (name) do update set session = $2, fence = $3, stored_as = $1, quarantined_at = null, drop_after = null,
			sealed_fence = case when d.session = $2 then d.sealed_fence end, state = case when d.state = $5 and d.session = $2 then d.state else $4 end`,
		spec.Name, spec.Session, spec.Fence, Intended, Created)
	return err
}

// Role makes the role of a tenant, or finds it, and gives it new credentials and the right to connect. It is fenced by the entry of the
// database that it is for, which has its name. What seal returns is kept there: a repetition of the call returns it again, and changes no
// password that somebody was told.
func (s *Server) Role(ctx context.Context, spec Spec, seal func() (secret.Credentials, string, error)) (sealed string, err error) {
	err = s.with(ctx, func(conn *pgx.Conn) error {
		return locked(ctx, conn, spec.Name, func() error {
			if err := current(ctx, conn, spec); err != nil {
				return err
			}
			err := conn.QueryRow(ctx, `select sealed from instar.tenant_database where name = $1 and session = $2 and sealed_fence = $3`, spec.Name, spec.Session, spec.Fence).Scan(&sealed)
			if !errors.Is(err, pgx.ErrNoRows) {
				return err
			}
			c, text, err := seal()
			if err != nil {
				return err
			}
			sealed = text
			return credentials(ctx, conn, spec, c, text)
		})
	})
	return sealed, err
}

func credentials(ctx context.Context, conn *pgx.Conn, spec Spec, c secret.Credentials, sealed string) error {
	verifier, err := c.Verifier()
	if err != nil {
		return err
	}
	if err := role(ctx, conn, spec, c.User); err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		for _, sql := range []string{
			fmt.Sprintf(`alter role %s login password %s`, pg.Ident(c.User), pg.Literal(verifier)),
			fmt.Sprintf(`grant connect, temporary on database %s to %s`, pg.Ident(spec.Name), pg.Ident(c.User)),
		} {
			if _, err := tx.Exec(ctx, sql); err != nil {
				return fmt.Errorf("cannot set up role %s: %w", c.User, err)
			}
		}
		_, err := tx.Exec(ctx, `update instar.tenant_database set sealed = $2, sealed_fence = $3 where name = $1`, spec.Name, sealed, spec.Fence)
		return err
	})
}

// Shut keeps the role of a session's database out, and ends its connections; everybody else stays.
func (s *Server) Shut(ctx context.Context, spec Spec) error {
	return s.role(ctx, spec, "nologin", func(conn *pgx.Conn) error { return disconnect(ctx, conn, spec.Name, spec.Name) })
}

// Admit lets the role in again.
func (s *Server) Admit(ctx context.Context, spec Spec) error {
	return s.role(ctx, spec, "login", func(*pgx.Conn) error { return nil })
}

func (s *Server) role(ctx context.Context, spec Spec, login string, then func(*pgx.Conn) error) error {
	return s.with(ctx, func(conn *pgx.Conn) error {
		return locked(ctx, conn, spec.Name, func() error {
			if err := current(ctx, conn, spec); err != nil {
				return err
			}
			if _, err := conn.Exec(ctx, fmt.Sprintf(`alter role %s %s`, pg.Ident(spec.Name), login)); err != nil {
				return fmt.Errorf("cannot let role %s in or out: %w", spec.Name, err)
			}
			return then(conn)
		})
	})
}

func role(ctx context.Context, conn *pgx.Conn, spec Spec, name string) error {
	var there bool
	var comment string
	err := conn.QueryRow(ctx, `select count(*) > 0, coalesce(max(shobj_description(oid, 'pg_authid')), '') from pg_roles where rolname = $1`, name).Scan(&there, &comment)
	if err != nil {
		return err
	}
	if there && comment == "" {
		return pg.Refuse("there is a role %s that was not made here: rename or drop it", name)
	}
	tx, err := conn.Begin(ctx) // a role without its comment would be somebody else's
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	if !there {
		if _, err := tx.Exec(ctx, `create role `+pg.Ident(name)+` nologin`); err != nil {
			return fmt.Errorf("cannot create role %s: %w", name, err)
		}
	}
	if _, err := tx.Exec(ctx, fmt.Sprintf(`comment on role %s is %s`, pg.Ident(name), pg.Literal(Tag(spec.Session)))); err != nil {
		return err
	}
	return tx.Commit(ctx)
}

// current refuses what is obsolete, and what concerns a database that the session does not have, or that was put away, unless somebody has brought it back by hand.
func current(ctx context.Context, conn *pgx.Conn, spec Spec) error {
	known, err := entry(ctx, conn, spec.Name)
	switch {
	case err != nil:
		return err
	case known == nil || known.Session != spec.Session:
		return pg.Refuse("session %s has no database %s", spec.Session, spec.Name)
	case known.Fence > spec.Fence:
		return &pg.ObsoleteError{Fence: spec.Fence, Seen: known.Fence}
	case known.State == Quarantined || known.State == Dropped:
		if there, err := present(ctx, conn, spec.Name); err != nil || !there {
			return cmp.Or(err, pg.Refuse("database %s of session %s was put away", spec.Name, spec.Session))
		}
	}
	_, err = conn.Exec(ctx, `update instar.tenant_database set fence = $2 where name = $1`, spec.Name, spec.Fence)
	return err
}

// Grant lets the role use all that is in the schemas of its database, now and what migrations add later.
func (s *Server) Grant(ctx context.Context, database, user string, schemas []string) error {
	conn, err := pg.Connect(ctx, s.Address(database, "instar admin"))
	if err != nil {
		return err
	}
	defer pg.Close(conn)
	for _, schema := range schemas {
		in, to := pg.Ident(schema), pg.Ident(user)
		for _, sql := range []string{
			`grant usage on schema ` + in + ` to ` + to,
			`grant select, insert, update, delete, references, trigger on all tables in schema ` + in + ` to ` + to,
			`grant usage, select, update on all sequences in schema ` + in + ` to ` + to,
			`grant execute on all routines in schema ` + in + ` to ` + to,
			`alter default privileges in schema ` + in + ` grant select, insert, update, delete, references, trigger on tables to ` + to,
			`alter default privileges in schema ` + in + ` grant usage, select, update on sequences to ` + to,
		} {
			if _, err := conn.Exec(ctx, sql); err != nil {
				return fmt.Errorf("cannot grant the tables of %s to %s: %w", schema, user, err)
			}
		}
	}
	return nil
}

// Try proves that the credentials of an application lead into its database, at the address that applications are told, with the TLS of this program's way there.
func (s *Server) Try(ctx context.Context, database string, c secret.Credentials) error {
	config, err := pg.Parse(s.Address(database, ""))
	if err != nil {
		return err
	}
	told, err := s.Public()
	if err != nil {
		return err
	}
	if s.Host != "" {
		if err := pg.Lead(config, s.Host); err != nil {
			return pg.Refuse("applications are told that server %s is at %s, which is no host:port: %v", s.Name, s.Host, err)
		}
	}
	config.User, config.Password = c.User, c.Password
	config.RuntimeParams = map[string]string{"application_name": "instar try"} // a pool of connections in between may take no others
	config.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return fmt.Errorf("cannot enter database %s at %s, as its application is told: %w", database, told, err)
	}
	defer pg.Close(conn)
	var one int
	return conn.QueryRow(ctx, `select 1`).Scan(&one)
}
