package snapshot_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/docs/examples/snapshot"
	"github.com/bcc94042/instar/machines/transcript"
)

func TestTranscripts(t *testing.T) {
	t.Parallel()
	transcript.Run(t, snapshot.Machine, "testdata/*.txt")
}

func TestEveryEdgeIsSeenInATranscript(t *testing.T) {
	t.Parallel()
	if *transcript.Update {
		t.Skip("the transcripts are being written")
	}
	require.Empty(t, transcript.Untaken(t, snapshot.Machine, "testdata/*.txt"))
}
