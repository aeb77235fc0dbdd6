package reconcile

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/consumers/cluster"
	"github.com/bcc94042/instar/internal/boottime"
	"github.com/bcc94042/instar/machines"
)

// Whether a mark is ahead of its time is told by the clock of the server that has set it, however far this machine's is from that, and
// wherever somebody puts this machine's meanwhile.
func TestAMarkIsHeldAgainstTheClockThatHasSetIt(t *testing.T) {
	t.Parallel()
	for _, off := range []time.Duration{-time.Hour, 0, time.Hour} {
		opened := time.Now().Add(off)
		h := &History{Opened: opened, Since: boottime.Now() - time.Minute, LastSeq: 10}
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
	require.False(t, (&History{}).Ahead(&machines.Entity{Mark: 1, MarkedAt: time.Now().Add(time.Hour)}, 0), "it has not looked")
}
