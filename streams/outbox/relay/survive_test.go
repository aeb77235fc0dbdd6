package relay

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/internal/postgres"
	"github.com/bcc94042/instar/streams/embedded"
	"github.com/bcc94042/instar/streams/outbox"
	"github.com/bcc94042/instar/streams/outbox/relay/session"
)

// anotherCluster keeps what is committed over a kill -9, unlike that of the suite.
func anotherCluster(t *testing.T, settings ...string) *postgres.Cluster {
	t.Helper()
	pg.Cluster(t) // skips where there is none
	dir, err := os.MkdirTemp("", "instar-relay-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	config := map[string]string{"fsync": "off"}
	for pair := range slices.Chunk(settings, 2) {
		config[pair[0]] = pair[1]
	}
	cluster, err := postgres.Start(t.Context(), postgres.Options{Dir: dir, Config: config})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, cluster.Stop(context.Background())) })
	return cluster
}

// write appends events of several aggregates until stop is closed, whatever fails meanwhile.
func (s *shop) write(writers int, stop <-chan struct{}) (wait func()) {
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				case <-time.After(2 * time.Millisecond): // others have work to do
				}
				_ = pgx.BeginFunc(s.ctx, s.pool, func(tx pgx.Tx) error {
					for k := range 1 + rand.N(4) {
						if _, err := tx.Exec(s.ctx, `select outbox_append('order', $1, 'order.paid', '{}')`, fmt.Sprintf("w%d-%d", w, (i+k)%5)); err != nil {
							return err
						}
					}
					if rand.N(8) == 0 {
						return context.Canceled
					}
					return nil
				})
			}
		})
	}
	return all.Wait
}

// Postgres and NATS are killed while rows are written, and relays come and go: every committed row is in the stream, once
// and in order.
func TestRelaysSurviveKills(t *testing.T) {
	t.Parallel()
	for _, mode := range []outbox.Mode{outbox.Log, outbox.Claim} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			cluster := anotherCluster(t)
			dsn, err := cluster.Database(t.Context())
			require.NoError(t, err)
			s := shopAt(t, setup(t, embedded.OS), dsn, mode)
			r := s.relay(mode)
			stopRelay := s.run(r)
			stop := make(chan struct{})
			wait := s.write(4, stop)
			for round := range 6 {
				n := s.stored()
				require.True(t, waits(func() bool { return s.stored() >= n+50 }))
				switch round % 3 {
				case 0:
					require.NoError(t, cluster.Kill())
					require.NoError(t, cluster.Restart(t.Context()))
				case 1:
					require.NoError(t, s.server.Restart())
				case 2:
					r.NC.Close() // it cannot leave in order
					_ = stopRelay()
					r = s.relay(mode)
					stopRelay = s.run(r)
				}
			}
			close(stop)
			wait()
			if mode == outbox.Claim {
				s.checkEvents()
				return
			}
			s.check()
		})
	}
}

// A copy of the database in another cluster is not relayed into the same stream: it would repeat, or skip.
func TestACopyInAnotherClusterIsRefused(t *testing.T) {
	t.Parallel()
	s := openShop(t, outbox.Log)
	for n := range 20 {
		s.add("o-1", n)
	}
	stop := s.run(s.relay(outbox.Log))
	s.eventually(20)
	require.NoError(t, stop())

	bin := pg.Cluster(t).Bin()
	dump, err := exec.CommandContext(s.ctx, filepath.Join(bin, "pg_dump"), "--dbname", s.dsn).Output()
	require.NoError(t, err)
	cluster := anotherCluster(t)
	dsn, err := cluster.Database(t.Context())
	require.NoError(t, err)
	restore := exec.CommandContext(s.ctx, filepath.Join(bin, "psql"), "--quiet", "--dbname", dsn)
	restore.Stdin = strings.NewReader(string(dump))
	require.NoError(t, restore.Run())

	r := s.relay(outbox.Log, func(r *Relay) { r.Config.DSN = dsn })
	err = r.Run(s.ctx)
	require.ErrorIs(t, err, session.ErrForeign)
	require.Equal(t, 20, s.stored())
	// Its owner may say that it goes on there.
	for shard := range 4 {
		js, err := s.js.Stream(s.ctx, "OUTBOX")
		require.NoError(t, err)
		require.NoError(t, js.Purge(s.ctx, withSubject(fmt.Sprint("outbox-pos.shop.log.", shard))))
	}
	err = s.relay(outbox.Log, func(r *Relay) { r.Config.DSN = dsn }).Run(s.ctx)
	require.ErrorIs(t, err, session.ErrForeign)
	const accept = `update outbox_cursor set system_identifier = '' where source = 'shop'`
	require.ErrorContains(t, err, accept)
	conn, err := pgx.Connect(s.ctx, dsn)
	require.NoError(t, err)
	defer conn.Close(context.Background())
	_, err = conn.Exec(s.ctx, accept)
	require.NoError(t, err)
	_, err = conn.Exec(s.ctx, `select outbox_append('order', 'o-1', 'order.paid', '{}')`)
	require.NoError(t, err)
	s.run(s.relay(outbox.Log, func(r *Relay) { r.Config.DSN = dsn }))
	s.eventually(21)
	require.Equal(t, 21, s.stored())
}

// A database that was set back gives numbers out again that the stream has as sent.
func TestASequenceThatWentBackIsRefused(t *testing.T) {
	t.Parallel()
	s := openShop(t, outbox.Log)
	for n := range 20 {
		s.add("o-1", n)
	}
	stop := s.run(s.relay(outbox.Log))
	s.eventually(20)
	require.NoError(t, stop())
	s.exec(`select setval(pg_get_serial_sequence('outbox_log', 'seq'), 5)`)
	var fatal *PermanentError
	require.ErrorAs(t, s.relay(outbox.Log).Run(s.ctx), &fatal)
	require.ErrorContains(t, fatal, "set back to an older state")
}

// A row beside the partition of its day, as at midnight before the next one is made, and a sequence with gaps.
func TestLogOverMidnight(t *testing.T) {
	t.Parallel()
	s := openShop(t, outbox.Log)
	s.run(s.relay(outbox.Log))
	for day := -1; day < 8; day++ { // some of these days have no partition yet
		s.exec(`insert into outbox_log (day, shard, event_id, aggregate_type, aggregate_id, event_type, payload)
			select current_date + $1::int, outbox_shard('order', 'o-1', 4), outbox_uuid_v7(), 'order', 'o-1', 'order.paid', '{}' from generate_series(1, 5)`, day)
		s.exec(`select setval(pg_get_serial_sequence('outbox_log', 'seq'), nextval(pg_get_serial_sequence('outbox_log', 'seq')) + 1000)`)
		s.exec(`select outbox_maintain()`)
	}
	s.check()
}

func TestDrainAndPause(t *testing.T) {
	t.Parallel()
	s := openShop(t, outbox.Log)
	r := s.relay(outbox.Log)
	r.Pause()
	done := make(chan error, 1)
	go func() { done <- r.Run(s.ctx) }()
	for n := range 2500 {
		if n%500 == 0 {
			s.exec(`insert into outbox_log (shard, event_id, aggregate_type, aggregate_id, event_type, payload)
				select outbox_shard('order', 'o-' || n % 9, 4), outbox_uuid_v7(), 'order', 'o-' || n % 9, 'order.paid', '{}' from generate_series(1, 500) as n`)
		}
	}
	s.opened(r)
	require.Zero(t, s.stored())
	require.NoError(t, r.Drain(s.ctx))
	require.ErrorIs(t, <-done, ErrDrained)
	require.Equal(t, 2500, s.stored())
	s.check()
	require.Equal(t, 4, s.count(`select count(*) from outbox_cursor where seq = 2500`))
}
