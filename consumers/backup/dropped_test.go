package backup

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/machines/service"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/publish"
)

// What remains of a dropped value is in a backup, and is restored as the value of an entity that has ended: above its versions, with its events.
func TestADroppedValueIsRestored(t *testing.T) {
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
	e.State, e.Version, e.Data = service.Deleted, whole.Version, nil
	note, err := e.AppendJSON(nil)
	require.NoError(t, err)
	require.NoError(t, from.Appender.Append(t.Context(), []publish.Write{kv.DropAt(bucket, key, note, stored.Sequence, time.Hour)})[0].Err)
	var copied bytes.Buffer
	end, err := from.Write(t.Context(), &copied)
	require.NoError(t, err)
	require.Equal(t, 2, end.Entities[streams.BucketStream(bucket)])
	done, err := to.Restore(t.Context(), bytes.NewReader(copied.Bytes()))
	require.NoError(t, err)
	require.Equal(t, 2, done.Entities)
	got, err := kv.Read(t.Context(), to.NC, bucket, key)
	require.NoError(t, err)
	require.False(t, kv.Absent(got))
	restored, err := service.Machine.DecodeAt(key, got.Data)
	require.NoError(t, err)
	require.Equal(t, service.Deleted, restored.State)
	require.Greater(t, restored.Version, e.Version)
	require.True(t, strings.HasSuffix(restored.Outbox[len(restored.Outbox)-1].Name, "reconciled"))
}
