package api

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

// What is appended is what encoding/json would write.
func TestAnAppendedResult(t *testing.T) {
	t.Parallel()
	for _, r := range []CommandResult{
		{},
		{Outcome: "applied", State: "READY", Version: 1, Revision: 1 << 60, Generation: 7, CommandID: "x"},
		{Outcome: "unchanged", State: "a \"quoted\" \\ näme", CommandID: "new\nline\x00é"},
	} {
		want, err := json.Marshal(r)
		require.NoError(t, err)
		require.Equal(t, string(want), string(r.appendJSON(nil)))
	}
}
