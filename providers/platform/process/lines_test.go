package process

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/providers/platform/app"
	"github.com/bcc94042/instar/providers/process"
)

// logOf is a log with a text, of a release whose secrets are known.
func logOf(t *testing.T, text string, secrets ...string) *log {
	t.Helper()
	path := filepath.Join(t.TempDir(), "log")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	f, err := os.Open(path)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.Close()) })
	l := &log{of: process.Log{Path: path}, file: f, sure: true}
	l.learn(secrets)
	return l
}

// told is what is told of a log by one look.
func told(l *log, last bool, hidden ...string) (lines []string) {
	r := &reader{values: hidden, tell: func(l app.Line) { lines = append(lines, l.Text) }}
	r.news(l, false, last)
	return lines
}

// Where a text begins or ends within a line, that may be within a secret.
func TestNoHalfOfALineIsTold(t *testing.T) {
	t.Parallel()
	const secret = "hunter2hunter2"
	for name, c := range map[string]struct {
		text  string
		at    int64
		cut   bool
		last  bool
		lines []string
	}{
		"a new file":                    {text: "one\ntwo\nthr", lines: []string{"one", "two"}},
		"behind a line":                 {text: "one\ntwo\n", at: 4, lines: []string{"two"}},
		"behind a part of one":          {text: "has hunter2hunter2\ntwo\n", at: 8, lines: []string{"(11 bytes are left out here, and are in the file)", "two"}},
		"a file that was emptied":       {text: "2hunter2\ntwo\n", cut: true, lines: []string{"(9 bytes are left out here, and are in the file)", "two"}},
		"one that is shorter by now":    {text: "2hunter2\ntwo\n", at: 99, lines: []string{"(9 bytes are left out here, and are in the file)", "two"}},
		"a long line":                   {text: strings.Repeat("x", mostAtOnce) + secret + "\ntwo\n", lines: []string{fmt.Sprintf("(%d bytes are left out here, and are in the file)", mostAtOnce+len(secret)+1), "two"}},
		"the end":                       {text: "one\nhas hunter2hunter2 in", last: true, lines: []string{"one", "has *** in"}},
		"an end within a secret":        {text: "one\nhas hunter2h", last: true, lines: []string{"(12 bytes are left out here, and are in the file)", "one"}},
		"an end within a URL":           {text: "one\npostgres://app:hunt", last: true, lines: []string{"(19 bytes are left out here, and are in the file)", "one"}},
		"what steers a terminal within": {text: "hunter2\x1bhunter2 \x9b[31mred\r\n", lines: []string{"*** ?[31mred"}},
	} {
		l := logOf(t, c.text, secret)
		l.at, l.cut = c.at, c.cut
		require.Equal(t, c.lines, told(l, c.last), name)
		require.Empty(t, told(l, false), "%s: it is told once", name)
	}
	l := logOf(t, "half of a ", secret)
	require.Empty(t, told(l, false))
	require.NoError(t, os.WriteFile(l.of.Path, []byte("half of a line\n"), 0o600))
	require.Equal(t, []string{"half of a line"}, told(l, false))
	require.NoError(t, os.WriteFile(l.of.Path+".1", nil, 0o600)) // it is emptied, and has grown to more than before
	require.NoError(t, os.WriteFile(l.of.Path, []byte("anterhunter2 and more\nnext\n"), 0o600))
	require.Equal(t, []string{"(7 bytes are left out here, and are in the file)", "next"}, told(l, false))
}

// A release that writes much keeps the others' lines from being told for no longer than its share takes.
func TestWhatIsToldOfOneLookIsBounded(t *testing.T) {
	t.Parallel()
	require.Empty(t, told(logOf(t, strings.Repeat("\n \n", mostAtOnce/3)), false), "lines that have nothing")
	lines := told(logOf(t, strings.Repeat("x\n", mostAtOnce)+"end\n"), false)
	require.Len(t, lines, mostLines)
	require.Equal(t, "(65540 bytes are left out here, and are in the file)", lines[0])
	require.Equal(t, fmt.Sprintf("(%d lines are left out here, and are in the file)", mostAtOnce/2-1-(mostLines-2)), lines[1])
	require.Equal(t, []string{"x", "end"}, lines[mostLines-2:])
}

// A release can put ever new files in the place of its secrets: those that were there first stay hidden, and no more than can be looked for.
func TestSecretsThatAreKeptAreBounded(t *testing.T) {
	t.Parallel()
	l := logOf(t, "first-secret\n", "first-secret")
	for i := range 10 * mostWords {
		l.learn([]string{fmt.Sprintf("more-%06d", i)})
	}
	require.Len(t, l.words, mostWords)
	require.Equal(t, []string{"***"}, told(l, false))
	l.words, l.bytes = nil, 0
	l.learn([]string{"first-secret", strings.Repeat("x", mostWordBytes), "another"})
	require.Equal(t, []string{"first-secret", "another"}, l.words)
}

// The variables of the configuration may have passwords, as those for NATS.
func TestValuesOfTheConfigurationAreNotTold(t *testing.T) {
	t.Parallel()
	hidden := app.Configured(map[string]string{"NATS_URL": "nats://app:pw@nats:4222", "BELLS": "\a\a\a\a\a\a\a\a", "KEY": "top\asecret\a"}, nil)
	require.Equal(t, []string{"fast ***, *** as app with pw"}, told(logOf(t, "fast top\asecret, nats://app:pw@nats:4222 as app with pw\n"), false, hidden...))
}
