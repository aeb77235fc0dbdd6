package relay

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/streams/outbox"
)

// A table that is emptied under a relay, its numbers beginning anew: they are told from the sent ones by their ids, unless a
// position is beyond them.
func TestASequenceThatGoesBackUnderARelay(t *testing.T) {
	t.Parallel()
	s := openShop(t, outbox.Log)
	stop := s.run(s.relay(outbox.Log))
	for n := range 5 {
		s.add("o-1", n)
	}
	s.eventually(5)
	s.exec(`truncate outbox_log restart identity`)
	s.add("o-1", 6)
	s.eventually(6)
	require.Equal(t, "0 1 2 3 4 6", s.numbered("o-1"))
	require.NoError(t, stop())
	s.exec(`truncate outbox_log restart identity`)
	var fatal *PermanentError
	err := s.relay(outbox.Log).Run(s.ctx)
	require.ErrorAs(t, err, &fatal)
	require.ErrorContains(t, err, "set back")
}
