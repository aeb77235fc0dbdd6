package embedded

import (
	"context"
	"fmt"
	"log/slog"
	"regexp"
	"sync"
)

// serverLog brings the server's log into ours. Errors at start go through Fatalf, which must not exit.
type serverLog struct {
	log   *slog.Logger
	fatal chan string
	kill  sync.Once // it was told that the last run was killed
	plain bool      // a user's password is not hashed in the configuration
}

// plaintext is said of the program's own password as well, which is random, and of this start.
const plaintext = "Plaintext passwords detected, use nkeys or bcrypt"

// rebuilt are warnings that follow from every kill: what the server writes down beside the messages of a stream every few
// minutes, and when it stops, is older than they are. It is made anew from them. What does not fit together, has another
// checksum or cannot be read has other words, and stays a warning.
var rebuilt = regexp.MustCompile(`^Filestore \[.*\] (Stream state outdated, (last block has additional entries|found extra blocks), will rebuild|` +
	`Recovering stream state from index errored: prior state file|` +
	`(TTL|Message scheduling|Sourcing) state is outdated; attempting to recover using (linear|backward) scan \(seq \d+ to \d+\))$`)

func (l *serverLog) say(level slog.Level, text string) {
	if l.log != nil {
		l.log.Log(context.Background(), level, text, "from", "nats-server")
	}
}

func (l *serverLog) Warnf(format string, v ...any) {
	text := fmt.Sprintf(format, v...)
	if text == plaintext && !l.plain {
		l.say(slog.LevelDebug, text)
		return
	}
	if !rebuilt.MatchString(text) {
		l.say(slog.LevelWarn, text)
		return
	}
	l.kill.Do(func() {
		l.say(slog.LevelInfo, "the last run was not stopped in order: the indexes of its streams are built anew from their messages")
	})
	l.say(slog.LevelDebug, text)
}

func (l *serverLog) Noticef(format string, v ...any) {
	l.say(slog.LevelDebug, fmt.Sprintf(format, v...))
}

func (l *serverLog) Errorf(format string, v ...any) {
	l.say(slog.LevelError, fmt.Sprintf(format, v...))
}
func (l *serverLog) Debugf(string, ...any) {}
func (l *serverLog) Tracef(string, ...any) {}
func (l *serverLog) Fatalf(format string, v ...any) {
	text := fmt.Sprintf(format, v...)
	l.say(slog.LevelError, text)
	select {
	case l.fatal <- text:
	default:
	}
}
