package export

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/internal/ownfile"
	"github.com/bcc94042/instar/providers"
	"github.com/bcc94042/instar/providers/database/pg"
)

// Files has exports in a directory.
type Files struct {
	Dir string
	JS  jetstream.JetStream // that has the buckets
}

// Tenant is what is saved.
type Tenant struct {
	Name     string // of the export
	Tenant   string
	Session  string
	Database pg.Address // none without a DSN; of somebody who may read everything
	Bucket   string     // none when empty
}

// Manifest is what an export has.
type Manifest struct {
	Tenant    string           `json:"tenant"`
	Session   string           `json:"session"`
	At        time.Time        `json:"at"`
	Tables    []Table          `json:"tables"`
	Sequences map[string]int64 `json:"sequences,omitempty"` // the last value of each that has one
	Objects   []Object         `json:"objects"`
}

// Table is one of the database.
type Table struct {
	Name string `json:"name"`
	File string `json:"file"`
	Rows int64  `json:"rows"`
}

// Object is one of the bucket.
type Object struct {
	Name   string `json:"name"`
	File   string `json:"file"`
	Bytes  uint64 `json:"bytes"`
	Digest string `json:"digest"`
}

const manifestName = "manifest.json"

// Save returns when the export is on the disk.
func (f *Files) Save(ctx context.Context, t Tenant) error {
	if t.Name == "" || filepath.Base(t.Name) != t.Name {
		return providers.Errorf(providers.Invalid, "%q is no name of an export", t.Name)
	}
	final := filepath.Join(f.Dir, t.Name)
	part := final + ".part"
	if _, err := os.Stat(filepath.Join(final, manifestName)); err == nil {
		return nil
	}
	err := ownfile.RemoveAll(part) // of a server that was killed
	if err == nil {
		err = os.MkdirAll(part, 0o700)
	}
	if err == nil {
		err = f.write(ctx, part, &t)
	}
	if err == nil {
		err = os.Rename(part, final)
	}
	if err == nil {
		err = synced(f.Dir)
	}
	var known *providers.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &known), ctx.Err() != nil:
	default:
		err = providers.Errorf(providers.Unavailable, "cannot export %s to %s: %v", t.Tenant, f.Dir, err)
	}
	_ = ownfile.RemoveAll(part) // of no use, and in the way where the disk is full; the next try removes it again
	return err
}

func (f *Files) write(ctx context.Context, dir string, t *Tenant) error {
	m := Manifest{Tenant: t.Tenant, Session: t.Session, At: time.Now().UTC(), Tables: []Table{}, Objects: []Object{}}
	if t.Database.DSN != "" {
		if err := tables(ctx, dir, t.Database, &m); err != nil {
			return err
		}
	}
	if t.Bucket != "" {
		if err := f.objects(ctx, dir, t.Bucket, &m); err != nil {
			return err
		}
	}
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	return ownfile.Replace(filepath.Join(dir, manifestName), append(text, '\n'))
}

// create writes a file, and returns when it is on the disk.
func create(path string, fill func(*os.File) error) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if err = fill(f); err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// synced has the names of a directory on the disk.
func synced(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
