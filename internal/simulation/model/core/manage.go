package core

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/bcc94042/instar/internal/simulation/model/consumer"
	"github.com/bcc94042/instar/internal/simulation/model/store"
	"github.com/nats-io/nats-server/v2/server"
)

// Streams made, changed and removed.

// Info is what the stream says of itself.
func (s *Stream) Info(details bool) *server.StreamInfo {
	cfg := s.cfg
	meta := map[string]string{}
	for k, v := range cfg.Metadata {
		meta[k] = v
	}
	store.Dynamic(meta)
	cfg.Metadata = meta
	return &server.StreamInfo{Created: s.created, State: s.state(details), Config: cfg, TimeStamp: When(s.c.wall()), Cluster: s.Cluster()}
}

// Create makes a stream, or finds the one that is as it should be.
func (c *Core) Create(want *server.StreamConfig) (*Stream, *server.ApiError) {
	if want.Replicas > c.o.Replicas {
		if c.o.Replicas == 1 {
			return nil, server.NewJSStreamReplicasNotSupportedError()
		}
		return nil, server.NewJSClusterNoPeersError(ErrNotModelled)
	}
	cfg, err := c.Checked(want)
	if err != nil {
		return nil, err
	}
	if s := c.streams[cfg.Name]; s != nil {
		if !same(cfg, s.cfg) {
			return nil, server.NewJSStreamNameExistError()
		}
		return s, nil
	}
	for _, name := range c.names {
		for _, f := range c.streams[name].cfg.Subjects {
			if slices.ContainsFunc(cfg.Subjects, func(o string) bool { return store.Collide(f, o) }) {
				return nil, server.NewJSStreamSubjectOverlapError()
			}
		}
	}
	s := &Stream{c: c, created: When(c.wall()), log: store.NewLog(cfg.FirstSeq), ids: map[string]seen{}, consumers: map[string]*consumer.Consumer{}, schedules: map[string]*schedule{}, batches: map[string]*batch{}, fast: map[string]*fastBatch{}}
	s.sync() // where it begins is in its configuration, which is there whatever is lost
	s.ack = fmt.Appendf(nil, "{%q:%q,%q:", "stream", cfg.Name, "seq")
	s.configure(cfg)
	c.streams[cfg.Name] = s
	c.names = append(c.names, cfg.Name)
	slices.Sort(c.names)
	c.Advise("STREAM.CREATED."+cfg.Name, &server.JSStreamActionAdvisory{TypedEvent: c.Event(server.JSStreamActionAdvisoryType), Stream: cfg.Name, Action: server.CreateEvent})
	return s, nil
}

// configure takes a configuration that was checked.
func (s *Stream) configure(cfg server.StreamConfig) {
	s.cfg, s.transform, s.republish = cfg, nil, nil
	if t := cfg.SubjectTransform; t != nil {
		s.transform = store.NewTransform(t.Source, t.Destination)
	}
	if r := cfg.RePublish; r != nil {
		s.republish = store.NewTransform(r.Source, r.Destination)
	}
	clear(s.c.routes)
}

func same(a, b server.StreamConfig) bool {
	x, errA := json.Marshal(a)
	y, errB := json.Marshal(b)
	return errA == nil && errB == nil && string(x) == string(y)
}

// Update changes the configuration, and keeps to new limits at once.
func (s *Stream) Update(want *server.StreamConfig) *server.ApiError {
	cfg, err := s.c.Checked(want)
	if err != nil {
		return err
	}
	if err := s.mayBecome(&cfg); err != nil {
		return err
	}
	for _, name := range s.c.names {
		if o := s.c.streams[name]; o != s && slices.ContainsFunc(o.Config().Subjects, func(f string) bool {
			return slices.ContainsFunc(cfg.Subjects, func(g string) bool { return store.Collide(f, g) })
		}) {
			return server.NewJSStreamSubjectOverlapError()
		}
	}
	s.configure(cfg)
	for s.over() && cfg.Discard == server.DiscardOld {
		s.Drop(s.log.First)
	}
	if per := cfg.MaxMsgsPer; per > 0 {
		var excess []uint64
		for _, x := range s.log.Subjects {
			excess = append(excess, x.Seqs[:max(int64(len(x.Seqs))-per, 0)]...)
		}
		slices.Sort(excess)
		for _, seq := range excess {
			s.Drop(seq)
		}
	}
	s.c.Advise("STREAM.UPDATED."+cfg.Name, &server.JSStreamActionAdvisory{TypedEvent: s.c.Event(server.JSStreamActionAdvisoryType), Stream: cfg.Name, Action: server.ModifyEvent})
	return nil
}

func (c *Core) Remove(s *Stream) {
	for _, o := range slices.Clone(s.order) {
		s.RemoveConsumer(o)
	}
	delete(c.streams, s.cfg.Name)
	c.names = slices.DeleteFunc(c.names, func(n string) bool { return n == s.cfg.Name })
	clear(c.routes)
	c.Advise("STREAM.DELETED."+s.cfg.Name, &server.JSStreamActionAdvisory{TypedEvent: c.Event(server.JSStreamActionAdvisoryType), Stream: s.cfg.Name, Action: server.DeleteEvent})
}
