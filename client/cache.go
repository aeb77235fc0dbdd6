package client

import (
	"cmp"
	"encoding/json"
	"hash/fnv"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"
)

// recallAfter is how long a resolver without a list waits for a registry that hangs before it takes what was known last.
const recallAfter = 2 * time.Second

// store is the file with the last known instances of one service, which other processes may write, too. What is in it held
// at its time of modification; of one that lies in the future, because a clock was put back, nobody can tell.
type store struct {
	path    string // empty: there is none
	touched time.Time
	mine    os.FileInfo      // of what was written or touched last
	clock   func() time.Time // nil is time.Now; for tests
}

func (s *store) now() time.Time {
	if s.clock != nil {
		return s.clock()
	}
	return time.Now()
}

// owns reports whether nobody else has written the file since.
func (s *store) owns(there os.FileInfo) bool {
	return s.mine != nil && os.SameFile(there, s.mine) && there.ModTime().Equal(s.mine.ModTime())
}

// heldThen is when what is in a file held: very long ago where that is not known.
func (s *store) heldThen(there os.FileInfo) time.Time {
	if at := there.ModTime(); at.Sub(s.now()) < ackEvery { // of two machines that share it, one may be ahead
		return at
	}
	return time.Unix(0, 0)
}

// stored is what is in it.
type stored struct {
	Protected bool       `json:"protected,omitempty"`
	Instances []Endpoint `json:"instances"`
}

// storeOf names the file by what is followed: another registry or filter is another file.
func storeOf(c *Client, service string, filter url.Values) store {
	if c.CacheDir == "" {
		return store{}
	}
	h := fnv.New64a()
	for _, part := range append([]string{filter.Encode()}, slices.Sorted(slices.Values(c.urls()))...) {
		_, _ = h.Write([]byte(part + "\n")) // never fails
	}
	name := url.PathEscape(c.namespace()) + "." + url.PathEscape(service) + "-" + strconv.FormatUint(h.Sum64(), 16) + ".json"
	return store{path: filepath.Join(c.CacheDir, name)}
}

// read is what was known last, and when; false if nothing was.
func (s *store) read() (stored, time.Time, bool) {
	if s.path == "" {
		return stored{}, time.Time{}, false
	}
	about, err := os.Stat(s.path)
	if err != nil {
		return stored{}, time.Time{}, false
	}
	var had stored
	raw, err := os.ReadFile(s.path)
	if err != nil || json.Unmarshal(raw, &had) != nil || len(had.Instances) == 0 {
		return stored{}, time.Time{}, false
	}
	return had, s.heldThen(about), true
}

// write replaces the file at once or not at all, with what held at a time. Of a service without instances none is begun: names may come from
// outside. What another process wrote and held later stays: then it is false, and may be tried again. What cannot be written is not there
// at the next start, and that is all.
func (s *store) write(now stored, heard time.Time) bool {
	if s.path == "" {
		return true
	}
	switch there, err := os.Stat(s.path); {
	case err != nil && len(now.Instances) == 0:
		return true
	case err == nil && !s.owns(there) && s.heldThen(there).After(heard):
		return false
	}
	raw, err := json.Marshal(now)
	if err != nil || os.MkdirAll(filepath.Dir(s.path), 0o700) != nil {
		return true
	}
	part, err := os.CreateTemp(filepath.Dir(s.path), ".part-*")
	if err != nil {
		return true
	}
	_, err = part.Write(raw)
	if err = cmp.Or(err, part.Close(), os.Chtimes(part.Name(), heard, heard)); err == nil {
		s.mine, _ = os.Stat(part.Name())
		err = os.Rename(part.Name(), s.path)
	}
	if err != nil {
		_ = os.Remove(part.Name()) // as far as that can be done
	}
	s.touched = s.now()
	return true
}

// touch says that what is known still held at a time: else it looks older than it is. The list of another process is not
// what is known here; if that process says no more of it, it is replaced.
func (s *store) touch(now stored, at time.Time) {
	if s.path == "" || at.Sub(s.touched) < ackEvery {
		return
	}
	s.touched = at
	there, err := os.Stat(s.path)
	switch {
	case err == nil && s.owns(there):
		_ = os.Chtimes(s.path, at, at)
		s.mine, _ = os.Stat(s.path)
	case err != nil || at.Sub(s.heldThen(there)) >= ackEvery:
		s.write(now, at)
	}
}

// recall takes what was known last, if there is no list yet.
func (r *Resolver) recall() {
	r.listing.Lock()
	defer r.listing.Unlock()
	had, at, ok := r.store.read()
	if !ok || r.isReady() {
		return
	}
	r.mu.Lock()
	r.apply(change{Instances: had.Instances, Protected: had.Protected}, true)
	r.heard, r.saved = at, r.changes
	r.mu.Unlock()
	close(r.ready)
	r.tell()
}

// remember keeps what is known now; unless it is the last time, not more often than once a second.
func (r *Resolver) remember(last bool) {
	r.mu.Lock()
	changes, heard := r.changes, r.heard
	now := stored{Protected: r.protected, Instances: r.list}
	changed := r.index > 0 && changes != r.saved && (last || time.Since(r.store.touched) >= time.Second)
	fresh := r.index > 0 && r.connected && !r.stale
	r.mu.Unlock()
	if changed && r.store.write(now, heard) {
		r.mu.Lock()
		r.saved = changes
		r.mu.Unlock()
	}
	if fresh {
		r.store.touch(now, heard)
	}
}
