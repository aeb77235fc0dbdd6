package outbox

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

func open(t *testing.T, dsn string) *Store {
	t.Helper()
	s, err := Open(t.Context(), dsn, "")
	require.NoError(t, err)
	t.Cleanup(s.Pool.Close)
	return s
}

func claimSetup(t *testing.T) (*Store, *pgx.Conn) {
	t.Helper()
	dsn, conn := setup(t, Claim)
	return open(t, dsn), conn
}

// add appends an event of an aggregate of type order and returns its id.
func add(t *testing.T, conn *pgx.Conn, aggregate string) uuid.UUID {
	t.Helper()
	return one[uuid.UUID](t, conn, `select outbox_append('order', $1, 'order.paid', '{"n": 1}')`, aggregate)
}

func (s *Store) claim(t *testing.T, n int) *Batch {
	t.Helper()
	b, err := s.ClaimNextBatch(t.Context(), "w", nil, n)
	require.NoError(t, err)
	return b
}

func states(t *testing.T, conn *pgx.Conn) string {
	t.Helper()
	return one[string](t, conn, `select string_agg(aggregate_id || ':' || status, ' ' order by seq) from outbox_event`)
}

func TestClaim(t *testing.T) {
	t.Parallel()
	s, conn := claimSetup(t)
	id := one[uuid.UUID](t, conn, `select outbox_append('order', 'a', 'order.paid', '{"n": 1}', '{"tenant": "t"}', occurred_at => '2026-01-02 03:04:05+00')`)
	b := s.claim(t, 10)
	require.WithinDuration(t, time.Now().Add(30*time.Second), b.Until, 20*time.Second)
	require.Equal(t, []uuid.UUID{id}, b.IDs())
	r := b.Rows[0]
	r.OccurredAt = r.OccurredAt.UTC()
	require.Equal(t, Row{Seq: 1, Shard: ShardOf("order", "a", 4), Attempts: 1, Message: Message{
		ID: id, OccurredAt: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), AggregateType: "order", AggregateID: "a", EventType: "order.paid",
		Payload: []byte(`{"n": 1}`), ContentType: "application/json", Headers: map[string]string{"tenant": "t"},
	}}, r)
	require.Equal(t, "a:SENDING", states(t, conn))
	require.Equal(t, "w", one[string](t, conn, `select locked_by from outbox_event`))
	require.Empty(t, s.claim(t, 10).Rows)

	stranger := &Batch{Token: uuid.New()}
	for what, mark := range map[string]func(*Batch) (Lost, error){
		"sent":    func(b *Batch) (Lost, error) { return s.MarkSent(t.Context(), b, []uuid.UUID{id}) },
		"release": func(b *Batch) (Lost, error) { return s.Release(t.Context(), b, []uuid.UUID{id}) },
		"renew":   func(b *Batch) (Lost, error) { return s.Renew(t.Context(), b, []uuid.UUID{id}) },
		"failed": func(b *Batch) (Lost, error) {
			_, lost, err := s.MarkFailed(t.Context(), b, []Failure{{ID: id}})
			return lost, err
		},
	} {
		lost, err := mark(stranger)
		require.NoError(t, err, what)
		require.Equal(t, Lost{id}, lost, what)
	}
	lost, err := s.Renew(t.Context(), b, b.IDs())
	require.NoError(t, err)
	require.Empty(t, lost)
	lost, err = s.MarkSent(t.Context(), b, b.IDs())
	require.NoError(t, err)
	require.Empty(t, lost)
	require.Equal(t, "a:SENT", states(t, conn))
	lost, err = s.MarkSent(t.Context(), b, b.IDs())
	require.NoError(t, err)
	require.Equal(t, Lost{id}, lost, "it is no longer ours")
}

func TestAFailedRowBlocksItsAggregateOnly(t *testing.T) {
	t.Parallel()
	s, conn := claimSetup(t)
	s.BaseBackoff, s.Attempts = 200*time.Millisecond, 3
	for _, aggregate := range []string{"a", "a", "a", "b"} {
		add(t, conn, aggregate)
	}
	b := s.claim(t, 2)
	require.Len(t, b.Rows, 2)
	failed, lost, err := s.MarkFailed(t.Context(), b, []Failure{{ID: b.Rows[0].ID, Error: "no"}})
	require.NoError(t, err)
	require.Empty(t, lost)
	require.Equal(t, []Failed{{ID: b.Rows[0].ID, State: StateFailed, Attempts: 1, Wait: 200 * time.Millisecond}}, failed)
	lost, err = s.Release(t.Context(), b, []uuid.UUID{b.Rows[1].ID})
	require.NoError(t, err)
	require.Empty(t, lost)
	require.Equal(t, "a:FAILED a:NEW a:NEW b:NEW", states(t, conn))

	other := s.claim(t, 10)
	require.Len(t, other.Rows, 1)
	require.Equal(t, "b", other.Rows[0].AggregateID)
	require.Equal(t, 2, other.Postponed)
	require.Zero(t, s.claim(t, 10).Postponed, "they are out of the way")
	late := add(t, conn, "a")
	require.Empty(t, s.claim(t, 10).Rows, "a later row does not overtake those that were postponed")

	var again *Batch
	require.Eventually(t, func() bool { again = s.claim(t, 10); return len(again.Rows) > 0 }, 10*time.Second, 10*time.Millisecond)
	require.Len(t, again.Rows, 4)
	require.Equal(t, late, again.Rows[3].ID)
	require.Equal(t, 2, again.Rows[0].Attempts)
	require.Equal(t, 1, again.Rows[1].Attempts, "what was given back was not tried")
	failed, _, err = s.MarkFailed(t.Context(), again, []Failure{{ID: again.Rows[0].ID, Error: "no"}})
	require.NoError(t, err)
	require.Equal(t, 400*time.Millisecond, failed[0].Wait)
	_, err = s.Release(t.Context(), again, again.IDs()[1:])
	require.NoError(t, err)
	require.Eventually(t, func() bool { again = s.claim(t, 1); return len(again.Rows) > 0 }, 10*time.Second, 10*time.Millisecond)
	failed, _, err = s.MarkFailed(t.Context(), again, []Failure{{ID: again.Rows[0].ID, Error: "never"}})
	require.NoError(t, err)
	require.Equal(t, StateDead, failed[0].State)
	require.Equal(t, "a:DEAD a:NEW a:NEW b:SENDING a:NEW", states(t, conn))
	run(t, conn, `update outbox_event set next_retry_at = now() where status = 'NEW'`)
	require.Empty(t, s.claim(t, 10).Rows)
}

func TestScheduledRowsBlockNobody(t *testing.T) {
	t.Parallel()
	s, conn := claimSetup(t)
	run(t, conn, `select outbox_append('order', 'a', 'order.reminded', '{}', not_before => now() + interval '1 hour')`)
	add(t, conn, "a")
	b := s.claim(t, 10)
	require.Len(t, b.Rows, 1)
	require.Equal(t, "order.paid", b.Rows[0].EventType)
	run(t, conn, `update outbox_event set not_before = now(), next_retry_at = now() where event_type = 'order.reminded'`) // its time has come
	b = s.claim(t, 10)
	require.Len(t, b.Rows, 1)
	require.Equal(t, "order.reminded", b.Rows[0].EventType)
	require.False(t, b.Rows[0].NotBefore.IsZero())
}

func TestLeaseThatEnds(t *testing.T) {
	t.Parallel()
	s, conn := claimSetup(t)
	s.Lease, s.Attempts = 100*time.Millisecond, 2
	add(t, conn, "a")
	first := s.claim(t, 10)
	var second *Batch
	require.Eventually(t, func() bool { second = s.claim(t, 10); return len(second.Rows) > 0 }, 10*time.Second, 10*time.Millisecond)
	require.Equal(t, first.IDs(), second.IDs())
	require.Equal(t, 2, second.Rows[0].Attempts)
	lost, err := s.MarkSent(t.Context(), first, first.IDs())
	require.NoError(t, err)
	require.Equal(t, Lost(first.IDs()), lost)
	// A row that ends its relay each time is not tried for ever.
	require.Eventually(t, func() bool {
		n, err := s.ReleaseExpired(t.Context())
		return err == nil && n == 1
	}, 10*time.Second, 10*time.Millisecond)
	require.Equal(t, "a:DEAD", states(t, conn))
	require.Equal(t, "the lease of w has ended", one[string](t, conn, `select last_error from outbox_event`))
}

// Eight workers with leases that end under them: each row is sent once by somebody who held it, in order per aggregate.
func TestManyWorkers(t *testing.T) {
	t.Parallel()
	s, conn := claimSetup(t)
	const aggregates, events = 20, 60
	for n := range events {
		run(t, conn, `select outbox_append('order', 'a' || n, 'order.paid', to_jsonb($1::int)) from generate_series(1, $2::int) n order by random()`, n, aggregates)
	}
	s.BaseBackoff, s.Attempts = time.Millisecond, 1000
	var mu sync.Mutex
	held, sent := map[uuid.UUID]bool{}, map[string][]string{}
	work := func(worker int) error {
		for {
			b, err := s.ClaimNextBatch(t.Context(), fmt.Sprint(worker), nil, 1+rand.IntN(40))
			if err != nil {
				return err
			}
			if len(b.Rows) == 0 && b.Postponed == 0 {
				var open bool
				if err := s.Pool.QueryRow(t.Context(), `select exists (select 1 from outbox_event where status <> 'SENT')`).Scan(&open); err != nil || !open {
					return err
				}
				continue
			}
			mu.Lock()
			for _, id := range b.IDs() {
				if held[id] {
					err = fmt.Errorf("%s is in two batches", id)
				}
				held[id] = true
			}
			mu.Unlock()
			if err != nil {
				return err
			}
			blocked := map[string]bool{}
			var done, back []uuid.UUID
			var failures []Failure
			mu.Lock()
			for _, r := range b.Rows {
				delete(held, r.ID)
				switch {
				case blocked[r.AggregateID]:
					back = append(back, r.ID)
				case rand.IntN(10) == 0:
					blocked[r.AggregateID] = true
					failures = append(failures, Failure{ID: r.ID, Error: "chance"})
				default:
					done = append(done, r.ID)
					sent[r.AggregateID] = append(sent[r.AggregateID], string(r.Payload))
				}
			}
			mu.Unlock()
			lost1, err1 := s.MarkSent(t.Context(), b, done)
			_, lost2, err2 := s.MarkFailed(t.Context(), b, failures)
			lost3, err3 := s.Release(t.Context(), b, back)
			for _, err := range []error{err1, err2, err3} {
				if err != nil {
					return err
				}
			}
			if len(lost1)+len(lost2)+len(lost3) > 0 {
				return fmt.Errorf("lost a lease that had not ended")
			}
		}
	}
	done := make(chan error)
	for worker := range 8 {
		go func() { done <- work(worker) }()
	}
	for range 8 {
		require.NoError(t, <-done)
	}
	var want []string
	for n := range events {
		want = append(want, fmt.Sprint(n))
	}
	require.Len(t, sent, aggregates)
	for aggregate, got := range sent {
		require.Equal(t, want, got, aggregate)
	}
}

// What is claimed is published at once, so in mode claim a transaction that appends waits for the disk, whatever it wanted. In mode log the relay sees to it.
func TestInModeClaimACommitWaitsForTheDisk(t *testing.T) {
	t.Parallel()
	m := Message{AggregateType: "order", AggregateID: "1", EventType: "order.paid"}
	for mode, want := range map[Mode]string{Claim: "local", Log: "off"} {
		_, conn := setup(t, mode)
		for name, appended := range map[string][]Message{"one": {m}, "many": {m, m}} {
			tx, err := conn.Begin(t.Context())
			require.NoError(t, err)
			_, err = tx.Exec(t.Context(), `set local synchronous_commit = off`)
			require.NoError(t, err)
			_, err = (&Appender{}).Append(t.Context(), tx, appended...)
			require.NoError(t, err)
			var is string
			require.NoError(t, tx.QueryRow(t.Context(), `show synchronous_commit`).Scan(&is))
			require.Equal(t, want, is, "%s, %s", mode, name)
			require.NoError(t, tx.Rollback(t.Context()))
		}
	}
}
