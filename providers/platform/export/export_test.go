//go:build linux

package export_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bcc94042/instar/internal/postgres"
	"github.com/bcc94042/instar/providers"
	"github.com/bcc94042/instar/providers/database/databasetest"
	"github.com/bcc94042/instar/providers/database/pg"
	"github.com/bcc94042/instar/providers/platform/export"
	"github.com/bcc94042/instar/providers/platform/storage"
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
	stranger, err := e.JS.CreateObjectStore(t.Context(), jetstream.ObjectStoreConfig{Bucket: "tenant-other"})
	require.NoError(t, err)
	secret, err := stranger.PutString(t.Context(), "secret", "of another tenant")
	require.NoError(t, err)
	_, err = bucket.AddLink(t.Context(), "link", secret)
	require.NoError(t, err)
	f, dir := &export.Files{Dir: t.TempDir(), Buckets: &storage.ObjectStores{JS: e.JS}}, ""
	of := export.Tenant{Name: "default.acme.own-1", Tenant: "acme", Session: "default.acme.own", Database: at, Bucket: storage.Bucket{Name: "gone"}}
	err = f.Save(t.Context(), of)
	require.Equal(t, providers.Invalid, providers.CodeOf(err))
	left, err := os.ReadDir(f.Dir)
	require.NoError(t, err)
	require.Empty(t, left)

	of.Bucket.Name = "tenant-acme"
	killed, others := filepath.Join(f.Dir, ".part-"+of.Name+"-1"), filepath.Join(f.Dir, ".part-"+of.Name+"-2")
	for dir, age := range map[string]time.Duration{killed: 25 * time.Hour, others: time.Hour} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, "bucket", "old"), 0o700))
		at := time.Now().Add(-age)
		require.NoError(t, os.Chtimes(dir, at, at))
	}
	require.NoError(t, f.Save(t.Context(), of))
	require.NoDirExists(t, killed, "of a server that was killed")
	require.DirExists(t, others, "of a Save that still runs")
	dir = filepath.Join(f.Dir, of.Name)
	read := func(path string) string {
		text, err := os.ReadFile(filepath.Join(dir, path))
		require.NoError(t, err)
		return string(text)
	}
	var m export.Manifest
	require.NoError(t, json.Unmarshal([]byte(read("manifest.json")), &m))
	require.Equal(t, []export.Table{
		{Name: "Mine.a/b", File: "database/Mine.a%2Fb.csv", Rows: 2, Bytes: 23},
		{Name: "public.base", File: "database/public.base.csv", Rows: 1, Bytes: 5},
		{Name: "public.heir", File: "database/public.heir.csv", Rows: 1, Bytes: 5},
		{Name: "public.parts", File: "database/public.parts.csv", Rows: 2, Bytes: 14},
	}, m.Tables)
	require.Equal(t, map[string]int64{"Mine.a/b_id_seq": 2}, m.Sequences)
	require.Equal(t, "id,text\n1,\"x,\"\"y\"\"\"\n2,\n", read(m.Tables[0].File))
	require.Len(t, m.Objects, len(objects))
	require.Equal(t, []export.Link{{Name: "link", Bucket: "tenant-other", Object: "secret"}}, m.Links)
	require.NoFileExists(t, filepath.Join(dir, "bucket", "link"))
	for _, o := range m.Objects {
		require.True(t, strings.HasPrefix(o.File, "bucket/"+objects[o.Name]), o.File)
		require.Equal(t, "content of "+o.Name, read(o.File))
	}

	databasetest.Exec(t, at, `insert into base values (3)`)
	require.NoError(t, f.Save(t.Context(), of), "it is there")
	require.Equal(t, "id\n1\n", read("database/public.base.csv"))
	require.NoError(t, os.Truncate(filepath.Join(dir, "bucket", "plain.txt"), 1))
	err = f.Save(t.Context(), of)
	require.Equal(t, providers.Invalid, providers.CodeOf(err), "it is there, and is not whole")
	require.ErrorContains(t, err, "bucket/plain.txt has 1 bytes")
	of.Name = "../x"
	require.Error(t, f.Save(t.Context(), of))
	of.Name = "next"
	f.Dir = filepath.Join(dir, "manifest.json") // a file
	err = f.Save(t.Context(), of)
	require.Equal(t, providers.Unavailable, providers.CodeOf(err))
}

// held has the first Save at a gate when it has an object, and the second one when it begins with one.
type held struct {
	storage.Provider
	at            int
	first, second chan struct{} // are received from when a Save is there, and let it go on
}

func (h *held) Read(ctx context.Context, b storage.Bucket, each func(storage.Object) error) error {
	h.at++
	gate, after := h.first, 1
	if h.at > 1 {
		gate, after = h.second, 0
	}
	n := 0
	return h.Provider.Read(ctx, b, func(o storage.Object) error {
		if n++; n == after+1 {
			gate <- struct{}{}
			<-gate
		}
		return each(o)
	})
}

// A task that comes again while its first try still runs neither takes what that has written nor lets it pass for whole.
func TestTwoSavesOfOneExport(t *testing.T) {
	t.Parallel()
	e := streamstest.Start(t, embedded.Options{Profile: embedded.OS})
	bucket, err := e.JS.CreateObjectStore(t.Context(), jetstream.ObjectStoreConfig{Bucket: "tenant-acme"})
	require.NoError(t, err)
	for _, name := range []string{"one", "two", "three"} {
		_, err := bucket.PutString(t.Context(), name, name)
		require.NoError(t, err)
	}
	h := &held{Provider: &storage.ObjectStores{JS: e.JS}, first: make(chan struct{}), second: make(chan struct{})}
	f, of := &export.Files{Dir: filepath.Join(t.TempDir(), "exports"), Buckets: h}, export.Tenant{Name: "default.acme.own-1", Tenant: "acme", Bucket: storage.Bucket{Name: "tenant-acme"}}
	save := func() chan error {
		ended := make(chan error, 1)
		go func() { ended <- f.Save(t.Context(), of) }()
		return ended
	}
	whole := func() {
		t.Helper()
		for _, name := range []string{"one", "two", "three"} {
			text, err := os.ReadFile(filepath.Join(f.Dir, of.Name, "bucket", name))
			require.NoError(t, err)
			require.Equal(t, name, string(text))
		}
	}
	first := save()
	<-h.first
	second := save()
	<-h.second
	h.first <- struct{}{}
	require.NoError(t, <-first)
	whole()
	h.second <- struct{}{}
	require.NoError(t, <-second)
	whole()
	left, err := os.ReadDir(f.Dir)
	require.NoError(t, err)
	require.Len(t, left, 1)
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
	f, of := &export.Files{Dir: dir, Buckets: &storage.ObjectStores{JS: e.JS}}, export.Tenant{Name: "default.acme.own-1", Tenant: "acme", Bucket: storage.Bucket{Name: "tenant-acme"}}
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

// undigested is a store that keeps no digests.
type undigested struct{ storage.Provider }

func (u undigested) Read(ctx context.Context, b storage.Bucket, each func(storage.Object) error) error {
	return u.Provider.Read(ctx, b, func(o storage.Object) error {
		o.Digest = ""
		return each(o)
	})
}

// The manifest has a digest of each object, the store's or one of what was read.
func TestObjectsHaveDigests(t *testing.T) {
	t.Parallel()
	e := streamstest.Start(t, embedded.Options{Profile: embedded.OS})
	bucket, err := e.JS.CreateObjectStore(t.Context(), jetstream.ObjectStoreConfig{Bucket: "tenant-acme"})
	require.NoError(t, err)
	info, err := bucket.PutString(t.Context(), "it", "content")
	require.NoError(t, err)
	stores := &storage.ObjectStores{JS: e.JS}
	for name, buckets := range map[string]storage.Provider{"theirs": stores, "ours": undigested{stores}} {
		f := &export.Files{Dir: t.TempDir(), Buckets: buckets}
		require.NoError(t, f.Save(t.Context(), export.Tenant{Name: name, Tenant: "acme", Bucket: storage.Bucket{Name: "tenant-acme"}}))
		raw, err := os.ReadFile(filepath.Join(f.Dir, name, "manifest.json"))
		require.NoError(t, err)
		var m export.Manifest
		require.NoError(t, json.Unmarshal(raw, &m))
		require.Equal(t, []export.Object{{Name: "it", File: "bucket/it", Bytes: 7, Digest: info.Digest}}, m.Objects, name)
	}
}

// That an export could not be made is found before it is to be, and nothing is left of the look.
func TestWhetherThereIsRoomForAnExport(t *testing.T) {
	t.Parallel()
	f := &export.Files{Dir: filepath.Join(t.TempDir(), "exports")}
	require.NoError(t, f.Ready("it"))
	left, err := os.ReadDir(f.Dir)
	require.NoError(t, err)
	require.Empty(t, left)
	file := filepath.Join(f.Dir, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	for _, dir := range []string{file, filepath.Join(file, "below"), "/proc/sys/exports"} { // nobody writes there, nor root
		err := (&export.Files{Dir: dir}).Ready("it")
		require.Equal(t, providers.Unavailable, providers.CodeOf(err), "%s: %v", dir, err)
	}
	require.NoError(t, os.Mkdir(filepath.Join(f.Dir, "it"), 0o500))
	require.NoError(t, f.Ready("it"), "what is there is not made again")
}
