package consumers

import (
	"log/slog"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/streams/embedded"
	"github.com/bcc94042/instar/streams/streamstest"
)

// Whoever asks chooses where the answer goes, and nobody has checked that.
func TestAQuestionIsAnsweredAtAnInboxOnly(t *testing.T) {
	t.Parallel()
	e := streamstest.Start(t, embedded.Options{})
	asked := e.Connect()
	_, err := asked.Subscribe("instar.why", func(m *nats.Msg) { Respond(slog.New(slog.DiscardHandler), m, string(m.Data)) })
	require.NoError(t, err)
	require.NoError(t, asked.Flush())
	nc := e.Connect()
	sub, err := nc.SubscribeSync(">")
	require.NoError(t, err)
	for _, reply := range []string{"instar.cmd.task.default.shop.lint.delete", nats.NewInbox()} {
		require.NoError(t, nc.PublishRequest("instar.why", reply, []byte(reply)))
	}
	var seen []string
	for len(seen) < 3 { // both questions, and one answer, which comes after the other would have come
		m, err := sub.NextMsgWithContext(t.Context())
		require.NoError(t, err)
		seen = append(seen, m.Subject)
	}
	require.Contains(t, seen[2], "_INBOX.")
}
