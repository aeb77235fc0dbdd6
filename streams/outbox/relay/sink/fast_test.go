package sink

import (
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/streams/embedded"
	"github.com/bcc94042/instar/streams/outbox"
	"github.com/bcc94042/instar/streams/streamstest"
)

type fullSession struct{}

func (fullSession) Guard() (subject, sequence []string) {
	return []string{"full.pos"}, []string{"1"}
}
func (fullSession) Marker() *nats.Msg { return nats.NewMsg("full.pos") }
func (fullSession) Marked(uint64)     {}

// A full store refuses the last message of a fast batch, and then the message that ends the batch, too. The publisher has to tell, or it sends that one for ever.
func TestARefusedEndOfABatchIsTold(t *testing.T) {
	t.Parallel()
	nc := streamstest.Start(t, embedded.Options{}).Connect()
	var ends atomic.Int32
	_, err := nc.Subscribe("full.>", func(m *nats.Msg) {
		switch {
		case strings.HasSuffix(m.Reply, ".0.$FI"):
			return
		case strings.HasSuffix(m.Reply, ".3.$FI"):
			ends.Add(1)
		}
		_ = m.Respond([]byte(`{"error":{"code":503,"err_code":10023,"description":"insufficient resources"},"stream":"OUTBOX","seq":0}`))
	})
	require.NoError(t, err)
	require.NoError(t, nc.Flush())
	p := &Publisher{NC: nc, Can: Abilities{Fast: true, Replicas: 1, MaxBytes: 1 << 20}, Prefix: "full", Source: "shop"}
	require.NoError(t, p.Start())
	defer p.Close()
	items := make([]Item, 3)
	for i := range items {
		items[i] = Item{&Row{Pos: Position(i + 1), Message: outbox.Message{ID: uuid.Must(uuid.NewV7()), AggregateType: "order", AggregateID: "o", EventType: "paid", Payload: []byte("{}")}}, fullSession{}}
	}
	stored, err := p.Publish(t.Context(), items, nil)
	require.ErrorIs(t, err, ErrUnknown)
	require.ErrorContains(t, err, "insufficient resources")
	require.Zero(t, stored)
	require.EqualValues(t, 1, ends.Load())
}
