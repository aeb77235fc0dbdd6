package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// writer appends through pgx or database/sql, in a transaction that is committed, or rolled back after an error of do.
type writer func(do func(append func(a *Appender, msgs ...Message) ([]uuid.UUID, error)) error) error

func writers(t *testing.T, dsn string) map[string]writer {
	t.Helper()
	conn := dial(t, dsn)
	db, err := sql.Open("pgx", dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return map[string]writer{
		"pgx": func(do func(func(*Appender, ...Message) ([]uuid.UUID, error)) error) error {
			return pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
				return do(func(a *Appender, msgs ...Message) ([]uuid.UUID, error) { return a.Append(t.Context(), tx, msgs...) })
			})
		},
		"sql": func(do func(func(*Appender, ...Message) ([]uuid.UUID, error)) error) error {
			tx, err := db.BeginTx(t.Context(), nil)
			if err != nil {
				return err
			}
			if err := do(func(a *Appender, msgs ...Message) ([]uuid.UUID, error) { return a.AppendSQL(t.Context(), tx, msgs...) }); err != nil {
				return errors.Join(err, tx.Rollback())
			}
			return tx.Commit()
		},
	}
}

// bothWays runs a test for each mode with a table and each library, with a database of its own.
func bothWays(t *testing.T, test func(t *testing.T, w writer, conn *pgx.Conn)) {
	t.Helper()
	for _, mode := range []Mode{Claim, Log} {
		for _, library := range []string{"pgx", "sql"} {
			t.Run(string(mode)+"/"+library, func(t *testing.T) {
				t.Parallel()
				dsn, conn := setup(t, mode)
				test(t, writers(t, dsn)[library], conn)
			})
		}
	}
}

func TestAppend(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, w writer, conn *pgx.Conn) {
		a := &Appender{}
		at := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)
		own := uuid.Must(uuid.NewV7())
		nasty := []byte("{\"a\": \"\\\\ \\\" {},' \u00e4\"}")
		var ids []uuid.UUID
		require.NoError(t, w(func(append func(*Appender, ...Message) ([]uuid.UUID, error)) error {
			var err error
			ids, err = append(a,
				Message{AggregateType: "order", AggregateID: "1", EventType: "order.paid", Payload: nasty, Headers: map[string]string{"tenant": `a"b\c,{}`, "traceparent": "00-x"}},
				Message{ID: own, OccurredAt: at, NotBefore: at.Add(time.Hour), AggregateType: "order", AggregateID: "2", EventType: "x", Payload: []byte{0, 255, '\n'}, ContentType: "application/x-protobuf"},
				Message{AggregateType: "order", AggregateID: "1", EventType: "order.sent"},
			)
			return err
		}))
		require.Len(t, ids, 3)
		require.Equal(t, own, ids[1])
		require.Less(t, ids[0].String(), ids[2].String())
		rows, err := conn.Query(t.Context(), `select event_id, occurred_at, aggregate_type, aggregate_id, event_type, payload, content_type, headers, coalesce(not_before, '0001-01-01') from outbox_event_status order by seq`)
		require.NoError(t, err)
		got, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Message])
		require.NoError(t, err)
		require.Len(t, got, 3)
		for i := range got {
			got[i].OccurredAt, got[i].NotBefore = got[i].OccurredAt.UTC(), got[i].NotBefore.UTC()
		}
		require.WithinDuration(t, time.Now(), got[0].OccurredAt, time.Minute)
		got[0].OccurredAt, got[2].OccurredAt = at, at
		require.Equal(t, []Message{
			{ID: ids[0], OccurredAt: at, AggregateType: "order", AggregateID: "1", EventType: "order.paid", Payload: nasty, ContentType: "application/json", Headers: map[string]string{"tenant": `a"b\c,{}`, "traceparent": "00-x"}},
			{ID: own, OccurredAt: at, AggregateType: "order", AggregateID: "2", EventType: "x", Payload: []byte{0, 255, '\n'}, ContentType: "application/x-protobuf", Headers: map[string]string{}, NotBefore: at.Add(time.Hour)},
			{ID: ids[2], OccurredAt: at, AggregateType: "order", AggregateID: "1", EventType: "order.sent", Payload: []byte{}, ContentType: "application/json", Headers: map[string]string{}},
		}, got)

		// What is rolled back was never there.
		gone := errors.New("gone")
		require.ErrorIs(t, w(func(append func(*Appender, ...Message) ([]uuid.UUID, error)) error {
			_, err := append(a, Message{AggregateType: "order", AggregateID: "1", EventType: "order.paid"})
			return errors.Join(gone, err)
		}), gone)
		require.Equal(t, 3, one[int](t, conn, `select count(*)::int from outbox_event_status`))
	})
}

func TestAppendAtTheLimits(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, w writer, conn *pgx.Conn) {
		headers := map[string]string{}
		for n := range 150 {
			headers[fmt.Sprintf("h%03d", n)] = strings.Repeat("v", 8)
		}
		m := Message{AggregateType: strings.Repeat("t", 128), AggregateID: strings.Repeat("i", 128), EventType: strings.Repeat("e.", 127) + "ee", Payload: []byte(strings.Repeat("x", MaxPayload)), Headers: headers}
		require.NoError(t, m.Check())
		require.NoError(t, w(func(append func(*Appender, ...Message) ([]uuid.UUID, error)) error {
			_, err := append(&Appender{}, m, m)
			return err
		}))
		require.Equal(t, 2*MaxPayload, one[int](t, conn, `select sum(octet_length(payload))::int from outbox_event_status`))
		for what, spoil := range map[string]func(m *Message){
			"aggregate's type": func(m *Message) { m.AggregateType = "a.b" },
			"aggregate's id":   func(m *Message) { m.AggregateID += "i" },
			"event's type":     func(m *Message) { m.EventType = "e..e" },
			"payload has":      func(m *Message) { m.Payload = append(m.Payload, 'x') },
			"content type":     func(m *Message) { m.ContentType = "a\nb" },
			"for NATS":         func(m *Message) { m.Headers = map[string]string{"nats-Msg-Id": "x"} },
			"header's name":    func(m *Message) { m.Headers = map[string]string{"a b": "x"} },
			"several lines":    func(m *Message) { m.Headers = map[string]string{"a": "x\r\ny"} },
			"headers have":     func(m *Message) { m.Headers = map[string]string{"a": strings.Repeat("x", 3000)} },
		} {
			bad := m
			spoil(&bad)
			require.NoError(t, w(func(append func(*Appender, ...Message) ([]uuid.UUID, error)) error {
				_, err := append(&Appender{}, m, bad)
				require.ErrorContains(t, err, "message 1: ")
				require.ErrorContains(t, err, what)
				return nil // the transaction has not failed
			}))
		}
		require.Equal(t, 2, one[int](t, conn, `select count(*)::int from outbox_event_status`))
	})
}

func TestAppendRefusesWhenTheRelayLags(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, w writer, conn *pgx.Conn) {
		m := Message{AggregateType: "order", AggregateID: "1", EventType: "order.paid"}
		try := func(a *Appender) error {
			return w(func(append func(*Appender, ...Message) ([]uuid.UUID, error)) error {
				_, err := append(a, m)
				return err
			})
		}
		limited := &Appender{MaxLag: 10}
		require.NoError(t, try(limited), "nobody has said anything")
		s := open(t, conn.Config().ConnString())
		require.NoError(t, s.Publish(t.Context(), "main", "a", 10))
		require.NoError(t, try(limited))
		require.NoError(t, s.Publish(t.Context(), "main", "a", 11))
		require.ErrorIs(t, try(limited), ErrLagging)
		require.NoError(t, try(&Appender{}))
		run(t, conn, `update outbox_settings set max_lag = 5`)
		require.ErrorIs(t, try(&Appender{}), ErrLagging)
		require.NoError(t, s.Publish(t.Context(), "main", "a", 0))
		require.NoError(t, try(&Appender{}))
		require.NoError(t, s.Publish(t.Context(), "main", "b", 11))
		require.NoError(t, s.Unpublish(t.Context(), "mai"))
		require.ErrorIs(t, try(&Appender{}), ErrLagging, "of another source")
		require.NoError(t, s.Unpublish(t.Context(), "main"))
		require.NoError(t, try(&Appender{}), "it is gone")
	})
}

func TestAppendInSavepoints(t *testing.T) {
	t.Parallel()
	_, conn := setup(t, Log)
	a := &Appender{}
	m := func(id string) Message {
		return Message{AggregateType: "order", AggregateID: id, EventType: "order.paid"}
	}
	require.NoError(t, pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
		_, err := a.Append(t.Context(), tx, m("kept"))
		require.NoError(t, err)
		err = pgx.BeginFunc(t.Context(), tx, func(tx pgx.Tx) error { // a savepoint
			_, err := a.Append(t.Context(), tx, m("undone"))
			require.NoError(t, err)
			_, err = tx.Exec(t.Context(), `select 1/0`)
			return err
		})
		require.ErrorContains(t, err, "division by zero")
		_, err = a.Append(t.Context(), tx, m("kept-too"))
		return err
	}))
	require.Equal(t, "kept kept-too", one[string](t, conn, `select string_agg(aggregate_id, ' ' order by seq) from outbox_log`))
}

func TestAnIDIsAppendedOnceInModeClaim(t *testing.T) {
	t.Parallel()
	dsn, _ := setup(t, Claim)
	m := Message{ID: uuid.Must(uuid.NewV7()), AggregateType: "order", AggregateID: "1", EventType: "order.paid"}
	for _, w := range writers(t, dsn) {
		require.ErrorContains(t, w(func(append func(*Appender, ...Message) ([]uuid.UUID, error)) error {
			_, err := append(&Appender{}, m, m)
			return err
		}), "duplicate key")
	}
}

func TestTypes(t *testing.T) {
	t.Parallel()
	dsn, conn := setup(t, Log)
	try := func(unknown Policy, event string) error {
		return writers(t, dsn)["pgx"](func(append func(*Appender, ...Message) ([]uuid.UUID, error)) error {
			_, err := append(&Appender{Types: &Types{Names: []string{"order.paid", "stock.>"}, Unknown: unknown}}, Message{AggregateType: "order", AggregateID: "1", EventType: event})
			return err
		})
	}
	for _, known := range []string{"order.paid", "stock.taken", "stock.a.b"} {
		require.NoError(t, try(RefuseUnknown, known))
	}
	for _, unknown := range []string{"order.sent", "stock", "stocks.taken"} {
		require.ErrorIs(t, try(RefuseUnknown, unknown), ErrUnknownType)
		require.NoError(t, try(ParkUnknown, unknown))
		require.NoError(t, try("", unknown))
	}
	require.Equal(t, 9, one[int](t, conn, `select count(*)::int from outbox_log`))
	require.False(t, (*Types)(nil).Park("x"))
	require.False(t, (&Types{}).Park("x"))
	require.True(t, (&Types{Unknown: ParkUnknown}).Park("x"))
	require.True(t, (&Types{Unknown: RefuseUnknown}).Park("x"))
	require.False(t, (&Types{Unknown: RefuseUnknown, Names: []string{"x"}}).Park("x"))
}

// order is an aggregate.
type order struct {
	Recorder
	paid int
}

type paid struct {
	Amount int `json:"amount"`
}

func (paid) EventType() string { return "order.paid" }

func (o *order) Pay(amount int) {
	o.paid += amount
	o.Raise(paid{amount})
}

// protobuf is a serializer of an application.
type protobuf struct{}

func (protobuf) Serialize(e Event) ([]byte, string, error) {
	payload, err := proto.Marshal(wrapperspb.Int64(int64(e.(paid).Amount)))
	return payload, "application/x-protobuf", err
}

func TestDomainEvents(t *testing.T) {
	t.Parallel()
	_, conn := setup(t, Log)
	o := &order{}
	of := DomainEventContext{AggregateType: "order", AggregateID: "4711", Headers: map[string]string{"tenant": "a", "schemaVersion": "1"}}
	record := func(a *Appender) (ids []uuid.UUID) {
		require.NoError(t, pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) (err error) {
			ids, err = a.RecordPulledDomainEvents(t.Context(), tx, o, of)
			return err
		}))
		return ids
	}
	require.Empty(t, record(&Appender{}))
	o.Pay(1)
	o.Pay(2)
	require.Len(t, record(&Appender{}), 2)
	require.Empty(t, record(&Appender{}), "pulled once")
	require.Equal(t, `{"amount":1} {"amount":2}`, one[string](t, conn, `select string_agg(convert_from(payload, 'UTF8'), ' ' order by seq) from outbox_log where headers = '{"tenant": "a", "schemaVersion": "1"}'`))

	o.Pay(3)
	ids := record(&Appender{Serializer: protobuf{}})
	var payload []byte
	require.NoError(t, conn.QueryRow(t.Context(), `select payload from outbox_log where event_id = $1 and content_type = 'application/x-protobuf'`, ids[0]).Scan(&payload))
	var amount wrapperspb.Int64Value
	require.NoError(t, proto.Unmarshal(payload, &amount))
	require.Equal(t, int64(3), amount.Value)
}

type brokenSerializer struct{}

func (brokenSerializer) Serialize(Event) ([]byte, string, error) {
	return nil, "", errors.New("broken")
}

func TestRecorder(t *testing.T) {
	t.Parallel()
	o := &order{}
	for n := range 1000 {
		o.Pay(n)
	}
	last := ""
	for n, e := range o.PullDomainEvents() {
		require.Equal(t, paid{n}, e.Event)
		require.Greater(t, e.ID.String(), last)
		require.WithinDuration(t, time.Now(), e.OccurredAt, time.Minute)
		last = e.ID.String()
	}
	require.Empty(t, o.PullDomainEvents())
	o.Pay(1)
	_, err := (&Appender{Serializer: brokenSerializer{}}).RecordPulledDomainEvents(t.Context(), nil, o, DomainEventContext{})
	require.ErrorContains(t, err, "cannot serialize order.paid: broken")
	ids, err := (&Appender{}).Append(t.Context(), nil)
	require.NoError(t, err)
	require.Empty(t, ids)
}

type wakes []string

func (w *wakes) Publish(subject string, _ []byte) error {
	*w = append(*w, subject)
	return errors.New("nobody cares")
}

func TestWaker(t *testing.T) {
	t.Parallel()
	(&Waker{}).Wake()
	var there wakes
	here := 0
	w := &Waker{Source: "orders", NATS: &there, Local: func() { here++ }}
	w.Wake()
	require.Equal(t, wakes{"instar.outbox.wake.orders"}, there)
	require.Equal(t, 1, here)
}

func TestInbox(t *testing.T) {
	t.Parallel()
	dsn, conn := setup(t, Log)
	db, err := sql.Open("pgx", dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	handle := map[string]func(event, handler string, do func() error) (bool, error){
		"pgx": func(event, handler string, do func() error) (first bool, err error) {
			err = pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) (err error) {
				first, err = Inbox{}.Handle(t.Context(), tx, event, handler, do)
				return err
			})
			return first, err
		},
		"sql": func(event, handler string, do func() error) (first bool, err error) {
			tx, err := db.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			if first, err = (Inbox{}).HandleSQL(t.Context(), tx, event, handler, do); err != nil {
				return first, errors.Join(err, tx.Rollback())
			}
			return first, tx.Commit()
		},
	}
	broken := errors.New("broken")
	for library, handle := range handle {
		calls := 0
		do := func() error { calls++; return nil }
		event := "event/" + library
		_, err := handle(event, "mail", func() error { return broken })
		require.ErrorIs(t, err, broken)
		for n := range 3 {
			first, err := handle(event, "mail", do)
			require.NoError(t, err)
			require.Equal(t, n == 0, first)
		}
		first, err := handle(event, "stock", do)
		require.NoError(t, err)
		require.True(t, first, "another handler")
		require.Equal(t, 2, calls)
	}

	// Of two at a time one handles it, the other waits to know.
	tx, err := dial(t, dsn).Begin(t.Context())
	require.NoError(t, err)
	first, err := Inbox{}.Handle(t.Context(), tx, "both", "mail", func() error { return nil })
	require.NoError(t, err)
	require.True(t, first)
	second := make(chan bool)
	go func() {
		first, err := handle["sql"]("both", "mail", func() error { return nil })
		second <- first && err == nil
	}()
	require.Eventually(t, func() bool {
		return one[bool](t, conn, `select exists (select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock')`)
	}, 10*time.Second, 5*time.Millisecond)
	require.NoError(t, tx.Rollback(context.Background()))
	require.True(t, <-second, "the first one gave up")

	s := open(t, dsn)
	run(t, conn, `update outbox_inbox set handled_at = now() - interval '2 days' where handler = 'mail'`)
	purge := func(streamAge time.Duration) int64 {
		n, err := s.PurgeInbox(t.Context(), streamAge)
		require.NoError(t, err)
		return n
	}
	require.Zero(t, purge(time.Hour), "14 days at least")
	run(t, conn, `update outbox_inbox set handled_at = now() - interval '15 days' where handler = 'mail'`)
	require.Zero(t, purge(8*24*time.Hour), "twice the age of the stream")
	require.Zero(t, purge(0), "the stream keeps all")
	require.NoError(t, Init(t.Context(), dsn, "", Settings{InboxRetention: 24 * time.Hour}))
	require.Zero(t, purge(30*24*time.Hour), "the stream still has them")
	require.Equal(t, int64(3), purge(time.Hour))
	require.Equal(t, 2, one[int](t, conn, `select count(*)::int from outbox_inbox`))
	run(t, conn, `update outbox_inbox set handled_at = now() - interval '2 days'`)
	require.Equal(t, int64(2), purge(0), "the settings say when")
}
