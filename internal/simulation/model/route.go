package model

// Who gets what: subscriptions by subject, without wildcards in a map, with them by what comes before the first wildcard. Members of a queue group take
// turns.

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/bcc94042/instar/internal/simulation/model/store"
	"github.com/bcc94042/instar/internal/simulation/model/wire"
)

type subscription struct {
	c              *conn
	n              uint64 // the order in which they were made
	subject, queue string
	sid            string
	got, most      int // messages, and how many it takes; 0 is any number
}

type subscriptions struct {
	made     uint64
	literal  map[string][]*subscription
	prefixes map[string][]*subscription // of those with wildcards, with its last dot
}

func newSubscriptions() subscriptions {
	return subscriptions{literal: map[string][]*subscription{}, prefixes: map[string][]*subscription{}}
}

// place is the map and the key of a subject.
func (t *subscriptions) place(subject string) (map[string][]*subscription, string) {
	at := 0
	for tok := range strings.SplitSeq(subject, ".") {
		if tok == "*" || tok == ">" {
			return t.prefixes, subject[:at]
		}
		at += len(tok) + 1
	}
	return t.literal, subject
}

func (t *subscriptions) add(s *subscription) {
	t.made++
	s.n = t.made
	m, key := t.place(s.subject)
	m[key] = append(m[key], s)
}

func (t *subscriptions) remove(s *subscription) {
	m, key := t.place(s.subject)
	if m[key] = slices.DeleteFunc(m[key], func(x *subscription) bool { return x == s }); len(m[key]) == 0 {
		delete(m, key)
	}
}

// each calls f for the subscriptions of a subject until it returns false.
func (t *subscriptions) each(subject string, f func(*subscription) bool) {
	for _, s := range t.literal[subject] {
		if !f(s) {
			return
		}
	}
	for end := 0; ; {
		for _, s := range t.prefixes[subject[:end]] {
			if store.Match(s.subject, subject) && !f(s) {
				return
			}
		}
		i := strings.IndexByte(subject[end:], '.')
		if i < 0 {
			return
		}
		end += i + 1
	}
}

func (t *subscriptions) any(subject string) (yes bool) {
	t.each(subject, func(*subscription) bool { yes = true; return false })
	return yes
}

// control takes effect of an operation that is no publish.
func (s *Server) control(c *conn, op wire.Op) {
	switch op.Kind {
	case wire.Connect:
		var said struct {
			Verbose      bool  `json:"verbose"`
			Echo         *bool `json:"echo"`
			NoResponders bool  `json:"no_responders"`
		}
		_ = json.Unmarshal(op.Data, &said) // what cannot be read is not said
		c.verbose, c.answers, c.deaf = said.Verbose, said.NoResponders, said.Echo != nil && !*said.Echo
	case wire.Ping:
		s.push(c, outgoing{bytes: []byte("PONG\r\n"), control: true})
		return
	case wire.Sub:
		sub := &subscription{c: c, subject: op.Subject, queue: op.Queue, sid: op.SID}
		if old := c.subs[op.SID]; old == nil && !c.finished {
			c.subs[op.SID] = sub
			s.subs.add(sub)
			s.core.At(s.o.Now())
			s.core.Interested(op.Subject)
		}
	case wire.Unsub:
		if sub := c.subs[op.SID]; sub != nil {
			if sub.most = op.Max; op.Max == 0 || sub.got >= op.Max {
				s.core.At(s.o.Now())
				s.unsubscribe(sub)
			}
		}
	case wire.Pong, wire.Pub:
		return
	}
	if c.verbose {
		s.push(c, outgoing{bytes: []byte("+OK\r\n"), control: true})
	}
}

func (s *Server) unsubscribe(sub *subscription) {
	delete(sub.c.subs, sub.sid)
	s.subs.remove(sub)
	s.core.Interested(sub.subject)
}

// sorted are the subscriptions of a connection, as they were made.
func sorted(subs map[string]*subscription) []*subscription {
	all := make([]*subscription, 0, len(subs))
	for _, sub := range subs {
		all = append(all, sub)
	}
	slices.SortFunc(all, func(a, b *subscription) int { return int(a.n) - int(b.n) })
	return all
}

const apiPrefix = "$JS.API."

// process gives a publish to whoever it is for.
func (s *Server) process(c *conn, op wire.Op) {
	m := store.Message{To: op.Subject, Reply: op.Reply, Header: op.Header, Data: op.Data}
	heard := s.route(m, c)
	taken := false
	if strings.HasPrefix(m.To, apiPrefix) {
		taken = s.api.Request(m)
		s.core.Settle()
	} else {
		taken = s.core.Publish(m)
	}
	if heard || taken || op.Reply == "" || !c.answers {
		return
	}
	header := []byte("NATS/1.0 503\r\nNats-Subject: " + op.Subject + "\r\n\r\n")
	s.subs.each(op.Reply, func(sub *subscription) bool {
		if sub.c != c {
			return true
		}
		s.deliver(sub, store.Message{To: op.Reply, Header: header})
		return false
	})
}

// route queues a message for those who listen, and reports whether somebody does. from is who has published it; nil is the server.
func (s *Server) route(m store.Message, from *conn) bool {
	var few [8]*subscription
	to := few[:0]
	var groups []string
	s.subs.each(m.To, func(sub *subscription) bool {
		switch {
		case from != nil && sub.c == from && from.deaf:
		case sub.queue == "":
			to = append(to, sub)
		case !slices.Contains(groups, sub.queue):
			groups = append(groups, sub.queue)
		}
		return true
	})
	for _, g := range groups {
		var members []*subscription
		s.subs.each(m.To, func(sub *subscription) bool {
			if sub.queue == g {
				members = append(members, sub)
			}
			return true
		})
		s.turn++
		to = append(to, members[s.turn%uint64(len(members))])
	}
	for _, sub := range to {
		s.deliver(sub, m)
	}
	return len(to) > 0
}

// deliver queues a message for one who listens.
func (s *Server) deliver(sub *subscription, m store.Message) {
	subject := m.Subject
	if subject == "" {
		subject = m.To
	}
	sub.got++
	s.push(sub.c, outgoing{
		Delivery: Delivery{Conn: sub.c.id, Subject: subject, Reply: m.Reply, Header: m.Header, Data: m.Data},
		bytes:    wire.AppendMsg(nil, subject, sub.sid, m.Reply, m.Header, m.Data),
	})
	if sub.most > 0 && sub.got >= sub.most {
		s.unsubscribe(sub)
	}
}

// outlet is the server as its core sees it.
type outlet struct{ s *Server }

func (o outlet) Send(m store.Message)         { o.s.route(m, nil) }
func (o outlet) Interest(subject string) bool { return o.s.subs.any(subject) }
func (o outlet) Listening(subject string) bool {
	return slices.ContainsFunc(o.s.subs.literal[subject], func(s *subscription) bool { return s.queue == "" })
}
