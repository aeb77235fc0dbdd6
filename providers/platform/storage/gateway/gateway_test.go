package gateway_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/providers/database/secret"
	"github.com/bcc94042/instar/providers/platform/storage"
	"github.com/bcc94042/instar/providers/platform/storage/gateway"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/embedded"
	"github.com/bcc94042/instar/streams/streamstest"
)

const quota = 64 << 20

// world is a gateway with the buckets of two tenants.
type world struct {
	*streamstest.Env
	url    string
	stores *storage.ObjectStores
	keys   *gateway.Keys
	g      *gateway.Gateway
	full   bool
}

func start(t *testing.T) *world {
	t.Helper()
	t.Parallel()
	w := &world{Env: streamstest.Start(t, embedded.Options{Profile: embedded.OS})}
	require.NoError(t, streams.EnsureBucket(t.Context(), w.JS, "storage_keys", "Keys", 0, 1))
	rows, err := kv.Open(t.Context(), w.JS, "storage_keys", kv.JSON[gateway.Row]())
	require.NoError(t, err)
	set, err := secret.NewKeyset()
	require.NoError(t, err)
	seal, err := secret.Open(set)
	require.NoError(t, err)
	w.keys = &gateway.Keys{Rows: rows, Seal: seal, Stores: &storage.ObjectStores{JS: w.JS}}
	w.stores = w.keys.Stores
	for _, name := range []string{"acme", "globex"} {
		_, err := w.stores.Ensure(t.Context(), storage.Spec{Name: "tenant-" + name, Owner: name, Quota: quota})
		require.NoError(t, err)
	}
	w.g = gateway.New(w.keys, func(string) (func(), error) {
		if w.full {
			return nil, errors.New("full")
		}
		return func() {}, nil
	}, slog.New(slog.DiscardHandler))
	srv := httptest.NewServer(w.g)
	t.Cleanup(srv.Close)
	w.url = srv.URL
	return w
}

func (w *world) client(t *testing.T, key gateway.Key) *minio.Client {
	t.Helper()
	at, err := url.Parse(w.url)
	require.NoError(t, err)
	c, err := minio.New(at.Host, &minio.Options{Creds: credentials.NewStaticV4(key.ID, key.Secret, ""), MaxRetries: 1, BucketLookup: minio.BucketLookupPath})
	require.NoError(t, err)
	return c
}

// acme is a client of that tenant's.
func (w *world) acme(t *testing.T) *minio.Client {
	t.Helper()
	key, err := w.keys.Give(t.Context(), "tenant-acme", "tenant-acme-r1", "acme", 1)
	require.NoError(t, err)
	return w.client(t, key)
}

func put(t *testing.T, c *minio.Client, key string, data []byte, o minio.PutObjectOptions) {
	t.Helper()
	_, err := c.PutObject(t.Context(), "tenant-acme", key, bytes.NewReader(data), int64(len(data)), o)
	require.NoError(t, err)
}

func get(t *testing.T, c *minio.Client, key string, o minio.GetObjectOptions) ([]byte, error) {
	t.Helper()
	r, err := c.GetObject(t.Context(), "tenant-acme", key, o)
	require.NoError(t, err)
	defer r.Close()
	return io.ReadAll(r)
}

func code(err error) string { return minio.ToErrorResponse(err).Code }

func random(n int) []byte {
	data := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(data)
	return data
}

func names(t *testing.T, c *minio.Client, o minio.ListObjectsOptions) (all []string) {
	t.Helper()
	for i := range c.ListObjects(t.Context(), "tenant-acme", o) {
		require.NoError(t, i.Err)
		all = append(all, i.Key)
	}
	return all
}

func TestAnObjectIsWrittenReadListedCopiedAndDeleted(t *testing.T) {
	w := start(t)
	c := w.acme(t)
	data := random(300_001) // three parts
	put(t, c, "a/b c+ü.bin", data, minio.PutObjectOptions{ContentType: "text/x", UserMetadata: map[string]string{"color": "red"}})
	got, err := get(t, c, "a/b c+ü.bin", minio.GetObjectOptions{})
	require.NoError(t, err)
	require.True(t, bytes.Equal(data, got))

	i, err := c.StatObject(t.Context(), "tenant-acme", "a/b c+ü.bin", minio.StatObjectOptions{})
	require.NoError(t, err)
	require.Equal(t, int64(len(data)), i.Size)
	require.Equal(t, "text/x", i.ContentType)
	require.Equal(t, "red", i.UserMetadata["Color"])
	require.WithinDuration(t, time.Now(), i.LastModified, time.Minute)

	part := minio.GetObjectOptions{}
	require.NoError(t, part.SetRange(131_000, 262_200))
	got, err = get(t, c, "a/b c+ü.bin", part)
	require.NoError(t, err)
	require.True(t, bytes.Equal(data[131_000:262_201], got))

	_, err = c.CopyObject(t.Context(), minio.CopyDestOptions{Bucket: "tenant-acme", Object: "copy"}, minio.CopySrcOptions{Bucket: "tenant-acme", Object: "a/b c+ü.bin"})
	require.NoError(t, err)
	got, err = get(t, c, "copy", minio.GetObjectOptions{})
	require.NoError(t, err)
	require.True(t, bytes.Equal(data, got))

	put(t, c, "empty", nil, minio.PutObjectOptions{})
	require.Equal(t, []string{"a/b c+ü.bin", "copy", "empty"}, names(t, c, minio.ListObjectsOptions{Recursive: true}))
	require.NoError(t, c.RemoveObject(t.Context(), "tenant-acme", "copy", minio.RemoveObjectOptions{}))
	require.NoError(t, c.RemoveObject(t.Context(), "tenant-acme", "copy", minio.RemoveObjectOptions{}))
	_, err = get(t, c, "copy", minio.GetObjectOptions{})
	require.Equal(t, "NoSuchKey", code(err), "%v", err)
	require.Equal(t, []string{"empty", "a/"}, names(t, c, minio.ListObjectsOptions{}))

	// Clients of object stores read the same.
	store, err := w.JS.ObjectStore(t.Context(), "tenant-acme")
	require.NoError(t, err)
	got, err = store.GetBytes(t.Context(), "a/b c+ü.bin")
	require.NoError(t, err)
	require.True(t, bytes.Equal(data, got))
}

func TestPagesOfAListHaveEachObjectOnce(t *testing.T) {
	w := start(t)
	c := w.acme(t)
	var want []string
	for i := range 25 {
		want = append(want, fmt.Sprintf("d%d/%02d", i/10, i))
		put(t, c, want[i], []byte("x"), minio.PutObjectOptions{})
	}
	for _, v1 := range []bool{false, true} {
		require.Equal(t, want, names(t, c, minio.ListObjectsOptions{Recursive: true, MaxKeys: 4, UseV1: v1}))
		require.Equal(t, []string{"d0/", "d1/", "d2/"}, names(t, c, minio.ListObjectsOptions{MaxKeys: 1, UseV1: v1}))
		require.Equal(t, []string{"d1/"}, names(t, c, minio.ListObjectsOptions{Prefix: "d1", UseV1: v1}))
		require.Equal(t, want[10:20], names(t, c, minio.ListObjectsOptions{Prefix: "d1/", MaxKeys: 3, UseV1: v1}))
	}
}

func TestAnUploadInPartsIsSeenWhenItIsComplete(t *testing.T) {
	w := start(t)
	c := w.acme(t)
	core := minio.Core{Client: c}
	data := random(12 << 20)
	id, err := core.NewMultipartUpload(t.Context(), "tenant-acme", "big", minio.PutObjectOptions{UserMetadata: map[string]string{"color": "red"}})
	require.NoError(t, err)
	var parts []minio.CompletePart
	for n, from := 1, 0; from < len(data); n, from = n+1, from+5<<20 {
		piece := data[from:min(from+5<<20, len(data))]
		p, err := core.PutObjectPart(t.Context(), "tenant-acme", "big", id, n, bytes.NewReader(piece), int64(len(piece)), minio.PutObjectPartOptions{})
		require.NoError(t, err)
		parts = append(parts, minio.CompletePart{PartNumber: n, ETag: p.ETag})
	}
	require.Empty(t, names(t, c, minio.ListObjectsOptions{Recursive: true}))
	other, err := w.stores.Objects(t.Context(), "tenant-acme", "acme")
	require.NoError(t, err)
	_, err = core.CompleteMultipartUpload(t.Context(), "tenant-acme", "big", id, []minio.CompletePart{{PartNumber: 1, ETag: "0"}}, minio.PutObjectOptions{})
	require.Equal(t, "InvalidPart", code(err))
	_, err = core.CompleteMultipartUpload(t.Context(), "tenant-acme", "big", id, parts, minio.PutObjectOptions{})
	require.NoError(t, err)
	got, err := get(t, c, "big", minio.GetObjectOptions{})
	require.NoError(t, err)
	require.True(t, bytes.Equal(data, got))
	i, err := c.StatObject(t.Context(), "tenant-acme", "big", minio.StatObjectOptions{})
	require.NoError(t, err)
	require.Equal(t, "red", i.UserMetadata["Color"])
	stays := func() (n int) {
		require.NoError(t, other.Each(t.Context(), func(*jetstream.ObjectInfo) { n++ }))
		return n
	}
	require.Equal(t, 1, stays(), "no part stays")

	// One that was aborted leaves nothing; and what is written beside it is not read.
	id, err = core.NewMultipartUpload(t.Context(), "tenant-acme", "other", minio.PutObjectOptions{})
	require.NoError(t, err)
	_, err = core.PutObjectPart(t.Context(), "tenant-acme", "other", id, 1, strings.NewReader("x"), 1, minio.PutObjectPartOptions{})
	require.NoError(t, err)
	require.NoError(t, w.stores.Read(t.Context(), storage.Bucket{Name: "tenant-acme"}, func(o storage.Object) error {
		require.Equal(t, "big", o.Name)
		return nil
	}))
	require.NoError(t, core.AbortMultipartUpload(t.Context(), "tenant-acme", "other", id))
	require.Equal(t, 1, stays())
}

func TestAKeyOpensTheBucketOfItsTenantAlone(t *testing.T) {
	w := start(t)
	c := w.acme(t)
	put(t, c, "mine", []byte("secret"), minio.PutObjectOptions{})
	key, err := w.keys.Give(t.Context(), "tenant-globex", "tenant-globex-r1", "globex", 1)
	require.NoError(t, err)
	foreign := w.client(t, key)
	for what, err := range map[string]error{
		"get": func() error { _, err := get(t, foreign, "mine", minio.GetObjectOptions{}); return err }(),
		"put": func() error {
			_, err := foreign.PutObject(t.Context(), "tenant-acme", "x", strings.NewReader("x"), 1, minio.PutObjectOptions{})
			return err
		}(),
		"delete": foreign.RemoveObject(t.Context(), "tenant-acme", "mine", minio.RemoveObjectOptions{}),
		"copy": func() error {
			_, err := foreign.CopyObject(t.Context(), minio.CopyDestOptions{Bucket: "tenant-globex", Object: "x"}, minio.CopySrcOptions{Bucket: "tenant-acme", Object: "mine"})
			return err
		}(),
		"list": func() error {
			return (<-foreign.ListObjects(t.Context(), "tenant-acme", minio.ListObjectsOptions{})).Err
		}(),
	} {
		require.Equal(t, "NoSuchBucket", code(err), "%s: %v", what, err)
	}
	all, err := foreign.ListBuckets(t.Context())
	require.NoError(t, err)
	require.Len(t, all, 1)
	require.Equal(t, "tenant-globex", all[0].Name)
	require.Error(t, foreign.MakeBucket(t.Context(), "tenant-new", minio.MakeBucketOptions{}))
	require.Error(t, foreign.RemoveBucket(t.Context(), "tenant-globex"))
	got, err := get(t, c, "mine", minio.GetObjectOptions{})
	require.NoError(t, err)
	require.Equal(t, "secret", string(got))
}

func TestWhatHasNoGoodKeyIsRefused(t *testing.T) {
	w := start(t)
	c := w.acme(t)
	put(t, c, "mine", []byte("secret"), minio.PutObjectOptions{})
	known, err := w.keys.Known(t.Context(), "tenant-acme")
	require.NoError(t, err)
	require.Len(t, known, 1)
	key := known[0]
	again, err := w.keys.Give(t.Context(), "tenant-acme", "tenant-acme-r1", "acme", 1)
	require.NoError(t, err)
	require.Equal(t, key, again)

	stat := func(c *minio.Client) string {
		_, err := get(t, c, "mine", minio.GetObjectOptions{})
		return code(err)
	}
	require.Equal(t, "SignatureDoesNotMatch", stat(w.client(t, gateway.Key{ID: key.ID, Secret: "guessed"})))
	for _, id := range []string{"tenant-acme-r1", "tenant-acme.tenant-acme-r2", "tenant-globex.tenant-acme-r1", "none", "a.b", "*.tenant-acme-r1", ">.x", "."} {
		require.Equal(t, "InvalidAccessKeyId", stat(w.client(t, gateway.Key{ID: id, Secret: key.Secret})), id)
	}
	for _, method := range []string{"GET", "HEAD", "PUT", "POST", "DELETE", "OPTIONS"} {
		r, err := http.NewRequestWithContext(t.Context(), method, w.url+"/tenant-acme/mine", strings.NewReader("x"))
		require.NoError(t, err)
		answer, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		require.Equal(t, http.StatusForbidden, answer.StatusCode, method)
	}
	link, err := c.PresignedGetObject(t.Context(), "tenant-acme", "mine", time.Minute, nil)
	require.NoError(t, err)
	read := func(at string) (int, string) {
		answer, err := http.Get(at)
		require.NoError(t, err)
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		return answer.StatusCode, string(text)
	}
	status, text := read(link.String())
	require.Equal(t, 200, status, text)
	require.Equal(t, "secret", text)
	status, _ = read(strings.Replace(link.String(), "/mine?", "/other?", 1))
	require.Equal(t, http.StatusForbidden, status)

	// A bucket that is made anew for another owner is not that of the key.
	require.NoError(t, w.stores.Delete(t.Context(), "tenant-acme", "acme"))
	_, err = w.stores.Ensure(t.Context(), storage.Spec{Name: "tenant-acme", Owner: "another"})
	require.NoError(t, err)
	require.Equal(t, "NoSuchBucket", stat(c))
	next, err := w.keys.Give(t.Context(), "tenant-acme", "tenant-acme-r1", "another", 1)
	require.NoError(t, err)
	require.NotEqual(t, key.Secret, next.Secret)
	require.Equal(t, "SignatureDoesNotMatch", stat(c))
	require.Equal(t, "NoSuchKey", stat(w.client(t, next)))

	require.NoError(t, w.keys.Revoke(t.Context(), "tenant-acme", "tenant-acme-r1", "acme", 1), "another's key is left alone")
	require.Equal(t, "NoSuchKey", stat(w.client(t, next)))
	require.NoError(t, w.keys.Revoke(t.Context(), "tenant-acme", "tenant-acme-r1", "another", 1))
	require.NoError(t, w.keys.Revoke(t.Context(), "tenant-acme", "tenant-acme-r1", "another", 1))
	require.Equal(t, "InvalidAccessKeyId", stat(w.client(t, next)))
	last, err := w.keys.Give(t.Context(), "tenant-acme", "tenant-acme-r1", "another", 1)
	require.NoError(t, err)
	require.Equal(t, "SignatureDoesNotMatch", stat(w.client(t, next)))
	require.Equal(t, "NoSuchKey", stat(w.client(t, last)))
}

func TestNothingIsReadOfWhoHasNoRoom(t *testing.T) {
	w := start(t)
	c := w.acme(t)
	w.full = true
	_, err := get(t, c, "mine", minio.GetObjectOptions{})
	require.Equal(t, "SlowDown", code(err))
}

func TestTheQuotaHoldsAndWhatIsFullCanBeEmptied(t *testing.T) {
	w := start(t)
	_, err := w.stores.Ensure(t.Context(), storage.Spec{Name: "tenant-acme", Owner: "acme", Quota: 1 << 20})
	require.NoError(t, err)
	c := w.acme(t)
	put(t, c, "kept", random(700_000), minio.PutObjectOptions{})
	_, err = c.PutObject(t.Context(), "tenant-acme", "more", bytes.NewReader(random(700_000)), 700_000, minio.PutObjectOptions{})
	require.Equal(t, "EntityTooLarge", code(err), "%v", err)
	require.Contains(t, err.Error(), "quota is 1048576 bytes")
	require.Equal(t, []string{"kept"}, names(t, c, minio.ListObjectsOptions{}))
	put(t, c, "less", random(200_000), minio.PutObjectOptions{}) // what was written of the other one is not there

	// Until nothing at all goes in.
	for n := 0; ; n++ {
		if _, err := c.PutObject(t.Context(), "tenant-acme", fmt.Sprint("n", n), bytes.NewReader(random(2000)), 2000, minio.PutObjectOptions{}); err != nil {
			require.Equal(t, "EntityTooLarge", code(err))
			break
		}
	}
	for n := 0; ; n++ {
		if _, err := c.PutObject(t.Context(), "tenant-acme", fmt.Sprint("m", n), strings.NewReader(""), 0, minio.PutObjectOptions{}); err != nil {
			require.Equal(t, "EntityTooLarge", code(err))
			break
		}
	}
	require.NoError(t, c.RemoveObject(t.Context(), "tenant-acme", "kept", minio.RemoveObjectOptions{}))
	require.NotContains(t, names(t, c, minio.ListObjectsOptions{}), "kept")
	put(t, c, "more", random(500_000), minio.PutObjectOptions{})
}

func TestConditionsHold(t *testing.T) {
	w := start(t)
	c := w.acme(t)
	first := minio.PutObjectOptions{}
	first.SetMatchETagExcept("*")
	errs := make(chan error, 8)
	for i := range cap(errs) {
		go func() {
			_, err := c.PutObject(t.Context(), "tenant-acme", "lock", strings.NewReader(fmt.Sprint(i)), 1, first)
			errs <- err
		}()
	}
	won := 0
	for range cap(errs) {
		if err := <-errs; err == nil {
			won++
		} else {
			require.Equal(t, "PreconditionFailed", code(err), "%v", err)
		}
	}
	require.Equal(t, 1, won)
	i, err := c.StatObject(t.Context(), "tenant-acme", "lock", minio.StatObjectOptions{})
	require.NoError(t, err)
	next := minio.PutObjectOptions{}
	next.SetMatchETag(i.ETag)
	put(t, c, "lock", []byte("next"), next)
	_, err = c.PutObject(t.Context(), "tenant-acme", "lock", strings.NewReader("late"), 4, next)
	require.Equal(t, "PreconditionFailed", code(err), "%v", err)
	st, err := w.JS.Stream(t.Context(), "OBJ_tenant-acme")
	require.NoError(t, err)
	require.Equal(t, uint64(2), st.CachedInfo().State.Msgs, "nothing is left of the others")
}

func TestABodyThatIsCutOffChangesNothing(t *testing.T) {
	w := start(t)
	c := w.acme(t)
	put(t, c, "kept", []byte("whole"), minio.PutObjectOptions{})
	link, err := c.PresignedPutObject(t.Context(), "tenant-acme", "kept", time.Minute)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodPut, link.String(), io.MultiReader(bytes.NewReader(random(500_000)), cutOff(cancel)))
	require.NoError(t, err)
	r.ContentLength = 1 << 20
	_, err = http.DefaultClient.Do(r)
	require.Error(t, err)
	st, err := w.JS.Stream(t.Context(), "OBJ_tenant-acme")
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		i, err := st.Info(t.Context())
		return err == nil && i.State.Msgs == 2
	}, 20*time.Second, 20*time.Millisecond)
	got, err := get(t, c, "kept", minio.GetObjectOptions{})
	require.NoError(t, err)
	require.Equal(t, "whole", string(got))
}

// cutOff ends a request in the middle.
type cutOff func()

func (c cutOff) Read([]byte) (int, error) {
	c()
	return 0, errors.New("cut off")
}

func TestWhatWasNeverWholeIsTidied(t *testing.T) {
	w := start(t)
	c := w.acme(t)
	put(t, c, "kept", random(200_000), minio.PutObjectOptions{})
	for _, id := range []string{"LOSTLOSTLOSTLOSTLOST01", "LOSTLOSTLOSTLOSTLOST02"} {
		_, err := w.JS.Publish(t.Context(), "$O.tenant-acme.C."+id, []byte("a part"))
		require.NoError(t, err)
	}
	o, err := w.stores.Objects(t.Context(), "tenant-acme", "acme")
	require.NoError(t, err)
	require.NoError(t, w.g.Tidy(t.Context()))
	st, err := w.JS.Stream(t.Context(), "OBJ_tenant-acme")
	require.NoError(t, err)
	require.Equal(t, uint64(5), st.CachedInfo().State.Msgs, "which may be on their way")
	require.NoError(t, o.Tidy(t.Context(), 0))
	i, err := st.Info(t.Context())
	require.NoError(t, err)
	require.Equal(t, uint64(3), i.State.Msgs)
	got, err := get(t, c, "kept", minio.GetObjectOptions{})
	require.NoError(t, err)
	require.Len(t, got, 200_000)

	require.NoError(t, w.stores.Delete(t.Context(), "tenant-acme", "acme"))
	require.NoError(t, w.g.Tidy(t.Context()), "what has no bucket any more has nothing to tidy")
}
