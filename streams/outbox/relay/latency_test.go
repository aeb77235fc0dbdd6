package relay

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/streams/outbox"
)

// From the commit to a subscriber while nothing else goes on, with a wake-up.
func TestAnIdleRelayIsQuick(t *testing.T) {
	s := openShop(t, outbox.Log) // not beside others: it measures
	r := s.relay(outbox.Log, func(r *Relay) { r.Config.Poll = 20 * time.Second })
	s.run(r)
	s.add("o-1", 0)
	s.eventually(1)
	got := make(chan *nats.Msg, 1)
	sub, err := s.nc.ChanSubscribe("outbox.>", got)
	require.NoError(t, err)
	require.NoError(t, s.nc.Flush())
	defer func() { _ = sub.Unsubscribe() }()
	w := &outbox.Waker{Source: "shop", NATS: s.nc}
	var took []time.Duration
	for n := range 60 {
		began := time.Now()
		s.add(fmt.Sprint("o-", n), n)
		w.Wake()
		<-got
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	t.Logf("insert to subscriber: p50 %s, p99 %s", took[30], took[59])
	require.Less(t, took[30], 10*time.Second, "it waits for its poll")
}
