package consumers

import (
	"encoding/json"
	"log/slog"

	"github.com/nats-io/nats.go"
)

// Respond answers a question over NATS with v as JSON. Who is not answered asks again, so an error is only logged.
func Respond(log *slog.Logger, m *nats.Msg, v any) {
	raw, err := json.Marshal(v)
	if err == nil {
		err = m.Respond(raw)
	}
	if err != nil {
		log.Debug("cannot answer a question", "subject", m.Subject, "error", err)
	}
}
