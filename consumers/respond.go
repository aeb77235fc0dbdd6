package consumers

import (
	"encoding/json"
	"log/slog"

	"github.com/nats-io/nats.go"

	"github.com/bcc94042/instar/streams"
)

// Respond answers a question over NATS with v as JSON, at an inbox only: see [streams.Inbox]. Who is not answered asks again, so an error is only logged.
func Respond(log *slog.Logger, m *nats.Msg, v any) {
	if streams.Inbox(m.Reply) == "" {
		return
	}
	raw, err := json.Marshal(v)
	if err == nil {
		err = m.Respond(raw)
	}
	if err != nil {
		log.Debug("cannot answer a question", "subject", m.Subject, "error", err)
	}
}
