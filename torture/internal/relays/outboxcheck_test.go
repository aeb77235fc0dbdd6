package relays

import (
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
)

func changed(id, n int) *nats.Msg {
	return &nats.Msg{Data: fmt.Appendf(nil, `{"n":%d}`, n), Header: nats.Header{"ce-subject": {"order/o-1"}, "ce-id": {fmt.Sprint(id)}, "Outbox-Pos": {"7"}}}
}

func TestMisplacedFindsWhatIsBroken(t *testing.T) {
	t.Parallel()
	want := map[string]int{"o-1": 3}
	require.Empty(t, misplaced(want, []*nats.Msg{changed(1, 1), changed(2, 2), changed(3, 3)}))
	for text, events := range map[string][]*nats.Msg{
		"order: change 3 of o-1 follows 1": {changed(1, 1), changed(3, 3), changed(2, 2)},
		"twice: change 2":                  {changed(1, 1), changed(2, 2), changed(2, 2), changed(3, 3)},
		"the stream knows 2":               {changed(1, 1), changed(2, 2)},
		"the stream knows 4":               {changed(1, 1), changed(2, 2), changed(3, 3), changed(4, 4)},
	} {
		require.Contains(t, fmt.Sprint(misplaced(want, events)), text)
	}
}
