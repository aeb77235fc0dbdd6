package backup_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/docs/examples/backup"
	"github.com/bcc94042/instar/machines/transcript"
)

func TestTranscripts(t *testing.T) {
	t.Parallel()
	transcript.Run(t, backup.Machine, "testdata/*.txt")
}

func TestEveryEdgeIsSeenInATranscript(t *testing.T) {
	t.Parallel()
	if *transcript.Update {
		t.Skip("the transcripts are being written")
	}
	require.Empty(t, transcript.Untaken(t, backup.Machine, "testdata/*.txt"))
}
