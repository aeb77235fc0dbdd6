package clone

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/bcc94042/instar/internal/ownfile"
	"github.com/bcc94042/instar/providers"
)

// record says which checkout is current.
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
	return dir, nil
}

// folded makes a name of anything.
func folded(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:8])
}

// lock holds the fetches of a repository back until it is called.
func (c *Cloner) lock(name string) (unlock func()) {
	c.mu.Lock()
	m := c.busy[name]
	if m == nil {
		m = &sync.Mutex{}
		c.busy[name] = m
	}
	c.mu.Unlock()
	m.Lock()
	return m.Unlock
}

func (c *Cloner) use(dir, commit string) *Checkout {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.used[dir]++
	return &Checkout{Dir: dir, Commit: commit, git: c.git, release: sync.OnceFunc(func() {
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
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range entries {
		at := filepath.Join(dir, e.Name())
		info, err := e.Info()
		if err != nil || !commitForm.MatchString(e.Name()) || e.Name() == r.Commit || c.used[at] > 0 || time.Since(info.ModTime()) < c.opts.Keep {
			continue
		}
		_ = os.RemoveAll(at) // it is tried again
	}
}

// Remove removes all checkouts of a repository. One that is in use stays until it is not.
func (c *Cloner) Remove(name string) error {
	dir, err := c.folder(name)
	if err != nil {
		return err
	}
	defer c.lock(name)()
	c.mu.Lock()
	defer c.mu.Unlock()
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if at := filepath.Join(dir, e.Name()); c.used[at] == 0 {
			err = errors.Join(err, os.RemoveAll(at))
		}
	}
	return err
}
