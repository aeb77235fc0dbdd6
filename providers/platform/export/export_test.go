//go:build linux

package export_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bcc94042/instar/internal/postgres"
	"github.com/bcc94042/instar/providers"
	"github.com/bcc94042/instar/providers/database/databasetest"
	"github.com/bcc94042/instar/providers/database/pg"
	"github.com/bcc94042/instar/providers/platform/export"
	"github.com/bcc94042/instar/streams/embedded"
	"github.com/bcc94042/instar/streams/streamstest"
)

var suite = postgres.Suite{Config: databasetest.Config}

func TestMain(m *testing.M) { os.Exit(suite.Around(m).Run()) }

// What a tenant has is saved once, whatever its names are; nothing of a failed export is left.
func TestEverythingOfATenantIsSaved(t *testing.T) {
	t.Parallel()
	e := streamstest.Start(t, embedded.Options{Profile: embedded.OS})
	at := pg.Address{DSN: suite.Cluster(t).DSN("postgres"), Database: "postgres"}
	for _, sql := range []string{
		`create schema "Mine"`, `create table "Mine"."a/b" (id bigserial primary key, text text)`, `insert into "Mine"."a/b" (text) values ('x,"y"'), (null)`,
		`create table parts (id int, at int) partition by range (at)`, `create table parts_1 partition of parts for values from (0) to (10)`, `insert into parts values (1, 1), (2, 2)`,
		`create table base (id int)`, `create table heir () inherits (base)`, `insert into base values (1)`, `insert into heir values (2)`,
		`alter table base enable row level security`, `alter table base force row level security`, `create view seen as select * from base`,
	} {
		databasetest.Exec(t, at, sql)
	}
	bucket, err := e.JS.CreateObjectStore(t.Context(), jetstream.ObjectStoreConfig{Bucket: "tenant-acme"})
	require.NoError(t, err)
	objects := map[string]string{"../up": "%2E.%2Fup", "..": "%2E.", "plain.txt": "plain.txt", strings.Repeat("/", 100): "%2F%2F"}
	for name := range objects {
		_, err := bucket.PutString(t.Context(), name, "content of "+name)
		require.NoError(t, err)
	}
	f, dir := &export.Files{Dir: t.TempDir(), JS: e.JS}, ""
	of := export.Tenant{Name: "default.acme.own-1", Tenant: "acme", Session: "default.acme.own", Database: at, Bucket: "gone"}
	err = f.Save(t.Context(), of)
	require.Equal(t, providers.Invalid, providers.CodeOf(err))
	left, err := os.ReadDir(f.Dir)
	require.NoError(t, err)
	require.Empty(t, left)

	of.Bucket = "tenant-acme"
	require.NoError(t, os.MkdirAll(filepath.Join(f.Dir, of.Name+".part", "bucket", "old"), 0o700), "of a server that was killed")
	require.NoError(t, f.Save(t.Context(), of))
	dir = filepath.Join(f.Dir, of.Name)
	read := func(path string) string {
		text, err := os.ReadFile(filepath.Join(dir, path))
		require.NoError(t, err)
		return string(text)
	}
	var m export.Manifest
	require.NoError(t, json.Unmarshal([]byte(read("manifest.json")), &m))
	require.Equal(t, []export.Table{
		{Name: "Mine.a/b", File: "database/Mine.a%2Fb.csv", Rows: 2},
		{Name: "public.base", File: "database/public.base.csv", Rows: 1},
		{Name: "public.heir", File: "database/public.heir.csv", Rows: 1},
		{Name: "public.parts", File: "database/public.parts.csv", Rows: 2},
	}, m.Tables)
	require.Equal(t, map[string]int64{"Mine.a/b_id_seq": 2}, m.Sequences)
	require.Equal(t, "id,text\n1,\"x,\"\"y\"\"\"\n2,\n", read(m.Tables[0].File))
	require.Len(t, m.Objects, len(objects))
	for _, o := range m.Objects {
		require.True(t, strings.HasPrefix(o.File, "bucket/"+objects[o.Name]), o.File)
		require.Equal(t, "content of "+o.Name, read(o.File))
	}

	databasetest.Exec(t, at, `insert into base values (3)`)
	require.NoError(t, f.Save(t.Context(), of), "it is there")
	require.Equal(t, "id\n1\n", read("database/public.base.csv"))
	of.Name = "../x"
	require.Error(t, f.Save(t.Context(), of))
	of.Name = "next"
	f.Dir = filepath.Join(dir, "manifest.json") // a file
	err = f.Save(t.Context(), of)
	require.Equal(t, providers.Unavailable, providers.CodeOf(err))
}

// A disk that is full ends an export, and what was written of it makes room again.
func TestOfAFullDiskNothingIsLeft(t *testing.T) {
	t.Parallel()
	e, dir := streamstest.Start(t, embedded.Options{Profile: embedded.OS}), t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("cannot mount a small file system: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, unix.Unmount(dir, 0)) })
	bucket, err := e.JS.CreateObjectStore(t.Context(), jetstream.ObjectStoreConfig{Bucket: "tenant-acme"})
	require.NoError(t, err)
	for name, size := range map[string]int{"small": 1 << 10, "large": 2 << 20} {
		_, err = bucket.PutBytes(t.Context(), name, make([]byte, size))
		require.NoError(t, err)
	}
	f, of := &export.Files{Dir: dir, JS: e.JS}, export.Tenant{Name: "default.acme.own-1", Tenant: "acme", Bucket: "tenant-acme"}
	err = f.Save(t.Context(), of)
	require.Equal(t, providers.Unavailable, providers.CodeOf(err))
	require.ErrorContains(t, err, "no space left on device")
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
	require.NoError(t, bucket.Delete(t.Context(), "large"))
	require.NoError(t, f.Save(t.Context(), of))
	require.FileExists(t, filepath.Join(dir, of.Name, "bucket", "small"))
}
