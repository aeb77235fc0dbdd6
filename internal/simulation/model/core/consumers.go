package core

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/bcc94042/instar/internal/simulation/model/consumer"
	"github.com/bcc94042/instar/internal/simulation/model/store"
	"github.com/nats-io/nats-server/v2/server"
)

// The consumers of a stream as the stream sees them: made, changed and removed, and what reaches them by the subjects of their own.

// ack takes what is sent to the reply of a delivery: $JS.ACK.<stream>.<consumer>.<tries>.<seq>.<dseq>.<time>.<left>.
func (c *Core) ack(m store.Message) bool {
	t := strings.Split(m.To, ".")
	if len(t) != 9 {
		return false
	}
	o := c.Consumer(t[2], t[3])
	if o == nil || o.Config().AckPolicy == server.AckNone || o.Config().AckPolicy == server.AckFlowControl || c.streams[t[2]].Silent() {
		return o != nil && c.streams[t[2]].Silent()
	}
	var n [3]uint64
	for i := range n {
		n[i], _ = strconv.ParseUint(t[4+i], 10, 64) // 0 is refused by what follows
	}
	o.Acked(n[1], n[2], n[0], m)
	return true
}

// Done takes a message out that a consumer is done with, if no other one needs it.
func (s *Stream) Done(seq uint64) {
	e := s.log.At(seq)
	if e == nil || slices.ContainsFunc(s.order, func(o *consumer.Consumer) bool { return o.Needs(e) }) {
		return
	}
	s.Drop(seq)
}

func (c *Core) Event(kind string) server.TypedEvent {
	return server.TypedEvent{Type: kind, ID: c.ID(), Time: c.now.UTC()}
}

// Advise sends an advisory, if somebody listens or stores it.
func (c *Core) Advise(subject string, event any) {
	to := "$JS.EVENT.ADVISORY." + subject
	if !c.out.Interest(to) && len(c.storing(to)) == 0 {
		return
	}
	b, _ := json.Marshal(event) // of strings and numbers
	c.Send(store.Message{To: to, Data: b})
}

// flow takes the answer to such a question.
func (c *Core) flow(m store.Message) bool {
	t := strings.Split(m.To, ".")
	if len(t) != 5 {
		return false
	}
	o := c.Consumer(t[2], t[3])
	if o == nil || !o.Config().FlowControl || c.streams[t[2]].Silent() {
		return o != nil
	}
	o.Confirmed(m.To)
	return true
}

// AddConsumer makes a consumer, or changes the one of the name.
func (s *Stream) AddConsumer(cfg *server.ConsumerConfig, action server.ConsumerAction) (*consumer.Consumer, *server.ApiError) {
	consumer.Defaults(cfg)
	if err := consumer.Check(cfg, &s.cfg); err != nil {
		return nil, err
	}
	filters := consumer.FiltersOf(cfg)
	queue := s.cfg.Retention == server.WorkQueuePolicy
	if o := s.consumers[cfg.Name]; o != nil {
		if action == server.ActionCreate && !consumer.Same(cfg, o.Config()) {
			return nil, server.NewJSConsumerAlreadyExistsError()
		}
		if queue && !s.alone(cfg.Name, filters) {
			return nil, server.NewJSConsumerWQConsumerNotUniqueError()
		}
		if err := o.Update(cfg); err != nil {
			return nil, server.NewJSConsumerCreateError(err, server.Unless(err))
		}
		return o, nil
	}
	if action == server.ActionUpdate {
		return nil, server.NewJSConsumerDoesNotExistError()
	}
	if s.cfg.MaxConsumers > 0 && len(s.order) >= s.cfg.MaxConsumers {
		return nil, server.NewJSMaximumConsumersLimitError()
	}
	if queue {
		switch {
		case cfg.AckPolicy != server.AckExplicit:
			return nil, server.NewJSConsumerWQRequiresExplicitAckError()
		case cfg.DeliverPolicy != server.DeliverAll:
			return nil, server.NewJSConsumerWQConsumerNotDeliverAllError()
		case len(s.order) > 0 && len(filters) == 0:
			return nil, server.NewJSConsumerWQMultipleUnfilteredError()
		case len(s.order) > 0 && !s.alone(cfg.Name, filters):
			return nil, server.NewJSConsumerWQConsumerNotUniqueError()
		}
	}
	if cfg.Name == "" {
		cfg.Name = s.c.ID()
	}
	if len(cfg.Durable) > server.JSMaxNameLen {
		return nil, server.NewJSConsumerNameTooLongError(server.JSMaxNameLen)
	}
	return s.newConsumer(cfg), nil
}

func (s *Stream) newConsumer(cfg *server.ConsumerConfig) *consumer.Consumer {
	o := consumer.New(s, s.c, cfg)
	s.consumers[o.Name()] = o
	s.order = append(s.order, o)
	s.c.Advise("CONSUMER.CREATED."+s.cfg.Name+"."+o.Name(), &server.JSConsumerActionAdvisory{TypedEvent: s.c.Event(server.JSConsumerActionAdvisoryType), Stream: s.cfg.Name, Consumer: o.Name(), Action: server.CreateEvent})
	return o
}

// alone reports whether no other consumer takes what is under the filters.
func (s *Stream) alone(name string, filters []string) bool {
	if len(filters) == 0 { // which is refused elsewhere
		return true
	}
	for _, o := range s.order {
		if o.Name() == name {
			continue
		}
		if len(o.Filters()) == 0 {
			return false
		}
		for _, f := range o.Filters() {
			if slices.ContainsFunc(filters, func(g string) bool { return store.Collide(f, g) }) {
				return false
			}
		}
	}
	return true
}

// RemoveConsumer ends a consumer, and tells those who wait.
func (s *Stream) RemoveConsumer(o *consumer.Consumer) {
	if s.consumers[o.Name()] != o {
		return
	}
	delete(s.consumers, o.Name())
	s.order = slices.DeleteFunc(s.order, func(x *consumer.Consumer) bool { return x == o })
	o.End()
	s.c.Advise("CONSUMER.DELETED."+s.cfg.Name+"."+o.Name(), &server.JSConsumerActionAdvisory{TypedEvent: s.c.Event(server.JSConsumerActionAdvisoryType), Stream: s.cfg.Name, Consumer: o.Name(), Action: server.DeleteEvent})
	if s.cfg.Retention == server.InterestPolicy {
		for seq := s.log.First; seq <= s.log.Last; seq++ {
			s.Done(seq)
		}
	}
}
