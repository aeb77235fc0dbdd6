package effects

import (
	"errors"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// errKept says that a task is not to be given back when the process stops: its provider still runs, or its result is stored. It comes again when its
// ack is overdue.
var errKept = errors.New("the task is not given back")

// givenBack are tasks that a stopping process has not done. They are given back when its consumer pulls no more: until then the server
// would deliver them to it again. The zero value has none.
type givenBack struct {
	mu    sync.Mutex
	ended bool
	tasks []jetstream.Msg
}

func (g *givenBack) give(m jetstream.Msg) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.ended {
		g.tasks = append(g.tasks, m)
		return
	}
	_ = m.Nak() // at worst it comes when its ack is overdue
}

// end stops the consumer, and gives back. Without a connection what is in the consumer's buffer comes again when its ack is overdue.
func (g *givenBack) end(cc jetstream.ConsumeContext, connected bool) {
	if connected {
		cc.Drain() // what is in its buffer still comes, to be given back
	} else {
		cc.Stop()
	}
	<-cc.Closed()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ended = true
	for _, m := range g.tasks {
		_ = m.Nak()
	}
	g.tasks = nil
}

// underWay tells the server, until it is ended, that a delivery is under way, whatever that waits for: its entity, whose bucket may have no leader for longer than AckWait, its turn,
// or its provider. Else the server would deliver it once more, and both would be performed. All that a task waits for has an end but its turn.
func (k *kind) underWay(m jetstream.Msg) (end func()) {
	over := make(chan struct{})
	go func() {
		tick := time.NewTicker(k.w.AckWait / 3)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				_ = m.InProgress() // at worst the task comes again
			case <-over:
				return
			}
		}
	}()
	return func() { close(over) }
}
