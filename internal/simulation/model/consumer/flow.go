package consumer

import (
	"github.com/bcc94042/instar/internal/simulation/model/store"
	"github.com/nats-io/nats-server/v2/server"
)

// flowState holds a push consumer back that its client does not keep up with: it sends up to a window of bytes, asks in half of it, and goes on when it
// is answered, with a window twice as wide.
type flowState struct {
	window int    // 0: no flow control
	sent   int    // bytes that are not confirmed
	id     string // of the question that is not answered
	size   int    // bytes that the answer confirms
}

const flowLimit = server.JsFlowControlMaxPending

func (o *Consumer) sentBytes(n int) {
	f := &o.flow
	f.sent += n
	switch {
	case f.id == "" && f.sent > f.window/2:
		f.id, f.size = "$JS"+".FC."+o.s.Config().Name+"."+o.name+"."+o.e.ID(), f.sent
		o.e.Send(store.Message{To: o.cfg.DeliverSubject, Reply: f.id, Header: []byte("NATS/1.0 100 FlowControl Request\r\n\r\n")})
	case f.id != "" && f.sent-f.size >= f.window:
		f.size += n
	}
}

// Confirmed takes the answer to such a question.
func (o *Consumer) Confirmed(id string) {
	if f := &o.flow; f.id == id {
		f.window = min(2*f.window, flowLimit)
		f.sent = max(f.sent-f.size, 0)
		f.id, f.size = "", 0
		o.Run()
	}
}
