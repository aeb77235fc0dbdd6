package docs_test

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The table of what is decided where names files and functions that there are.
func TestWhatIsDecidedWhere(t *testing.T) {
	t.Parallel()
	_, rest, found := strings.Cut(read(t, "architecture.md"), "## What is decided where\n")
	require.True(t, found)
	section, _, _ := strings.Cut(rest, "\n## ")
	quoted := regexp.MustCompile("`([^`]+)`")
	rows := 0
	for _, row := range strings.Split(section, "\n") {
		cells := strings.Split(row, "|")
		if len(cells) != 5 || !strings.Contains(cells[2], "`") {
			continue
		}
		rows++
		text := ""
		for _, file := range quoted.FindAllStringSubmatch(cells[2], -1) {
			text += read(t, filepath.Join(root, file[1]))
		}
		for _, function := range quoted.FindAllStringSubmatch(cells[3], -1) {
			require.Regexp(t, `(?m)^func (\([^)]*\) )?`+function[1]+`\(`, text, row)
		}
	}
	require.Greater(t, rows, 30)
}

// The ways of a command and of a row, as the packages tell them, name files that there are.
func TestTheWayByFile(t *testing.T) {
	t.Parallel()
	for _, folder := range []string{"consumers/engine", "streams/outbox/relay"} {
		files := regexp.MustCompile(`[\w/]+\.go`).FindAllString(read(t, filepath.Join(root, folder, "doc.go")), -1)
		require.Greater(t, len(files), 10, folder)
		for _, file := range files {
			require.FileExists(t, filepath.Join(root, folder, file))
		}
	}
}
