package relay

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/streams/outbox"
)

// A table that is emptied under a relay, its numbers beginning anew: they would be taken for sent ones.
func TestASequenceThatGoesBackUnderARelay(t *testing.T) {
	t.Parallel()
	s := openShop(t, outbox.Log)
	r := s.relay(outbox.Log)
	ended := make(chan error, 1)
	go func() { ended <- r.Run(t.Context()) }()
	for n := range 5 {
		s.add("o-1", n)
	}
	s.eventually(5)
	s.exec(`truncate outbox_log restart identity`)
	s.add("o-1", 6)
	err := <-ended
	var fatal *PermanentError
	require.True(t, errors.As(err, &fatal), "%v", err)
	require.ErrorContains(t, err, "set back")
}
