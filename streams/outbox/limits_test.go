package outbox

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// The appender and the database take the same messages.
func TestTheLimitsAreTheSameInSQL(t *testing.T) {
	t.Parallel()
	_, conn := setup(t, Log)
	pick := func(list ...string) string { return list[rand.IntN(len(list))] }
	taken := 0
	for n := range 400 {
		m := Message{
			ID: uuid.Must(uuid.NewV7()), AggregateType: pick("order", "order", "a b", strings.Repeat("t", 128), strings.Repeat("t", 129)), AggregateID: pick("1", "1", "", strings.Repeat("i", 128)),
			EventType: "order.paid", Payload: []byte(strings.Repeat("x", pick2(MaxPayload-1, MaxPayload, MaxPayload+1, 10, 10, 10))), ContentType: pick("text/plain", "text/plain", strings.Repeat("c", MaxContentType), strings.Repeat("c", MaxContentType+1), "a\nb"),
			Headers: map[string]string{"h": strings.Repeat(pick("v", `"`, "ä"), 1490+rand.IntN(12)), "i": strings.Repeat("<", pick2(0, 1488, 1489, 1490))},
		}
		err := m.Check()
		headers := fmt.Sprintf(`{"h": "%s", "i": "%s"}`, strings.ReplaceAll(m.Headers["h"], `"`, `\"`), m.Headers["i"])
		_, refused := conn.Exec(t.Context(), `select outbox_append_bytes($1, $2, $3, $4, $5, $6::jsonb)`, m.AggregateType, m.AggregateID, m.EventType, m.Payload, m.ContentType, headers)
		require.Equal(t, err == nil, refused == nil, "%d: %v, %v", n, err, refused)
		if err == nil {
			taken++
		}
	}
	require.NotZero(t, taken)
	_, err := conn.Exec(t.Context(), `select outbox_append('order', '1', 'order.paid', '{}', '{"n": 1e4000}')`)
	require.ErrorContains(t, err, "23514", "a number is as long as it is written")
}

func pick2(list ...int) int { return list[rand.IntN(len(list))] }

// A CloudEvent in structured mode is the message's own event, whoever appends it.
func TestAppendACloudEvent(t *testing.T) {
	t.Parallel()
	for _, mode := range []Mode{Log, Claim} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			_, conn := setup(t, mode)
			id := uuid.Must(uuid.NewV7())
			good := fmt.Sprintf(`{"specversion": "1.0", "id": "%s", "source": "/shop", "type": "order.paid"}`, id)
			try := func(event, content string, given *uuid.UUID) error {
				m := Message{AggregateType: "order", AggregateID: "1", EventType: "order.paid", ContentType: content, Payload: []byte(event)}
				if given != nil {
					m.ID = *given
				}
				tx, err := conn.Begin(t.Context())
				require.NoError(t, err)
				ids, err := (&Appender{}).Append(t.Context(), tx, m)
				if err == nil {
					require.Equal(t, []uuid.UUID{id}, ids)
				}
				require.NoError(t, tx.Rollback(t.Context()))
				var got uuid.UUID
				tx, errTx := conn.Begin(t.Context())
				require.NoError(t, errTx)
				errSQL := tx.QueryRow(t.Context(), `select outbox_append_bytes('order', '1', 'order.paid', $1, $2, event_id => $3)`, []byte(event), content, given).Scan(&got)
				require.NoError(t, tx.Rollback(t.Context()))
				require.Equal(t, err == nil, errSQL == nil, "%v, %v", err, errSQL)
				if errSQL == nil {
					require.Equal(t, id, got)
				}
				return err
			}
			other := uuid.Must(uuid.NewV7())
			const content = "application/cloudevents+json"
			for _, c := range []struct {
				event, content, why string
				given               *uuid.UUID
			}{
				{good, content, "", nil},
				{good, "Application/CloudEvents+JSON ; charset=utf-8", "", &id},
				{good, content, "has the id", &other},
				{good, "application/cloudevents-batch+json", "one event at a time", nil},
				{good, "application/cloudevents+avro", "one event at a time", nil},
				{`[` + good + `]`, content, "no CloudEvent", nil},
				{`{`, content, "no CloudEvent", nil},
				{strings.Replace(good, "1.0", "0.3", 1), content, "specversion", nil},
				{strings.Replace(good, "/shop", "", 1), content, "no source", nil},
				{strings.Replace(good, "order.paid", "order.sent", 1), content, "type", nil},
				{strings.Replace(good, id.String(), "4711", 1), content, "has the id", nil},
				{strings.Replace(good, id.String(), strings.ToUpper(id.String()), 1), content, "has the id", nil},
			} {
				err := try(c.event, c.content, c.given)
				if c.why == "" {
					require.NoError(t, err)
				} else {
					require.ErrorContains(t, err, c.why)
				}
			}
		})
	}
}
