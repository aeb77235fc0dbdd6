package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/streams/outbox"
)

const (
	sqlSlots  = `select count(*) from pg_replication_slots where database = current_database()`
	sqlMaking = sqlSlots + ` and confirmed_flush_lsn is null`
	sqlNoted  = `select count(*) from outbox_stream where slot <> ''`
	sqlReads  = `select count(*) from outbox_settings where wal_slot is not null`
)

// change changes the mode.
func (s *shop) change(mode outbox.Mode) error {
	return outbox.Init(context.WithoutCancel(s.ctx), s.dsn, "", outbox.Settings{Mode: mode})
}

// back lets a database leave mode wal, in which an event was published, and come back.
func (s *shop) back(named func(*Relay)) {
	s.t.Helper()
	_, stop := s.begin(outbox.WAL, named)
	s.add("o-0", 1)
	s.eventually(1)
	require.Eventually(s.t, func() bool { return s.count(`select count(*) from outbox_cursor where seq > 0`) > 0 }, waitFor, tick)
	require.NoError(s.t, stop())
	require.NoError(s.t, s.change(outbox.Log))
	require.Zero(s.t, s.count(sqlSlots))
	require.NoError(s.t, s.change(outbox.WAL))
}

// firstAndBack runs a test beside itself for a database that comes into mode wal and for one that comes back.
func firstAndBack(t *testing.T, test func(t *testing.T, s *shop, named func(*Relay), before int)) {
	t.Helper()
	for before, name := range []string{"first", "back"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, named := openWAL(t, outbox.WAL)
			if before > 0 {
				s.back(named)
			}
			test(t, s, named, before)
		})
	}
}

// older opens a transaction that every slot waits for which is made before it ends.
func (s *shop) older() (end func()) {
	s.t.Helper()
	tx, err := s.pool.Begin(context.WithoutCancel(s.ctx))
	require.NoError(s.t, err)
	end = func() { _ = tx.Rollback(context.Background()) }
	s.t.Cleanup(end)
	_, err = tx.Exec(s.ctx, `select txid_current()`)
	require.NoError(s.t, err)
	return end
}

// A slot is there before it sees anything: it waits for transactions that were open before. Whoever finds one that somebody else is
// making waits as well, says so, and lets nothing be emitted. Its name is known by then, so that it goes with the mode.
func TestASlotThatIsBeingMadeIsWaitedFor(t *testing.T) {
	t.Parallel()
	firstAndBack(t, func(t *testing.T, s *shop, named func(*Relay), before int) {
		s.exec(`select nextval(pg_get_serial_sequence('outbox_log', 'seq'))`) // of somebody who rolled back
		end := s.older()
		var leases granted
		leases.shards.Store(1)
		a := s.relay(outbox.WAL, named, func(r *Relay) { r.Leases = &leases })
		stopA := s.run(a)
		require.Eventually(t, func() bool { return s.count(sqlMaking) == 1 }, waitFor, tick)
		require.Equal(t, 1, s.count(sqlNoted))
		leases.shards.Store(0) // it is not renewed while the relay hangs
		changed := make(chan error, 1)
		go func() { changed <- s.change(outbox.Log) }()
		var said strings.Builder
		b := s.relay(outbox.WAL, named, func(r *Relay) { r.Node, r.Log = "b", slog.New(slog.NewTextHandler(&said, nil)) })
		stopB := s.run(b)
		require.Eventually(t, func() bool { return b.restarts.Load() >= 2 }, waitFor, tick)
		for _, r := range []*Relay{a, b} {
			require.Eventually(t, func() bool {
				st, err := r.Status(s.ctx)
				return err == nil && strings.Contains(st.Problem, "is being made")
			}, waitFor, tick)
		}
		_, err := s.pool.Exec(s.ctx, `select outbox_append('order', 'o-1', 'order.paid', '{"n": 0}')`)
		require.ErrorContains(t, err, "OB002")
		require.Zero(t, s.status().Lag)
		s.exec(`select pg_logical_emit_message(false, 'fill', repeat('x', 100000))`)
		require.Greater(t, s.status().SlotBytes, int64(50_000), "it keeps the log from now on")
		err = <-changed
		require.ErrorIs(t, err, outbox.ErrRowsWait)
		require.ErrorContains(t, err, "is being made")
		err = outbox.DropSlot(s.ctx, s.dsn, "", a.Config.Slot, true)
		require.ErrorContains(t, err, "is being made")
		require.NotErrorIs(t, err, outbox.ErrRowsWait, "may be over soon")
		require.Equal(t, 1, s.count(sqlMaking))
		end()
		require.Eventually(t, func() bool { return s.count(sqlReads) == 1 }, waitFor, tick)
		for n := range 3 {
			s.add("o-1", n)
		}
		s.eventually(before + 3)
		require.Equal(t, "0 1 2", s.numbered("o-1"))
		require.NoError(t, stopA())
		require.NoError(t, stopB())
		require.NotContains(t, said.String(), "the slot is gone")
		require.NoError(t, s.change(outbox.Log))
		require.Zero(t, s.count(sqlSlots))
	})
}

// Who gives up waiting ends the relay: that, or an end of what a killed one has left in Postgres, takes the slot away at once.
func TestTheMakingOfASlotIsGivenUp(t *testing.T) {
	t.Parallel()
	s, named := openWAL(t, outbox.WAL)
	s.older()
	stop := s.run(s.relay(outbox.WAL, named))
	require.Eventually(t, func() bool { return s.count(sqlMaking) == 1 }, waitFor, tick)
	require.NoError(t, stop())
	require.NoError(t, s.change(outbox.Log))
	require.Zero(t, s.count(sqlSlots))
}

// A slot that somebody makes again by hand sees nothing of what is emitted until it is made: appending is refused.
func TestALostSlotThatIsBeingMadeAgainRefuses(t *testing.T) {
	t.Parallel()
	s, named := openWAL(t, outbox.WAL)
	s.loses(named)
	end := s.older()
	r := s.relay(outbox.WAL, named)
	conn, err := pgx.Connect(s.ctx, s.dsn)
	require.NoError(t, err)
	made := make(chan error, 1)
	go func() {
		_, err := conn.Exec(context.WithoutCancel(s.ctx), `select pg_create_logical_replication_slot($1, 'pgoutput')`, r.Config.Slot)
		made <- errors.Join(err, conn.Close(context.WithoutCancel(s.ctx)))
	}()
	require.Eventually(t, func() bool { return s.count(sqlMaking) == 1 }, waitFor, tick)
	ended := make(chan error, 1)
	go func() { ended <- r.Run(s.ctx) }()
	require.Eventually(t, func() bool { return r.restarts.Load() >= 1 }, waitFor, tick)
	_, err = s.pool.Exec(s.ctx, `select outbox_append('order', 'o-1', 'order.paid', '{"n": 2}')`)
	require.ErrorContains(t, err, "OB002")
	end()
	require.NoError(t, <-made)
	require.ErrorIs(t, <-ended, errLostSlot)
	require.Zero(t, s.count(sqlReads))
}

// A slot is not made while the stream takes nothing, and one whose first position it does not take goes with the mode. Under another
// name no second one is made beside it.
func TestAFullDiskLeavesNoSlot(t *testing.T) {
	t.Parallel()
	firstAndBack(t, func(t *testing.T, s *shop, named func(*Relay), _ int) {
		for taken := range 2 {
			asked := 0
			r := s.relay(outbox.WAL, named, func(r *Relay) {
				r.Gate = func() error {
					if asked++; asked <= taken {
						return nil
					}
					return errors.New("the disk is full")
				}
			})
			stop := s.run(r)
			require.Eventually(t, func() bool { return r.restarts.Load() >= 2 }, waitFor, tick)
			require.NoError(t, stop())
			require.Equal(t, taken, s.count(sqlSlots))
			if taken > 0 {
				err := s.relay(outbox.WAL, func(r *Relay) { r.Config.Slot += "_2" }).Run(s.ctx)
				require.ErrorContains(t, err, "is in the slot "+r.Config.Slot)
			}
		}
		require.NoError(t, s.change(outbox.Log))
		require.Zero(t, s.count(sqlSlots))
		require.Zero(t, s.count(sqlNoted))
	})
}

// A slot that could not be made is none that was lost: nothing waits for it, whatever numbers were given out, and its name goes with
// the mode. Once it can be made, it is.
func TestASlotThatCannotBeMade(t *testing.T) {
	t.Parallel()
	firstAndBack(t, func(t *testing.T, s *shop, named func(*Relay), before int) {
		s.exec(`select nextval(pg_get_serial_sequence('outbox_log', 'seq'))`)
		role, few := s.few("noreplication")
		var said strings.Builder
		r := s.relay(outbox.WAL, named, few, func(r *Relay) { r.Log = slog.New(slog.NewTextHandler(&said, nil)) })
		stop := s.run(r)
		require.Eventually(t, func() bool { return r.restarts.Load() >= 2 }, waitFor, tick)
		require.Equal(t, 1, s.count(sqlNoted))
		require.Zero(t, s.status().Lag)
		require.NoError(t, stop())
		require.Contains(t, said.String(), "cannot make the replication slot")
		require.NotContains(t, said.String(), "the slot is gone")
		require.NoError(t, s.change(outbox.Log))
		require.Zero(t, s.count(sqlNoted))
		require.NoError(t, s.change(outbox.WAL))
		s.exec(fmt.Sprintf(`alter role %q replication`, role))
		stop = s.run(s.relay(outbox.WAL, named, few))
		require.Eventually(t, func() bool { return s.count(sqlReads) == 1 }, waitFor, tick)
		s.add("o-1", 1)
		s.eventually(before + 1)
		require.NoError(t, stop())
	})
}

// answered lets a relay do something before it gets the n-th answer of the stream.
func answered(n int, do func()) func(*Relay) {
	return func(r *Relay) {
		r.tamper = func(p *publisher) {
			p.drops = func(*nats.Msg) bool {
				if n--; n == 0 {
					do()
				}
				return false
			}
		}
	}
}

// A relay that opens while its database leaves the mode makes no slot, or leaves it to that change, and does not say that it reads one.
// When the mode comes back nothing is lost.
func TestTheModeIsLeftWhileARelayOpens(t *testing.T) {
	t.Parallel()
	firstAndBack(t, func(t *testing.T, s *shop, named func(*Relay), before int) {
		left := func(opening func(do func()) func(*Relay)) {
			changed := make(chan error, 1)
			err := s.relay(outbox.WAL, named, opening(func() { changed <- s.change(outbox.Log) })).Run(s.ctx)
			require.ErrorIs(t, err, ErrChanged)
			require.NoError(t, <-changed)
			require.Zero(t, s.count(sqlSlots))
			require.Zero(t, s.count(sqlReads))
		}
		for n := range 3 { // the opening marker, that of no slot, the first position
			left(func(do func()) func(*Relay) { return answered(n+1, do) })
			require.Zero(t, s.count(sqlNoted))
			require.NoError(t, s.change(outbox.WAL))
		}
		left(func(do func()) func(*Relay) {
			return func(r *Relay) {
				r.hook = func(at string) {
					if at == "named" {
						do()
					}
				}
			}
		})
		require.NoError(t, s.change(outbox.WAL))
		_, stop := s.begin(outbox.WAL, named)
		s.add("o-1", 1)
		s.eventually(before + 1)
		require.NoError(t, stop())
	})
}

// A mode that is left and comes back while a relay is about to make its slot leaves none that nobody knows: the relay begins again.
func TestTheModeIsLeftAndBackBeforeASlotIsMade(t *testing.T) {
	t.Parallel()
	s, named := openWAL(t, outbox.WAL)
	var away, left sync.Once
	r := s.relay(outbox.WAL, named, func(r *Relay) {
		r.hook = func(at string) {
			if at == "named" {
				away.Do(func() { require.NoError(t, errors.Join(s.change(outbox.Log), s.change(outbox.WAL))) })
			}
		}
		r.tamper = func(p *publisher) {
			p.drops = func(*nats.Msg) bool {
				if s.count(sqlSlots) == 1 {
					left.Do(func() { require.NoError(t, s.change(outbox.Log)) })
				}
				return false
			}
		}
	})
	require.ErrorIs(t, r.Run(s.ctx), ErrChanged)
	require.Zero(t, s.count(sqlSlots))

	require.NoError(t, s.change(outbox.WAL))
	err := s.relay(outbox.WAL, named, func(r *Relay) {
		r.hook = func(at string) {
			if at == "named" { // by a change that has not yet forgotten the name
				s.exec(`update outbox_settings set mode = 'log'`)
			}
		}
	}).Run(s.ctx)
	require.ErrorIs(t, err, ErrChanged)
	require.Equal(t, 1, s.count(sqlNoted))
	require.Zero(t, s.count(sqlSlots))
}

// Nobody may emit by a slot that is gone before the database says that it is read. So nothing was lost with it, and another one is made,
// whether it was dropped by hand or the mode was left and came back.
func TestASlotIsGoneBeforeItIsRead(t *testing.T) {
	t.Parallel()
	for name, goes := range map[string]func(s *shop, slot string) error{
		"dropped": func(s *shop, slot string) error {
			_, err := s.pool.Exec(context.WithoutCancel(s.ctx), `select pg_drop_replication_slot($1)`, slot)
			return err
		},
		"left and back": func(s *shop, _ string) error { return errors.Join(s.change(outbox.Log), s.change(outbox.WAL)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, named := openWAL(t, outbox.WAL)
			s.exec(`create table said (slot text)`)
			s.exec(`create function said() returns trigger language plpgsql as $$ begin insert into said values (new.wal_slot); return new; end $$`)
			s.exec(`create trigger said before update on outbox_settings for each row when (new.wal_slot is not null) execute function said()`)
			gone := make(chan error, 1)
			slot := s.relay(outbox.WAL, named).Config.Slot
			r := s.relay(outbox.WAL, named, answered(3, func() { gone <- goes(s, slot) }))
			stop := s.run(r)
			require.NoError(t, <-gone)
			require.Eventually(t, func() bool {
				select {
				case <-r.ended: // it has seen the other mode
					return true
				default:
					return r.restarts.Load() > 0
				}
			}, waitFor, tick)
			_ = stop()
			_, stop = s.begin(outbox.WAL, named)
			s.add("o-1", 1)
			s.eventually(1)
			require.NoError(t, stop())
			require.Equal(t, 1, s.count(`select count(*) from said`))
		})
	}
}

// What a slot was told may reach it late, or be undone by a crash of Postgres: a relay that finds it behind that does not say less, or
// the next one would take it for a slot that somebody else has moved on.
func TestASlotThatStandsBehindWhatItWasTold(t *testing.T) {
	t.Parallel()
	s, named := openWAL(t, outbox.WAL)
	r, stop := s.begin(outbox.WAL, named)
	require.NoError(t, stop())
	slot := r.Config.Slot
	s.exec(`select pg_copy_logical_replication_slot($1, $2)`, slot, slot+"_old")
	_, stop = s.begin(outbox.WAL, named)
	s.add("o-1", 1)
	s.eventually(1)
	require.NoError(t, stop())
	require.Eventually(t, func() bool {
		return s.count(`select count(*) from pg_replication_slots where slot_name = $1 and not active`, slot) == 1
	}, waitFor, tick)
	var told string
	require.NoError(t, s.pool.QueryRow(s.ctx, `select confirmed_flush_lsn::text from pg_replication_slots where slot_name = $1`, slot).Scan(&told))
	require.Positive(t, s.count(`select $2::pg_lsn - confirmed_flush_lsn from pg_replication_slots where slot_name = $1`, slot+"_old", told))
	s.exec(`select pg_drop_replication_slot($1)`, slot)
	s.exec(`select pg_copy_logical_replication_slot($2, $1)`, slot, slot+"_old")
	s.exec(`select pg_drop_replication_slot($1)`, slot+"_old")
	paused := s.relay(outbox.WAL, named)
	paused.Pause()
	stop = s.run(paused)
	s.reads(paused)
	require.Eventually(t, func() bool { st, _ := paused.Status(s.ctx); return len(st.Shards) > 0 }, waitFor, tick)
	require.NoError(t, stop())
	require.Eventually(t, func() bool {
		_, err := s.pool.Exec(s.ctx, `select pg_replication_slot_advance($1, $2)`, slot, told)
		return err == nil
	}, waitFor, tick)
	s.begin(outbox.WAL, named)
	s.add("o-1", 2)
	s.eventually(2)
	require.Equal(t, "1 2", s.numbered("o-1"))
}
