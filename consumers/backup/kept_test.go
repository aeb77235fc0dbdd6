package backup

import (
	"bytes"
	"encoding/json"
	"io"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/streams/embedded"
	"github.com/bcc94042/instar/streams/publish"
	"github.com/bcc94042/instar/streams/streamstest"
)

// What a server has acknowledged and lost is no lost answer: it is not waited for, and what comes after it is not stored as if it were there.
func TestARestoreNoticesWhatItsServerHasLost(t *testing.T) {
	t.Parallel()
	e := streamstest.Start(t, embedded.Options{Profile: embedded.OS})
	_, err := e.JS.CreateStream(t.Context(), jetstream.StreamConfig{Name: "events", Subjects: []string{"e"}, FirstSeq: 100})
	require.NoError(t, err)
	r := &restorer{s: &Store{JS: e.JS}, first: 100, acked: map[string]acked{}}
	require.NoError(t, r.kept(t.Context()))
	for range 2 {
		ack, err := e.JS.Publish(t.Context(), "e", nil)
		require.NoError(t, err)
		r.ack("events", ack.Sequence, 1)
	}
	r.ack("events", 1, 0) // a duplicate
	require.NoError(t, r.resume(t.Context()))
	for _, more := range []acked{{102, 2}, {101, 3}} {
		r.acked["events"] = more
		err = r.resume(t.Context())
		require.ErrorIs(t, err, ErrForgotten)
		require.ErrorContains(t, err, "stream events ends at 101, and had acknowledged")
		require.False(t, lost(err))
	}
}

// What a server has lost is noticed also where nobody has lost a connection, and others have taken the sequences since.
func TestARestoreNoticesALossThatOthersHaveMadeUpFor(t *testing.T) {
	t.Parallel()
	s := installed(t)
	lines := services(t, 2, 600, 0)
	text := func(lines []line) (text []byte) {
		for _, l := range lines {
			raw, err := json.Marshal(l)
			require.NoError(t, err)
			text = append(text, raw...)
		}
		return text
	}
	lose := func() bool {
		var events jetstream.Stream
		require.Eventually(t, func() bool { // some were stored
			var err error
			events, err = s.JS.Stream(t.Context(), "EVENTS")
			return err == nil && events.CachedInfo().State.Msgs > 0
		}, 30*time.Second, 10*time.Millisecond)
		c := events.CachedInfo().Config
		c.FirstSeq = events.CachedInfo().State.FirstSeq
		require.NoError(t, s.JS.DeleteStream(t.Context(), "EVENTS"))
		_, err := s.JS.CreateStream(t.Context(), c)
		require.NoError(t, err)
		return true
	}
	end := line{End: &End{Messages: map[string]int{"KV_services": 2, "EVENTS": 1200}}}
	_, err := s.Restore(t.Context(), io.MultiReader(
		bytes.NewReader(compressed(t, string(text(lines[:600])))), await(lose), bytes.NewReader(compressed(t, string(text(append(lines[600:], end)))))))
	require.ErrorIs(t, err, ErrForgotten)
	require.ErrorContains(t, err, "stream EVENTS ends at ")
}

// An event that is in a backup twice, as after a loss of power while it was taken, is stored once, and no loss.
func TestAnEventThatABackupHasTwiceIsNoLoss(t *testing.T) {
	t.Parallel()
	for _, group := range []bool{false, true} {
		s := installed(t)
		a, err := publish.NewAppender(s.NC, publish.AppenderOptions{Group: group})
		require.NoError(t, err)
		t.Cleanup(a.Close)
		s.Appender = a
		lines := services(t, 1, 3, 0)
		lines = append(lines, lines[len(lines)-2:]...)
		_, err = s.Restore(t.Context(), file(t, lines...))
		require.NoError(t, err)
		require.EqualValues(t, 3+1, s.held(t, "EVENTS").Msgs, "with that of the restore")
	}
}
