package platform_test

import (
	"testing"

	"github.com/bcc94042/instar/machines/platform"
	"github.com/bcc94042/instar/machines/transcript"
)

const transcripts = "testdata/*.txt"

func TestTranscripts(t *testing.T) {
	t.Parallel()
	transcript.Run(t, platform.Machine, transcripts)
}

func TestEveryEdgeIsSeenInATranscript(t *testing.T) {
	t.Parallel()
	transcript.Cover(t, platform.Machine, transcripts)
}

func TestDiagramsAreUpToDate(t *testing.T) {
	t.Parallel()
	transcript.Diagrams(t, platform.Machine)
}
