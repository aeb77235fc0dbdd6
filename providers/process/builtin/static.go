package builtin

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
)

// static serves the directory INSTAR_SITES/$SITE, or the one named after the service. INSTAR_SITES is that of the
// service's namespace.
func static([]string) error {
	root, err := openSite(os.Getenv("INSTAR_SITES"), cmp.Or(os.Getenv("SITE"), os.Getenv("INSTAR_SERVICE")))
	if err != nil {
		return err
	}
	defer root.Close()
	h := files(root.FS())
	return serve(newWeb(h), h)
}

// openSite opens one directory directly below sites, and not through a link.
func openSite(sites, name string) (*os.Root, error) {
	if sites == "" {
		return nil, errors.New("INSTAR_SITES is not set")
	}
	if name == "" || name != filepath.Base(name) || strings.HasPrefix(name, ".") {
		return nil, fmt.Errorf("%q is not the name of a directory of sites", name)
	}
	missing := fmt.Errorf("there is no site %q: put its files into %s", name, filepath.Join(sites, name))
	all, err := os.OpenRoot(sites)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, missing
	}
	if err != nil {
		return nil, fmt.Errorf("cannot open the directory of sites: %w", err)
	}
	defer all.Close()
	root, err := all.OpenRoot(name)
	if err != nil {
		return nil, missing
	}
	return root, nil
}

func files(dir fs.FS) http.Handler {
	server := http.FileServerFS(confined{dir})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "only GET and HEAD", http.StatusMethodNotAllowed)
			return
		}
		w.Header().Set("X-Content-Type-Options", "nosniff")
		server.ServeHTTP(w, r)
	})
}

// confined hides dot files and tells nobody why something is not to be had: a link out of the site looks like a file
// that is not there.
type confined struct{ fs.FS }

func (c confined) Open(name string) (fs.File, error) {
	missing := &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	for _, part := range strings.Split(name, "/") {
		if strings.HasPrefix(part, ".") && part != "." {
			return nil, missing
		}
	}
	f, err := c.FS.Open(name)
	if err != nil {
		return nil, missing
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, missing
	}
	if dir, ok := f.(fs.ReadDirFile); ok && info.IsDir() {
		return visible{dir}, nil
	}
	return f, nil // itself, because the server seeks in it
}

// visible lists a directory without its dot files.
type visible struct{ fs.ReadDirFile }

func (v visible) ReadDir(n int) ([]fs.DirEntry, error) {
	entries, err := v.ReadDirFile.ReadDir(n)
	shown := entries[:0]
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") {
			shown = append(shown, e)
		}
	}
	return shown, err
}
