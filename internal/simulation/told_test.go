package simulation

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// docs/testing.md has a row for each invariant.
func TestInvariantsAreTold(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/testing.md")
	require.NoError(t, err)
	told := map[string]bool{}
	for _, row := range regexp.MustCompile(`(?m)^\| ([A-Z]\d+[a-z]?(?:, [A-Z]\d+[a-z]?)*) \|`).FindAllStringSubmatch(string(page), -1) {
		for _, id := range strings.Split(row[1], ", ") {
			told[id] = true
		}
	}
	for _, i := range invariants {
		require.True(t, told[i.id], "%s (%s) has no row in docs/testing.md", i.id, i.says)
	}
}
