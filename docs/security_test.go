package docs_test

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var quotedWord = regexp.MustCompile("`([^`]+)`")

// Every promise of security.md names tests that are there: `TestA`, `TestB` in `folder`.
func TestPromisesNameTheirTests(t *testing.T) {
	t.Parallel()
	sources := map[string]string{}
	source := func(folder string) string {
		if sources[folder] == "" {
			files, err := filepath.Glob(filepath.Join(root, folder, "*_test.go"))
			require.NoError(t, err)
			for _, f := range files {
				sources[folder] += read(t, f)
			}
		}
		return sources[folder]
	}
	named := 0
	for _, line := range strings.Split(read(t, "security.md"), "\n") {
		cells := strings.Split(line, " | ")
		if !strings.HasPrefix(line, "| ") || line == "| what holds | test |" {
			continue
		}
		require.Len(t, cells, 2, line)
		if strings.HasPrefix(cells[1], "the same") {
			continue
		}
		var waiting []string
		for _, word := range quotedWord.FindAllStringSubmatch(cells[1], -1) {
			switch {
			case strings.HasPrefix(word[1], "Test"), strings.HasPrefix(word[1], "Fuzz"):
				waiting = append(waiting, word[1])
			case len(waiting) > 0:
				for _, name := range waiting {
					require.True(t, strings.Contains(source(word[1]), "\nfunc "+name+"("), "%s in %s", name, word[1])
					named++
				}
				waiting = nil
			}
		}
		require.Empty(t, waiting, "in which folder? %s", line)
	}
	require.Greater(t, named, 50)
}
