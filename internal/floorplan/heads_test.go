package floorplan

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// explained are the folders whose long files say before their imports what they do and how data passes through them.
var explained = []string{"api/...", "consumers/...", "kv/...", "streams/..."}

// longLines is how many lines a file may have without saying it.
const longLines = 150

// Whoever opens a long file sees at its head whether it is the right one, and what comes in and goes out.
func TestLongFilesSayWhatTheyDo(t *testing.T) {
	t.Parallel()
	long := 0
	for _, p := range house(t) {
		if !slices.ContainsFunc(explained, func(tree string) bool { return within(p.path(), tree) }) {
			continue
		}
		for _, f := range p.files() {
			text, err := os.ReadFile(filepath.Join(p.Dir, f))
			require.NoError(t, err)
			if bytes.Count(text, []byte("\n")) <= longLines || f == "doc.go" || generated.Match(text) {
				continue
			}
			long++
			if !sentence.MatchString(head(t, text)) {
				t.Errorf("%s/%s has more than %d lines: say in a comment between its package clause and its imports what it does, who calls it, and what comes in and goes out", p.path(), f, longLines)
			}
		}
	}
	require.NotZero(t, long)
}

// sentence is eight words at least, and a full stop at the end.
var sentence = regexp.MustCompile(`^(\S+\s+){7,}\S+\.\)?$`)

// head is the comment between the package clause and the first declaration of a file, which is that of its imports.
func head(t *testing.T, text []byte) string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "", text, parser.ParseComments|parser.SkipObjectResolution)
	require.NoError(t, err)
	between := slices.DeleteFunc(file.Comments, func(c *ast.CommentGroup) bool {
		return c.Pos() < file.Name.End() || len(file.Decls) > 0 && c.Pos() > file.Decls[0].Pos()
	})
	var lines []string
	for _, c := range between {
		lines = append(lines, strings.TrimSpace(c.Text()))
	}
	return strings.Join(lines, "\n")
}

func TestHeadsAreFound(t *testing.T) {
	t.Parallel()
	for text, ok := range map[string]bool{
		"package x\n\n// Rows that are read from a stream become values.\n\nimport \"os\"\n":            true,
		"package x\n\n// Rows that are read from\n// a stream become values.\n\nvar y int\n":            true,
		"package x\n\n// Reads rows.\n\nimport \"os\"\n":                                                false,
		"package x\n\n// Rows that are read from a stream become\n\nimport \"os\"\n":                    false,
		"package x\n\n//go:generate rows that are read from a stream become values.\n\nimport \"os\"\n": false,
		"// Rows that are read from a stream become values.\npackage x\n\nimport \"os\"\n":              false,
		"package x\n\nimport \"os\"\n\n// Rows that are read from a stream become values.\nvar y int\n": false,
	} {
		require.Equal(t, ok, sentence.MatchString(head(t, []byte(text))), text)
	}
}
