package documents

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines/task"
	"github.com/bcc94042/instar/streams/embedded"
	"github.com/bcc94042/instar/streams/streamstest"
)

// shelf is a store whose clock and tasks a test sets.
type shelf struct {
	*Store
	t      *testing.T
	js     jetstream.JetStream
	mu     sync.Mutex
	owners map[string]Owner
	asked  int
	later  time.Duration
}

func open(t *testing.T, js jetstream.JetStream, b Bounds) *shelf {
	t.Helper()
	x := &shelf{t: t, js: js, owners: map[string]Owner{}}
	x.Store = New(Options{JS: js, Bucket: "documents", Bounds: b, Version: func(string) uint64 { return 1 }, Owner: func(_ context.Context, key string) (Owner, error) {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.asked++
		return x.owners[key], nil
	}})
	x.now = func() time.Time { return time.Now().Add(x.later) }
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = x.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	return x
}

func bucket(t *testing.T) jetstream.JetStream {
	t.Helper()
	e := streamstest.Start(t, embedded.Options{})
	js, err := jetstream.New(e.Connect())
	require.NoError(t, err)
	_, err = js.CreateObjectStore(t.Context(), jetstream.ObjectStoreConfig{Bucket: "documents"})
	require.NoError(t, err)
	return js
}

func (x *shelf) put(names ...string) {
	x.t.Helper()
	for _, name := range names {
		_, err := x.Put(x.t.Context(), name, "text/plain", 1000, strings.NewReader(strings.Repeat("x", 1000)))
		require.NoError(x.t, err)
	}
}

// sweep looks through everything as it will be looked at later.
func (x *shelf) sweep(later time.Duration) {
	x.t.Helper()
	x.later = later
	require.NoError(x.t, x.Sweep(x.t.Context()))
}

// has are the names in the bucket.
func (x *shelf) has() (names []string) {
	x.t.Helper()
	b, err := x.js.ObjectStore(x.t.Context(), "documents")
	require.NoError(x.t, err)
	list, err := b.List(x.t.Context())
	if err != nil {
		require.ErrorIs(x.t, err, jetstream.ErrNoObjectsFound)
	}
	for _, o := range list {
		names = append(names, o.Name)
	}
	return names
}

func (x *shelf) stored() uint64 {
	x.t.Helper()
	s, err := x.js.Stream(x.t.Context(), "OBJ_documents")
	require.NoError(x.t, err)
	return s.CachedInfo().State.Msgs
}

func TestEraseRemovesEarlierRunsOfOneTask(t *testing.T) {
	t.Parallel()
	js := bucket(t)
	open(t, js, Bounds{}).put("d/a/t/1/1/x", "d/a/t/2/1/x", "d/a/t/10/1/x", "d/a/t2/1/1/x", "d/a/t/odd", "elsewhere")
	other := open(t, js, Bounds{}) // a process that has written nothing, and has just begun
	n, err := other.Erase(t.Context(), "d/a/t/", 10)
	require.NoError(t, err)
	require.Equal(t, 2, n)
	require.ElementsMatch(t, []string{"d/a/t/10/1/x", "d/a/t2/1/1/x", "d/a/t/odd", "elsewhere"}, other.has())
	n, err = other.Erase(t.Context(), "d/a/t/", 10)
	require.NoError(t, err)
	require.Zero(t, n, "again")
}

// What nobody refers to goes, after a while, whoever deleted or ended when.
func TestWhatHasNoOwnerIsRemoved(t *testing.T) {
	t.Parallel()
	x := open(t, bucket(t), Bounds{})
	x.owners["d.a.cron"] = Owner{There: true, Enqueue: 3, Ended: true, Names: []string{"d/a/cron/2/1/x"}}
	x.owners["d.a.runs"] = Owner{There: true, Enqueue: 2, Names: []string{"d/a/runs/1/1/x"}}
	x.put("d/a/cron/1/1/x", "d/a/cron/2/1/x", "d/a/cron/2/2/x", "d/a/cron/3/1/x", "d/a/runs/1/1/x", "d/a/runs/2/1/x", "d/a/gone/1/1/x", "d/b/gone/1/1/x", "elsewhere")
	x.sweep(0)
	require.Len(t, x.has(), 9, "nothing is that old")
	x.sweep(grace + time.Minute)
	require.ElementsMatch(t, []string{"d/a/cron/2/1/x", "d/a/runs/1/1/x", "d/a/runs/2/1/x", "elsewhere"}, x.has())
	x.sweep(grace + time.Minute)
	asked := x.asked
	x.sweep(grace + 2*time.Minute)
	require.Equal(t, asked, x.asked, "nothing has changed")

	x.owners["d.a.cron"] = Owner{}
	y := open(t, x.js, Bounds{}) // another process takes over
	y.owners = map[string]Owner{"d.a.runs": x.owners["d.a.runs"]}
	y.sweep(grace + time.Minute)
	require.ElementsMatch(t, []string{"d/a/runs/1/1/x", "d/a/runs/2/1/x", "elsewhere"}, y.has())
	require.NoError(t, y.caughtUp(t.Context()))
	y.sweep(markAfter + time.Minute)
	require.EqualValues(t, 6, y.stored(), "of three documents, each with one part; no mark of those that were removed")
}

func TestTheOldestGoWhereThereAreTooMany(t *testing.T) {
	t.Parallel()
	x := open(t, bucket(t), Bounds{Bytes: 10_500, Each: 6})
	for _, repo := range []string{"a", "b"} {
		x.owners["d."+repo+".t"] = Owner{There: true, Enqueue: 1}
	}
	for i := range 9 {
		x.put(fmt.Sprintf("d/a/t/1/1/%d", i))
	}
	require.ElementsMatch(t, []string{"d/a/t/1/1/3", "d/a/t/1/1/4", "d/a/t/1/1/5", "d/a/t/1/1/6", "d/a/t/1/1/7", "d/a/t/1/1/8"}, x.has(), "of one repository")
	for i := range 6 {
		x.put(fmt.Sprintf("d/b/t/1/1/%d", i))
		require.LessOrEqual(t, x.known.size(), int64(10_500))
	}
	require.Contains(t, x.has(), "d/b/t/1/1/5")
	require.NotContains(t, x.has(), "d/a/t/1/1/4")
	_, err := x.Put(t.Context(), "d/a/t/1/1/large", "", 10_501, bytes.NewReader(make([]byte, 10_501)))
	require.ErrorContains(t, err, "more than all documents together may have")

	y := open(t, x.js, Bounds{Bytes: 3500}) // it may be less from now on
	y.owners = x.owners
	y.sweep(0)
	require.Len(t, y.has(), 3)
	y.Bounds = Bounds{Age: time.Hour}
	y.sweep(59 * time.Minute)
	require.Len(t, y.has(), 3)
	y.sweep(61 * time.Minute)
	require.Empty(t, y.has())
}

// A process that is killed while it writes leaves parts of which no name says anything.
func TestPartsOfWhatWasNotFinishedAreRemoved(t *testing.T) {
	t.Parallel()
	x := open(t, bucket(t), Bounds{})
	x.owners["d.a.t"] = Owner{There: true, Enqueue: 1}
	x.put("d/a/t/1/1/x")
	_, err := x.js.Publish(t.Context(), "$O.documents.C.abandoned", []byte("half"))
	require.NoError(t, err)
	before := x.stored()
	x.sweep(0)
	x.sweep(partAfter - time.Minute)
	require.Equal(t, before, x.stored(), "it may be being written")
	x.sweep(partAfter + time.Minute)
	require.Equal(t, before-1, x.stored())
	require.Len(t, x.has(), 1)
}

// A name that does not fit into a line of the protocol ends no connection, whether it is to be written or is stored.
func TestANameThatIsTooLongIsRefused(t *testing.T) {
	t.Parallel()
	js := bucket(t)
	x := open(t, js, Bounds{})
	name := "default/shop/lint/1/1/" + strings.Repeat("x", 5000)
	for _, name := range []string{name, name[:task.MaxDocumentName+1], "default/shop/lint/1/1/\xff"} {
		_, err := x.Put(t.Context(), name, "text/plain", 1, strings.NewReader("x"))
		require.ErrorContains(t, err, "no name of a document")
	}
	x.put(name[:task.MaxDocumentName])
	raw, err := json.Marshal(jetstream.ObjectInfo{ObjectMeta: jetstream.ObjectMeta{Name: name}, Bucket: "documents", NUID: "x"})
	require.NoError(t, err)
	_, err = js.Publish(t.Context(), "$O.documents.M.x", raw)
	require.NoError(t, err)
	x.later = time.Hour
	require.NoError(t, x.Sweep(t.Context()))
	require.False(t, js.Conn().IsClosed())
}
