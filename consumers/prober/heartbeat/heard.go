package heartbeat

import (
	"encoding/json"
	"log/slog"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// MostHeard is how many instances one answer names; with the longest ids it is as large as a message of NATS may be.
const MostHeard = 10000

// Heard are the instances of a service by their ids, with how long ago each was heard, in milliseconds. One that was not heard since its owner looks after it is not among them.
type Heard map[string]int64

// Add notes an instance, <namespace>.<service>.<id>. Of more than [MostHeard], those that come later are left out.
func (h Heard) Add(key string, ago time.Duration) {
	if len(h) < MostHeard {
		h[key[strings.LastIndexByte(key, '.')+1:]] = ago.Milliseconds()
	}
}

// Answer answers who has asked.
func (h Heard) Answer(m *nats.Msg, log *slog.Logger) {
	raw, err := json.Marshal(h)
	if err == nil {
		err = m.Respond(raw)
	}
	if err != nil {
		log.Debug("cannot say when instances were heard", "service", string(m.Data), "error", err)
	}
}
