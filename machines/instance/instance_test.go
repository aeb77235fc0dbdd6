package instance_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines/instance"
	"github.com/bcc94042/instar/machines/transcript"
)

const transcripts = "testdata/*.txt"

func TestTranscripts(t *testing.T) {
	t.Parallel()
	transcript.Run(t, instance.Machine, transcripts)
}

func TestEveryEdgeIsSeenInATranscript(t *testing.T) {
	t.Parallel()
	if *transcript.Update {
		t.Skip("the transcripts are being written")
	}
	require.Empty(t, transcript.Untaken(t, instance.Machine, transcripts))
}

func TestDiagramsAreUpToDate(t *testing.T) {
	t.Parallel()
	for file, drawn := range map[string]string{"testdata/instance.mmd": instance.Machine.Mermaid(), "testdata/instance.dot": instance.Machine.DOT()} {
		if *transcript.Update {
			require.NoError(t, os.WriteFile(file, []byte(drawn), 0o644))
		}
		golden, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Equal(t, string(golden), drawn, "the table changed; run with -update and read the diff")
	}
}
