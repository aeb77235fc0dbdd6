package reconcile

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/consumers/cluster"
	"github.com/bcc94042/instar/internal/boottime"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
)

// Whether a mark is ahead of its time is told by the clock of the server that has set it, however far this machine's is from that, and
// wherever somebody puts this machine's meanwhile.
func TestAMarkIsHeldAgainstTheClockThatHasSetIt(t *testing.T) {
	t.Parallel()
	for _, off := range []time.Duration{-time.Hour, 0, time.Hour} {
		opened := time.Now().Add(off)
		h := &History{Opened: opened, Clock: opened, Since: boottime.Now() - time.Minute, LastSeq: 10}
		for _, c := range []struct {
			mark uint64
			at   time.Duration // after the look at the stream
			want bool
		}{
			{13, -time.Minute, false},
			{13, time.Minute, false}, // another owner has just taken it
			{13, time.Minute + cluster.MaxSkew - time.Second, false},
			{13, 10 * time.Minute, true},
			{12, 10 * time.Minute, false}, // the stream has it
		} {
			require.Equal(t, c.want, h.Ahead(&machines.Entity{Mark: c.mark, MarkedAt: opened.Add(c.at)}, 12), "%s %+v", off, c)
		}
	}
	slow := &History{Opened: time.Now(), Clock: time.Now(), Since: boottime.Now(), Within: 9 * time.Second, LastSeq: 10}
	for late, want := range map[time.Duration]bool{time.Second: false, 9 * time.Second: false, time.Minute: true} {
		require.Equal(t, want, slow.Ahead(&machines.Entity{Mark: 13, MarkedAt: slow.Opened.Add(late)}, 12), "the answer was up to 9 s on its way: %s", late)
	}
	require.False(t, (&History{}).Ahead(&machines.Entity{Mark: 1, MarkedAt: time.Now().Add(time.Hour)}, 0), "it has not looked")
}

// An answer that was long on its way tells what the clock of the server was then.
// A loss of power takes the end of the stream; what is older than a stream that was made anew was not lost by one.
func TestWhatALossOfPowerMayHaveCut(t *testing.T) {
	t.Parallel()
	opened := time.Now()
	h := &History{Opened: opened, Created: opened.Add(-time.Hour), LastSeq: 10, LastTime: opened.Add(-time.Minute)}
	for _, c := range []struct {
		mark         uint64
		at           time.Duration // before the look
		cut, mayLack bool
	}{
		{9, 10 * time.Minute, false, false},
		{9, 2 * time.Minute, true, true},
		{11, 10 * time.Minute, true, true},
		{9, 2 * time.Hour, false, true}, // of a stream before this one
		{11, -time.Minute, false, false},
	} {
		e := &machines.Entity{Mark: c.mark, MarkedAt: opened.Add(-c.at)}
		require.Equal(t, c.cut, h.Cut(e), "%+v", c)
		require.Equal(t, c.mayLack, h.MayLack(e), "%+v", c)
	}
}

func TestALookNotesHowLongItsAnswerWasOnItsWay(t *testing.T) {
	t.Parallel()
	s, err := server.NewServer(&server.Options{DontListen: true, NoLog: true, NoSigs: true}) // without streams: the answers are the test's
	require.NoError(t, err)
	s.Start()
	t.Cleanup(s.Shutdown)
	require.True(t, s.ReadyForConnections(10*time.Second))
	nc, err := nats.Connect("", nats.InProcessServer(s))
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	var onItsWay time.Duration
	var stamp time.Time
	late := make(chan time.Duration, 3)
	_, err = nc.Subscribe("$JS.API.STREAM.INFO."+streams.CommandStream, func(m *nats.Msg) {
		if len(late) == 0 {
			return // it is put again, and somebody has the answer already
		}
		at, now := boottime.Now(), time.Now()
		time.AfterFunc(<-late, func() {
			onItsWay, stamp = boottime.Now()-at, now
			_ = m.Respond(fmt.Appendf(nil, `{"ts":%q,"created":"2026-01-01T00:00:00Z","state":{"last_seq":7}}`, now.Format(time.RFC3339Nano)))
		})
	})
	require.NoError(t, err)
	var h History
	began := boottime.Now()
	late <- 600 * time.Millisecond
	anew, err := Reader{NC: nc}.Look(t.Context(), &h)
	require.NoError(t, err)
	require.True(t, anew)
	require.EqualValues(t, 7, h.LastSeq)
	require.True(t, h.Opened.Equal(stamp))
	require.Positive(t, onItsWay)
	require.GreaterOrEqual(t, h.Within, onItsWay)
	require.LessOrEqual(t, h.Within, boottime.Now()-began)

	// The next look at the same stream takes the clock from it where its answer came sooner, and nothing else.
	before := h
	late <- 0
	anew, err = Reader{NC: nc}.Look(t.Context(), &h)
	require.NoError(t, err)
	require.False(t, anew)
	require.Less(t, h.Within, before.Within)
	require.True(t, h.Clock.Equal(stamp))
	require.True(t, h.Opened.Equal(before.Opened), "what may be lacking is told by the first")
	late <- 100 * time.Millisecond
	sooner := h
	_, err = Reader{NC: nc}.Look(t.Context(), &h)
	require.NoError(t, err)
	require.Equal(t, sooner, h)
}
