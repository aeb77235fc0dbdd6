package server

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.opentelemetry.io/otel"

	"github.com/bcc94042/instar/server/config"
)

// NewLog writes to standard error: what a person reads in dev, what a machine reads in serve.
func NewLog(cfg config.Log) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(cfg.Level)); err != nil {
		return nil, fmt.Errorf("log level: %w", err)
	}
	log := logTo(os.Stderr, level, cfg.Format)
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Warn("traces could not be exported", "error", err) }))
	return log, nil
}

// logTo has one line for each record, in which nothing steers a terminal, whatever others have put into texts: both forms escape
// the control characters of ASCII, but for the last one, and line ends, and the one for persons all that does not print.
func logTo(w io.Writer, level slog.Level, format string) *slog.Logger {
	if format == "json" {
		return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if text, ok := textOf(a.Value); ok {
				a.Value = slog.StringValue(strings.Map(visible, short(text)))
			}
			return a
		}}))
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if text, ok := textOf(a.Value); ok {
			a.Value = slog.StringValue(strings.ReplaceAll(short(text), "\x7f", string(utf8.RuneError)))
		}
		return a
	}}))
}

// textOf is what a value says in words, if it does.
func textOf(v slog.Value) (string, bool) {
	if v.Kind() == slog.KindString {
		return v.String(), true
	}
	switch said := v.Any().(type) {
	case error:
		return fmt.Sprint(said), true // a nil one does not panic
	case fmt.Stringer:
		if v.Kind() == slog.KindAny {
			return fmt.Sprint(said), true
		}
	}
	return "", false
}

// maxLogged is how many bytes a text has in the log at most, which is more than a stack, and far less than what somebody may send.
const maxLogged = 16 << 10

func short(text string) string {
	if len(text) <= maxLogged {
		return text
	}
	end := maxLogged
	for end > maxLogged-utf8.UTFMax && !utf8.RuneStart(text[end]) {
		end--
	}
	return fmt.Sprintf("%s… (cut: it has %d bytes)", text[:end], len(text))
}

// visible replaces what steers a terminal and is no control character of ASCII, such as the C1 controls and those of the direction of text.
func visible(r rune) rune {
	if r >= 0x7f && !unicode.IsPrint(r) {
		return utf8.RuneError
	}
	return r
}
