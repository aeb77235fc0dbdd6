package service_test

import (
	"testing"

	"github.com/bcc94042/instar/machines/service"
	"github.com/bcc94042/instar/machines/transcript"
)

const transcripts = "testdata/*.txt"

func TestTranscripts(t *testing.T) {
	t.Parallel()
	transcript.Run(t, service.Machine, transcripts)
}

func TestEveryEdgeIsSeenInATranscript(t *testing.T) {
	t.Parallel()
	transcript.Cover(t, service.Machine, transcripts)
}

func TestDiagramsAreUpToDate(t *testing.T) {
	t.Parallel()
	transcript.Diagrams(t, service.Machine)
}
