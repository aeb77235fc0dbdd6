package relay

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/streams/outbox"
)

func openWAL(t *testing.T, mode outbox.Mode) (*shop, func(*Relay)) {
	t.Helper()
	s := openShop(t, mode)
	slot := "slot_" + strings.ReplaceAll(s.dsn[strings.LastIndex(s.dsn, "/")+1:][:13], "?", "")
	t.Cleanup(func() {
		conn, err := pgx.Connect(context.Background(), s.dsn)
		require.NoError(t, err)
		defer conn.Close(context.Background())
		require.Eventually(t, func() bool {
			_, err := conn.Exec(context.Background(), `select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name = $1`, slot)
			return err == nil
		}, waitFor, 50*tick)
	})
	return s, func(r *Relay) { r.Config.Slot = slot }
}

// reads waits until a relay has made its slot and reads from it: a slot sees only what is committed after that.
func (s *shop) reads(r *Relay) {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		return s.count(`select count(*) from pg_replication_slots join pg_stat_replication on pid = active_pid where slot_name = $1`, r.Config.Slot) == 1
	}, waitFor, tick)
}

// numbered are the n of the payloads of an aggregate, in the order of the stream.
func (s *shop) numbered(id string) string {
	s.t.Helper()
	var list []string
	for _, m := range s.events() {
		if strings.HasSuffix(m.Header.Get("ce-subject"), "/"+id) {
			list = append(list, strings.Trim(string(m.Data), `{"n,: }`))
		}
	}
	return strings.Join(list, " ")
}

func TestWALOfEmittedMessages(t *testing.T) {
	t.Parallel()
	s, named := openWAL(t, outbox.WAL)
	_, stop := s.begin(outbox.WAL, named)
	for n := range 60 {
		s.add(fmt.Sprint("o-", n%3), n)
	}
	s.exec(`begin; select outbox_append('order', 'o-1', 'order.paid', '{}'); rollback`)
	s.eventually(60)
	require.NoError(t, stop())
	for n := 60; n < 90; n++ { // while nobody reads
		s.add(fmt.Sprint("o-", n%3), n)
	}
	s.run(s.relay(outbox.WAL, named))
	s.eventually(90)
	require.Equal(t, 90, s.stored())
	want := ""
	for n := 1; n < 90; n += 3 {
		want += fmt.Sprint(n, " ")
	}
	require.Equal(t, strings.TrimSpace(want), s.numbered("o-1"))
}

// Whatever the answers that are lost and the relays that die, each event is stored once.
func TestWALStartsAgainWhereItWas(t *testing.T) {
	t.Parallel()
	s, named := openWAL(t, outbox.WAL)
	r, stop := s.begin(outbox.WAL, named)
	go func() {
		for n := range 400 {
			_, _ = s.pool.Exec(s.ctx, `select outbox_append('order', 'o-1', 'order.paid', $1::jsonb)`, fmt.Sprintf(`{"n": %d}`, n))
		}
	}()
	for n := 100; n <= 300; n += 100 {
		s.eventually(n)
		r.NC.Close() // it cannot leave in order
		_ = stop()
		r = s.relay(outbox.WAL, named)
		stop = s.run(r)
	}
	s.eventually(400)
	require.Equal(t, 400, s.stored())
	require.Equal(t, words(0, 399), s.numbered("o-1"))
}

func TestWALParksAnAggregate(t *testing.T) {
	t.Parallel()
	s, named := openWAL(t, outbox.WAL)
	c := s.stream.Config()
	c.MaxMsgSize = 4096
	_, err := s.js.UpdateStream(s.ctx, c)
	require.NoError(t, err)
	r := s.relay(outbox.WAL, named, func(r *Relay) { r.Config.Attempts = 2 })
	stop := s.run(r)
	s.reads(r)
	s.add("o-1", 1)
	s.exec(`select outbox_append('order', 'o-1', 'order.paid', jsonb_build_object('n', repeat('2', 5000)))`)
	s.add("o-1", 3)
	s.add("o-2", 4)
	s.eventually(2)
	require.Eventually(t, func() bool { return s.count(`select count(*) from outbox_parked where state = 'DEAD'`) == 1 }, waitFor, tick)
	require.NoError(t, stop())
	require.Equal(t, 2, s.count(`select count(*) from outbox_parked`))
	c.MaxMsgSize = -1
	_, err = s.js.UpdateStream(s.ctx, c)
	require.NoError(t, err)
	s.exec(`update outbox_parked set state = 'NEW', next_retry_at = now() where state = 'DEAD'`)
	s.run(s.relay(outbox.WAL, named))
	s.eventually(4)
	require.Equal(t, "1 "+strings.Repeat("2", 5000)+" 3", s.numbered("o-1"))
}

func TestWALDrains(t *testing.T) {
	t.Parallel()
	s, named := openWAL(t, outbox.WAL)
	r := s.relay(outbox.WAL, named)
	done := make(chan error, 1)
	go func() { done <- r.Run(s.ctx) }()
	s.reads(r)
	for n := range 300 {
		s.add("o-1", n)
	}
	require.NoError(t, r.Drain(s.ctx))
	require.ErrorIs(t, <-done, ErrDrained)
	require.Equal(t, 300, s.stored())
}

// Without its slot a relay does not know what it has missed: it says so and does nothing.
func TestWALLostSlot(t *testing.T) {
	t.Parallel()
	s, named := openWAL(t, outbox.WAL)
	r, stop := s.begin(outbox.WAL, named)
	s.add("o-1", 1)
	s.eventually(1)
	require.NoError(t, stop())
	require.Eventually(t, func() bool {
		_, err := s.pool.Exec(s.ctx, `select pg_drop_replication_slot($1)`, r.Config.Slot)
		return err == nil
	}, waitFor, tick)
	again := s.relay(outbox.WAL, named)
	err := again.Run(s.ctx)
	require.ErrorIs(t, err, errLostSlot)
	var fatal *PermanentError
	require.True(t, errors.As(err, &fatal))
	st, err := again.Status(s.ctx)
	require.NoError(t, err)
	require.Contains(t, st.Problem, "nats stream purge OUTBOX --subject outbox-pos.shop.wal.0")
	_, err = s.pool.Exec(s.ctx, `select outbox_append('order', 'o-1', 'order.paid', '{"n": 2}')`)
	require.ErrorContains(t, err, "SQLSTATE OB002", "nobody would see it")
	stream, err := s.js.Stream(s.ctx, "OUTBOX")
	require.NoError(t, err)
	require.NoError(t, stream.Purge(s.ctx, withSubject("outbox-pos.shop.wal.0")))
	s.begin(outbox.WAL, named)
	s.add("o-1", 3)
	s.eventually(2)
	require.Equal(t, "1 3", s.numbered("o-1"))
}

// A slot of the same name that is made again, or moved on, by somebody else has missed what was committed before.
func TestWALOfASlotThatSomebodyElseMoved(t *testing.T) {
	t.Parallel()
	for name, move := range map[string]string{
		"made again": `select pg_drop_replication_slot($1), pg_create_logical_replication_slot($1, 'pgoutput')`,
		"moved on":   `select pg_replication_slot_advance($1, pg_current_wal_flush_lsn())`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, named := openWAL(t, outbox.WAL)
			r, stop := s.begin(outbox.WAL, named)
			s.add("o-1", 1)
			s.eventually(1)
			require.NoError(t, stop())
			s.add("o-1", 2)
			require.Eventually(t, func() bool { _, err := s.pool.Exec(s.ctx, move, r.Config.Slot); return err == nil }, waitFor, tick)
			s.add("o-1", 3)
			for range 2 {
				err := s.relay(outbox.WAL, named).Run(s.ctx)
				var fatal *PermanentError
				require.ErrorAs(t, err, &fatal)
				require.ErrorIs(t, err, errLostSlot)
				require.ErrorContains(t, err, "nats stream purge OUTBOX --subject outbox-pos.shop.wal.0")
			}
			require.Equal(t, 1, s.stored())
			stream, err := s.js.Stream(s.ctx, "OUTBOX")
			require.NoError(t, err)
			require.NoError(t, stream.Purge(s.ctx, withSubject("outbox-pos.shop.wal.0")))
			s.begin(outbox.WAL, named)
			s.eventually(2)
			require.Equal(t, "1 3", s.numbered("o-1"))
		})
	}
}

func TestDecoderTakesNothingCutShort(t *testing.T) {
	t.Parallel()
	begin := append([]byte{'B'}, make([]byte, 20)...)
	content := `{"event_id":"0190a0a0-0000-7000-8000-000000000000","x":"1"}` + "\nxx"
	message := append([]byte("M\x01\x00\x00\x00\x00\x00\x00\x00\x01p\x00\x00\x00\x00"), byte(len(content)))
	message = append(message, content...)
	for _, whole := range [][]byte{begin, message} {
		for n := 1; n < len(whole); n++ {
			d := &decoder{prefix: "p"}
			if c, err := d.decode(whole[:n]); err == nil && whole[0] == 'M' {
				require.NotEqual(t, byte('r'), c.kind, n)
			}
		}
		_, err := (&decoder{prefix: "p"}).decode(whole)
		require.NoError(t, err)
	}
	c, err := (&decoder{prefix: "p"}).decode(message)
	require.NoError(t, err)
	require.Equal(t, "xx", string(c.row.Payload))
}
