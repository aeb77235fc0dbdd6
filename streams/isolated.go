package streams

import (
	"bytes"
	"errors"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
)

// watchdog leaves a server behind which JetStream does not answer: one that is cut off from its cluster still takes
// connections and answers their pings. It ends with the connection.
type watchdog struct {
	nc     *nats.Conn
	log    *slog.Logger
	every  time.Duration // between questions
	within time.Duration // until an answer counts as missing
}

// misses is how many answers in a row are missing until the connection looks for another server, and mostMisses the same
// after it has looked in vain several times: while the whole cluster is without JetStream, no other server is better.
const (
	misses     = 3
	mostMisses = 48
)

// notAvailable is in the answer of a server whose cluster has no leader that it knows.
var notAvailable = []byte(`"err_code":10008`)

func (w watchdog) run(closed <-chan nats.Status) {
	tick := time.NewTicker(w.every)
	defer tick.Stop()
	heard := false // a user who may not ask gets no answer, and is left in peace
	for missed, most := 0, misses; ; {
		select {
		case <-closed:
			return
		case <-tick.C:
		}
		if w.nc.IsClosed() {
			return
		}
		if !w.nc.IsConnected() {
			missed = 0
			continue
		}
		if w.answered() {
			heard, missed, most = true, 0, misses
			continue
		}
		if missed++; !heard || missed < most {
			continue
		}
		w.log.Warn("JetStream does not answer over an open connection; connecting to another server", "server", w.nc.ConnectedUrlRedacted(), "unanswered", missed)
		if err := w.nc.ForceReconnect(); err != nil {
			return // closed
		}
		missed, most = 0, min(2*most, mostMisses)
	}
}

// answered asks what only the leader of JetStream's cluster answers.
func (w watchdog) answered() bool {
	m, err := w.nc.Request("$JS.API.INFO", nil, w.within)
	if err != nil {
		return !errors.Is(err, nats.ErrTimeout) && !errors.Is(err, nats.ErrNoResponders) // else the connection has ended
	}
	return !bytes.Contains(m.Data, notAvailable)
}
