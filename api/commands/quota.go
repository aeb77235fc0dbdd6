package commands

// The quota of entities per namespace (limits.entitiesPerNamespace). Before a command is stored, turns.go, and rehearse.go in package api, ask Room.
// It counts the living entities in the indexes of this process, and the births: entities that this process has let through a moment ago and that the
// indexes may not show yet. Sender.Ask reports the answer of each such command to births.decided, which stops counting those that were not created.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/bcc94042/instar/api/problem"
	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/publish"
)

// Room refuses a command that would create an entity in a namespace that is full. One that was sent before under the same key creates none: the
// engine repeats its answer. With begins, the entity counts from now on, also for commands that arrive at the same moment.
func (s *Sender) Room(ctx context.Context, cmd publish.Command, begins bool) *problem.Problem {
	if s.Quota == nil {
		return nil
	}
	p := s.full(cmd, begins)
	if p == nil {
		return nil
	}
	if cmd.ID != "" && !streams.MadeUp(cmd.ID) {
		ctx, cancel := context.WithTimeout(ctx, s.AnswerWithin)
		defer cancel()
		before, err := s.sentBefore(ctx, cmd)
		if err != nil {
			return problem.Unavailable("the namespace may be full, and it is not known whether the command was stored before under its key")
		}
		if before {
			return nil
		}
	}
	if p.Code == problem.CodeQuota {
		s.Quota.Refused()
	}
	return p
}

// full is the problem of a command that would create an entity for which there may be no room. It counts what is in the indexes of this process, and
// what this process has let through a moment ago; what another node has let through meanwhile is not included.
func (s *Sender) full(cmd publish.Command, begins bool) *problem.Problem {
	m := s.store.Machines.Get(cmd.Machine)
	if c, _ := m.Input(cmd.Name); !c.Birth || !ends(m) {
		return nil
	}
	for _, one := range s.store.Machines.All() {
		if ends(one) && s.store.Indexed(one.Name) != nil {
			return problem.Unavailable("what there is in the namespace is still being counted; this request stored nothing")
		}
	}
	if s.living(birth{m.Name, cmd.Key}) {
		return nil // it creates none
	}
	namespace, _, _ := strings.Cut(cmd.Key, ".")
	s.births.mu.Lock()
	defer s.births.mu.Unlock()
	living := s.livingIn(namespace, birth{m.Name, cmd.Key})
	if !s.Quota.Allows(living) { // some may be counted twice
		s.births.sweep(namespace, s.living)
		living = s.livingIn(namespace, birth{m.Name, cmd.Key})
	}
	if s.Quota.Allows(living) {
		if begins {
			s.births.begin(namespace, birth{m.Name, cmd.Key})
		}
		return nil
	}
	return problem.New(problem.CodeQuota, fmt.Sprintf("the namespace %s has %d entities that live, and may have %d (limits.entitiesPerNamespace); this request stored nothing", namespace, living, s.Quota.Bound()))
}

// livingIn is how many entities live in a namespace or are about to; but is not counted among the latter.
func (s *Sender) livingIn(namespace string, but birth) int {
	n := s.births.count(namespace, but) // before those in the indexes, so that none is missed
	for _, one := range s.store.Machines.All() {
		n += livingOf(one, s.store.Index(one.Name).Counts(namespace))
	}
	return n
}

// birth is an entity that is about to be created.
type birth struct{ machine, key string }

// living reports whether the index shows the entity alive.
func (s *Sender) living(b birth) bool {
	it, there := s.store.Index(b.machine).Get(b.key)
	return there && lives(s.store.Machines.Get(b.machine), it.State)
}

// births are the entities whose creation this process has let through, and that its indexes may not show yet.
type births struct {
	mu    sync.Mutex
	of    map[string]map[birth]*unseen // by namespace
	swept time.Time
}

// unseen is why a birth is still counted.
type unseen struct {
	commands int       // that are not decided
	until    time.Time // with no such command left, it is counted until then
}

func (u *unseen) over(now time.Time) bool { return u.commands == 0 && !now.Before(u.until) }

const (
	seenWithin    = 2 * time.Second // how long after the engine's answer an index may lack the entity
	decidedWithin = time.Minute     // how long a birth counts whose command may be stored, but was not answered
	sweepBirths   = 10 * time.Second
)

// count is how many births a namespace has, except one. Some may be over, or in the index, since the last sweep.
func (b *births) count(namespace string, but birth) int {
	n := len(b.of[namespace])
	if b.of[namespace][but] != nil {
		n--
	}
	return n
}

// sweep forgets the births of a namespace that are over, or in the index.
func (b *births) sweep(namespace string, living func(birth) bool) {
	now := time.Now()
	for one, u := range b.of[namespace] {
		if u.over(now) || living(one) {
			delete(b.of[namespace], one)
		}
	}
	if len(b.of[namespace]) == 0 {
		delete(b.of, namespace)
	}
}

func (b *births) begin(namespace string, one birth) {
	if now := time.Now(); now.Sub(b.swept) > sweepBirths {
		b.swept = now
		for namespace := range b.of {
			b.sweep(namespace, func(birth) bool { return false })
		}
	}
	if b.of[namespace] == nil {
		if b.of == nil {
			b.of = map[string]map[birth]*unseen{}
		}
		b.of[namespace] = map[birth]*unseen{}
	}
	if b.of[namespace][one] == nil {
		b.of[namespace][one] = &unseen{}
	}
	b.of[namespace][one].commands++
}

// decided takes in the answer to a command that may have created an entity. What was not created counts no more; what may still be created does, and so does what another
// command may have created.
func (b *births) decided(cmd publish.Command, answer *nats.Msg, err error) {
	namespace, _, _ := strings.Cut(cmd.Key, ".")
	one := birth{cmd.Machine, cmd.Key}
	b.mu.Lock()
	defer b.mu.Unlock()
	u := b.of[namespace][one]
	if u == nil {
		return
	}
	var a machines.Answer
	var accepted *publish.AcceptedError
	now, counts := time.Now(), time.Duration(0)
	switch {
	case publish.NotStored(err):
	case errors.As(err, &accepted), errors.Is(err, publish.ErrUnanswered):
		counts = decidedWithin
	case err == nil && json.Unmarshal(answer.Data, &a) == nil && a.Outcome == machines.Applied:
		counts = seenWithin
	}
	u.commands = max(0, u.commands-1) // one that was sent before is let through without being counted
	if until := now.Add(counts); until.After(u.until) {
		u.until = until
	}
	if u.over(now) {
		delete(b.of[namespace], one)
	}
}

// sentBefore reports whether a command of the same id waits for its decision, or was answered.
func (s *Sender) sentBefore(ctx context.Context, cmd publish.Command) (bool, error) {
	waits, unknown := streams.HoldsID(ctx, s.stored, s.store.Names.StoredOf(cmd.Machine, cmd.Key), streams.CommandID(cmd.Machine, cmd.Key, cmd.ID))
	if waits {
		return true, nil
	}
	_, err := s.answers.Get(ctx, streams.AnswerKey(cmd.Machine, cmd.Key, cmd.ID)) // after the question above: a command is answered before it is gone
	if errors.Is(err, kv.ErrNotFound) {
		return false, unknown
	}
	return err == nil, err
}

// ends reports whether entities of a machine can end. Only these count for the quota: nobody could make room by ending others.
func ends(m *machines.Machine) bool {
	return slices.ContainsFunc(m.States, func(st machines.StateInfo) bool { return st.Terminal })
}

func lives(m *machines.Machine, state string) bool {
	st, known := m.State(state)
	return !known || !st.Terminal
}

// livingOf is how many of the entities of a machine, counted by state, live and can end.
func livingOf(m *machines.Machine, counts map[string]int) (n int) {
	if !ends(m) {
		return 0
	}
	for state, k := range counts {
		if lives(m, state) {
			n += k
		}
	}
	return n
}

// fullest is how many entities live in the namespace that has the most.
func (s *Sender) fullest() (most int) {
	all := map[string]int{}
	for _, m := range s.store.Machines.All() {
		for namespace, counts := range s.store.Index(m.Name).CountsByNamespace() {
			all[namespace] += livingOf(m, counts)
			most = max(most, all[namespace])
		}
	}
	return most
}
