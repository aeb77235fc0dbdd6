package clone

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/bcc94042/instar/internal/ownfile"
	"github.com/bcc94042/instar/providers"
)

// record says which checkout is current, and what it was fetched for.
type record struct {
	Commit string    `json:"commit"`
	Source Source    `json:"source"`
	Began  time.Time `json:"began"`
}

const recordFile = "current.json"

func current(dir string) (r record, err error) {
	raw, err := os.ReadFile(filepath.Join(dir, recordFile))
	if err == nil {
		err = json.Unmarshal(raw, &r)
	}
	if err == nil && !commitForm.MatchString(r.Commit) {
		err = errors.New("it names no commit")
	}
	return r, err
}

// makeCurrent replaces the record, unless it is of a fetch that began later.
func makeCurrent(dir string, r record) error {
	if old, err := current(dir); err == nil && old.Began.After(r.Began) {
		return nil
	}
	raw, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return ownfile.Replace(filepath.Join(dir, recordFile), raw)
}

// folder is that of a repository.
func (c *Cloner) folder(name string) (string, error) {
	if !nameForm.MatchString(name) {
		return "", providers.Errorf(providers.Invalid, "%q is not <namespace>/<repository>", name)
	}
	dir := filepath.Join(c.opts.Dir, filepath.FromSlash(name))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", providers.Errorf(providers.Internal, "cannot keep checkouts: %v", err)
	}
	if err := errors.Join(c.share(filepath.Dir(dir), false), c.share(dir, false)); err != nil {
		return "", providers.Errorf(providers.Internal, "cannot keep checkouts: %v", err)
	}
	return dir, nil
}

// place is the directory of a checkout.
func place(dir, commit string, depth int) string {
	return filepath.Join(dir, commit+"-"+strconv.Itoa(depth))
}

// share lets the group read a directory, or all that is below.
func (c *Cloner) share(dir string, below bool) error {
	if c.opts.Group == 0 {
		return nil
	}
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case !below && path != dir:
			return fs.SkipDir
		case d.Type()&fs.ModeSymlink != 0:
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		mode := info.Mode().Perm() | 0o040
		if d.IsDir() {
			mode |= 0o010
		}
		return errors.Join(os.Lchown(path, -1, c.opts.Group), os.Chmod(path, mode))
	})
}

// folded makes a name of anything.
func folded(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:8])
}

// turn is who may fetch a repository: one at a time.
type turn struct {
	taken chan struct{} // has room for one
	wants int
}

// lock holds the fetches of a repository back until unlock is called. Who is canceled waits no longer.
func (c *Cloner) lock(ctx context.Context, name string) (unlock func(), err error) {
	c.mu.Lock()
	t := c.busy[name]
	if t == nil {
		t = &turn{taken: make(chan struct{}, 1)}
		c.busy[name] = t
	}
	t.wants++
	c.mu.Unlock()
	leave := func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if t.wants--; t.wants == 0 {
			delete(c.busy, name)
		}
	}
	select {
	case t.taken <- struct{}{}:
		return func() { <-t.taken; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
}

func (c *Cloner) use(dir, commit string) *Checkout {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.used[dir]++
	return &Checkout{Dir: dir, Commit: commit, cloner: c, release: sync.OnceFunc(func() {
		_ = os.Chtimes(dir, time.Now(), time.Now()) // sweep looks at it; at worst it is fetched again
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.used[dir]--; c.used[dir] == 0 {
			delete(c.used, dir)
		}
	})}
}

// sweep removes checkouts of a repository that are neither current nor in use, nor were so for a while.
func (c *Cloner) sweep(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	r, _ := current(dir) // without one all of them are old
	now := place(dir, r.Commit, r.Source.depth())
	for _, e := range entries {
		at := filepath.Join(dir, e.Name())
		info, err := e.Info()
		if err != nil || !placeForm.MatchString(e.Name()) || at == now || time.Since(info.ModTime()) < c.opts.Keep {
			continue
		}
		_ = c.discard(at) // it is tried again
	}
}

// discard removes a directory unless it is in use: it is out of sight at once, and what is left of it when the process ends goes at the next start.
func (c *Cloner) discard(at string) error {
	c.mu.Lock()
	if c.used[at] > 0 {
		c.mu.Unlock()
		return nil
	}
	gone := filepath.Join(filepath.Dir(at), partial+"old-"+folded(at))
	err := os.RemoveAll(gone)
	if err == nil {
		err = os.Rename(at, gone)
	}
	delete(c.size, at)
	c.mu.Unlock()
	if err != nil {
		return err
	}
	return os.RemoveAll(gone)
}

// Remove removes all checkouts of a repository, and that it was there. One that is in use stays until it is not.
func (c *Cloner) Remove(name string) error {
	dir, err := c.folder(name)
	if err != nil {
		return err
	}
	unlock, err := c.lock(context.Background(), name)
	if err != nil {
		return err
	}
	defer unlock()
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		err = errors.Join(err, c.discard(filepath.Join(dir, e.Name())))
	}
	_ = os.Remove(dir) // unless something is left
	return err
}

// Tidy removes the checkouts of repositories that are not there any more, those that were not used for as long as they are kept, and then, while all of them together are larger than they may be,
// those that were not used for longest. It is to be called now and then: what a process that ended has left undone is done then.
func (c *Cloner) Tidy(there func(name string) bool) error {
	dirs, err := filepath.Glob(filepath.Join(c.opts.Dir, "*", "*"))
	for _, dir := range dirs {
		name := filepath.ToSlash(strings.TrimPrefix(dir, c.opts.Dir+string(filepath.Separator)))
		info, err2 := os.Stat(dir)
		switch {
		case err2 != nil || !nameForm.MatchString(name):
		case there(name):
			c.sweep(dir)
		case time.Since(info.ModTime()) >= c.opts.New: // one that was just made may not be known yet
			err = errors.Join(err, c.Remove(name))
		}
	}
	c.fit()
	return err
}

// fit removes checkouts while there are too many bytes of them.
func (c *Cloner) fit() {
	if c.opts.Total <= 0 {
		return
	}
	type checkout struct {
		at   string
		used time.Time
		size int64
	}
	var all []checkout
	var total int64
	dirs, _ := filepath.Glob(filepath.Join(c.opts.Dir, "*", "*", "*")) // the pattern is well formed
	for _, at := range dirs {
		if info, err := os.Stat(at); err == nil && placeForm.MatchString(filepath.Base(at)) {
			n := c.sizeOf(at)
			total += n
			all = append(all, checkout{at, info.ModTime(), n})
		}
	}
	slices.SortFunc(all, func(a, b checkout) int { return cmp.Or(a.used.Compare(b.used), cmp.Compare(a.at, b.at)) })
	for _, o := range all {
		if total <= c.opts.Total {
			return
		}
		c.mu.Lock()
		busy := c.used[o.at] > 0
		c.mu.Unlock()
		if !busy && c.discard(o.at) == nil {
			total -= o.size
		}
	}
}

// sizeOf is how many bytes a checkout has, which is counted once.
func (c *Cloner) sizeOf(at string) int64 {
	c.mu.Lock()
	n, known := c.size[at]
	c.mu.Unlock()
	if known {
		return n
	}
	_ = filepath.WalkDir(at, func(_ string, e fs.DirEntry, err error) error { // what cannot be read is not counted
		if err == nil && e.Type().IsRegular() {
			if info, err := e.Info(); err == nil {
				n += info.Size()
			}
		}
		return nil
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.size[at] = n
	return n
}
