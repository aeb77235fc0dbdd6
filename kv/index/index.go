package index

// Index, and Run, the only one that writes to it. Run opens a feed on the bucket (follow), has each batch described
// (describeAll), applies it to the table (take), and publishes it to subscriptions and waiters. A table is built beside
// the one that is served, until it is complete (serve). Readers get single items and the lag here; lists are in query.go.

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/internal/boottime"
	"github.com/bcc94042/instar/kv/internal/feed"
)

// Inflight is how many messages may wait between the connection and an index. The server's flow control holds them back at 32 MiB.
const Inflight = feed.Inflight

// Item is what an index knows of one key.
type Item struct {
	Key, State                    string
	Labels                        map[string]string
	Since, CreatedAt, UpdatedAt   time.Time // UpdatedAt is when the revision was stored, if the value does not say
	Version, Generation, Revision uint64
	Problem                       string // why the value cannot be described; then only Key, UpdatedAt and Revision hold
	Value                         any    // [Meta.Value] of the same revision; it is shared and must not be changed
}

// Options of an index. The zero value will do.
type Options struct {
	Log *slog.Logger

	// ResumeWithin is how long a broken watch may last and still be resumed; after a longer one the index is built
	// anew, because delete markers may have gone meanwhile. Default 10 minutes.
	ResumeWithin time.Duration

	// Ended says that a key in that state has ended. Its item is forgotten when it was last written EndedFor ago (0 forgets
	// nothing): it is not in lists, counts and [Index.Get] any more, and subscriptions are not sent a change. [Index.Lacks]
	// still knows the key, in about 15 bytes, and [Index.Ended] in some 90 for as long as the bucket has the value.
	Ended    func(state string) bool
	EndedFor time.Duration
}

// Index is an index over one bucket. All but Run may be called by many goroutines.
type Index struct {
	js       jetstream.JetStream
	bucket   string
	describe func(key string, value []byte) (Meta, error)
	opts     Options
	ready    chan struct{}

	mu      sync.RWMutex
	table   *table // what is served; only Run changes it
	subs    registry
	waiters []waiter
	recent  activity // of what was served
	stays   stays    // the same

	newest   int64         // when the newest value was stored, in nanoseconds
	newestAt time.Duration // when that came, by the clock since boot; both are Run's alone

	rev, known, pending, applied   atomic.Uint64
	builds, breaks, lost, problems atomic.Uint64
	heard                          atomic.Pointer[time.Time] // when the server last said anything
	even                           atomic.Pointer[time.Time] // when the index last had all that the server had sent, what was written during a break included
}

// New is an index that is empty until it is Run. describe is called once per update, in order. It may keep the key, or
// parts of it, at no cost: the revisions of a value come with the copy that the index has.
func New(js jetstream.JetStream, bucket string, describe func(key string, value []byte) (Meta, error), opts Options) *Index {
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	if opts.ResumeWithin == 0 {
		opts.ResumeWithin = 10 * time.Minute
	}
	ix := &Index{js: js, bucket: bucket, describe: describe, opts: opts, ready: make(chan struct{}), subs: newRegistry(), stays: stays{}}
	ix.table = ix.newTable()
	ix.table.seal()
	return ix
}

func (ix *Index) newTable() *table {
	t := newTable()
	if ix.opts.EndedFor > 0 {
		t.terminal = ix.opts.Ended
	}
	return t
}

// Ready is closed when the first snapshot is complete.
func (ix *Index) Ready() <-chan struct{} { return ix.ready }

// Run keeps the index until the context ends, and returns nil then. It must be called once. When it ends, all
// subscriptions are closed as lost.
func (ix *Index) Run(ctx context.Context) error {
	var (
		t    = ix.newTable() // what the watch feeds: this one until it is complete, then the one that is served
		wait feed.Backoff
	)
	for {
		from := t.at.Revision
		if heard := ix.heard.Load(); heard == nil || time.Since(*heard) > ix.opts.ResumeWithin {
			t = ix.newTable()
		}
		err := ix.follow(ctx, &t)
		if ctx.Err() != nil {
			ix.mu.Lock()
			ix.loseAll()
			ix.mu.Unlock()
			return nil
		}
		ix.breaks.Add(1)
		ix.opts.Log.Warn("kv: the watch broke; resuming", "bucket", ix.bucket, "revision", t.at.Revision, "error", err)
		if errors.Is(err, feed.ErrReset) {
			t = ix.newTable()
		}
		if t.at.Revision > from {
			wait.Reset()
		}
		_ = wait.Wait(ctx) // the next follow ends if the context has
	}
}

// follow feeds the table from where it stands, and serves it as soon as it is complete, until the watch breaks.
func (ix *Index) follow(ctx context.Context, t **table) error {
	f, err := feed.Open(ctx, ix.js, ix.bucket, "", (*t).at)
	if err != nil {
		return err
	}
	defer f.Close()
	var (
		batch []feed.Update
		ops   []op
	)
	for {
		if f.CaughtUp && !(*t).sealed {
			(*t).at = f.Position
			if (*t).missing = (*t).unread(f.Keys); (*t).missing > 0 {
				ix.opts.Log.Error("kv: the bucket has unreadable values", "bucket", ix.bucket, "keys", (*t).missing)
			}
			ix.serve(*t)
		}
		batch, err = f.Next(ctx, batch[:0])
		now, said := time.Now(), err == nil || len(batch) > 0
		if said {
			ix.heard.Store(&now)
		}
		ops = ix.describeAll(ops[:0], *t, batch)
		ix.take(*t, ops, f)
		if said && f.CaughtUp { // until all that was written during a break is taken, the index is as old as it was
			ix.even.Store(&now)
		}
		if err != nil {
			return err
		}
	}
}

func (ix *Index) describeAll(ops []op, t *table, batch []feed.Update) []op {
	for _, u := range batch {
		u.Key = t.key(u.Key)
		o := op{Update: u}
		if !u.Deleted {
			m, err := ix.describe(u.Key, u.Value)
			if err != nil {
				m, o.problem = Meta{}, err.Error()
				ix.problems.Add(1)
				ix.opts.Log.Warn("kv: cannot describe value", "bucket", ix.bucket, "key", u.Key, "revision", u.Revision, "error", err)
			}
			o.meta = m
		}
		ops = append(ops, o)
	}
	clear(batch) // the values may go
	clear(t.fresh)
	return ops
}

// horizon is what ended before which is forgotten. Values are stamped by the server, so its clock counts, as far as the newest of them tells it: that of this machine may be ahead by days.
func (ix *Index) horizon(ops []op) int64 {
	now, before := boottime.Now(), ix.newest
	for i := range ops {
		ix.newest = max(ix.newest, ops[i].At)
	}
	if ix.newest > before {
		ix.newestAt = now
	}
	return min(time.Now().UnixNano(), ix.newest+int64(now-ix.newestAt)) - int64(ix.opts.EndedFor)
}

// take applies a batch. A table that is not served yet needs no lock and has no readers.
func (ix *Index) take(t *table, ops []op, f *feed.Feed) {
	ix.pending.Store(f.Pending)
	ix.applied.Add(uint64(len(ops)))
	ix.learn(max(f.Known, f.Revision))
	horizon := ix.horizon(ops)
	if !t.sealed {
		for i := range ops {
			t.apply(&ops[i])
		}
		t.forget(horizon)
		t.at = f.Position
		return
	}
	ix.mu.Lock()
	defer ix.mu.Unlock()
	t.forget(horizon)
	now := time.Now()
	for i := range ops {
		r, was := t.apply(&ops[i])
		if r != nil && ops[i].problem == "" {
			entered := ""
			if r.state != was.state {
				entered = r.state.name
				if was.state != nil && r.version == was.version+1 && was.since != 0 && r.since != 0 {
					ix.stays.add(was.state.name, r.since-was.since)
				}
			}
			ix.recent.add(now, was.version, r.version, entered)
		}
		ix.publish(t, &ops[i], r, was.state)
	}
	t.at = f.Position
	ix.advance(f.Revision)
}

// serve makes a complete table the one that is served.
func (ix *Index) serve(t *table) {
	t.seal()
	ix.mu.Lock()
	defer ix.mu.Unlock()
	ix.table = t
	ix.loseAll() // they lack the changes between the table before and this one
	ix.known.Store(t.at.Revision)
	ix.advance(t.at.Revision)
	if ix.builds.Add(1) == 1 {
		close(ix.ready)
	}
	ix.opts.Log.Info("kv: index is complete", "bucket", ix.bucket, "keys", len(t.rows), "revision", t.at.Revision)
}

// learn raises what is known of the stream's last sequence.
func (ix *Index) learn(rev uint64) {
	for known := ix.known.Load(); rev > known && !ix.known.CompareAndSwap(known, rev); {
		known = ix.known.Load()
	}
}

// Revision is the revision up to which every write is in the index.
func (ix *Index) Revision() uint64 { return ix.rev.Load() }

// Len is the number of keys.
func (ix *Index) Len() int {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	return len(ix.table.rows)
}

// Get returns the item of the key.
func (ix *Index) Get(key string) (Item, bool) {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	r := ix.table.rows[key]
	if r == nil {
		return Item{}, false
	}
	return ix.table.item(r), true
}

// MaxQuiet is after how long without a word from the server an index counts as stale; the server sends a heartbeat every second.
const MaxQuiet = 5 * time.Second

// Lacks reports that the index is complete, hears from the server, and never had the key, not even one that was deleted
// and left a marker, or one that has ended and was forgotten. The bucket may have it since a moment ago. It is false for
// all keys where the bucket held values that it could not read: any of them may be the key's, see [Index.NeverHad].
func (ix *Index) Lacks(key string) bool {
	ix.mu.RLock()
	unread := ix.table.missing > 0
	ix.mu.RUnlock()
	return !unread && ix.NeverHad(key)
}

// NeverHad is Lacks also for a key whose value may lie in the bucket unread. Callers have to ask the bucket before they act on it.
func (ix *Index) NeverHad(key string) bool {
	select {
	case <-ix.ready:
	default:
		return false
	}
	ix.mu.RLock()
	there := ix.table.rows[key] != nil || ix.table.left(key)
	ix.mu.RUnlock()
	return !there && ix.Lag().Quiet < MaxQuiet
}

// Lag is how far an index is behind its stream.
type Lag struct {
	Known   uint64        // the highest revision that the index has heard of
	Applied uint64        // the revision that it has reached
	Pending uint64        // messages that the server had not sent when it sent the last one
	Quiet   time.Duration // since the index last had all that the server had sent, which sends a heartbeat every second
}

// Lag returns how far the index is behind.
func (ix *Index) Lag() Lag {
	l := Lag{Known: ix.known.Load(), Applied: ix.rev.Load(), Pending: ix.pending.Load()}
	if even := ix.even.Load(); even != nil {
		l.Quiet = time.Since(*even)
	}
	return l
}

// Stale is for how long the index may be behind, because the server has said nothing for [MaxQuiet] or longer; else 0.
func (ix *Index) Stale() time.Duration {
	if quiet := ix.Lag().Quiet; quiet >= MaxQuiet {
		return quiet
	}
	return 0
}

// Stats are counts since the start, but for Items, Problems and Subscriptions, which are of now.
type Stats struct {
	Items, Problems, Subscriptions int

	Applied     uint64 // updates taken, snapshots included
	Undescribed uint64 // values that describe refused
	Builds      uint64 // complete snapshots; more than one means that resuming was not possible
	Breaks      uint64 // times that the watch broke
	Lost        uint64 // subscriptions that were closed because their reader was slow or the index was built anew
}

// Stats returns the counts.
func (ix *Index) Stats() Stats {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	return Stats{
		Items: len(ix.table.rows), Problems: len(ix.table.problems), Subscriptions: ix.subs.len(),
		Applied: ix.applied.Load(), Undescribed: ix.problems.Load(), Builds: ix.builds.Load(), Breaks: ix.breaks.Load(), Lost: ix.lost.Load(),
	}
}
