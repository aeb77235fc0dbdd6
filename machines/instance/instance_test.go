package instance_test

import (
	"testing"

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
	transcript.Cover(t, instance.Machine, transcripts)
}

func TestDiagramsAreUpToDate(t *testing.T) {
	t.Parallel()
	transcript.Diagrams(t, instance.Machine)
}
