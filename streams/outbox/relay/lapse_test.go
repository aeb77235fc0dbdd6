package relay

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/streams/outbox"
)

// A machine that sleeps between publish and mark: another lane has given the rows free before their own lane wakes up,
// and the server has forgotten their ids.
func TestClaimMarksWhatALapsedLeaseGaveFree(t *testing.T) {
	t.Parallel()
	s := openShop(t, outbox.Claim)
	c := s.stream.Config()
	c.Duplicates = 100 * time.Millisecond
	_, err := s.js.UpdateStream(t.Context(), c)
	require.NoError(t, err)
	s.add("o-1", 1)
	stuck, free := make(chan struct{}), make(chan struct{})
	var once sync.Once
	r := s.relay(outbox.Claim)
	r.hook = func(at string) {
		if at == "claim" && s.stored() == 1 {
			once.Do(func() { close(stuck); <-free })
		}
	}
	stop := s.run(r)
	<-stuck
	require.Eventually(t, func() bool {
		s.exec(`update outbox_event set locked_until = now() - interval '1 second' where status = 'SENDING'`)
		n, err := (&outbox.Store{Pool: s.pool}).ReleaseExpired(t.Context())
		require.NoError(t, err)
		return n == 1 || s.count(`select count(*) from outbox_event where status = 'SENT'`) == 1
	}, waitFor, tick)
	js, err := s.js.Stream(t.Context(), "OUTBOX")
	require.NoError(t, err)
	last, err := js.GetLastMsgForSubject(t.Context(), "outbox.order.o-1.order.paid")
	require.NoError(t, err)
	require.Eventually(t, func() bool { return time.Since(last.Time) > 4*c.Duplicates }, waitFor, tick)
	close(free)
	s.add("o-1", 2)
	s.allSent()
	require.NoError(t, stop())
	s.checkEvents()
}
