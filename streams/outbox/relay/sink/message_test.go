package sink

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/streams/outbox"
)

func TestWhatCannotBecomeAMessageIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	e := newEncoder("outbox", "shop", 1<<20)
	for reason, spoil := range map[string]func(*Row){
		"aggregate type": func(r *Row) { r.AggregateType = "a.b" },
		"aggregate id":   func(r *Row) { r.AggregateID = "*" },
		"event type":     func(r *Row) { r.EventType = "order..paid" },
		"characters":     func(r *Row) { r.AggregateID = strings.Repeat("x", 129) },
		"payload":        func(r *Row) { r.Payload = make([]byte, 1<<20) },
		"headers":        func(r *Row) { r.Headers = map[string]string{"big": strings.Repeat("x", 70_000)} },
	} {
		r := &Row{Pos: 1, Message: outbox.Message{ID: uuid.Must(uuid.NewV7()), AggregateType: "order", AggregateID: "o-1", EventType: "order.paid", Payload: []byte(`{"n":1}`)}}
		require.NoError(t, e.fits(r))
		spoil(r)
		require.ErrorContains(t, e.fits(r), reason)
	}
}

// What is taken as a message fits into one, with all that a relay adds: nothing ends DEAD for its size.
func TestWhatIsAcceptedFits(t *testing.T) {
	t.Parallel()
	e := newEncoder(strings.Repeat("p", 63), strings.Repeat("s", 63), 1<<20)
	names := func(n int) string { return strings.Repeat("n", max(1, n)) }
	near := func(n int) int { return n - rand.IntN(8) }
	for range 300 {
		m := outbox.Message{
			ID: uuid.Must(uuid.NewV7()), AggregateType: names(near(128)), AggregateID: names(near(128)), EventType: strings.Repeat("e.", 127) + "ee", ContentType: names(near(outbox.MaxContentType)),
			Payload: make([]byte, near(outbox.MaxPayload)), Headers: map[string]string{},
		}
		for left := near(outbox.MaxHeaders); left > 0; {
			name, value := fmt.Sprintf("h%d", len(m.Headers)), strings.Repeat("v", rand.IntN(3000))
			left -= len(name) + len(value) + 4
			if m.Headers[name] = value; m.Check() != nil {
				delete(m.Headers, name)
			}
		}
		require.NoError(t, m.Check())
		r := &Row{Message: m, Pos: 1<<63 - 1, Shard: 63, Attempts: 1000, Redrives: 1000}
		require.NoError(t, e.fits(r))
		for _, structured := range []bool{false, true} {
			e.structured = structured
			got := e.encode(r)
			size := len("NATS/1.0\r\n\r\n") + len(got.Data) + 400 // guard and batch
			for name, values := range got.Header {
				size += len(name) + len(values[0]) + len(": \r\n")
			}
			require.LessOrEqual(t, size, 1<<20)
		}
	}
}
