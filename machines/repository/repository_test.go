package repository_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/repository"
	"github.com/bcc94042/instar/machines/transcript"
)

const transcripts = "testdata/*.txt"

func TestTranscripts(t *testing.T) {
	t.Parallel()
	transcript.Run(t, repository.Machine, transcripts)
}

func TestEveryEdgeIsSeenInATranscript(t *testing.T) {
	t.Parallel()
	transcript.Cover(t, repository.Machine, transcripts)
}

func TestDiagramsAreUpToDate(t *testing.T) {
	t.Parallel()
	transcript.Diagrams(t, repository.Machine)
}

// What is said of a command says why it is paused, where its body does not.
func TestThePauseOfACommandWithAReasonHasIt(t *testing.T) {
	t.Parallel()
	e, _, err := repository.Machine.Step(repository.Machine.New("default", "", "shop"), machines.Input{Command: "create"})
	require.NoError(t, err)
	for body, reason := range map[string]string{``: "quota", `{"reason":"the disk"}`: "the disk"} {
		paused, _, err := repository.Machine.Step(e, machines.Input{Command: "pause", Body: json.RawMessage(body), Actor: "ann", Reason: "quota"})
		require.NoError(t, err)
		require.Equal(t, &repository.Pause{Reason: reason, By: "ann"}, paused.Data.(*repository.Data).Paused)
	}
}
