package relay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/outbox"
)

// A relay that stood by while the slot went refuses appending as soon as it sees that.
func TestAStandbyFindsThatTheSlotIsGone(t *testing.T) {
	t.Parallel()
	s, named := openWAL(t, outbox.WAL)
	_, stop := s.begin(outbox.WAL, named)
	var leases granted
	ended := make(chan error, 1)
	standby := s.relay(outbox.WAL, named, func(r *Relay) { r.Node, r.Leases = "b", &leases })
	go func() { ended <- standby.Run(s.ctx) }()
	require.Eventually(t, func() bool { return leases.asked.Load() > 0 }, waitFor, tick)
	require.NoError(t, stop())
	require.Eventually(t, func() bool {
		_, err := s.pool.Exec(s.ctx, `select pg_drop_replication_slot($1)`, standby.Config.Slot)
		return err == nil
	}, waitFor, tick)
	leases.shards.Store(1)
	require.ErrorIs(t, <-ended, errLostSlot)
	_, err := s.pool.Exec(s.ctx, `select outbox_append('order', 'o-1', 'order.paid', '{}')`)
	require.ErrorContains(t, err, "OB002")
}

// A slot has events of one outbox: another one of the database, and one whose slot somebody else has made, are refused.
func TestASlotIsOfOneOutbox(t *testing.T) {
	t.Parallel()
	s, named := openWAL(t, outbox.WAL)
	second := func(r *Relay) {
		r.Config.Name, r.Config.Schema, r.Config.Prefix, r.Config.Stream = "second", "other", "second", "SECOND"
	}
	require.NoError(t, outbox.Init(s.ctx, s.dsn, "other", outbox.Settings{Mode: outbox.WAL}))
	refused := func(as func(*Relay), why string) {
		t.Helper()
		var fatal *PermanentError
		err := s.relay(outbox.WAL, named, as).Run(s.ctx)
		require.ErrorAs(t, err, &fatal)
		require.ErrorContains(t, err, why)
	}
	slot := s.relay(outbox.WAL, named).Config.Slot
	s.exec(`select pg_create_logical_replication_slot($1, 'pgoutput')`, slot)
	refused(func(*Relay) {}, "was not made for this outbox")
	s.exec(`select pg_drop_replication_slot($1)`, slot)
	_, stop := s.begin(outbox.WAL, named)
	refused(second, "is of the outbox in the schema public")
	require.Zero(t, s.count(`select count(*) from other.outbox_settings where wal_slot is not null`))
	require.NoError(t, outbox.DropSlot(s.ctx, s.dsn, "other", slot, true))
	s.add("o-1", 1)
	s.eventually(1)
	require.NoError(t, stop())
	refused(second, "is of the outbox in the schema public")
	require.NoError(t, outbox.DropSlot(s.ctx, s.dsn, "other", slot, true))
	require.Equal(t, 1, s.count(sqlSlots))
	_, stop = s.begin(outbox.WAL, named)
	s.add("o-1", 2)
	s.eventually(2)
	require.NoError(t, stop())
	s.exec(`drop publication ` + slot + `_none`) // it has no more than the name
	stop = s.run(s.relay(outbox.WAL, named))
	require.Eventually(t, func() bool {
		return s.count(`select count(*) from pg_publication where obj_description(oid, 'pg_publication') = $1`, outbox.SlotClaim+"public") == 1
	}, waitFor, tick)
	_ = stop() // what was changed without it cannot be read
}

// The making of a slot lasts as long as other transactions do, whatever a role has for limits.
func TestASlotIsMadeWithoutTimeouts(t *testing.T) {
	t.Parallel()
	s, named := openWAL(t, outbox.WAL)
	short := s.byDefault(true, "lock_timeout", "50ms")
	for _, timeout := range []string{"statement_timeout", "idle_in_transaction_session_timeout", "idle_session_timeout"} {
		s.exec(fmt.Sprintf(`alter role "relay_%s" set %s = '300ms'`, s.pool.Config().ConnConfig.Database, timeout))
	}
	end := s.older()
	r := s.relay(outbox.WAL, named, short)
	stop := s.run(r)
	require.Eventually(t, func() bool { // after a second
		st, err := r.Status(s.ctx)
		return err == nil && st.Problem != ""
	}, waitFor, tick)
	require.Equal(t, 1, s.count(sqlMaking))
	end()
	s.reads(r)
	s.add("o-1", 1)
	s.eventually(1)
	require.Zero(t, r.restarts.Load())
	require.NoError(t, stop())
}

// silent is a way to the database on which nothing is answered from START_REPLICATION on, so many times.
func (s *shop) silent(times int64) (with func(*Relay), left *atomic.Int64) {
	s.t.Helper()
	u, err := url.Parse(s.dsn)
	require.NoError(s.t, err)
	to := u.Host
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(s.t, err)
	left = &atomic.Int64{}
	left.Store(times)
	var all sync.WaitGroup
	s.t.Cleanup(func() { _ = listener.Close(); all.Wait() })
	pass := func(from, to net.Conn, swallows bool) {
		defer func() { _, _ = from.Close(), to.Close() }()
		for b := make([]byte, 1<<16); ; {
			n, err := from.Read(b)
			if err != nil {
				return
			}
			if swallows && bytes.Contains(b[:n], []byte("START_REPLICATION")) && left.Add(-1) >= 0 {
				continue
			}
			if _, err := to.Write(b[:n]); err != nil {
				return
			}
		}
	}
	all.Go(func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", to)
			if err != nil {
				_ = near.Close()
				return
			}
			all.Go(func() { pass(near, far, true) })
			all.Go(func() { pass(far, near, false) })
		}
	})
	u.Host = listener.Addr().String()
	return func(r *Relay) { r.Config.DSN = u.String() }, left
}

// A database that does not answer the last question is waited for as long as for any other, and not beyond the end of the relay.
func TestAStreamOfChangesThatIsNotAnswered(t *testing.T) {
	t.Parallel()
	s, named := openWAL(t, outbox.WAL)
	silent, left := s.silent(2)
	r := s.relay(outbox.WAL, named, silent)
	stop := s.run(r)
	require.Eventually(t, func() bool { return left.Load() == 1 }, waitFor, tick)
	s.add("o-1", 1)
	require.Eventually(t, func() bool { return left.Load() == 0 }, waitFor, tick, "it is tried again")
	ended := make(chan error, 1)
	go func() { ended <- stop() }()
	select {
	case err := <-ended:
		require.NoError(t, err)
	case <-s.ctx.Done():
	case <-time.After(answerTime / 2):
		t.Fatal("the relay does not end")
	}
	s.run(s.relay(outbox.WAL, named, silent))
	s.eventually(1)
}

// A slot that Postgres drops while nothing can be in it has lost nothing. One that was read has, and is not given up by the way.
func TestASlotThatIsLost(t *testing.T) {
	t.Parallel()
	cluster := anotherCluster(t, "wal_level", "logical", "max_slot_wal_keep_size", "1MB")
	dsn, err := cluster.Database(t.Context())
	require.NoError(t, err)
	s := shopAt(t, setup(t, streams.OS), dsn, outbox.WAL)
	slot := s.relay(outbox.WAL).Config.Slot
	loses := func() {
		t.Helper()
		require.Eventually(t, func() bool { return s.count(`select count(*) from pg_replication_slots where active`) == 0 }, waitFor, tick)
		for range 3 {
			s.exec(`select pg_logical_emit_message(false, 'x', ''), pg_switch_wal()`)
		}
		s.exec(`checkpoint`)
		require.Equal(t, 1, s.count(`select count(*) from pg_replication_slots where wal_status = 'lost'`))
	}
	s.exec(`create function fault() returns trigger language plpgsql as $$ begin raise exception 'a fault'; end $$`)
	s.exec(`create trigger fault before update on outbox_settings for each row when (new.wal_slot is not null) execute function fault()`)
	r := s.relay(outbox.WAL)
	stop := s.run(r)
	require.Eventually(t, func() bool { return r.restarts.Load() > 0 }, waitFor, tick)
	require.NoError(t, stop())
	require.Equal(t, 1, s.count(`select count(*) from outbox_stream where slot = $1`, "?"+slot))
	loses()
	s.exec(`drop trigger fault on outbox_settings`)
	_, stop = s.begin(outbox.WAL, func(*Relay) {})
	s.add("o-1", 1)
	s.eventually(1)
	require.NoError(t, stop())

	s.add("o-1", 2)
	loses()
	require.ErrorIs(t, s.change(outbox.Log), outbox.ErrRowsWait)
	require.ErrorIs(t, outbox.DropSlot(s.ctx, s.dsn, "", slot, false), outbox.ErrRowsWait)
	require.ErrorIs(t, s.relay(outbox.WAL).Run(s.ctx), errLostSlot)
	require.NoError(t, s.outbox.Purge(s.ctx, withSubject("outbox-pos.>")))
	_, stop = s.begin(outbox.WAL, func(r *Relay) { r.Config.Slot = slot + "_2" })
	require.Equal(t, 1, s.count(sqlSlots), "the lost one is not left")
	require.NoError(t, stop())
	require.NoError(t, outbox.DropSlot(s.ctx, s.dsn, "", slot, true))
	require.Zero(t, s.count(sqlSlots))
	require.NoError(t, s.change(outbox.Log))
}

// A relay that has not been told that it was deleted makes no slot: nobody would drop it.
func TestADeletedRelayMakesNoSlot(t *testing.T) {
	t.Parallel()
	s, named := openWAL(t, outbox.WAL)
	var deleted atomic.Bool
	untold := s.relay(outbox.WAL, named, func(r *Relay) {
		r.Wanted = func(context.Context) error {
			if deleted.Load() {
				return errors.New("the relay shop is deleting")
			}
			return nil
		}
	})
	stop := s.run(untold)
	s.reads(untold)
	deleted.Store(true)
	require.Error(t, outbox.DropSlot(s.ctx, s.dsn, "", untold.Config.Slot, true), "it is read")
	s.add("o-1", 1)
	s.eventually(1)
	s.exec(`select pg_terminate_backend(active_pid) from pg_replication_slots where slot_name = $1`, untold.Config.Slot)
	require.Eventually(t, func() bool { return outbox.DropSlot(s.ctx, s.dsn, "", untold.Config.Slot, true) == nil }, waitFor, tick)
	require.Eventually(t, func() bool {
		st, err := untold.Status(s.ctx)
		return err == nil && strings.Contains(st.Problem, "is deleting")
	}, waitFor, tick)
	require.Zero(t, s.count(sqlSlots))
	require.Zero(t, s.count(sqlNoted))
	deleted.Store(false)
	s.reads(untold)
	s.add("o-1", 2)
	s.eventually(2)
	require.NoError(t, stop())
}

// A relay that is overtaken while it makes its slot leaves it to the other one, by whatever name: no second one is made beside it.
func TestARelayIsOvertakenWhileItMakesItsSlot(t *testing.T) {
	t.Parallel()
	s, named := openWAL(t, outbox.WAL)
	var over atomic.Bool
	b := s.relay(outbox.WAL, named)
	ended := make(chan error, 1)
	a := s.relay(outbox.WAL, named, func(r *Relay) {
		r.Config.Slot += "_a"
		r.Gate = func() error {
			if over.Load() {
				return errors.New("the disk is full") // so that it does not take over again
			}
			return nil
		}
		r.hook = func(at string) {
			if at == "making" {
				over.Store(true)
				go func() { ended <- b.Run(s.ctx) }()
				require.Eventually(t, func() bool { return b.restarts.Load() > 0 }, waitFor, tick)
			}
		}
	})
	stop := s.run(a)
	var fatal *PermanentError
	err := <-ended
	require.ErrorAs(t, err, &fatal)
	require.ErrorContains(t, err, "is in the slot "+a.Config.Slot)
	require.Eventually(t, func() bool { return a.restarts.Load() > 0 }, waitFor, tick)
	require.NoError(t, stop())
	require.Equal(t, 1, s.count(sqlSlots))
	require.Equal(t, 1, s.count(`select count(*) from outbox_stream where slot = $1`, "?"+a.Config.Slot))
	require.NoError(t, s.change(outbox.Log))
	require.Zero(t, s.count(sqlSlots))
}
