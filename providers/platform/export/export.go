package export

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/bcc94042/instar/internal/ownfile"
	"github.com/bcc94042/instar/providers"
	"github.com/bcc94042/instar/providers/database/pg"
	"github.com/bcc94042/instar/providers/platform/storage"
)

// Files has exports in a directory.
type Files struct {
	Dir     string
	Buckets storage.Provider // that has them
}

// Tenant is what is saved.
type Tenant struct {
	Name     string // of the export
	Tenant   string
	Session  string
	Database pg.Address     // none without a DSN; of somebody who may read everything
	Bucket   storage.Bucket // none without a name
}

// Manifest is what an export has.
type Manifest struct {
	Tenant    string           `json:"tenant"`
	Session   string           `json:"session"`
	At        time.Time        `json:"at"`
	Tables    []Table          `json:"tables"`
	Sequences map[string]int64 `json:"sequences,omitempty"` // the last value of each that has one
	Objects   []Object         `json:"objects"`
	Links     []Link           `json:"links,omitempty"`
}

// Table is one of the database.
type Table struct {
	Name  string `json:"name"`
	File  string `json:"file"`
	Rows  int64  `json:"rows"`
	Bytes int64  `json:"bytes"` // of the file
}

// Object is one of the bucket.
type Object struct {
	Name   string `json:"name"`
	File   string `json:"file"`
	Bytes  uint64 `json:"bytes"`
	Digest string `json:"digest"`
}

// Link is a name in the bucket for an object of this or another one, or for a bucket. Nothing of what it leads to is saved by it.
type Link struct {
	Name   string `json:"name"`
	Bucket string `json:"bucket"`
	Object string `json:"object,omitempty"`
}

const (
	manifestName = "manifest.json"
	partPrefix   = ".part-"       // of what is being written, which no name of an export begins with
	partAge      = 24 * time.Hour // longer than any Save takes
)

// Save returns when the export is on the disk. It may run more than once at a time for one export: each writes its own, the first that is whole stays, and the others are as good as done.
func (f *Files) Save(ctx context.Context, t Tenant) error {
	if t.Name == "" || t.Name[0] == '.' || filepath.Base(t.Name) != t.Name {
		return providers.Errorf(providers.Invalid, "%q is no name of an export", t.Name)
	}
	err := f.save(ctx, &t)
	var known *providers.Error
	if err == nil || errors.As(err, &known) || ctx.Err() != nil {
		return err
	}
	return providers.Errorf(providers.Unavailable, "cannot export %s to %s: %v", t.Tenant, f.Dir, err)
}

// Ready fails where an export with this name could not be begun: before anything is taken away that it is to save. One that is there is not made again.
// A directory that does not answer, as of a server that is away, is given up after [patience].
func (f *Files) Ready(name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	said := make(chan error, 1)
	select {
	case looks <- struct{}{}:
		go func() {
			defer func() { <-looks }()
			said <- f.ready(name)
		}()
	case <-ctx.Done():
	}
	select {
	case err := <-said:
		return err
	case <-ctx.Done():
		return providers.Errorf(providers.Unavailable, "cannot export to %s: it does not answer within %s", f.Dir, patience)
	}
}

// patience is for how long a look into the directory of exports is waited for.
var patience = 10 * time.Second // tests have less

// looks are those that are not answered yet, of which there are so many at most.
var looks = make(chan struct{}, 8)

func (f *Files) ready(name string) error {
	if _, err := os.Lstat(filepath.Join(f.Dir, name)); err == nil {
		return nil
	}
	err := f.room()
	if err == nil {
		var part string
		if part, err = os.MkdirTemp(f.Dir, partPrefix+name+"-*"); err == nil {
			err = os.Remove(part)
		}
	}
	if err != nil {
		return providers.Errorf(providers.Unavailable, "cannot export to %s: %v", f.Dir, err)
	}
	return nil
}

func (f *Files) save(ctx context.Context, t *Tenant) error {
	final := filepath.Join(f.Dir, t.Name)
	switch _, err := os.Lstat(final); {
	case err == nil:
		return f.whole(final)
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if err := f.room(); err != nil {
		return err
	}
	part, err := os.MkdirTemp(f.Dir, partPrefix+t.Name+"-*")
	if err != nil {
		return err
	}
	defer func() { _ = ownfile.RemoveAll(part) }() // where it is still: of no use, and in the way where the disk is full
	if err := f.write(ctx, part, t); err != nil {
		return err
	}
	err = os.Rename(part, final)
	if errors.Is(err, fs.ErrExist) { // of another Save
		return f.whole(final)
	}
	return errors.Join(err, ownfile.SyncDir(f.Dir))
}

// room makes the directory of the exports, and removes what servers that were killed have left there. What another Save still writes is not touched.
func (f *Files) room() error {
	list, err := os.ReadDir(f.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return errors.Join(os.MkdirAll(f.Dir, 0o700), ownfile.SyncDir(filepath.Dir(f.Dir)))
	}
	for _, e := range list {
		if at, err := e.Info(); err == nil && strings.HasPrefix(e.Name(), partPrefix) && time.Since(at.ModTime()) > partAge {
			_ = ownfile.RemoveAll(filepath.Join(f.Dir, e.Name())) // the next Save tries again
		}
	}
	return err
}

// whole fails unless an export is there with all that its manifest names. Then it is on the disk.
func (f *Files) whole(dir string) error {
	var m Manifest
	text, err := os.ReadFile(filepath.Join(dir, manifestName)) // #nosec G304 -- below the directory of the exports
	if err == nil {
		err = json.Unmarshal(text, &m)
	}
	if err == nil {
		err = m.check(dir)
	}
	if err != nil {
		return providers.Errorf(providers.Invalid, "%s is there, and is no whole export: %v; move it away, and try again", dir, err)
	}
	return errors.Join(ownfile.SyncDir(dir), ownfile.SyncDir(f.Dir))
}

// check compares the files of an export with its manifest, and has their names on the disk.
func (m *Manifest) check(dir string) error {
	sizes := map[string]int64{}
	for _, t := range m.Tables {
		sizes[t.File] = t.Bytes
	}
	for _, o := range m.Objects {
		sizes[o.File] = int64(o.Bytes) // #nosec G115 -- of a file
	}
	dirs := map[string]bool{}
	for file, size := range sizes {
		at, err := os.Lstat(filepath.Join(dir, file))
		switch {
		case err != nil:
			return err
		case at.Size() != size:
			return fmt.Errorf("%s has %d bytes, and not the %d of the manifest", file, at.Size(), size)
		}
		dirs[filepath.Dir(file)] = true
	}
	var errs []error
	for d := range dirs {
		errs = append(errs, ownfile.SyncDir(filepath.Join(dir, d)))
	}
	return errors.Join(errs...)
}

func (f *Files) write(ctx context.Context, dir string, t *Tenant) error {
	m := Manifest{Tenant: t.Tenant, Session: t.Session, At: time.Now().UTC(), Tables: []Table{}, Objects: []Object{}}
	if t.Database.DSN != "" {
		if err := tables(ctx, dir, t.Database, &m); err != nil {
			return err
		}
	}
	if t.Bucket.Name != "" {
		if err := f.objects(ctx, dir, t.Bucket, &m); err != nil {
			return err
		}
	}
	if err := m.check(dir); err != nil {
		return err
	}
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	return ownfile.Replace(filepath.Join(dir, manifestName), append(text, '\n')) // which has the names of dir on the disk as well
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
