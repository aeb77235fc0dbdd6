package certificates_test

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/certmagic"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/kv/certificates"
	"github.com/bcc94042/instar/kv/kvtest"
	"github.com/bcc94042/instar/streams"
)

const bucket = "certificates"

// sealer is AES-GCM with a random nonce before what it has sealed.
type sealer struct{ cipher.AEAD }

func newSealer(t testing.TB, key string) sealer {
	block, err := aes.NewCipher([]byte(key))
	require.NoError(t, err)
	aead, err := cipher.NewGCM(block)
	require.NoError(t, err)
	return sealer{aead}
}

func (s sealer) Encrypt(plain, associated []byte) ([]byte, error) {
	nonce := make([]byte, s.NonceSize())
	_, _ = rand.Read(nonce) // never fails
	return s.Seal(nonce, nonce, plain, associated), nil
}

func (s sealer) Decrypt(sealed, associated []byte) ([]byte, error) {
	if len(sealed) < s.NonceSize() {
		return nil, errors.New("it is too short")
	}
	return s.Open(nil, sealed[:s.NonceSize()], sealed[s.NonceSize():], associated)
}

const key = "0123456789abcdef"

func setup(t testing.TB) (*certificates.Storage, *kvtest.Node) {
	n := kvtest.Start(t)
	n.Create(t, bucket)
	return of(t, n.JS), n
}

func of(t testing.TB, js jetstream.JetStream) *certificates.Storage {
	return certificates.New(js, bucket, time.Second, newSealer(t, key))
}

// The storage that certmagic comes with keeps the same contract.
func TestItDoesWhatTheStorageInFilesDoes(t *testing.T) {
	t.Parallel()
	bucket, _ := setup(t)
	for name, s := range map[string]certmagic.Storage{"Bucket": bucket, "Files": &certmagic.FileStorage{Path: t.TempDir()}} {
		t.Run(name, func(t *testing.T) { contract(t, s) })
	}
}

func contract(t *testing.T, s certmagic.Storage) {
	ctx := t.Context()
	const site = "certificates/acme-v02/wildcard_.example.com"
	absent := func(name string) {
		t.Helper()
		_, err := s.Load(ctx, name)
		require.ErrorIs(t, err, fs.ErrNotExist)
		_, err = s.Stat(ctx, name)
		require.ErrorIs(t, err, fs.ErrNotExist)
		_, err = s.List(ctx, name, true)
		require.ErrorIs(t, err, fs.ErrNotExist)
		require.False(t, s.Exists(ctx, name))
		require.NoError(t, s.Delete(ctx, name))
	}
	absent(site + "/a.key")

	began := time.Now().Add(-time.Second) // by a coarser clock
	for name, value := range map[string]string{
		site + "/a.key": "private", site + "/a.crt": "", site + "/deep/er": "x", "certificates/acme-v02x/b": "y", "ocsp/Äö *>.=": "z",
	} {
		require.NoError(t, s.Store(ctx, name, []byte("older")))
		require.NoError(t, s.Store(ctx, name, []byte(value)))
		got, err := s.Load(ctx, name)
		require.NoError(t, err)
		require.Equal(t, value, string(got))
		info, err := s.Stat(ctx, name)
		require.NoError(t, err)
		require.WithinRange(t, info.Modified, began, time.Now().Add(time.Second))
		require.Equal(t, certmagic.KeyInfo{Key: name, Modified: info.Modified, Size: int64(len(value)), IsTerminal: true}, info)
		require.True(t, s.Exists(ctx, name))
	}
	absent(site + "/a")
	absent("certificates/acme")
	info, err := s.Stat(ctx, site)
	require.NoError(t, err)
	require.False(t, info.IsTerminal)
	require.True(t, s.Exists(ctx, "certificates"))

	list := func(want []string, folder string, recursive bool) {
		t.Helper()
		got, err := s.List(ctx, folder, recursive)
		require.NoError(t, err)
		slices.Sort(got)
		require.Equal(t, want, got)
	}
	list([]string{site + "/a.crt", site + "/a.key", site + "/deep"}, site, false)
	list([]string{site + "/a.crt", site + "/a.key", site + "/deep", site + "/deep/er"}, site, true)
	list([]string{"certificates/acme-v02", "certificates/acme-v02x"}, "certificates", false)
	list([]string{"ocsp/Äö *>.="}, "ocsp/", true)
	list([]string{"certificates", "ocsp"}, "", false)
	list(nil, site+"/a.key", true)

	require.NoError(t, s.Delete(ctx, site+"/a.key"))
	absent(site + "/a.key")
	require.NoError(t, s.Delete(ctx, "certificates/acme-v02"))
	absent(site + "/deep/er")
	list([]string{"certificates/acme-v02x"}, "certificates", false)
	require.NoError(t, s.Store(ctx, site+"/a.key", []byte("again")))
	got, err := s.Load(ctx, site+"/a.key")
	require.NoError(t, err)
	require.Equal(t, "again", string(got))
}

func TestNothingIsInTheClear(t *testing.T) {
	t.Parallel()
	s, n := setup(t)
	ctx := t.Context()
	secret := strings.Repeat("-----BEGIN EC PRIVATE KEY-----", 3)
	require.NoError(t, s.Store(ctx, "a/one.key", []byte(secret)))
	require.NoError(t, s.Store(ctx, "a/two.key", []byte(secret)))
	m, err := streams.Last(ctx, n.NC, streams.BucketStream(bucket), streams.BucketSubject(bucket, "file.a.one=2Ekey"))
	require.NoError(t, err)
	require.NotContains(t, string(m.Data), "PRIVATE")

	n.Put(t, bucket, "file.a.two=2Ekey", string(m.Data))
	_, err = s.Load(ctx, "a/two.key")
	require.ErrorContains(t, err, "sealed with another key", "it was sealed for another name")
	other := certificates.New(n.JS, bucket, time.Second, newSealer(t, "fedcba9876543210"))
	_, err = other.Load(ctx, "a/one.key")
	require.ErrorContains(t, err, "sealed with another key")
	require.True(t, other.Exists(ctx, "a/one.key"), "it is not asked for again")
}

func TestWhatIsDeletedLeavesNothing(t *testing.T) {
	t.Parallel()
	s, n := setup(t)
	ctx := t.Context()
	require.NoError(t, s.Store(ctx, "a", []byte("x")))
	require.NoError(t, s.Store(ctx, "a/b/c", []byte("x")))
	require.NoError(t, s.Store(ctx, "ab", []byte("x")))
	require.NoError(t, s.Delete(ctx, "/a/"))
	left, _, err := streams.Subjects(ctx, n.NC, streams.BucketStream(bucket), ">", 0)
	require.NoError(t, err)
	require.Equal(t, map[string]uint64{streams.BucketSubject(bucket, "file.ab"): 1}, left)

	require.ErrorContains(t, s.Delete(ctx, "/"), "a name is needed", "not everything at once")
	require.ErrorContains(t, s.Store(ctx, strings.Repeat(".", 700), nil), "too long")
	require.NoError(t, s.Store(ctx, strings.Repeat("/"+strings.Repeat("a", 63), 8), nil))
}

// What somebody deletes with another tool leaves a marker.
func TestADeletionByOthersIsOne(t *testing.T) {
	t.Parallel()
	s, n := setup(t)
	require.NoError(t, s.Store(t.Context(), "a", []byte("x")))
	n.Remove(t, bucket, "file.a")
	_, err := s.Load(t.Context(), "a")
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.False(t, s.Exists(t.Context(), "a"))
}

// An end of the context is one of the question.
func TestItEndsWithTheContext(t *testing.T) {
	t.Parallel()
	s, n := setup(t)
	n.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	require.Error(t, s.Store(ctx, "a", nil))
	<-ctx.Done() // a connection that knows of the end already refuses at once
	_, err := s.Load(ctx, "a")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotErrorIs(t, err, fs.ErrNotExist)
	_, err = s.List(ctx, "", true)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Error(t, s.Delete(ctx, "a"))
	require.False(t, s.Exists(ctx, "a"))
	n.Restart(t)
}
