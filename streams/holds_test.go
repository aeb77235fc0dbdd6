package streams

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
)

// A dead letter that the server cannot read is neither gone nor the end of the list.
func TestAnUnreadableDeadLetterIsNotGone(t *testing.T) {
	t.Parallel()
	g := setup(t, OS)
	sub, err := g.nc.Subscribe("FAULT.>", func(m *nats.Msg) {
		request := strings.TrimPrefix(m.Subject, "FAULT.")
		if strings.HasPrefix(request, "STREAM.MSG.GET.") {
			_ = m.Respond([]byte(`{"error":{"code":404,"err_code":10037,"description":"no message found"}}`))
			return
		}
		_ = g.nc.PublishRequest("$JS.API."+request, m.Reply, m.Data)
	})
	require.NoError(t, err)
	t.Cleanup(func() { _ = sub.Unsubscribe() })
	d, _ := g.deadLetters()
	blind := d
	blind.JS, err = jetstream.NewWithAPIPrefix(g.nc, "FAULT")
	require.NoError(t, err)

	list, err := blind.List(g.ctx, 0, 10)
	require.NoError(t, err)
	require.Empty(t, list, "there are none")
	for i := range 3 {
		g.bury(d, testLetter(i), fmt.Sprint(i))
	}
	s, err := g.js.Stream(g.ctx, DeadStream)
	require.NoError(t, err)
	require.NoError(t, s.DeleteMsg(g.ctx, 2))
	_, err = blind.Get(g.ctx, 1)
	require.ErrorIs(t, err, ErrUnreadable)
	for _, gone := range []uint64{2, 4} {
		_, err = blind.Get(g.ctx, gone)
		require.ErrorIs(t, err, ErrNoLetter)
	}
	_, err = blind.List(g.ctx, 0, 10)
	require.ErrorIs(t, err, ErrUnreadable)
	list, err = blind.List(g.ctx, 3, 10)
	require.NoError(t, err)
	require.Empty(t, list)
}

// A message is known by its id among those of its subject, and a stream that cannot be read, or has too many of them, does not say no.
func TestHoldsID(t *testing.T) {
	t.Parallel()
	g := setup(t, OS)
	s, err := g.js.Stream(g.ctx, CommandStream)
	require.NoError(t, err)
	publish := func(key, id string) {
		_, err := g.js.Publish(g.ctx, g.names.Command("thing", key, "make"), nil, jetstream.WithMsgID(CommandID("thing", key, id)))
		require.NoError(t, err)
	}
	holds := func(key, id string) (bool, error) {
		return HoldsID(g.ctx, s, g.names.StoredOf("thing", key), CommandID("thing", key, id))
	}
	for i := range mostHeld {
		publish("default.a", fmt.Sprint(i))
		publish("default.b", fmt.Sprint("other-", i))
	}
	for id, want := range map[string]bool{"0": true, fmt.Sprint(mostHeld - 1): true, "none": false, "other-0": false} {
		is, err := holds("default.a", id)
		require.NoError(t, err)
		require.Equal(t, want, is, id)
	}
	is, err := holds("default.c", "0")
	require.NoError(t, err)
	require.False(t, is)
	publish("default.a", "one more")
	_, err = holds("default.a", "none")
	require.ErrorIs(t, err, ErrUnreadable)
}
