package relay

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/streams/outbox"
	"github.com/bcc94042/instar/streams/outbox/relay/session"
	"github.com/bcc94042/instar/streams/outbox/relay/shard"
	"github.com/bcc94042/instar/streams/outbox/relay/sink"
)

// kept are the messages of a stream at some time: what a backup has.
type kept struct {
	config jetstream.StreamConfig
	list   []*jetstream.RawStreamMsg
	first  uint64
}

// backup reads the stream.
func (s *shop) backup() kept {
	s.t.Helper()
	stream, err := s.js.Stream(s.ctx, "OUTBOX")
	require.NoError(s.t, err)
	state := stream.CachedInfo().State
	k := kept{config: stream.CachedInfo().Config, first: state.FirstSeq}
	for seq := state.FirstSeq; seq <= state.LastSeq; seq++ {
		m, err := stream.GetMsg(s.ctx, seq)
		if err != nil {
			require.ErrorIs(s.t, err, jetstream.ErrMsgNotFound)
			m = nil
		}
		k.list = append(k.list, m)
	}
	return k
}

// restore makes the stream what it was, with the same sequences.
func (s *shop) restore(k kept) {
	s.t.Helper()
	require.NoError(s.t, s.js.DeleteStream(s.ctx, "OUTBOX"))
	k.config.FirstSeq = k.first
	stream, err := s.js.CreateStream(s.ctx, k.config)
	require.NoError(s.t, err)
	for i, m := range k.list {
		if m == nil { // a gap, by a message that is deleted again
			ack, err := s.js.Publish(s.ctx, "outbox.gap.gap.gap", nil)
			require.NoError(s.t, err)
			require.NoError(s.t, stream.DeleteMsg(s.ctx, ack.Sequence))
			continue
		}
		header := nats.Header{}
		for name, values := range m.Header {
			if name == nats.MsgIdHdr || !strings.HasPrefix(name, "Nats-") { // guards and rollups were for then
				header[name] = values
			}
		}
		ack, err := s.js.PublishMsg(s.ctx, &nats.Msg{Subject: m.Subject, Header: header, Data: m.Data})
		require.NoError(s.t, err)
		require.Equal(s.t, k.first+uint64(i), ack.Sequence)
	}
}

// clean ends a relay in order, abrupt as a kill does it.
var endings = map[string]func(*shop, *Relay, func() error){
	"clean":  func(s *shop, _ *Relay, stop func() error) { require.NoError(s.t, stop()) },
	"abrupt": func(_ *shop, r *Relay, stop func() error) { r.NC.Close(); _ = stop() },
}

// A stream that was restored from a backup has lost what mode claim cannot publish again: it is refused.
func TestARestoredStreamIsRefused(t *testing.T) {
	t.Parallel()
	for how, end := range endings {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			s := openShop(t, outbox.Claim)
			_, stop := s.begin(outbox.Claim)
			for n := range 10 {
				s.add("o-1", n)
			}
			s.eventually(10)
			require.NoError(t, stop())
			old := s.backup()
			r := s.relay(outbox.Claim)
			stop = s.run(r)
			for n := range 5 {
				s.add("o-1", 10+n)
			}
			s.eventually(15)
			s.allSent()
			end(s, r, stop)

			s.restore(old)
			refused(t, s.relay(outbox.Claim).Run(s.ctx))
			require.Equal(t, 10, s.stored())
			s.add("o-1", 15)
			refused(t, s.relay(outbox.Claim).Run(s.ctx))
			require.Equal(t, 10, s.stored(), "nothing was written")
		})
	}
}

func refused(t *testing.T, err error) {
	t.Helper()
	require.ErrorIs(t, err, session.ErrStreamRegressed)
	var fatal *PermanentError
	require.ErrorAs(t, err, &fatal)
	require.ErrorContains(t, err, "restored from a backup")
	require.ErrorContains(t, err, "outbox_stream")
}

// A stream that was made anew has no position at all.
func TestAStreamThatWasMadeAnewIsRefused(t *testing.T) {
	t.Parallel()
	inEachMode(t, func(t *testing.T, s *shop, mode outbox.Mode) {
		_, stop := s.begin(mode)
		s.add("o-1", 1)
		s.eventually(1)
		if mode == outbox.Claim {
			s.allSent()
		}
		require.NoError(t, stop())
		require.NoError(t, s.js.DeleteStream(s.ctx, "OUTBOX"))
		refused(t, s.relay(mode).Run(s.ctx))
		// Other sources may have filled it meanwhile.
		for range 50 {
			_, err := s.js.Publish(s.ctx, "outbox.other.x.y", nil)
			require.NoError(t, err)
		}
		refused(t, s.relay(mode).Run(s.ctx))
		// Whoever accepts it says so.
		s.exec(`update outbox_stream set marker = 0 where source = 'shop'`)
		s.run(s.relay(mode))
		s.add("o-1", 2)
		require.True(t, waits(func() bool { return s.stored() == 51 }))
	})
}

// What a restored stream has lost can be published again from the table of mode claim, by the words of the refusal.
func TestWhatARestoredStreamHasLostIsPublishedAgain(t *testing.T) {
	t.Parallel()
	s := openShop(t, outbox.Claim)
	stop := s.run(s.relay(outbox.Claim))
	for n := range 10 {
		s.add(fmt.Sprint("o-", n%3), n)
	}
	s.eventually(10)
	s.allSent()
	require.NoError(t, stop())
	old := s.backup()
	stop = s.run(s.relay(outbox.Claim))
	for n := range 5 {
		s.add(fmt.Sprint("o-", n%3), 10+n)
	}
	s.eventually(15)
	s.allSent()
	require.NoError(t, stop())
	s.restore(old)
	err := s.relay(outbox.Claim).Run(s.ctx)
	refused(t, err)
	var back *session.StreamRegressedError
	require.ErrorAs(t, err, &back)
	since, err := sink.ParsePosition(back.Position())
	require.NoError(t, err)
	update := fmt.Sprintf("update outbox_event set status = 'NEW', next_retry_at = now() where status = 'SENT' and sent_at > timestamptz 'epoch' + %d * interval '1 microsecond'", since)
	require.Contains(t, back.Error(), update+"; update outbox_stream set marker = 0 where source = 'shop'")
	s.exec(update)
	s.exec(`update outbox_stream set marker = 0 where source = 'shop'`)
	s.run(s.relay(outbox.Claim))
	s.checkEvents()
}

// The table of mode log has what the stream has lost: it is published again, unless days of it were dropped since, also when
// older ones were kept for what is parked there.
func TestTheLogPublishesAgainWhatARestoredStreamHasLost(t *testing.T) {
	t.Parallel()
	for _, dropped := range []string{"nothing", "before", "behind", "between"} {
		t.Run(dropped, func(t *testing.T) {
			t.Parallel()
			s := openShop(t, outbox.Log)
			s.exec(`select outbox_append('order', 'o-0', 'order.paid', '{}', not_before => now() + interval '1 hour')`)
			stop := s.run(s.relay(outbox.Log))
			for n := range 10 {
				s.add("o-1", n)
			}
			s.eventually(10)
			require.NoError(t, stop())
			old := s.backup()
			stop = s.run(s.relay(outbox.Log))
			for n := range 5 {
				s.add("o-1", 10+n)
			}
			s.eventually(15)
			require.NoError(t, stop())
			s.restore(old)
			from, to := map[string]int{"nothing": 9, "before": 2, "behind": 2, "between": 13}[dropped], map[string]int{"nothing": 8, "before": 11, "behind": 14, "between": 14}[dropped]
			if dropped != "between" {
				s.exec(`delete from outbox_parked`)
			}
			s.exec(`update outbox_log set day = day - 30 where seq = 1`)
			s.exec(`update outbox_log set day = day - 20 where seq between $1 and $2`, from, to)
			s.exec(`select outbox_maintain()`)
			require.Equal(t, 0, s.count(`select count(*) from outbox_log where seq between $1 and $2`, from, to))
			if dropped == "behind" || dropped == "between" {
				for range 2 {
					s.refuses(outbox.Log)
					require.Equal(t, 10, s.stored())
				}
				s.exec(`update outbox_stream set marker = 0 where source = 'shop'`)
				for n := range 2 {
					stop = s.run(s.relay(outbox.Log))
					s.add("o-2", n)
					s.eventually(10 + s.count(`select count(*) from outbox_log where seq > 11`))
					require.NoError(t, stop())
				}
				require.Equal(t, "0 1", s.numbered("o-2"))
				return
			}
			stop = s.run(s.relay(outbox.Log))
			s.eventually(15)
			require.NoError(t, stop())
			s.run(s.relay(outbox.Log))
			s.add("o-1", 15)
			s.eventually(16)
			require.Equal(t, words(0, 15), s.numbered("o-1"))
		})
	}
}

// refuses runs a relay that finds the stream set back.
func (s *shop) refuses(mode outbox.Mode) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.ctx, waitFor)
	defer cancel()
	refused(s.t, s.relay(mode).Run(ctx))
}

// So are rows that were parked when the backup was made, and published since: the position has passed them.
func TestTheLogPublishesAgainWhatWasParked(t *testing.T) {
	t.Parallel()
	s := openShop(t, outbox.Log)
	stop := s.run(s.relay(outbox.Log))
	s.add("o-1", 0)
	s.exec(`select outbox_append('order', 'o-2', 'order.paid', '{"n": 1}', not_before => now() + interval '1 hour')`)
	s.exec(`select outbox_append('order', 'o-2', 'order.paid', '{"n": 2}', not_before => now() + interval '1 hour')`)
	s.exec(`select outbox_append('order', 'o-3', 'order.paid', '{"n": 3}', not_before => now() + interval '1 hour')`)
	s.add("o-1", 4)
	s.eventually(2)
	require.NoError(t, stop())
	s.due("o-3")
	stop = s.run(s.relay(outbox.Log))
	s.eventually(3) // the backup has this one
	require.NoError(t, stop())
	old := s.backup()
	s.due("o-2")
	stop = s.run(s.relay(outbox.Log))
	s.eventually(5)
	s.add("o-2", 5)
	s.eventually(6)
	require.NoError(t, stop())
	s.restore(old)
	s.run(s.relay(outbox.Log))
	s.eventually(6)
	s.settled()
	require.Equal(t, 6, s.stored())
	require.Equal(t, "1 2 5", s.numbered("o-2"))
}

// due makes what an aggregate has scheduled due now.
func (s *shop) due(id string) {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		return s.count(`with due as (update outbox_parked set not_before = now(), next_retry_at = now() where aggregate_id = $1 returning 1) select count(*) from due`, id) > 0
	}, waitFor, tick)
}

// Two outboxes in schemas of one database are two sources: under one name they would share leases and positions.
func TestTwoSchemasUnderOneNameAreRefused(t *testing.T) {
	t.Parallel()
	for _, mode := range []outbox.Mode{outbox.Log, outbox.Claim} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			s := openShop(t, outbox.Log)
			require.NoError(t, outbox.Init(t.Context(), s.dsn, "other", outbox.Settings{Mode: mode}))
			other := func(name string) *Relay {
				return s.relay(mode, leased("b"), func(r *Relay) {
					r.Config.Schema, r.Config.Name, r.Leases.(*shard.NATSLeases).Source = "other", name, name
				})
			}
			stop := s.run(s.relay(outbox.Log, leased("a")))
			s.add("o-1", 1)
			s.eventually(1)
			// It holds all leases, or has gone: both are told.
			for range 2 {
				err := other("shop").Run(s.ctx)
				require.ErrorIs(t, err, session.ErrForeign)
				require.ErrorContains(t, err, "/other")
				var fatal *PermanentError
				require.ErrorAs(t, err, &fatal)
				require.NoError(t, stop())
			}
			require.Equal(t, 1, s.stored())
			s.run(other("other"))
			_, err := s.pool.Exec(s.ctx, `select other.outbox_append('order', 'o-1', 'order.paid', '{}')`)
			require.NoError(t, err)
			s.eventually(2)
		})
	}
}

// Two that start at the same time get some of the shards each; they notice all the same.
func TestTwoSchemasThatStartTogetherAreRefused(t *testing.T) {
	t.Parallel()
	s := openShop(t, outbox.Log)
	require.NoError(t, outbox.Init(t.Context(), s.dsn, "other", outbox.Settings{Mode: outbox.Log}))
	ended := make(chan error, 2)
	for _, schema := range []string{"public", "other"} {
		r := s.relay(outbox.Log, leased(schema), func(r *Relay) { r.Config.Schema = schema })
		go func() { ended <- r.Run(s.ctx) }()
	}
	select {
	case err := <-ended:
		require.ErrorIs(t, err, session.ErrForeign)
	case <-time.After(waitFor):
		require.Fail(t, "nothing was noticed")
	}
}
