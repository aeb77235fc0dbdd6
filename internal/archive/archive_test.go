package archive

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/internal/s3"
)

// store is one that speaks S3, which the environment leads to.
func store(t *testing.T, around func(http.Handler) http.Handler) *s3mem.Backend {
	t.Helper()
	backend := s3mem.New()
	require.NoError(t, backend.CreateBucket("bkt"))
	s := httptest.NewTLSServer(around(gofakes3.New(backend).Server())) // without TLS it would keep the signatures of parts, too
	t.Cleanup(s.Close)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o600))
	for name, value := range map[string]string{"AWS_ENDPOINT_URL": s.URL + "/", "AWS_CA_BUNDLE": ca, "AWS_REGION": "eu-central-1", "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "TMPDIR": t.TempDir()} {
		t.Setenv(name, value)
	}
	return backend
}

func plainly(h http.Handler) http.Handler { return h }

func text(s string) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := io.WriteString(w, s)
		return err
	}
}

func read(t *testing.T, from string) string {
	t.Helper()
	in, err := Open(t.Context(), from, nil)
	require.NoError(t, err)
	defer in.Close()
	all, err := io.ReadAll(in)
	require.NoError(t, err)
	return string(all)
}

// What a slow uplink takes must not hold the server back, which ends an answer that nobody reads: everything is there before the upload begins.
func TestAnUploadBeginsWhenEverythingIsThere(t *testing.T) {
	var filled, early atomic.Bool
	store(t, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			early.Store(early.Load() || r.Method == http.MethodPut && !filled.Load())
			h.ServeHTTP(w, r)
		})
	})
	whole := strings.Repeat("0123456789abcdef", 17<<20/16) // more than one part
	at, err := Keep(t.Context(), "s3://bkt/large", "name", nil, func(w io.Writer) error {
		left, err := os.ReadDir(os.TempDir())
		require.NoError(t, err)
		require.Empty(t, left, "it has no name, so that nothing can leave it behind")
		err = text(whole)(w)
		filled.Store(true)
		return err
	})
	require.NoError(t, err)
	require.False(t, early.Load())
	require.True(t, whole == read(t, at))
	_, err = Keep(t.Context(), "s3://bkt/half", "name", nil, func(w io.Writer) error { return errors.Join(text("half")(w), io.ErrUnexpectedEOF) })
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	_, err = Open(t.Context(), "s3://bkt/half", nil)
	require.ErrorContains(t, err, "does not exist")
	t.Setenv("TMPDIR", filepath.Join(os.TempDir(), "none"))
	_, err = Keep(t.Context(), "s3://bkt/none", "name", nil, text("x"))
	require.ErrorContains(t, err, "TMPDIR")
}

// Whoever may not write is told before everything is copied for nothing.
func TestAStoreThatRefusesIsAskedFirst(t *testing.T) {
	store(t, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusForbidden) })
	})
	_, err := Keep(t.Context(), "s3://bkt/a", "name", nil, func(io.Writer) error { t.Error("it is filled"); return nil })
	require.ErrorContains(t, err, "cannot write s3://bkt/a")
}

// A connection that is lost in the midst is made again where it was lost; one that stays away is no damage of the backup.
func TestReadingGoesOnOverALostConnection(t *testing.T) {
	whole := strings.Repeat("0123456789abcdef", 1<<16)
	var asked atomic.Int32
	most := int32(2) // times that an answer is cut off
	gone := func(*http.Request) <-chan struct{} { return nil }
	store(t, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodGet || asked.Add(1) > most {
				h.ServeHTTP(w, r)
				return
			}
			h.ServeHTTP(&cutting{ResponseWriter: w, left: len(whole) / 4, gone: gone(r)}, r)
		})
	})
	at, err := Keep(t.Context(), "s3://bkt/a", "name", nil, text(whole))
	require.NoError(t, err)
	require.True(t, whole == read(t, at))
	require.EqualValues(t, most+1, asked.Load())

	within = 500 * time.Millisecond
	t.Cleanup(func() { within = s3.Silent })
	gone = func(r *http.Request) <-chan struct{} { return r.Context().Done() }
	asked.Store(0)
	require.True(t, whole == read(t, at), "also over one that says nothing more")
	require.Greater(t, asked.Load(), most)
	gone = func(*http.Request) <-chan struct{} { return nil }

	most = 1 << 20
	in, err := Open(t.Context(), at, nil)
	require.NoError(t, err)
	defer in.Close()
	d := in.(*download)
	d.wait, d.size = time.Millisecond, d.size+1 // the store ends every time
	_, err = io.ReadAll(in)
	require.ErrorContains(t, err, "the connection to the store ended at byte 1048576 of 1048577")
	_, err = Open(t.Context(), "s3://bkt/none", nil)
	require.ErrorContains(t, err, "does not exist")
}

// cutting is an answer whose connection is lost.
type cutting struct {
	http.ResponseWriter
	left int
	gone <-chan struct{} // where there is one, the connection falls silent until then
}

func (c *cutting) Write(b []byte) (int, error) {
	n, err := c.ResponseWriter.Write(b[:min(len(b), c.left)])
	if c.left -= n; c.left == 0 {
		_ = http.NewResponseController(c.ResponseWriter).Flush()
		if c.gone != nil {
			<-c.gone
		}
		panic(http.ErrAbortHandler)
	}
	return n, err
}

// What was meant for another store must not become a directory of that name, and what is none is named.
func TestPlacesThatAreNone(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, bad := range []string{"gs://bkt/x", "s3:/bkt/y", "https://host/x", "S3://bkt/x"} {
		_, err := Keep(t.Context(), bad, "name", nil, text("x"))
		require.ErrorContains(t, err, "is no place for backups")
		_, err = Open(t.Context(), bad, nil)
		require.ErrorContains(t, err, "is no place for backups")
	}
	left, err := os.ReadDir(".")
	require.NoError(t, err)
	require.Empty(t, left)
	_, err = Open(t.Context(), ".", nil)
	require.ErrorContains(t, err, "is a directory: name the backup in it")
	at, err := Keep(t.Context(), "./gs:/x", "name", nil, text("x"))
	require.NoError(t, err)
	require.Equal(t, "./gs:/x", at)
	at, err = Keep(t.Context(), "absent", "name", nil, text("x")) // a directory that is not there ends with a slash
	require.NoError(t, err)
	require.FileExists(t, at)
	require.Equal(t, "absent", at)
	at, err = Keep(t.Context(), "new/", "name", nil, text("x"))
	require.NoError(t, err)
	require.Equal(t, "new/name", at)
}

// A key is taken as it is written: what is special in a URL is not in a key.
func TestKeys(t *testing.T) {
	backend := store(t, plainly)
	for to, key := range map[string]string{
		"s3://bkt/a b#c": "a b#c", "s3://bkt/a?x=3": "a?x=3", "s3://bkt/a%20b": "a%20b", "s3://bkt/a%zz": "a%zz", "s3://bkt/ä+": "ä+",
		"s3://bkt": "name", "s3://bkt/": "name", "s3://bkt/dir#1/": "dir#1/name", "s3://bkt/dir//": "dir//name",
	} {
		at, err := Keep(t.Context(), to, "name", nil, text(to))
		require.NoError(t, err, to)
		require.Equal(t, "s3://bkt/"+key, at)
		_, err = backend.HeadObject("bkt", key)
		require.NoError(t, err, to)
		require.Equal(t, to, read(t, at))
	}
	for _, bad := range []string{"s3://", "s3:///key"} {
		_, err := Keep(t.Context(), bad, "name", nil, text("x"))
		require.ErrorContains(t, err, "is not s3://bucket/key")
	}
}

// What would be left out of an address that was configured is refused.
func TestEndpoints(t *testing.T) {
	t.Parallel()
	for good, host := range map[string]string{"http://127.0.0.1:9000": "127.0.0.1:9000", "https://s3.example.com/": "s3.example.com"} {
		got, _, err := endpointOf(good)
		require.NoError(t, err)
		require.Equal(t, host, got)
	}
	for _, bad := range []string{"https://example.com/minio/", "https://example.com/?x=1", "https://example.com/#x", "https://user:secret@example.com", "example.com", "ftp://example.com", "https://"} {
		_, _, err := endpointOf(bad)
		require.ErrorContains(t, err, "AWS_ENDPOINT_URL", bad)
		require.NotContains(t, err.Error(), "secret")
	}
}

// A store that keeps something else than what it was sent is noticed; one that lets nobody look is believed.
func TestWhatTheStoreKeeps(t *testing.T) {
	looks := func(w http.ResponseWriter) {}
	store(t, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodHead {
				looks(w)
				return
			}
			h.ServeHTTP(w, r)
		})
	})
	looks = func(w http.ResponseWriter) {
		w.Header().Set("Content-Length", "3")
		w.Header().Set("ETag", `"x"`)
		w.Header().Set("Last-Modified", "Mon, 02 Jan 2006 15:04:05 GMT")
	}
	_, err := Keep(t.Context(), "s3://bkt/a", "name", nil, text("four"))
	require.ErrorContains(t, err, "s3://bkt/a has 3 bytes, and 4 were sent")
	looks = func(w http.ResponseWriter) { w.WriteHeader(http.StatusNotFound) }
	_, err = Keep(t.Context(), "s3://bkt/a", "name", nil, text("four"))
	require.ErrorContains(t, err, "cannot look at s3://bkt/a")
	looks = func(w http.ResponseWriter) { w.WriteHeader(http.StatusForbidden) }
	_, err = Keep(t.Context(), "s3://bkt/a", "name", nil, text("four"))
	require.NoError(t, err)
}

// A file gets its name where the file system has no hard links, too, and replaces none.
func TestFilesWithoutHardLinks(t *testing.T) {
	t.Parallel()
	no := func(string, string) error { return &os.LinkError{Op: "link", Err: syscall.EPERM} }
	cannot := func(string, string) error { return errors.ErrUnsupported }
	for name, how := range map[string]naming{"Link": {os.Link, no}, "Exclusive": {no, renameExclusive}, "Rename": {no, cannot}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			to := filepath.Join(dir, "a")
			require.NoError(t, keepFile(to, how, text("new")))
			kept, err := os.ReadFile(to)
			require.NoError(t, err)
			require.Equal(t, "new", string(kept))
			require.ErrorContains(t, keepFile(to, how, text("newer")), "is there already")
			later := filepath.Join(dir, "b") // which somebody else writes meanwhile
			err = keepFile(later, how, func(w io.Writer) error {
				return errors.Join(os.WriteFile(later, []byte("other"), 0o600), text("new")(w))
			})
			require.ErrorIs(t, err, fs.ErrExist)
			kept, err = os.ReadFile(later)
			require.NoError(t, err)
			require.Equal(t, "other", string(kept))
			require.ErrorIs(t, keepFile(filepath.Join(dir, "c"), how, func(io.Writer) error { return io.ErrUnexpectedEOF }), io.ErrUnexpectedEOF)
			left, err := filepath.Glob(filepath.Join(dir, "*"))
			require.NoError(t, err)
			require.Equal(t, []string{to, later}, left)
		})
	}
	moved := filepath.Join(t.TempDir(), "a")
	require.NoError(t, keepFile(moved, naming{no, func(from, to string) error { return os.Rename(from, to+".moved") }}, text("x")))
	require.FileExists(t, moved+".moved", "there is no look where the rename itself replaces nothing")
	if err := renameExclusive(moved+".moved", moved+".moved"); !errors.Is(err, errors.ErrUnsupported) {
		require.ErrorIs(t, err, fs.ErrExist)
	}
	var out bytes.Buffer
	at, err := Keep(t.Context(), "-", "name", &out, text("x"))
	require.NoError(t, err)
	require.Equal(t, "-x", at+out.String())
}

// A pipe that stalls keeps nobody who has given up.
func TestAStalledPipeIsGivenUp(t *testing.T) {
	t.Parallel()
	stdin, write := io.Pipe()
	defer write.Close()
	ctx, cancel := context.WithCancelCause(t.Context())
	in, err := Open(ctx, "-", stdin)
	require.NoError(t, err)
	defer in.Close()
	go func() { _, _ = write.Write([]byte("begun")) }()
	got := make([]byte, 5)
	_, err = io.ReadFull(in, got)
	require.NoError(t, err)
	require.Equal(t, "begun", string(got))
	cancel(nil)
	_, err = in.Read(got)
	require.ErrorIs(t, err, context.Canceled)

	in, err = Open(t.Context(), "-", strings.NewReader("all of it"))
	require.NoError(t, err)
	all, err := io.ReadAll(in)
	require.NoError(t, err)
	require.Equal(t, "all of it", string(all))
}
