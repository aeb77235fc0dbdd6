package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
)

// Whatever others have put into a text, a record is one line, in which nothing steers a terminal.
func FuzzLog(f *testing.F) {
	for _, text := range []string{"plain", "a\nlevel=ERROR msg=forged", "\r\n{\"level\":\"ERROR\"}", "\x1b[2J\x1b]0;title\x07", "\x9b31m\u009b31m\u0085\u2028\u2029\u202e\x7f\x00", "\x7f", `" key="value`, "\xff\xfe", strings.Repeat("é", maxLogged)} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, format := range []string{"text", "json"} {
			var b bytes.Buffer
			logTo(&b, slog.LevelDebug, format).With("id", text).WithGroup("g").Info(text, "text", text, "error", errors.New(text), "stringer", said(text), "n", 1)
			line, rest, ended := strings.Cut(b.String(), "\n")
			require.True(t, ended)
			require.Empty(t, rest)
			require.Less(t, len(line), 5*maxLogged*6+1000)
			for _, r := range line {
				require.True(t, unicode.IsPrint(r) || r == '\uFFFD', "%U in %q", r, line)
			}
			if format == "json" {
				var record map[string]any
				require.NoError(t, json.Unmarshal([]byte(line), &record))
				require.Equal(t, "INFO", record["level"])
			}
		}
	})
}

type said string

func (s said) String() string { return string(s) }

func TestLongTextsAreCutInTheLog(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"text", "json"} {
		var b bytes.Buffer
		log := logTo(&b, slog.LevelDebug, format)
		log.Info("a", "body", strings.Repeat("é", 200_000), "error", errors.New(strings.Repeat("x", 300_000)), "none", error(nil), "config", strings.Repeat("y", maxLogged))
		require.Less(t, b.Len(), 3*maxLogged+1000)
		require.Contains(t, b.String(), "é… (cut: it has 400000 bytes)")
		require.Contains(t, b.String(), "x… (cut: it has 300000 bytes)")
		require.Contains(t, b.String(), strings.Repeat("y", maxLogged))
	}
}
