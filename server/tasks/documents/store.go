package documents

// Store: Run follows the bucket into the index, Put makes room and writes, Erase removes what a task has written, and Sweep, which one process at a time calls, removes what has no owner (unowned),
// what is over a bound (bounds), marks of what was deleted (marks), and parts of documents that were never finished (parts).

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/internal/wait"
	"github.com/bcc94042/instar/machines/task"
)

// Bounds are how much is kept; 0 is no bound.
type Bounds struct {
	Bytes int64         // of all documents together
	Each  int           // documents of a repository
	Age   time.Duration // since it was written
}

// Owner is what a task refers to, as its leader has it.
type Owner struct {
	There   bool
	Enqueue uint64   // that it is at
	Ended   bool     // no attempt of that runs, nor may come to run
	Names   []string // of the documents of its last success
}

// Options are what a store works with. All but Bounds and Log are required.
type Options struct {
	JS      jetstream.JetStream
	Bucket  string
	Bounds  Bounds
	Version func(task string) uint64 // of a task, <namespace>.<repository>.<task>, as far as it was seen; 0 is of none
	Owner   func(ctx context.Context, task string) (Owner, error)
	Log     *slog.Logger
}

// Store keeps documents in one bucket. Use [New].
type Store struct {
	Options
	known *index

	// Of Sweep:
	now     func() time.Time
	suspect map[string]time.Time // parts that belong to no document, and since when that is known
	looked  map[string]looked
}

// looked is what a task was like when all its documents had an owner.
type looked struct {
	version uint64
	newest  time.Time
}

const (
	grace     = 10 * time.Minute // for which a late worker may still write, and what it wrote be looked at
	within    = 30 * time.Second
	markAfter = time.Hour // for which the mark of a deleted document is kept, so that all who follow see it
	partAfter = time.Hour // for which parts without a document are left alone: one may be being written
)

// New makes a store. It knows nothing until it is [Store.Run].
func New(o Options) *Store {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Store{Options: o, known: newIndex(), now: time.Now, suspect: map[string]time.Time{}, looked: map[string]looked{}}
}

// Run follows the bucket until ctx ends, and returns nil then.
func (s *Store) Run(ctx context.Context) error {
	for try := 0; ctx.Err() == nil; try++ {
		if s.follow(ctx); !wait.Backoff(ctx, try) {
			break
		}
	}
	return nil
}

// follow reads the bucket from its beginning, until something breaks: as while it is not there yet.
func (s *Store) follow(ctx context.Context) {
	c, err := s.JS.OrderedConsumer(ctx, s.stream(), jetstream.OrderedConsumerConfig{FilterSubjects: []string{s.marks()}, DeliverPolicy: jetstream.DeliverLastPerSubjectPolicy})
	if err != nil {
		return
	}
	messages, err := c.Messages()
	if err != nil {
		return
	}
	defer context.AfterFunc(ctx, messages.Stop)()
	defer messages.Stop()
	s.known.clear()
	for {
		m, err := messages.Next()
		if err != nil {
			return
		}
		meta, err := m.Metadata()
		if err != nil {
			return
		}
		var info jetstream.ObjectInfo
		if err := json.Unmarshal(m.Data(), &info); err != nil || !task.NamesDocument(info.Name) { // of nobody that we know; nothing may be asked under such a name
			s.Log.Warn("what is said of a document cannot be read", "subject", m.Subject(), "error", err)
			s.known.pass(meta.Sequence.Stream)
			continue
		}
		s.known.set(doc{name: info.Name, size: int64(info.Size), at: meta.Timestamp, seq: meta.Sequence.Stream, nuid: info.NUID, deleted: info.Deleted}, meta.Sequence.Stream)
	}
}

func (s *Store) stream() string { return "OBJ_" + s.Bucket }
func (s *Store) marks() string  { return "$O." + s.Bucket + ".M.>" }
func (s *Store) chunks() string { return "$O." + s.Bucket + ".C." }

// Put keeps a document of so many bytes, and makes room for it.
func (s *Store) Put(ctx context.Context, name, mediaType string, size int64, body io.Reader) (task.Document, error) {
	if !task.NamesDocument(name) {
		return task.Document{}, fmt.Errorf("%.100q is no name of a document: it is empty, not UTF-8, or longer than %d bytes", name, task.MaxDocumentName)
	}
	b, err := s.JS.ObjectStore(ctx, s.Bucket)
	if err != nil {
		return task.Document{}, err
	}
	if most := s.Bounds.Bytes; most > 0 && size > most {
		return task.Document{}, fmt.Errorf("the document %s has %d bytes, more than all documents together may have (%d)", name, size, most)
	}
	if err := s.room(ctx, b, name, size); err != nil {
		return task.Document{}, err
	}
	info, err := b.Put(ctx, jetstream.ObjectMeta{Name: name, Headers: nats.Header{"Content-Type": {mediaType}}}, body)
	if err != nil {
		return task.Document{}, fmt.Errorf("cannot keep the document %s: %w", name, err)
	}
	s.known.set(doc{name: name, size: int64(info.Size), at: s.now(), nuid: info.NUID}, 0)
	return task.Document{Name: name, MediaType: mediaType, Size: int64(info.Size), Digest: info.Digest}, nil
}

// room removes the oldest documents where one more would be too much, and some more, so that this is not done for each.
func (s *Store) room(ctx context.Context, b jetstream.ObjectStore, name string, size int64) error {
	var over []doc
	if p, ok := placeOf(name); ok && s.Bounds.Each > 0 {
		if list := s.known.of(s.known.repos, p.repo); len(list) >= s.Bounds.Each {
			over = list[:len(list)-(s.Bounds.Each-1-s.Bounds.Each/20)]
		}
	}
	if most := s.Bounds.Bytes; most > 0 && s.known.size()+size > most {
		over = append(over, s.known.oldest(max(0, most-size-most/20))...)
	}
	_, err := s.erase(ctx, b, over)
	return err
}

// erase removes documents, and says how many there were.
func (s *Store) erase(ctx context.Context, b jetstream.ObjectStore, list []doc) (n int, err error) {
	for _, d := range list {
		switch err := b.Delete(ctx, d.name); {
		case err == nil:
			n++
		case !errors.Is(err, jetstream.ErrObjectNotFound):
			return n, fmt.Errorf("cannot remove the document %s: %w", d.name, err)
		}
		s.known.mark(d.name, s.now())
	}
	return n, nil
}

// Erase removes what a task has written in enqueuings before one, and says how many documents that were. prefix is [task.Prefix].
func (s *Store) Erase(ctx context.Context, prefix string, below uint64) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	b, err := s.JS.ObjectStore(ctx, s.Bucket)
	if err != nil {
		return 0, err
	}
	if err := s.caughtUp(ctx); err != nil {
		return 0, err
	}
	key := strings.ReplaceAll(strings.TrimSuffix(prefix, "/"), "/", ".")
	list := slices.DeleteFunc(s.known.of(s.known.tasks, key), func(d doc) bool { p, _ := placeOf(d.name); return p.enqueue >= below })
	return s.erase(ctx, b, list)
}

// caughtUp waits until everything was seen that is stored now.
func (s *Store) caughtUp(ctx context.Context) error {
	st, err := s.JS.Stream(ctx, s.stream())
	if err != nil {
		return err
	}
	last, err := st.GetLastMsgForSubject(ctx, s.marks())
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	for {
		more := s.known.upTo(last.Sequence)
		if more == nil {
			return nil
		}
		select {
		case <-more:
		case <-ctx.Done():
			return errors.New("the bucket of documents is still being read")
		}
	}
}

// Sweep removes what has no owner and what is over a bound. One process at a time calls it, now and then.
func (s *Store) Sweep(ctx context.Context) error {
	st, err := s.JS.Stream(ctx, s.stream())
	if err != nil {
		return err
	}
	b, err := s.JS.ObjectStore(ctx, s.Bucket)
	if err != nil {
		return err
	}
	if err := s.caughtUp(ctx); err != nil {
		return err
	}
	return cmp.Or(s.unowned(ctx, b), s.bounds(ctx, b), s.unmark(ctx, st), s.parts(ctx, st))
}

// unowned removes what no task refers to: of those that were deleted, of earlier runs, and of attempts that failed.
func (s *Store) unowned(ctx context.Context, b jetstream.ObjectStore) error {
	for key := range s.looked {
		if !s.known.has(key) {
			delete(s.looked, key)
		}
	}
	for _, key := range s.known.keys() {
		list := s.known.of(s.known.tasks, key)
		if len(list) == 0 {
			continue
		}
		now := looked{s.Version(key), list[len(list)-1].at}
		if s.looked[key] == now {
			continue
		}
		o, err := s.Owner(ctx, key)
		if err != nil {
			return fmt.Errorf("cannot read the task %s: %w", key, err)
		}
		young := false
		list = slices.DeleteFunc(list, func(d doc) bool {
			p, _ := placeOf(d.name)
			if o.There && (slices.Contains(o.Names, d.name) || p.enqueue == o.Enqueue && !o.Ended) {
				return true
			}
			fresh := s.now().Sub(d.at) < grace
			young = young || fresh
			return fresh
		})
		n, err := s.erase(ctx, b, list)
		if err != nil {
			return err
		}
		if n > 0 {
			s.Log.Info("removed documents that their task does not refer to", "task", key, "documents", n)
		}
		if !young {
			s.looked[key] = now
		}
	}
	return nil
}

// bounds removes the oldest documents of those that are too many.
func (s *Store) bounds(ctx context.Context, b jetstream.ObjectStore) error {
	var over []doc
	if s.Bounds.Age > 0 {
		over = s.known.where(false, s.now().Add(-s.Bounds.Age))
	}
	if s.Bounds.Each > 0 {
		for _, repo := range s.known.crowded(s.Bounds.Each) {
			list := s.known.of(s.known.repos, repo)
			over = append(over, list[:max(0, len(list)-s.Bounds.Each)]...)
		}
	}
	if s.Bounds.Bytes > 0 {
		over = append(over, s.known.oldest(s.Bounds.Bytes)...)
	}
	n, err := s.erase(ctx, b, over)
	if n > 0 {
		s.Log.Warn("removed the oldest documents: there were more than tasks.documents of the configuration allows", "documents", n)
	}
	return err
}

// unmark removes the marks of what was deleted some time ago.
func (s *Store) unmark(ctx context.Context, st jetstream.Stream) error {
	for _, d := range s.known.where(true, s.now().Add(-markAfter)) {
		if d.seq == 0 { // it is still to be seen
			continue
		}
		subject := strings.TrimSuffix(s.marks(), ">") + base64.URLEncoding.EncodeToString([]byte(d.name))
		if err := st.Purge(ctx, jetstream.WithPurgeSubject(subject), jetstream.WithPurgeSequence(d.seq+1)); err != nil {
			return fmt.Errorf("cannot remove the mark of the document %s: %w", d.name, err)
		}
		s.known.forget(d.name)
	}
	return nil
}

// parts removes parts of documents that were not finished, as by a process that was killed.
func (s *Store) parts(ctx context.Context, st jetstream.Stream) error {
	info, err := st.Info(ctx, jetstream.WithSubjectFilter(s.chunks()+">"))
	if err != nil {
		return err
	}
	owned, now := s.known.parts(), s.now()
	for id := range s.suspect {
		if _, there := info.State.Subjects[s.chunks()+id]; !there || owned[id] {
			delete(s.suspect, id)
		}
	}
	for subject := range info.State.Subjects {
		id := strings.TrimPrefix(subject, s.chunks())
		since, known := s.suspect[id]
		switch {
		case owned[id]:
		case !known:
			s.suspect[id] = now
		case now.Sub(since) >= partAfter:
			if err := st.Purge(ctx, jetstream.WithPurgeSubject(subject)); err != nil {
				return fmt.Errorf("cannot remove parts of a document that was not finished: %w", err)
			}
			delete(s.suspect, id)
		}
	}
	return nil
}
