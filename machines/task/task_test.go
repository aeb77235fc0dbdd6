package task_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines/task"
	"github.com/bcc94042/instar/machines/transcript"
)

const transcripts = "testdata/*.txt"

func TestTranscripts(t *testing.T) {
	t.Parallel()
	transcript.Run(t, task.Machine, transcripts)
}

// What a result cannot carry is not left out without a word.
func TestAResultThatIsTooLargeIsRefused(t *testing.T) {
	t.Parallel()
	many := slices.Repeat([]task.Document{{Name: strings.Repeat("x", 1024)}}, 65)
	large := json.RawMessage(`"` + strings.Repeat("x", 16<<10) + `"`)
	for want, r := range map[string]task.Result{
		"output: has 16386 bytes, 16384 are possible: put it into a document, or where its address can be returned": {Output: large},
		"documents: are 65, 64 are possible":                                {Documents: many},
		"documents[1].name: is empty, not UTF-8, or longer than 1024 bytes": {Documents: []task.Document{{Name: "a"}, {Name: strings.Repeat("x", 1025)}}},
		"documents[0].name: is empty, not UTF-8, or longer than 1024 bytes": {Documents: []task.Document{{Name: "a/\xff"}}},
		"": {Output: large[2:], Documents: many[1:], Summary: strings.Repeat("x", 2000)},
	} {
		refused := ""
		if r := r.Validate(); r != nil {
			refused = r.Message
		}
		require.Equal(t, want, refused)
	}
	require.Nil(t, (&task.Result{Snooze: "30s", Output: large}).Validate(), "the rest is ignored")
}

func TestEveryEdgeIsSeenInATranscript(t *testing.T) {
	t.Parallel()
	transcript.Cover(t, task.Machine, transcripts)
}

func TestDiagramsAreUpToDate(t *testing.T) {
	t.Parallel()
	transcript.Diagrams(t, task.Machine)
}
