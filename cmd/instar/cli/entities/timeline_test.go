package entities

import (
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/cmd/instar/cli/command"
)

// What can have gone for its age is no alarm: it may be as old as the one before it.
func TestWhatAgedOutIsNotMissed(t *testing.T) {
	t.Parallel()
	s := &command.Session{Err: io.Discard, Out: io.Discard}
	now, life := time.Now(), shortestLife
	require.NoError(t, unbroken(s, []event{{Seq: 10, Time: now.Add(-life - time.Hour)}, {Seq: 500, Before: 11, Time: now}}, 0))
	require.ErrorContains(t, unbroken(s, []event{{Seq: 10, Time: now.Add(-life + time.Hour)}, {Seq: 500, Before: 11, Time: now}}, 0), "were removed")
	require.ErrorContains(t, unbroken(s, []event{{Seq: 10, Time: now}, {Seq: 11, Time: now}}, 0), "older than this program")
}
