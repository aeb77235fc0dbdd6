package outbox_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/outbox"
	"github.com/bcc94042/instar/streams/outbox/relay"
)

// Applications do not import the relay, so they build the subject for themselves.
func TestARelayListensWhereApplicationsWake(t *testing.T) {
	t.Parallel()
	require.Equal(t, relay.WakeSubject(streams.Names{}, "orders"), (&outbox.Waker{Source: "orders"}).Subject())
	require.Equal(t, relay.WakeSubject(streams.Names{Prefix: "x"}, "orders"), (&outbox.Waker{Source: "orders", Prefix: "x"}).Subject())
}
