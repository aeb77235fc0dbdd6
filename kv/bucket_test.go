package kv

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/kv/kvtest"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type thing struct {
	State string `json:"state"`
}

func open(t *testing.T, n *kvtest.Node, name string) *Bucket[thing] {
	b, err := Open(t.Context(), n.JS, name, JSON[thing]())
	require.NoError(t, err)
	return b
}

func TestBucket(t *testing.T) {
	t.Parallel()
	n := kvtest.Start(t)
	n.Create(t, "things")
	b := open(t, n, "things")
	ctx := t.Context()

	t.Run("PutIsRevisionChecked", func(t *testing.T) {
		first, err := b.Put(ctx, "default.web", thing{"new"}, 0)
		require.NoError(t, err)
		second, err := b.Put(ctx, "default.web", thing{"ready"}, first)
		require.NoError(t, err)
		require.Greater(t, second, first)
		for _, stale := range []uint64{0, first, second + 7} {
			_, err = b.Put(ctx, "default.web", thing{"lost"}, stale)
			require.ErrorIs(t, err, ErrConflict)
			require.ErrorIs(t, err, jetstream.ErrKeyRevisionMismatch)
			require.True(t, Conflict(err))
			require.ErrorContains(t, err, fmt.Sprintf("cannot put things/default.web at revision %d: revision conflict", stale))
		}
		e, err := b.Get(ctx, "default.web")
		require.NoError(t, err)
		require.False(t, e.Created.IsZero())
		require.Equal(t, Entry[thing]{Key: "default.web", Value: thing{"ready"}, Revision: second, Created: e.Created}, e)
	})
	t.Run("DeletedKeyIsNotBroughtBack", func(t *testing.T) {
		rev, err := b.Put(ctx, "default.gone", thing{"new"}, 0)
		require.NoError(t, err)
		require.ErrorIs(t, b.Purge(ctx, "default.gone", rev+1), ErrConflict)
		require.NoError(t, b.Purge(ctx, "default.gone", rev))
		_, err = b.Get(ctx, "default.gone")
		require.ErrorIs(t, err, ErrNotFound)
		require.ErrorContains(t, err, "things/default.gone")
		_, err = b.Put(ctx, "default.gone", thing{"again"}, 0)
		require.ErrorIs(t, err, ErrConflict)
	})
	t.Run("MissingKey", func(t *testing.T) {
		_, err := b.Get(ctx, "default.never")
		require.ErrorIs(t, err, ErrNotFound)
		_, err = b.Get(ctx, "not a key")
		require.ErrorIs(t, err, jetstream.ErrInvalidKey)
		_, err = b.Put(ctx, "not.a.*", thing{}, 0)
		require.ErrorIs(t, err, jetstream.ErrInvalidKey)
	})
	t.Run("CorruptValue", func(t *testing.T) {
		rev := n.Put(t, "things", "default.bad", `{"state":7}`)
		e, err := b.Get(ctx, "default.bad")
		require.ErrorIs(t, err, ErrCorrupt)
		var corrupt *CorruptError
		require.ErrorAs(t, err, &corrupt)
		var why *json.UnmarshalTypeError
		require.ErrorAs(t, err, &why)
		require.Equal(t, &CorruptError{Bucket: "things", Key: "default.bad", Revision: rev, Raw: []byte(`{"state":7}`), Err: corrupt.Err}, corrupt)
		require.Equal(t, rev, e.Revision)
		require.ErrorContains(t, err, fmt.Sprintf("things/default.bad at revision %d", rev))
	})
	t.Run("OpenRefuses", func(t *testing.T) {
		_, err := Open(ctx, n.JS, "nothing", JSON[thing]())
		require.ErrorIs(t, err, jetstream.ErrBucketNotFound)
		_, err = n.JS.CreateStream(ctx, jetstream.StreamConfig{Name: "KV_direct", Subjects: []string{"$KV.direct.>"}, MaxMsgsPerSubject: 1, AllowDirect: true})
		require.NoError(t, err)
		_, err = Open(ctx, n.JS, "direct", JSON[thing]())
		require.ErrorContains(t, err, "bucket direct: its stream allows direct reads")
	})
}

func TestConflictKnowsBothCodes(t *testing.T) {
	t.Parallel()
	require.True(t, Conflict(&jetstream.APIError{ErrorCode: 10071}))
	require.True(t, Conflict(fmt.Errorf("wrapped: %w", &jetstream.APIError{ErrorCode: 10164})))
	require.False(t, Conflict(&jetstream.APIError{ErrorCode: 10059}))
	require.False(t, Conflict(nil))
}

// A request that is lost with the connection has no answer, and whoever has much time does not wait for one all the while.
func TestARequestThatIsLostIsGivenUp(t *testing.T) {
	t.Parallel()
	n := kvtest.Start(t)
	n.Create(t, "things")
	nc, err := nats.Connect(n.NC.ConnectedUrl(), nats.ReconnectBufSize(1<<20), nats.MaxReconnects(-1)) // which takes requests while there is no server
	require.NoError(t, err)
	defer nc.Close()
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(200*time.Millisecond))
	require.NoError(t, err)
	b, err := Open(t.Context(), js, "things", JSON[thing]())
	require.NoError(t, err)
	rev, err := b.Put(t.Context(), "default.web", thing{"new"}, 0)
	require.NoError(t, err)
	n.Stop()
	require.Eventually(t, func() bool { return nc.IsReconnecting() }, 10*time.Second, time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	for what, ask := range map[string]func() error{
		"get":         func() error { _, err := b.Get(ctx, "default.web"); return err },
		"get dropped": func() error { _, err := b.GetDropped(ctx, "default.web"); return err },
		"put":         func() error { _, err := b.Put(ctx, "default.web", thing{"ready"}, rev); return err },
		"purge":       func() error { return b.Purge(ctx, "default.web", rev) },
		"open":        func() error { _, err := Open(ctx, js, "things", JSON[thing]()); return err },
	} {
		done := make(chan error, 1)
		go func() { done <- ask() }()
		select {
		case err := <-done:
			require.ErrorIs(t, err, context.DeadlineExceeded, what)
			require.NotErrorIs(t, err, ErrNotFound, what)
			require.NotErrorIs(t, err, ErrConflict, what)
		case <-time.After(20 * time.Second):
			cancel()
			require.NoError(t, <-done, "%s waits", what)
		}
	}
	require.NoError(t, ctx.Err())
}
