package hosted

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/bcc94042/instar/internal/ownfile"
	"github.com/bcc94042/instar/internal/wait"
	"github.com/bcc94042/instar/providers"
)

// record is what is known of a release. One that is gone has its fence alone, and is kept for as long as an attempt from before may come.
type record struct {
	Key     string    `json:"key"`
	Fence   uint64    `json:"fence"`
	Gone    bool      `json:"gone,omitempty"`
	Hash    string    `json:"hash,omitempty"` // of what was asked for, without the port
	Unit    Unit      `json:"unit,omitzero"`
	Began   time.Time `json:"began,omitzero"`    // when its unit was started last that did not run
	Healthy bool      `json:"healthy,omitempty"` // it was once
	Failed  bool      `json:"failed,omitempty"`  // it has had its time
	Problem string    `json:"problem,omitempty"`
	Leaving bool      `json:"leaving,omitempty"` // it is being removed, and may have no secrets any more
}

const recordName = "release.json"

func (a *Apps) home(key string) string { return filepath.Join(a.config.Dir, "releases", key, "home") }

func (a *Apps) path(key string) string {
	return filepath.Join(a.config.Dir, "releases", key, recordName)
}

// hold is the lock of a release.
type hold struct {
	sync.Mutex
	by int // how many have or await it
}

// lock holds a release until unlock is called.
func (a *Apps) lock(key string) (unlock func()) {
	a.mu.Lock()
	l := a.locks[key]
	if l == nil {
		l = new(hold)
		a.locks[key] = l
	}
	l.by++
	a.mu.Unlock()
	l.Lock()
	return func() {
		l.Unlock()
		a.mu.Lock()
		defer a.mu.Unlock()
		if l.by--; l.by == 0 {
			delete(a.locks, key)
		}
	}
}

// read is what is known of a release: one that is gone, where nothing is.
func (a *Apps) read(key string) (*record, error) {
	r := &record{Key: key, Gone: true}
	raw, err := os.ReadFile(a.path(key)) // #nosec G304 -- of labels, below the directory of releases
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err == nil {
		r.Gone = false
		err = json.Unmarshal(raw, r)
	}
	if err != nil {
		return nil, providers.Errorf(providers.Internal, "cannot read what is known of the release %s: %v", key, err)
	}
	return r, nil
}

func (a *Apps) write(r *record) error {
	raw, err := json.Marshal(r)
	if err == nil {
		err = ownfile.Replace(a.path(r.Key), raw)
	}
	if err != nil {
		return providers.Errorf(providers.Internal, "cannot store what is known of the release %s: %v", r.Key, err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if delete(a.live, r.Key); !r.Gone {
		a.live[r.Key] = true
	}
	return nil
}

// note changes what is known of a release that is still the one of at, and at with it.
func (a *Apps) note(at *record, change func(*record)) error {
	defer a.lock(at.Key)()
	has, err := a.read(at.Key)
	if err != nil {
		return err
	}
	if has.Gone || has.Hash != at.Hash {
		return providers.Errorf(providers.Unavailable, "the release %s is another one meanwhile", at.Key)
	}
	change(has)
	*at = *has
	return a.write(has)
}

// take finds which releases there are. What is gone is not looked at again: a tenant may be upgraded for years.
func (a *Apps) take() {
	for _, key := range a.stored() {
		if r, err := a.read(key); err != nil || !r.Gone {
			a.live[key] = true
		}
	}
}

// stored are the releases of which anything is known.
func (a *Apps) stored() (keys []string) {
	list, err := os.ReadDir(filepath.Join(a.config.Dir, "releases"))
	for _, e := range list {
		keys = append(keys, e.Name())
	}
	if err != nil {
		a.config.Log.Warn("not everything that is known of releases can be read", "error", err)
	}
	return keys
}

// records are those of all releases that are not gone. One that cannot be read is told, and left out.
func (a *Apps) records() (all []*record) {
	a.mu.Lock()
	keys := slices.Sorted(maps.Keys(a.live))
	a.mu.Unlock()
	for _, key := range keys {
		r, err := a.read(key)
		if err != nil {
			a.config.Log.Warn("not everything that is known of releases can be read", "error", err)
			continue
		}
		all = append(all, r)
	}
	return all
}

// late is for how long an attempt may still come that began before its release was removed. It has an hour, and what is frozen meanwhile, as a machine that is suspended, has it longer.
const late = 7 * 24 * time.Hour

// forget removes what is known of releases that are gone for so long that no attempt from before comes any more.
func (a *Apps) forget() {
	for _, key := range a.stored() {
		if err := a.bury(key); err != nil {
			a.config.Log.Warn("what is known of a release that is gone cannot be removed", "release", key, "error", err)
		}
	}
}

func (a *Apps) bury(key string) error {
	defer a.lock(key)()
	at, err := os.Stat(a.path(key))
	if errors.Is(err, fs.ErrNotExist) || err == nil && time.Since(at.ModTime()) < late {
		return nil
	}
	if err == nil {
		var r *record
		if r, err = a.read(key); err == nil && !r.Gone {
			return nil
		}
	}
	if err == nil {
		err = os.RemoveAll(filepath.Dir(a.path(key)))
	}
	return err
}

// place gives a release a port if it has none, and stores what is known of it.
func (a *Apps) place(r *record) error {
	a.ports.Lock()
	defer a.ports.Unlock()
	if r.Unit.Port == 0 {
		used := map[int]bool{}
		for _, other := range a.records() {
			used[other.Unit.Port] = !other.Gone
		}
		if r.Unit.Port = a.free(used); r.Unit.Port == 0 {
			return providers.Later(5*time.Second, "all ports from %d to %d of %s are in use: free one, or widen the range", a.config.First, a.config.Last, a.config.Host)
		}
	}
	return a.write(r)
}

// free is a port that nobody listens on, or 0.
func (a *Apps) free(used map[int]bool) int {
	for port := a.config.First; port <= a.config.Last; port++ {
		if used[port] {
			continue
		}
		l, err := net.Listen("tcp", net.JoinHostPort(a.config.Host, strconv.Itoa(port)))
		if err != nil {
			continue
		}
		at, _ := l.Addr().(*net.TCPAddr)
		if err := l.Close(); err == nil && !used[at.Port] {
			return at.Port
		}
	}
	return 0
}

// stays reports whether a release is to run.
func (r *record) stays() bool { return !r.Gone && !r.Failed && !r.Leaving }

// watch makes units again that are gone, and starts those that stand still, until ctx ends.
func (a *Apps) watch(ctx context.Context) {
	defer close(a.ended)
	var reviving sync.Map // by release: what one needs may take long, and others do not wait for it
	var work sync.WaitGroup
	defer work.Wait()
	var forgot time.Time
	for {
		if time.Since(forgot) > time.Hour {
			forgot = time.Now()
			a.forget()
		}
		for _, r := range a.records() {
			if !r.stays() {
				continue
			}
			down, err := a.down(ctx, r)
			if err == nil && down {
				if _, under := reviving.LoadOrStore(r.Key, true); !under {
					work.Go(func() {
						defer reviving.Delete(r.Key)
						a.doubt(ctx, r, a.revive(ctx, r))
					})
				}
			}
			a.doubt(ctx, r, err)
		}
		if wait.Pause(ctx, 10*time.Second) != nil {
			return
		}
	}
}

// doubt tells what keeps a release from being looked after.
func (a *Apps) doubt(ctx context.Context, r *record, err error) {
	if err != nil && ctx.Err() == nil {
		a.config.Log.Warn("it is not known whether a release runs, which is looked at again", "release", r.Key, "error", err)
	}
}

// prepare gets what a release needs. Look tells how far that is.
func (a *Apps) prepare(ctx context.Context, r *record) error {
	defer a.getting.Delete(r.Key)
	return a.config.Engine.Prepare(ctx, r.Unit.Program, func(status string) { a.getting.Store(r.Key, status) })
}

// revive makes the unit of a release again that should be there, or starts it where it stands still.
func (a *Apps) revive(ctx context.Context, r *record) error {
	if err := a.prepare(ctx, r); err != nil { // without the lock, as it may take long
		return err
	}
	a.config.Log.Info("the unit of a release is gone or stands still, and is started", "release", r.Key)
	defer a.lock(r.Key)()
	now, err := a.read(r.Key)
	if err != nil || !now.stays() {
		return err
	}
	return a.start(ctx, now)
}

// down reports whether the unit of a release is gone, or stands still.
func (a *Apps) down(ctx context.Context, r *record) (bool, error) {
	now, err := a.config.Engine.Look(ctx, &r.Unit)
	if providers.IsNotFound(err) {
		return true, nil
	}
	return now.Stopped, err
}

// start has the unit of a release run. Where it did not, its time begins. The lock of the release is held.
func (a *Apps) start(ctx context.Context, r *record) error {
	if down, err := a.down(ctx, r); err != nil || !down {
		return err
	}
	r.Began = time.Now()
	if err := a.write(r); err != nil {
		return err
	}
	return a.config.Engine.Start(ctx, r.Unit.full())
}
