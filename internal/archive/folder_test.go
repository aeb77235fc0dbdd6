package archive

import (
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// A file of a folder is there whole or not at all, and is never replaced.
func TestAFolder(t *testing.T) {
	backend := store(t, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPut && r.Header.Get("Content-Md5") == "" { // as S3 does where objects are locked
				w.WriteHeader(http.StatusBadRequest)
				return
			}
			h.ServeHTTP(w, r)
		})
	})
	dir := t.TempDir()
	for _, at := range []string{dir, "s3://bkt/pre/fix/", "s3://bkt"} {
		f, err := OpenFolder(at)
		require.NoError(t, err, at)
		last, err := f.Last(t.Context(), "a", ".x")
		require.NoError(t, err, at)
		require.Empty(t, last, at)
		for _, name := range []string{"a/2.x", "a/10.x", "a/9", "b/3.x"} {
			require.NoError(t, f.Add(t.Context(), name, []byte(name+"\n")), at)
		}
		require.ErrorIs(t, f.Add(t.Context(), "a/2.x", []byte("other")), fs.ErrExist, at)
		last, err = f.Last(t.Context(), "a", ".x")
		require.NoError(t, err, at)
		require.Equal(t, "a/2.x", last, at)
		text, err := f.Read(t.Context(), last)
		require.NoError(t, err, at)
		require.Equal(t, "a/2.x\n", string(text), at)
		_, err = f.Read(t.Context(), "a/none")
		require.Error(t, err, at)
	}
	_, err := backend.HeadObject("bkt", "pre/fix/a/2.x")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a", "9.x.1.part"), nil, 0o600))
	f, err := OpenFolder(dir)
	require.NoError(t, err)
	last, err := f.Last(t.Context(), "a", ".x")
	require.NoError(t, err)
	require.Equal(t, "a/2.x", last, "what a crash has left is no file")
	for _, at := range []string{"relative", "", "s3://", "https://host/x", filepath.Join(dir, "none"), filepath.Join(dir, "a", "2.x")} {
		_, err := OpenFolder(at)
		require.Error(t, err, at)
	}
	f, err = OpenFolder("s3://none/x")
	require.NoError(t, err)
	_, err = f.Last(t.Context(), "a", ".x")
	require.Error(t, err)
}
