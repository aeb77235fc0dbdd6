package relay

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/streams/embedded"
	"github.com/bcc94042/instar/streams/outbox"
)

// A machine that sleeps between publish and mark: another lane has given the rows free before their own lane wakes up,
// and the server has forgotten their ids.
func TestClaimMarksWhatALapsedLeaseGaveFree(t *testing.T) {
	t.Parallel()
	s := openShop(t, outbox.Claim)
	forgotten := s.forgetful()
	s.add("o-1", 1)
	stuck, free := make(chan struct{}), make(chan struct{})
	var once sync.Once
	r := s.relay(outbox.Claim)
	r.control.Hook = func(at string) {
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
	forgotten()
	close(free)
	s.add("o-1", 2)
	s.allSent()
	require.NoError(t, stop())
	s.checkEvents()
}

// Commits of claims and marks do not wait for the disk: a crash of Postgres undoes the last of them. What was published is in
// the stream, behind the marker, and is not published again, whatever the server remembers of ids.
func TestClaimSurvivesThatMarksAreUndone(t *testing.T) {
	t.Parallel()
	cluster := anotherCluster(t, "wal_writer_delay", "10s") // nobody else writes the log
	dsn, err := cluster.Database(t.Context())
	require.NoError(t, err)
	s := shopAt(t, setup(t, embedded.OS), dsn, outbox.Claim)
	s.forgetful()
	for round := range 20 { // a checkpoint may have written them, or whoever else committed
		stop := s.run(s.relay(outbox.Claim))
		for n := range 30 {
			s.add(fmt.Sprint("o-", n%3), round*30+n)
		}
		s.eventually(30*round + 30)
		s.allSent()
		require.NoError(t, cluster.Kill())
		require.NoError(t, stop(), "it cannot leave in order")
		require.NoError(t, cluster.Restart(t.Context()))
		undone := 0
		require.Eventually(t, func() bool {
			return s.pool.QueryRow(t.Context(), `select count(*) from outbox_event where status <> 'SENT'`).Scan(&undone) == nil
		}, waitFor, tick)
		if undone == 0 {
			continue
		}
		t.Logf("%d marks were undone in round %d", undone, round)
		stop = s.run(s.relay(outbox.Claim))
		s.allSent()
		s.checkEvents()
		// A relay that leaves in order says that there is nothing to read back, so its marks are on disk.
		s.add("o-1", 1000)
		s.eventually(30*round + 31)
		s.allSent()
		require.NoError(t, stop())
		require.NoError(t, cluster.Kill())
		require.NoError(t, cluster.Restart(t.Context()))
		require.Eventually(t, func() bool {
			return s.pool.QueryRow(t.Context(), `select count(*) from outbox_event where status <> 'SENT'`).Scan(&undone) == nil
		}, waitFor, tick)
		require.Zero(t, undone)
		return
	}
	t.Fatal("no crash undid a mark")
}
