package relay

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/streams/outbox"
)

// picky is a relay of the source that parks all but order.paid, for an hour.
func picky(r *Relay) {
	r.Config.Types = &outbox.Types{Names: []string{"order.paid"}, Unknown: outbox.ParkUnknown}
	r.Config.BaseBackoff, r.Config.MaxBackoff = time.Hour, time.Hour
}

// aside kills a relay that has parked the rows of a query, before it has said that it is past them.
func (s *shop) aside(query string) {
	s.t.Helper()
	end := s.killed(outbox.Log, "parked", 0, picky)
	s.exec(query)
	_ = end()
}

func (s *shop) discard() {
	s.t.Helper()
	n, err := (&outbox.Store{Pool: s.pool}).Discard(s.ctx, outbox.Filter{All: true}, "somebody")
	require.NoError(s.t, err)
	require.EqualValues(s.t, 1, n)
}

// A row that a killed relay had parked is read again by the next one. It is not published when it is discarded before that,
// whenever that is.
func TestADiscardBeforeARowIsReadAgain(t *testing.T) {
	t.Parallel()
	for _, when := range []string{"opened", "read"} {
		t.Run(when, func(t *testing.T) {
			t.Parallel()
			s := openShop(t, outbox.Log)
			s.aside(`select outbox_append('order', 'o-1', 'order.new', '{"n": 1}')`)
			r := s.relay(outbox.Log)
			r.Pause()
			var once sync.Once
			r.hook = func(at string) {
				if when == "read" && at == "read" {
					once.Do(s.discard)
				}
			}
			s.exec(`update outbox_parked set next_retry_at = now() + interval '1 hour'`)
			s.run(r)
			s.opened(r)
			if when == "opened" {
				s.discard()
			}
			r.Resume()
			s.add("o-1", 2)
			s.eventually(1)
			s.add("o-1", 3)
			s.eventually(2)
			require.Equal(t, "2 3", s.numbered("o-1"))
			require.Zero(t, s.count(`select count(*) from outbox_parked`))
		})
	}
}

// A row whose time comes when a relay that is to read it again has looked what is due, and has not read it yet, is published once.
func TestARowThatFallsDueBeforeItIsReadAgain(t *testing.T) {
	t.Parallel()
	s := openShop(t, outbox.Log)
	forgotten := s.forgetful()
	s.aside(`select outbox_append('order', 'o-1', 'order.paid', '{"n": 1}', not_before => now() + interval '1 hour')`)
	s.exec(`update outbox_log set not_before = now()`) // and not yet when it was looked
	stop := s.run(s.relay(outbox.Log))
	s.add("o-2", 1)
	require.Eventually(t, func() bool { return s.numbered("o-2") == "1" }, waitFor, tick)
	forgotten()
	require.NoError(t, stop())
	s.due("o-1")
	s.run(s.relay(outbox.Log))
	s.empty("o-1")
	require.Equal(t, "1", s.numbered("o-1"))
}

// What waits to be read again leaves room for what is due.
func TestWhatIsReadAgainLeavesRoom(t *testing.T) {
	t.Parallel()
	s := openShop(t, outbox.Log)
	s.exec(`insert into outbox_parked (shard, seq, event_id, day, aggregate_type, aggregate_id, event_type, state, next_retry_at)
		select 0, n, gen_random_uuid(), current_date, 'order', 'o-' || n, 'order.paid', 'FAILED', now() - n * interval '1 second' from generate_series(1, $1::int) as n`, dueAtOnce+10)
	r, o := s.relay(outbox.Log), s.opener("a", s.can, false)
	o.pool = s.pool
	l := &lot{r: r, pool: s.pool, pub: o.pub, shards: &shards{r: r, o: o, held: map[int]*shard{}}}
	opened, err := o.open(s.ctx, 0, position(5))
	require.NoError(t, err)
	h := &shard{s: opened}
	l.shards.held[0] = h
	require.NoError(t, l.load(s.ctx, opened))
	require.NoError(t, l.look(s.ctx))
	var due []string
	for _, p := range l.due {
		due = append(due, p.agg.id)
	}
	require.Equal(t, "o-5 o-4 o-3 o-2 o-1", strings.Join(due, " "))
	require.LessOrEqual(t, time.Until(l.next), r.Config.Poll, "when it is looked again")
	h.s.pos = position(500) // it has read those
	require.NoError(t, l.look(s.ctx))
	require.Len(t, l.due, 500)

	// A look that took long is not the reason that an operator's change is seen much later.
	s.exec(`delete from outbox_parked where seq = 1`)
	l.took, l.loaded = time.Minute, time.Now().Add(-lookWithin)
	require.Contains(t, l.parked, aggregate{"order", "o-1"})
	_, err = l.retry(s.ctx)
	require.NoError(t, err)
	require.NotContains(t, l.parked, aggregate{"order", "o-1"})
}

// What is discarded while it is published is in the stream, and is shown so, also where the relay ends before it has heard of either.
func TestARowThatIsDiscardedWhileItIsPublished(t *testing.T) {
	t.Parallel()
	s := openShop(t, outbox.Log)
	stop := s.run(s.relay(outbox.Log))
	s.exec(`select outbox_append('order', 'o-' || n, 'order.paid', '{"n": 1}', not_before => now() + interval '1 hour') from generate_series(1, 2) as n`)
	s.parks(2)
	require.NoError(t, stop())
	discard := func(id string) func() {
		s.due(id)
		return func() {
			s.exec(`update outbox_parked set state = 'FAILED' where aggregate_id = $1`, id) // as after a refusal
			s.discard()
		}
	}
	sent := func(n int) {
		require.Eventually(t, func() bool { return s.count(`select count(*) from outbox_event_status where status = 'SENT'`) == n }, waitFor, tick)
		require.Equal(t, n, s.stored())
	}
	r, first := s.relay(outbox.Log), discard("o-1")
	var once sync.Once
	r.hook = func(at string) {
		if at == "published parked" {
			once.Do(first)
		}
	}
	stop = s.run(r)
	sent(1)
	require.NoError(t, stop())
	s.ends("published parked", 0, discard("o-2"), func() {})
	s.run(s.relay(outbox.Log))
	sent(2)
}

// published runs a relay that publishes what is parked and due, and is ended before it can take that out of the database. It returns when
// the stream has forgotten the ids.
func (s *shop) published(n int, change ...func(*Relay)) {
	s.t.Helper()
	forgotten := s.forgetful()
	s.ends("published parked", n, func() {}, func() {}, change...)
	forgotten()
}

// What a relay has published and left parked is not published again, though what is parked before it falls due first, is refused, and
// holds it back.
func TestWhatWasPublishedBehindALaterRow(t *testing.T) {
	t.Parallel()
	s := openShop(t, outbox.Log)
	taking := func(names ...string) func(*Relay) {
		return func(r *Relay) {
			picky(r)
			r.Config.Types.Names = names
		}
	}
	stop := s.run(s.relay(outbox.Log, picky))
	s.exec(`select outbox_append('order', 'o-1', 'order.strange', '{"n": 1}', not_before => now() + interval '1 hour')`)
	s.exec(`select outbox_append('order', 'o-1', 'order.new', '{"n": 2}')`)
	s.parks(2)
	require.NoError(t, stop())
	s.exec(`update outbox_parked set next_retry_at = now() where event_type = 'order.new'`)
	s.published(1, taking("order.new"))
	s.due("o-1")
	stop = s.run(s.relay(outbox.Log, taking("order.new")))
	require.Eventually(t, func() bool {
		return s.count(`select count(*) from outbox_parked where event_type = 'order.strange' and state = 'FAILED'`) == 1
	}, waitFor, tick)
	require.NoError(t, stop())
	s.exec(`update outbox_parked set next_retry_at = now()`)
	s.run(s.relay(outbox.Log))
	s.empty("o-1")
	require.Equal(t, "2 1", s.numbered("o-1"))
}

// Nor when the next relay is told to end while it opens a shard, whichever it begins with.
func TestARelayThatEndsWhileItOpens(t *testing.T) {
	t.Parallel()
	s := openShop(t, outbox.Log)
	const all = 20 // some in each shard
	_, stop := s.begin(outbox.Log)
	s.exec(`select outbox_append('order', 'o-' || n, 'order.paid', '{"n": 1}', not_before => now() + interval '1 hour') from generate_series(1, $1::int) as n`, all)
	s.parks(all)
	require.NoError(t, stop())
	s.exec(`update outbox_parked set not_before = now(), next_retry_at = now()`)
	s.published(all)
	tx, err := s.pool.Begin(s.ctx)
	require.NoError(t, err)
	_, err = tx.Exec(s.ctx, `lock table outbox_parked`)
	require.NoError(t, err)
	stop = s.run(s.relay(outbox.Log))
	require.Eventually(t, func() bool {
		return s.count(`select count(*) from pg_locks where relation = 'outbox_parked'::regclass and not granted`) > 0
	}, waitFor, tick)
	require.NoError(t, stop())
	require.NoError(t, tx.Commit(s.ctx))
	s.run(s.relay(outbox.Log))
	s.parks(0)
	require.Equal(t, all, s.stored())
}

// What was published and left parked is in the stream, and is shown so, though it is discarded before the next relay tries anything.
func TestADiscardOfWhatWasPublished(t *testing.T) {
	t.Parallel()
	for _, when := range []string{"ended", "opened"} {
		t.Run(when, func(t *testing.T) {
			t.Parallel()
			s := openShop(t, outbox.Log)
			stop := s.run(s.relay(outbox.Log))
			s.exec(`select outbox_append('order', 'o-1', 'order.paid', '{"n": 1}', not_before => now() + interval '1 hour')`)
			s.parks(1)
			require.NoError(t, stop())
			s.due("o-1")
			s.published(1)
			s.exec(`update outbox_parked set state = 'FAILED'`) // as after a refusal
			discard := func() {
				_, err := (&outbox.Store{Pool: s.pool}).Discard(s.ctx, outbox.Filter{All: true}, "somebody")
				require.NoError(t, err)
			}
			if when == "ended" {
				discard()
			}
			r := s.relay(outbox.Log)
			r.Pause()
			s.run(r)
			s.opened(r)
			discard()
			r.Resume()
			s.settled()
			require.Equal(t, 1, s.stored())
		})
	}
}

// Rows that were published and left parked in a former shard leave those of their aggregate that are in another one, whichever of the
// shards is opened first: they go on.
func TestWhatWasPublishedInAFormerShardLetsOthersGoOn(t *testing.T) {
	t.Parallel()
	s := openShop(t, outbox.Log)
	for _, order := range [][]int{{1, 3}, {3, 1}} {
		s.exec(`truncate outbox_parked, outbox_late`)
		s.exec(`insert into outbox_parked (shard, seq, event_id, day, aggregate_type, aggregate_id, event_type, state, next_retry_at) values
			(3, 1, $1, current_date, 'order', 'o-1', 'order.paid', 'FAILED', now()), (3, 2, gen_random_uuid(), current_date, 'order', 'o-2', 'order.paid', 'FAILED', 'infinity'),
			(1, 4, gen_random_uuid(), current_date, 'order', 'o-1', 'order.paid', 'NEW', null)`, uuid.Nil)
		r, o := s.relay(outbox.Log), s.opener("a", s.can, false)
		l := &lot{r: r, pool: s.pool, pub: o.pub, shards: &shards{r: r, o: o, held: map[int]*shard{}}}
		for _, n := range order {
			opened, err := o.open(s.ctx, n, position(5))
			require.NoError(t, err)
			if n == 3 {
				opened.seen, opened.seenTo = map[string]stored{"1": {uuid.Nil.String(), 7}}, position(1)
			}
			require.NoError(t, l.load(s.ctx, opened))
			l.shards.held[n] = &shard{number: n, s: opened}
		}
		require.NoError(t, l.look(s.ctx))
		require.Len(t, l.due, 1)
		require.Equal(t, int64(4), l.due[0].num)
		require.Equal(t, 1, s.count(`select count(*) from outbox_late where shard = 3 and seq = 1 and marker = 7`))
		require.Equal(t, 2, s.count(`select count(*) from outbox_parked`))
	}
}
