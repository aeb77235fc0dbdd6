package storage_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/internal/s3"
	"github.com/bcc94042/instar/providers"
	"github.com/bcc94042/instar/providers/platform/storage"
	"github.com/bcc94042/instar/providers/platform/storage/storagetest"
)

// store is a server of this test that speaks S3.
func store(t *testing.T) *minio.Client {
	t.Helper()
	return served(t, gofakes3.New(s3mem.New()).Server())
}

func served(t *testing.T, h http.Handler) *minio.Client {
	t.Helper()
	s := httptest.NewTLSServer(h) // without TLS it would keep the signatures of parts, too
	t.Cleanup(s.Close)
	c, err := minio.New(s.Listener.Addr().String(), &minio.Options{
		Creds: credentials.NewStaticV4("key", "secret", ""), Secure: true, Transport: s.Client().Transport, Region: "eu-central-1", MaxRetries: 2,
	})
	require.NoError(t, err)
	return c
}

// quiet is a client of a store that this test ends, which gives up what says nothing for a while.
func quiet(t *testing.T, h http.Handler, within time.Duration) *minio.Client {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	tr, err := s3.Transport(false, within)
	require.NoError(t, err)
	t.Cleanup(tr.CloseIdleConnections)
	c, err := minio.New(s.Listener.Addr().String(), &minio.Options{Creds: credentials.NewStaticV4("key", "secret", ""), Transport: tr, Region: "eu-central-1", MaxRetries: 2})
	require.NoError(t, err)
	return c
}

// An undo has hours, and a store that hangs may answer after none of them.
func TestAStoreThatFallsSilentIsGivenUp(t *testing.T) {
	t.Parallel()
	fake, ends := gofakes3.New(s3mem.New()).Server(), make(chan struct{})
	silent := quiet(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || !strings.HasSuffix(r.URL.Path, "/large") {
			fake.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Length", "1000")
		w.Header().Set("Last-Modified", time.Now().UTC().Format(http.TimeFormat))
		_, _ = w.Write(make([]byte, 500))
		w.(http.Flusher).Flush()
		<-ends
	}), time.Second)
	t.Cleanup(func() { close(ends) }) // before the server ends, which waits for it
	s := &storage.S3{Client: silent, Region: "eu-central-1"}
	b, err := s.Ensure(t.Context(), storage.Spec{Name: "tenant-acme", Owner: "acme/own"})
	require.NoError(t, err)
	_, err = silent.PutObject(t.Context(), b.Name, "large", bytes.NewReader(make([]byte, 1000)), 1000, minio.PutObjectOptions{DisableMultipart: true})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err = s.Read(ctx, b, func(o storage.Object) error {
		from, err := o.Open()
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, from)
		return errors.Join(err, from.Close())
	})
	require.NoError(t, ctx.Err())
	require.True(t, providers.IsUnavailable(err), "%v", err)
}

func suite(s *storage.S3) storagetest.Suite {
	return storagetest.Suite{
		Provider: s, NoQuota: "S3 has no quotas",
		Put: func(ctx context.Context, b storage.Bucket, key string, data []byte) error {
			_, err := s.Client.PutObject(ctx, b.Name, b.Prefix+key, bytes.NewReader(data), int64(len(data)), minio.PutObjectOptions{})
			return err
		},
		Get: func(ctx context.Context, b storage.Bucket, key string) ([]byte, error) {
			o, err := s.Client.GetObject(ctx, b.Name, b.Prefix+key, minio.GetObjectOptions{})
			if err != nil {
				return nil, err
			}
			defer func() { _ = o.Close() }()
			return io.ReadAll(o)
		},
		Foreign: func(ctx context.Context, name string) (storage.Bucket, error) {
			if s.Shared != "" {
				return storage.Bucket{Name: s.Shared, Prefix: name + "/"}, nil
			}
			return storage.Bucket{Name: name}, s.Client.MakeBucket(ctx, name, minio.MakeBucketOptions{})
		},
	}
}

func TestBucketsOfS3KeepTheContract(t *testing.T) {
	t.Parallel()
	storagetest.Run(t, suite(&storage.S3{Client: store(t), Region: "eu-central-1"}))
}

func TestPrefixesOfS3KeepTheContract(t *testing.T) {
	t.Parallel()
	c := store(t)
	require.NoError(t, c.MakeBucket(t.Context(), "shared", minio.MakeBucketOptions{}))
	storagetest.Run(t, suite(&storage.S3{Client: c, Shared: "shared"}))
}

// Another account has the name, and lets everybody write.
func TestABucketOfAnotherAccountIsNotTaken(t *testing.T) {
	t.Parallel()
	all := gofakes3.New(s3mem.New()).Server()
	s := &storage.S3{Client: served(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" { // the buckets of this account
			_, _ = io.WriteString(w, "<ListAllMyBucketsResult><Buckets></Buckets></ListAllMyBucketsResult>")
			return
		}
		all.ServeHTTP(w, r)
	}))}
	require.NoError(t, s.Client.MakeBucket(t.Context(), "tenant-acme", minio.MakeBucketOptions{}))
	_, err := s.Ensure(t.Context(), storage.Spec{Name: "tenant-acme", Owner: "o"})
	require.True(t, providers.IsInvalid(err), "%v", err)
	require.ErrorContains(t, err, "another account's")
	for o := range s.Client.ListObjectsIter(t.Context(), "tenant-acme", minio.ListObjectsOptions{Recursive: true}) {
		t.Error("it has", o.Key, o.Err)
	}
}

// Two installations on one account, with a tenant of the same name.
func TestAnotherInstallationsIsLeftAlone(t *testing.T) {
	t.Parallel()
	c := store(t)
	require.NoError(t, c.MakeBucket(t.Context(), "shared", minio.MakeBucketOptions{}))
	for _, shared := range []string{"", "shared"} {
		ours, theirs := &storage.S3{Client: c, Shared: shared, Installation: "one"}, &storage.S3{Client: c, Shared: shared, Installation: "two"}
		want := storage.Spec{Name: "tenant-acme", Owner: "o"}
		b, err := theirs.Ensure(t.Context(), want)
		require.NoError(t, err)
		require.NoError(t, suite(theirs).Put(t.Context(), b, "a", []byte("kept")))
		_, err = ours.Ensure(t.Context(), want)
		require.True(t, providers.IsInvalid(err), "%v", err)
		var another *storage.AnothersError
		require.ErrorAs(t, ours.Delete(t.Context(), want.Name, want.Owner), &another)
		data, err := suite(theirs).Get(t.Context(), b, "a")
		require.NoError(t, err)
		require.Equal(t, "kept", string(data))
	}
}

// What a crash between two steps of Ensure or Delete has left is a bucket without objects.
func TestABucketWithoutObjectsIsNobodys(t *testing.T) {
	t.Parallel()
	s := &storage.S3{Client: store(t), Prefix: "one-"}
	made := func() {
		require.NoError(t, s.Client.MakeBucket(t.Context(), "one-tenant-acme", minio.MakeBucketOptions{}))
	}
	made()
	b, err := s.Ensure(t.Context(), storage.Spec{Name: "tenant-acme", Owner: "o"})
	require.NoError(t, err)
	require.Equal(t, storage.Bucket{ID: "s3/one-tenant-acme", Name: "one-tenant-acme", Endpoint: s.Client.EndpointURL().String()}, b)
	require.NoError(t, s.Delete(t.Context(), "tenant-acme", "o"))
	made()
	require.NoError(t, s.Delete(t.Context(), "tenant-acme", "o"))
	there, err := s.Client.BucketExists(t.Context(), "one-tenant-acme")
	require.NoError(t, err)
	require.False(t, there)
}

// Who removes an object while the list that it was in is read has another try see what is there.
func TestAnObjectThatIsRemovedMeanwhileIsTriedAgain(t *testing.T) {
	t.Parallel()
	s := &storage.S3{Client: store(t)}
	b, err := s.Ensure(t.Context(), storage.Spec{Name: "tenant-acme", Owner: "o"})
	require.NoError(t, err)
	require.NoError(t, suite(s).Put(t.Context(), b, "a", []byte("kept")))
	err = s.Read(t.Context(), b, func(o storage.Object) error {
		require.NoError(t, s.Client.RemoveObject(t.Context(), b.Name, "a", minio.RemoveObjectOptions{}))
		from, err := o.Open()
		require.NoError(t, err)
		_, err = io.ReadAll(from)
		require.NoError(t, from.Close())
		return err
	})
	require.True(t, providers.IsUnavailable(err), "%v", err)
}

func TestAStoreThatIsGoneIsUnavailable(t *testing.T) {
	t.Parallel()
	c, err := minio.New("127.0.0.1:1", &minio.Options{Creds: credentials.NewStaticV4("key", "secret", ""), Region: "eu-central-1", MaxRetries: 1})
	require.NoError(t, err)
	_, err = (&storage.S3{Client: c}).Ensure(t.Context(), storage.Spec{Name: "tenant-acme", Owner: "o"})
	require.True(t, providers.IsUnavailable(err), "%v", err)
}

// A tenant can remove the mark of its bucket: what is left then is told, and goes when the mark is there again.
func TestABucketWithoutItsMarkIsNotSaidToBeGone(t *testing.T) {
	t.Parallel()
	c := store(t)
	require.NoError(t, c.MakeBucket(t.Context(), "shared", minio.MakeBucketOptions{}))
	for _, shared := range []string{"", "shared"} {
		s := &storage.S3{Client: c, Shared: shared, Installation: "one"}
		b, err := s.Ensure(t.Context(), storage.Spec{Name: "tenant-acme", Owner: "o"})
		require.NoError(t, err)
		in := suite(s)
		require.NoError(t, in.Put(t.Context(), b, "a", []byte("kept")))
		require.NoError(t, c.RemoveObject(t.Context(), b.Name, b.Prefix+".instar-owner", minio.RemoveObjectOptions{}))
		err = s.Delete(t.Context(), "tenant-acme", "o")
		var another *storage.AnothersError
		require.ErrorAs(t, err, &another)
		require.ErrorContains(t, err, `write "one o" into the object `+b.Prefix+`.instar-owner again`)
		require.NoError(t, in.Put(t.Context(), b, ".instar-owner", []byte("one o")))
		require.NoError(t, s.Delete(t.Context(), "tenant-acme", "o"))
		require.NoError(t, s.Delete(t.Context(), "tenant-acme", "o"))
		_, err = in.Get(t.Context(), b, "a")
		require.Error(t, err)
	}
}

// A removal that was interrupted when the mark had gone, and its versions had not, goes on.
func TestARemovalGoesOnBehindTheMark(t *testing.T) {
	t.Parallel()
	c := store(t)
	require.NoError(t, c.MakeBucket(t.Context(), "shared", minio.MakeBucketOptions{}))
	for _, shared := range []string{"", "shared"} {
		s := &storage.S3{Client: c, Shared: shared}
		b, err := s.Ensure(t.Context(), storage.Spec{Name: "tenant-acme", Owner: "o"})
		require.NoError(t, err)
		require.NoError(t, c.EnableVersioning(t.Context(), b.Name))
		put := suite(s).Put
		for _, text := range []string{"o", "o"} {
			require.NoError(t, put(t.Context(), b, ".instar-owner", []byte(text)))
		}
		require.NoError(t, c.RemoveObject(t.Context(), b.Name, b.Prefix+".instar-owner", minio.RemoveObjectOptions{}))
		require.NoError(t, s.Delete(t.Context(), "tenant-acme", "o"))
		there, err := c.BucketExists(t.Context(), b.Name)
		require.NoError(t, err)
		require.Equal(t, shared != "", there)
		if there {
			for o := range c.ListObjectsIter(t.Context(), b.Name, minio.ListObjectsOptions{Prefix: b.Prefix, Recursive: true, WithVersions: true}) {
				t.Error("it has", o.Key, o.VersionID, o.Err)
			}
		}
	}
}

// What a tenant has written into its mark is told in part, behind what is to be done.
func TestALongMarkIsToldInPart(t *testing.T) {
	t.Parallel()
	s := &storage.S3{Client: store(t)}
	want := storage.Spec{Name: "tenant-acme", Owner: "o"}
	b, err := s.Ensure(t.Context(), want)
	require.NoError(t, err)
	require.NoError(t, suite(s).Put(t.Context(), b, ".instar-owner", bytes.Repeat([]byte("\x1b"), 5000)))
	mark := `. Its mark is "` + strings.Repeat(`\x1b`, 100) + `"`
	require.EqualError(t, s.Delete(t.Context(), want.Name, want.Owner), "invalid: the bucket s3/tenant-acme is left alone, as its mark is not of o: if it is that one's, write \"o\" into the object .instar-owner again, else remove it by hand"+mark)
	_, err = s.Ensure(t.Context(), want)
	require.EqualError(t, err, "invalid: the bucket s3/tenant-acme is not of o: remove it, or take another name"+mark)
}

// Nothing is left of what was overwritten, or never finished.
func TestVersionsAndUnfinishedUploadsGo(t *testing.T) {
	t.Parallel()
	s := &storage.S3{Client: store(t)}
	b, err := s.Ensure(t.Context(), storage.Spec{Name: "tenant-acme", Owner: "o"})
	require.NoError(t, err)
	require.NoError(t, s.Client.EnableVersioning(t.Context(), b.Name))
	put := suite(s).Put
	for _, text := range []string{"one", "two"} {
		require.NoError(t, put(t.Context(), b, "a", []byte(text)))
	}
	_, err = minio.Core{Client: s.Client}.NewMultipartUpload(t.Context(), b.Name, "b", minio.PutObjectOptions{})
	require.NoError(t, err)
	require.NoError(t, s.Delete(t.Context(), "tenant-acme", "o"))
	there, err := s.Client.BucketExists(t.Context(), b.Name)
	require.NoError(t, err)
	require.False(t, there)
}
