package servertest

import (
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
)

// Story follows the stored events of an entity, over the lives of its server.
type Story struct {
	Events <-chan string // their types; each once
	Kills  int

	process *Process
	prefix  string // of their subjects
	events  chan string
	next    uint64 // in the stream
	leave   func()
}

// Follow begins with the first event whose subject begins so.
func (p *Process) Follow(prefix string) *Story {
	p.T.Helper()
	s := &Story{process: p, prefix: prefix, events: make(chan string, 4096), next: 1, leave: func() {}}
	s.Events = s.events
	p.T.Cleanup(func() { s.leave() })
	s.read()
	return s
}

// read begins with the first event that was not seen.
func (s *Story) read() {
	t := s.process.T
	t.Helper()
	nc, err := nats.Connect(s.process.Config.NATS.Listen, nats.NoReconnect())
	require.NoError(t, err)
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	c, err := js.OrderedConsumer(t.Context(), "EVENTS", jetstream.OrderedConsumerConfig{FilterSubjects: []string{s.prefix + ">"}, DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: s.next})
	require.NoError(t, err)
	view, err := c.Consume(func(m jetstream.Msg) {
		if at, err := m.Metadata(); err == nil {
			s.next = at.Sequence.Stream + 1
		}
		s.events <- strings.TrimPrefix(m.Subject(), s.prefix)
	})
	require.NoError(t, err)
	s.leave = func() { view.Stop(); <-view.Closed(); nc.Close() }
}

// Again kills the server, unless that was done, and starts it anew.
func (s *Story) Again() {
	s.process.T.Helper()
	s.process.Kill()
	s.leave()
	s.process.Start()
	s.read()
	s.Kills++
}

// Until returns when an event has come.
func (s *Story) Until(last string) {
	s.process.T.Helper()
	s.Killed(last)
}

// Killed kills the server once at each of these events, in whichever order they come, until the last one has come.
func (s *Story) Killed(last string, at ...string) {
	s.process.T.Helper()
	var seen []string
	for timeout := time.After(5 * time.Minute); ; {
		select {
		case <-timeout:
			require.FailNow(s.process.T, "it did not get there", "%s; no kill at %v; these came: %v", last, at, seen)
		case event := <-s.events:
			seen = append(seen, event)
			if i := slices.Index(at, event); i >= 0 {
				at = slices.Delete(at, i, i+1)
				s.Again()
			} else if event == last {
				require.Empty(s.process.T, at, "the server was killed at each event")
				return
			}
		}
	}
}
