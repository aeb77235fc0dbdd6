package relay_test

import (
	"testing"

	"github.com/bcc94042/instar/machines/relay"
	"github.com/bcc94042/instar/machines/transcript"
)

const transcripts = "testdata/*.txt"

func TestTranscripts(t *testing.T) {
	t.Parallel()
	transcript.Run(t, relay.Machine, transcripts)
}

func TestEveryEdgeIsSeenInATranscript(t *testing.T) {
	t.Parallel()
	transcript.Cover(t, relay.Machine, transcripts)
}

func TestDiagramsAreUpToDate(t *testing.T) {
	t.Parallel()
	transcript.Diagrams(t, relay.Machine)
}
