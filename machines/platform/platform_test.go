package platform_test

import (
	"maps"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

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

// Whatever a session can fail with, its page says what to do about it.
func TestEveryCodeIsExplained(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/platform.md")
	require.NoError(t, err)
	for _, g := range slices.Concat(platform.Stages, platform.UpgradeStages) {
		for _, code := range append(slices.Sorted(maps.Keys(g.Codes)), g.Code) {
			require.Contains(t, string(page), "`"+code+"`", g.Effect)
		}
	}
}

func TestDiagramsAreUpToDate(t *testing.T) {
	t.Parallel()
	transcript.Diagrams(t, platform.Machine)
}
