package backup

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/consumers"
	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/service"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/publish"
)

// What remains of a dropped value is in a backup, and is restored as that: above its versions, for the rest of its life, and without an event.
func TestADroppedValueIsRestoredAsDropped(t *testing.T) {
	t.Parallel()
	from, to := installed(t), installed(t)
	_, err := from.Restore(t.Context(), file(t, services(t, 2, 1, 0)...))
	require.NoError(t, err)
	bucket := from.Plan.Names.Bucket(service.Machine.Plural)
	const key = "default.s0"
	stored, err := kv.Read(t.Context(), from.NC, bucket, key)
	require.NoError(t, err)
	require.NotNil(t, stored)
	whole, err := service.Machine.DecodeAt(key, stored.Data)
	require.NoError(t, err)
	e := service.Machine.New("default", "", "s0")
	e.State, e.Version, e.Data, e.UpdatedAt, e.Replaced = service.Deleted, whole.Version, nil, time.Now().UTC().Add(-time.Hour), stored.Sequence
	note, err := e.AppendJSON(nil)
	require.NoError(t, err)
	require.NoError(t, from.Appender.Append(t.Context(), []publish.Write{kv.DropAt(bucket, key, note, stored.Sequence, time.Hour)})[0].Err)
	var copied bytes.Buffer
	end, err := from.Write(t.Context(), &copied)
	require.NoError(t, err)
	require.Equal(t, 2, end.Entities[streams.BucketStream(bucket)])
	began := time.Now()
	done, err := to.Restore(t.Context(), bytes.NewReader(copied.Bytes()))
	require.NoError(t, err)
	require.Equal(t, 2, done.Entities)
	require.Zero(t, done.Parked)
	got, err := kv.Read(t.Context(), to.NC, bucket, key)
	require.NoError(t, err)
	require.True(t, kv.Dropped(got), "readers of the bucket see that it is gone")
	require.NotContains(t, string(got.Data), `"data"`)
	life, err := time.ParseDuration(got.Headers().Get("Nats-TTL"))
	require.NoError(t, err)
	require.InDelta(t, time.Hour-time.Since(began), life, float64(time.Since(began)+time.Minute))
	restored, err := service.Machine.DecodeAt(key, got.Data)
	require.NoError(t, err)
	require.Equal(t, service.Deleted, restored.State)
	require.Greater(t, restored.Version, e.Version)
	require.True(t, restored.UpdatedAt.Equal(e.UpdatedAt), "it ended then")
	require.Zero(t, restored.Replaced, "revisions are others")
	require.Empty(t, restored.Outbox)
	told, err := streams.Last(t.Context(), to.NC, streams.EventStream, to.Plan.Names.Event(service.Machine.Name, key, machines.EventReconciled))
	require.NoError(t, err)
	if told != nil { // that of the first restore, which is in the backup
		require.Less(t, consumers.EventVersion(service.Machine.Name, key, streams.Header(told.Headers(), streams.HeaderID), told.Data), restored.Version)
	}
}
