package relay

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/streams/outbox"
)

func TestLog(t *testing.T) {
	t.Parallel()
	s := openShop(t, outbox.Log)
	for n := range 50 {
		s.add(fmt.Sprint("o-", n%7), n)
	}
	r := s.relay(outbox.Log)
	stop := s.run(r)
	s.eventually(50)
	s.add("o-1", 50)
	r.Wake()
	s.eventually(51)
	s.check()
	require.NoError(t, stop())

	s.add("o-1", 51) // while nobody runs
	again := s.relay(outbox.Log)
	s.run(again)
	s.eventually(52)
	s.check()
	s.nc.Flush()
}

// Transactions commit in another order than they take numbers, and some roll back.
func TestLogWithWritersInAnyOrder(t *testing.T) {
	t.Parallel()
	s := openShop(t, outbox.Log)
	s.run(s.relay(outbox.Log))
	until := time.Now().Add(2500 * time.Millisecond)
	var writers sync.WaitGroup
	for w := range 12 {
		writers.Go(func() {
			for i := 0; time.Now().Before(until); i++ {
				_ = pgx.BeginFunc(s.ctx, s.pool, func(tx pgx.Tx) error {
					for k := range 1 + rand.N(3) {
						if _, err := tx.Exec(s.ctx, `select outbox_append('order', $1, 'order.paid', '{}')`, fmt.Sprintf("w%d-%d", w, (i+k)%3)); err != nil {
							return err
						}
						if rand.N(4) == 0 {
							<-time.After(rand.N(30 * time.Millisecond))
						}
					}
					if rand.N(5) == 0 {
						return context.Canceled
					}
					return nil
				})
			}
		})
	}
	writers.Wait()
	s.check()
	require.Greater(t, s.stored(), 200)
}

func TestLogForeignTransactionsHoldNothingBack(t *testing.T) {
	t.Parallel()
	s := openShop(t, outbox.Log)
	s.exec(`create table other (x int)`)
	here, err := s.pool.Begin(s.ctx)
	require.NoError(t, err)
	defer func() { _ = here.Rollback(context.Background()) }()
	_, err = here.Exec(s.ctx, `insert into other values (1)`)
	require.NoError(t, err)
	elsewhere, err := pgx.Connect(s.ctx, pg.Database(t))
	require.NoError(t, err)
	defer elsewhere.Close(context.Background())
	_, err = elsewhere.Exec(s.ctx, `begin; create table other (x int); insert into other values (1)`)
	require.NoError(t, err)
	s.run(s.relay(outbox.Log))
	s.add("o-1", 1)
	s.eventually(1)
}

// A writer of the same table, and a prepared one, hold the cursor back until they end; then nothing is missing.
func TestLogWaitsForWriters(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]string{"commit": "commit", "rollback": "rollback", "prepared": "prepare transaction 'x'"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openShop(t, outbox.Log)
			r := s.relay(outbox.Log)
			s.run(r)
			slow, err := pgx.Connect(s.ctx, s.dsn)
			require.NoError(t, err)
			defer slow.Close(context.Background())
			_, err = slow.Exec(s.ctx, `begin; select outbox_append('order', 'o-1', 'order.paid', '{}')`)
			require.NoError(t, err)
			prepared := end == "prepare transaction 'x'"
			if prepared {
				end = strings.Replace(end, "x", s.dsn[len(s.dsn)-20:], 1)
				_, err = slow.Exec(s.ctx, end)
				require.NoError(t, err)
				end = strings.Replace(end, "prepare transaction", "commit prepared", 1)
			}
			s.add("o-1", 2)
			r.Wake()
			require.Eventually(t, func() bool { return r.Status().FenceWait > 0 }, waitFor, tick)
			require.Zero(t, s.stored())
			_, err = slow.Exec(s.ctx, end)
			require.NoError(t, err)
			s.check()
		})
	}
}

// A row that cannot be published keeps its aggregate back, in order; the others flow.
func TestLogParksAnAggregate(t *testing.T) {
	t.Parallel()
	s := openShop(t, outbox.Log)
	r := s.relay(outbox.Log, func(r *Relay) { r.Config.Attempts = 3 })
	s.takes(4096)
	for n := range 20 {
		s.add(fmt.Sprint("o-", n%2), n)
		if n == 9 {
			s.exec(`select outbox_append('order', 'o-1', 'order.paid', to_jsonb(repeat('x', 5000)))`)
		}
	}
	stop := s.run(r)
	s.eventually(15)
	require.Eventually(t, func() bool {
		return s.count(`select count(*) from outbox_parked where state = 'DEAD' and attempts = 3 and last_error <> ''`) == 1
	}, waitFor, tick)
	require.Equal(t, 6, s.count(`select count(*) from outbox_parked`))
	require.Equal(t, 15, s.stored())
	require.NoError(t, stop())

	s.takes(-1)
	s.exec(`update outbox_parked set state = 'NEW', attempts = 0, next_retry_at = now(), redrives = 1 where state = 'DEAD'`)
	s.run(s.relay(outbox.Log))
	s.check()
	s.parks(0)
	s.add("o-1", 99)
	s.check()
}

// A row that waits for its time is overtaken; everything else of its aggregate is in order.
func TestLogNotBeforeItsTime(t *testing.T) {
	t.Parallel()
	s := openShop(t, outbox.Log)
	r := s.relay(outbox.Log)
	s.run(r)
	s.opened(r)
	began := time.Now()
	s.exec(`select outbox_append('order', 'o-1', 'order.later', '{}', not_before => now() + interval '2 seconds')`)
	s.add("o-1", 2)
	s.add("o-1", 3)
	s.eventually(2)
	s.eventually(3)
	require.GreaterOrEqual(t, time.Since(began), 2*time.Second)
	require.Equal(t, "2 3 1", s.positions())
	s.parks(0)
}

// One relay stops between reading and publishing, for as long as another one needs to take over and finish.
func TestLogZombie(t *testing.T) {
	t.Parallel()
	s := openShop(t, outbox.Log)
	stuck, free := make(chan struct{}), make(chan struct{})
	var once sync.Once
	zombie := s.relay(outbox.Log)
	zombie.control.Hook = func(at string) {
		if at == "publish" && s.stored() >= 30 {
			once.Do(func() { close(stuck); <-free })
		}
	}
	for n := range 30 {
		s.add(fmt.Sprint("o-", n%5), n)
	}
	stopZombie := s.run(zombie)
	s.eventually(30)
	for n := range 40 {
		s.add(fmt.Sprint("o-", n%5), n)
	}
	zombie.Wake()
	<-stuck
	successor := s.relay(outbox.Log, func(r *Relay) { r.Node = "b" })
	stop := s.run(successor)
	s.eventually(70)
	s.add("o-1", 71)
	s.eventually(71)
	require.NoError(t, stop())
	close(free)
	require.Eventually(t, func() bool { return zombie.restarts.Load() > 0 }, waitFor, tick)
	s.add("o-1", 72)
	s.check()
	require.NoError(t, stopZombie())
	s.check()
}
