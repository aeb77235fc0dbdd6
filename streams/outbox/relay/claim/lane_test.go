package claim

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/streams/outbox/relay/relaytest"
	"github.com/bcc94042/instar/streams/outbox/relay/sink"
)

func TestMain(m *testing.M) { relaytest.Main(m) }

// Of the ends of all lanes the one counts that says least of what was stored, whichever comes first.
func TestTheGravestEndOfALane(t *testing.T) {
	t.Parallel()
	ends := []error{nil, errDrained, context.Canceled, errors.New("no connection"), fmt.Errorf("%w: %w", sink.ErrUnknown, context.Canceled), fmt.Errorf("%w: x", sink.ErrFenced)}
	for i, a := range ends {
		for j, b := range ends {
			require.Equal(t, ends[max(i, j)], graver(a, b), "%v, %v", a, b)
		}
	}
}

func TestNoQueryOfWhatWasSentReadsAWholeTable(t *testing.T) {
	t.Parallel()
	pool := relaytest.Pool(t)
	relaytest.Crowd(t, pool)
	const events = `array(select event_id from outbox_log where seq between 25000 and 30000 order by seq)`
	relaytest.Explain(t, pool, []relaytest.Query{
		{Name: "what was sent last", Query: sqlSentUpTo, Rows: 2},
		{Name: "what is missing", Query: sqlMissing, Rows: 6000, Args: []string{`(select (extract(epoch from sent_at) * 1000000)::bigint from outbox_event order by sent_at desc limit 1 offset 2000)`, events}},
	})
}
