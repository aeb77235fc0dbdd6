//go:build linux

package process

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A line that begins before what is read of it may begin within a secret, which nobody would find there.
func TestOfTheLastLineAllIsToldOrNothing(t *testing.T) {
	t.Parallel()
	u := &unit{dir: t.TempDir()}
	require.NoError(t, os.Mkdir(filepath.Join(u.dir, "logs"), 0o700))
	whole := "password correct horse battery " + strings.Repeat("x", lastLine-40)
	for text, says := range map[string]string{
		"":                                  "",
		"\n\n":                              "",
		"a line\nno such table: orders\n\n": ": no such table: orders",
		"before\n" + whole + "\n":           ": " + whole,
		whole:                               ": " + whole,
		"correct horse battery staple " + strings.Repeat("x", lastLine-10):             "",
		"before\ncorrect horse battery staple " + strings.Repeat("x", lastLine) + "\n": "",
		strings.Repeat("x", 2*lastLine) + "\nthe end":                                  ": the end",
	} {
		require.NoError(t, os.WriteFile(u.logPath("r1"), []byte(text), 0o600))
		require.Equal(t, says, u.lastWords("r1"), "%.40q", text)
	}
	require.Empty(t, u.lastWords("r2"))

	require.NoError(t, os.WriteFile(u.logPath("r1")+".1", []byte("password correct horse"), 0o600)) // kept when the file was emptied
	require.NoError(t, os.WriteFile(u.logPath("r1"), []byte(" battery staple\n"), 0o600))
	require.Empty(t, u.lastWords("r1"))
}
