package outbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

type transport func(m *Message) error

func (t transport) Publish(_ context.Context, m *Message) error { return t(m) }

// A trigger of one's own publishes what is due, in order; a message that fails keeps its aggregate back until its next try.
func TestRelayOnce(t *testing.T) {
	t.Parallel()
	dsn, conn := setup(t, Claim)
	store, err := Open(t.Context(), dsn, "")
	require.NoError(t, err)
	defer store.Pool.Close()
	store.BaseBackoff = time.Hour
	for n := range 3 {
		run(t, conn, `select outbox_append('order', 'a', 'order.paid', $1::jsonb), outbox_append('order', 'b', 'order.paid', $1::jsonb)`, fmt.Sprint(n))
	}
	var sent []string
	fails := errors.New("no answer")
	to := transport(func(m *Message) error {
		if m.AggregateID == "b" && string(m.Payload) == "1" && fails != nil {
			return fails
		}
		sent = append(sent, m.AggregateID+string(m.Payload))
		return nil
	})
	once := func() int {
		n, err := store.RelayOnce(t.Context(), to, "local", 100)
		require.NoError(t, err)
		return n
	}
	require.Equal(t, 4, once())
	require.Equal(t, []string{"a0", "b0", "a1", "a2"}, sent)
	require.Zero(t, once(), "it waits")
	require.Equal(t, "no answer", one[string](t, conn, `select last_error from outbox_event where status = 'FAILED' and attempts = 1`))
	fails = nil
	_, err = store.Redrive(t.Context(), Filter{All: true}, "me")
	require.NoError(t, err)
	require.Equal(t, 2, once())
	require.Equal(t, []string{"a0", "b0", "a1", "a2", "b1", "b2"}, sent)
	require.Equal(t, 6, one[int](t, conn, `select count(*)::int from outbox_event where status = 'SENT'`))

	var out bytes.Buffer
	run(t, conn, `select outbox_append('order', 'a', 'order.paid', '"secret"')`)
	n, err := store.RelayOnce(t.Context(), LoggingTransport{slog.New(slog.NewTextHandler(&out, nil))}, "local", 100)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.Contains(t, out.String(), "aggregate=order/a type=order.paid")
	require.NotContains(t, out.String(), "secret")

	run(t, conn, `update outbox_settings set mode = 'log'`)
	_, err = store.RelayOnce(t.Context(), to, "local", 100)
	require.ErrorContains(t, err, "needs mode claim")
}
