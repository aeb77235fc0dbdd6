package analyze

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
)

// Limits bound what is read. A zero is its default.
type Limits struct {
	Files        int   // of the tree; 0 is 100,000
	FileBytes    int64 // of one file: of a longer one the beginning is read; 0 is 1 MiB
	Manifest     int64 // of a file that names dependencies, of which a beginning says nothing: nothing of a longer one is read; 0 is 32 MiB
	Dependencies int64 // of all such files; 0 is 262,144
	Bytes        int64 // of all files in one analysis; 0 is 1 GiB
	Commits      int   // of the history; 0 is 5,000
}

// Within are the limits for an analysis that has so much memory. Measured were 2.3 KiB for each dependency, and less than 16 bytes for each one of a file.
func (l Limits) Within(memory int64) Limits {
	if memory > 0 {
		l.Manifest, l.Dependencies = cmp.Or(l.Manifest, memory>>5), cmp.Or(l.Dependencies, memory>>12)
	}
	return l
}

// WithDefaults are the limits without zeros.
func (l Limits) WithDefaults() Limits {
	l = l.Within(1 << 30)
	l.Files, l.FileBytes, l.Bytes, l.Commits = cmp.Or(l.Files, 100_000), cmp.Or(l.FileBytes, 1<<20), cmp.Or(l.Bytes, 1<<30), cmp.Or(l.Commits, 5_000)
	return l
}

// File is a regular file of a tree.
type File struct {
	Path string // slash-separated, from the root
	Size int64
}

// Tree are the regular files below a directory, without .git, symbolic links and what is no file.
type Tree struct {
	Files []File // by path

	root   *os.Root
	limits Limits
	bytes  int64 // that were read
	left   []string
	links  int
}

// Open lists a tree. It must be closed.
func Open(ctx context.Context, dir string, limits Limits) (*Tree, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	t := &Tree{root: root, limits: limits.WithDefaults()}
	if err := t.list(ctx); err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return t, nil
}

// Close ends reading.
func (t *Tree) Close() error { return t.root.Close() }

// LeftOut says, in sentences without a stop, what was not read because of the limits.
func (t *Tree) LeftOut() []string { return t.left }

var errEnough = errors.New("enough")

func (t *Tree) list(ctx context.Context) error {
	err := fs.WalkDir(t.root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && name == ".":
			return err
		case err != nil: // a folder that cannot be read
			t.left = append(t.left, plain(err.Error()))
			return nil
		case d.Name() == ".git":
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		case d.Type()&fs.ModeSymlink != 0:
			t.links++
			return nil
		case !d.Type().IsRegular():
			return nil
		case len(t.Files) == t.limits.Files:
			return errEnough
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		t.Files = append(t.Files, File{Path: name, Size: info.Size()})
		return nil
	})
	if errors.Is(err, errEnough) {
		t.left, err = append(t.left, fmt.Sprintf("the tree has more than %d files", t.limits.Files)), nil
	}
	slices.SortFunc(t.Files, func(a, b File) int { return cmp.Compare(a.Path, b.Path) })
	return err
}

// read returns the beginning of a file, up to so many bytes of it.
func (t *Tree) read(f File, most int64) ([]byte, error) {
	h, err := t.root.Open(f.Path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = h.Close() }() // only read
	info, err := h.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no file any more", f.Path)
	}
	raw, err := io.ReadAll(io.LimitReader(h, most))
	t.bytes += int64(len(raw))
	return raw, err
}

// each reads one file after the other until the limit of bytes is reached. A file that cannot be read is left out.
func (t *Tree) each(ctx context.Context, want func(File) bool, do func(f File, content []byte)) error {
	return t.eachUpTo(ctx, t.limits.FileBytes, want, do)
}

// eachUpTo is each with another bound for a file.
func (t *Tree) eachUpTo(ctx context.Context, most int64, want func(File) bool, do func(f File, content []byte)) error {
	long := 0
	for _, f := range t.Files {
		if err := ctx.Err(); err != nil {
			return err
		}
		if want != nil && !want(f) {
			continue
		}
		if t.bytes >= t.limits.Bytes {
			t.left = append(t.left, fmt.Sprintf("more than %s were to be read, from %s on nothing was", size(t.limits.Bytes), code(f.Path)))
			break
		}
		content, err := t.read(f, most)
		if err != nil {
			t.left = append(t.left, plain(err.Error()))
			continue
		}
		if f.Size > most {
			long++
		}
		do(f, content)
	}
	if long > 0 {
		t.left = append(t.left, fmt.Sprintf("of %s only the first %s were read", count(long, "file", "files"), size(most)))
	}
	return nil
}

// named wants files by their base name.
func named(names ...string) func(File) bool {
	return func(f File) bool { return slices.Contains(names, path.Base(f.Path)) }
}

// depth is how many folders a file is in.
func depth(name string) int { return strings.Count(name, "/") }
