package engine

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/consumers"
	"github.com/bcc94042/instar/consumers/consumertest"
	"github.com/bcc94042/instar/consumers/reconcile"
)

// A read asks its leaders several questions, one after the other, and each may wait for long. All of it has less time than the watchdog gives a commit. The test is not parallel: it
// changes how long that is.
func TestAReadHasItsTimeInAll(t *testing.T) {
	s, err := server.NewServer(&server.Options{DontListen: true, NoLog: true, NoSigs: true}) // without streams: nobody answers
	require.NoError(t, err)
	s.Start()
	t.Cleanup(s.Shutdown)
	require.True(t, s.ReadyForConnections(10*time.Second))
	nc, err := nats.Connect("", nats.InProcessServer(s))
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	defer func(before time.Duration) { readWithin = before }(readWithin)
	readWithin = 20 * time.Millisecond
	deps := consumers.Deps{NC: nc}
	e := &Engine{Deps: deps.WithDefaults()}
	began := time.Now()
	_, err = e.lacks(t.Context(), consumertest.Things, "default.a", reconcile.History{})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Less(t, time.Since(began), 9*time.Second, "one question alone would have ten seconds")
}
