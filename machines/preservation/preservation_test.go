package preservation_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines/preservation"
	"github.com/bcc94042/instar/machines/transcript"
)

const transcripts = "testdata/*.txt"

func TestTranscripts(t *testing.T) {
	t.Parallel()
	transcript.Run(t, preservation.Machine, transcripts)
}

func TestEveryEdgeIsSeenInATranscript(t *testing.T) {
	t.Parallel()
	transcript.Cover(t, preservation.Machine, transcripts)
}

func TestDiagramsAreUpToDate(t *testing.T) {
	t.Parallel()
	transcript.Diagrams(t, preservation.Machine)
}

// The table again, by hand from what it is for: where each input may lead from each state.
func TestTheTableIsTheSpecification(t *testing.T) {
	t.Parallel()
	want := map[string]map[string][]string{
		"":           {"losses": {"normal", "protected"}, "hold": {"protected"}},
		"normal":     {"losses": {"protected"}, "hold": {"protected"}},
		"protected":  {"losses": {"protected"}, "renewals": {"recovering"}, "decay": {"normal"}, "hold": {"protected"}, "release": {"normal"}},
		"recovering": {"losses": {"protected"}, "settled": {"normal"}, "hold": {"protected"}, "release": {"normal"}},
	}
	got := map[string]map[string][]string{}
	for _, e := range preservation.Machine.Edges {
		if e.Noop {
			continue
		}
		if got[e.From] == nil {
			got[e.From] = map[string][]string{}
		}
		got[e.From][e.On] = append(got[e.From][e.On], e.To)
		slices.Sort(got[e.From][e.On])
	}
	require.Equal(t, want, got)
}

func TestExceed(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		losses preservation.Losses
		want   bool
	}{
		{preservation.Losses{}, false},
		{preservation.Losses{Total: 3, Expiring: 2}, false}, // one or two that die are dead
		{preservation.Losses{Total: 3, Expiring: 3}, true},
		{preservation.Losses{Total: 19, Expiring: 3}, true},
		{preservation.Losses{Total: 20, Expiring: 3}, false}, // 15 %, not more
		{preservation.Losses{Total: 1000, Expiring: 150}, false},
		{preservation.Losses{Total: 1000, Expiring: 151}, true},
		{preservation.Losses{Total: 1000, Expiring: 151, Limit: 0.5}, false},
		{preservation.Losses{Total: 5, Expiring: 1, Blind: true}, true},
		{preservation.Losses{Total: 5, Blind: true}, false},
	} {
		require.Equal(t, x.want, x.losses.Exceed(), "%+v", x.losses)
	}
}
