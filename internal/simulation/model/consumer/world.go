package consumer

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/bcc94042/instar/internal/simulation/model/store"
)

// Env is what a consumer is connected to.
type Env interface {
	Now() time.Time
	Interest(subject string) bool        // whether a client listens
	Listening(subject string) bool       // the same, by a subscription without wildcards and queue
	Send(m store.Message)                // to clients, and to streams that store it
	Deliver(m store.Message)             // to clients only
	Reply(to string, data []byte)        // Send, if somebody waits
	Advise(subject string, event any)    // an advisory
	Event(kind string) server.TypedEvent // the head of one
	Later(f func())                      // does something after what is being done
	ID() string                          // a name that was not given out before
}

// Stream is the stream that a consumer is on.
type Stream interface {
	Log() *store.Log
	Config() *server.StreamConfig
	Done(seq uint64) // the consumer is done with a message
	Silent() bool    // nobody answers for it now
	Replicated() bool
	Cluster() *server.ClusterInfo
	RemoveConsumer(o *Consumer)
}

// New is a consumer with a configuration that was checked ([Check]) and filled in ([Defaults]). It begins where its policy says.
func New(s Stream, e Env, cfg *server.ConsumerConfig) *Consumer {
	o := &Consumer{
		s: s, e: e, cfg: *cfg, name: cfg.Name, created: e.Now().UTC(), filters: FiltersOf(cfg), prefix: "$JS.ACK." + s.Config().Name + "." + cfg.Name + ".",
		pending: map[uint64]*pending{}, tries: map[uint64]uint64{},
	}
	if o.hears = o.filters; len(o.hears) == 0 {
		o.hears = []string{">"}
	}
	o.bePatient()
	o.start()
	o.Recount()
	if cfg.FlowControl {
		o.flow.window = flowLimit / 16
	}
	if !o.pull() {
		o.active = e.Listening(cfg.DeliverSubject)
		if cfg.Heartbeat > 0 {
			o.beat = o.now() + int64(cfg.Heartbeat)
		}
	}
	o.signaled = true
	o.resumesLater()
	if o.patience > 0 && (o.pull() || !o.active) {
		o.idle = o.now() + int64(o.patience)
	}
	return o
}

// Name is that of the consumer in its stream.
func (o *Consumer) Name() string { return o.name }

// Config is its configuration.
func (o *Consumer) Config() *server.ConsumerConfig { return &o.cfg }

// Filters are what it takes; none is everything.
func (o *Consumer) Filters() []string { return o.filters }

func (o *Consumer) now() int64 { return o.e.Now().UnixNano() }

// End tells those who wait that the consumer is gone.
func (o *Consumer) End() {
	o.gone = true
	for _, p := range slices.Clone(o.waiting) {
		o.status(p.reply, "409 Consumer Deleted")
	}
	o.waiting = nil
}

// Pause stops deliveries until a time; the zero time ends that.
func (o *Consumer) Pause(until time.Time) {
	o.cfg.Metadata = maps.Clone(o.cfg.Metadata)
	o.cfg.PauseUntil, o.cfg.Metadata[server.JSRequiredLevelMetadataKey] = &until, "1"
	if until.IsZero() {
		o.cfg.PauseUntil, o.cfg.Metadata[server.JSRequiredLevelMetadataKey] = nil, "0"
	}
	o.resumesLater()
}

// resumesLater has the loop look for messages when a pause is over that has not ended yet.
func (o *Consumer) resumesLater() {
	if o.resumes = 0; o.cfg.PauseUntil != nil && o.cfg.PauseUntil.After(o.e.Now()) {
		o.resumes = o.cfg.PauseUntil.UnixNano()
	}
}

const never = int64(math.MaxInt64)
