package backup

import (
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/streams/embedded"
	"github.com/bcc94042/instar/streams/streamstest"
)

// What a server has acknowledged and lost is no lost answer: it is not waited for, and what comes after it is not stored as if it were there.
func TestARestoreNoticesWhatItsServerHasLost(t *testing.T) {
	t.Parallel()
	e := streamstest.Start(t, embedded.Options{Profile: embedded.OS})
	_, err := e.JS.CreateStream(t.Context(), jetstream.StreamConfig{Name: "events", Subjects: []string{"e"}, FirstSeq: 100})
	require.NoError(t, err)
	r := &restorer{s: &Store{JS: e.JS}, acked: map[string]uint64{}}
	require.NoError(t, r.kept(t.Context()))
	for range 2 {
		ack, err := e.JS.Publish(t.Context(), "e", nil)
		require.NoError(t, err)
		r.ack("events", ack.Sequence)
	}
	r.ack("events", 1)
	require.NoError(t, r.resume(t.Context()))
	r.ack("events", 102)
	err = r.resume(t.Context())
	require.ErrorIs(t, err, ErrForgotten)
	require.ErrorContains(t, err, "stream events ends at 101, and had acknowledged 102")
	require.False(t, lost(err))
}
