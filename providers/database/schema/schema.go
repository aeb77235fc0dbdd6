// Package schema applies the migrations of a tenant's database.
//
// The contract:
//   - Each migration is told as it is applied, in order; one that was applied before is told by [Applied], not again.
//   - Two appliers of one database follow each other (an advisory lock of the session).
//   - A migration that the database refuses is a [FailedError]: repeating it does not help, unless its cause is transient.
package schema

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"github.com/bcc94042/instar/providers/database/pg"
)

// Migration is one that a database has.
type Migration struct {
	Version  int64         `json:"version"`
	Name     string        `json:"name"`
	Duration time.Duration `json:"durationNs,omitempty"` // nanoseconds; 0 when it was applied earlier
}

// FailedError is a migration that was refused.
type FailedError struct {
	Migration string
	Err       error
}

func (e *FailedError) Error() string { return fmt.Sprintf("migration %s: %v", e.Migration, e.Err) }

func (e *FailedError) Unwrap() error { return e.Err }

// Set are the migrations of tenants: SQL files of goose in the root of a file system.
type Set struct {
	Files fs.FS
	Path  string // search path of the migrations; "public" when empty
}

// Hash identifies the set: databases of equal sets are equal.
func (s Set) Hash() (string, error) {
	names, err := fs.Glob(s.Files, "*.sql")
	if err != nil || len(names) == 0 {
		return "", pg.Refuse("there are no migrations for tenants: give *.sql files of goose (%v)", err)
	}
	slices.Sort(names)
	h := sha256.New()
	fmt.Fprintf(h, "%s\n", s.Path)
	for _, name := range names {
		text, err := fs.ReadFile(s.Files, name)
		if err != nil {
			return "", fmt.Errorf("cannot read migration %s: %w", name, err)
		}
		fmt.Fprintf(h, "%s %d\n%s\n", name, len(text), text)
	}
	return hex.EncodeToString(h.Sum(nil))[:16], nil
}

// Apply applies what is missing and tells each one.
func (s Set) Apply(ctx context.Context, a pg.Address, told func(Migration)) error {
	return s.with(a, func(p *goose.Provider) error {
		for {
			r, err := p.UpByOne(ctx)
			var partial *goose.PartialError
			switch {
			case errors.Is(err, goose.ErrNoNextVersion):
				return nil
			case errors.As(err, &partial):
				return &FailedError{Migration: path.Base(partial.Failed.Source.Path), Err: partial.Err}
			case err != nil:
				return fmt.Errorf("cannot apply migrations: %w", err)
			}
			if told != nil {
				told(Migration{Version: r.Source.Version, Name: path.Base(r.Source.Path), Duration: r.Duration})
			}
		}
	})
}

// Applied are those that the database has, in order.
func (s Set) Applied(ctx context.Context, a pg.Address) (list []Migration, err error) {
	err = s.with(a, func(p *goose.Provider) error {
		status, err := p.Status(ctx)
		if err != nil {
			return fmt.Errorf("cannot read which migrations were applied: %w", err)
		}
		for _, m := range status {
			if m.State == goose.StateApplied {
				list = append(list, Migration{Version: m.Source.Version, Name: path.Base(m.Source.Path)})
			}
		}
		return nil
	})
	return list, err
}

func (s Set) with(a pg.Address, do func(*goose.Provider) error) error {
	config, err := pg.Parse(a)
	if err != nil {
		return err
	}
	config.RuntimeParams["search_path"] = s.Path
	if s.Path == "" {
		config.RuntimeParams["search_path"] = "public"
	}
	db := stdlib.OpenDB(*config)
	defer db.Close()
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, 60))
	if err != nil {
		return err
	}
	p, err := goose.NewProvider(goose.DialectPostgres, db, s.Files, goose.WithSessionLocker(locker), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return pg.Refuse("the migrations for tenants cannot be read: %v", err)
	}
	return do(p)
}
