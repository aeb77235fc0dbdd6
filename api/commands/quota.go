package commands

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

// Room refuses a command that begins a life in a namespace that has as many entities as it may. One that was sent before under the same key
// begins none: the engine answers it as then. What is about to begin is counted from now on, also by those that come at the same moment.
func (s *Sender) Room(ctx context.Context, cmd publish.Command, begins bool) *problem.Problem {
	if s.Quota == nil {
		return nil
	}
	p := s.full(cmd, begins)
	if p == nil {
		return nil
	}
	if cmd.ID != "" && !streams.MadeUp(cmd.ID) {
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

// full says that a command would begin a life for which there may be no room. Entities are counted in the indexes of this process, and what it
// has begun a moment ago beside them: what another node has begun is not among them yet.
func (s *Sender) full(cmd publish.Command, begins bool) *problem.Problem {
	m := s.store.MachineNamed(cmd.Machine)
	if c, _ := m.Input(cmd.Name); !c.Birth || !ends(m) {
		return nil
	}
	for _, one := range s.store.Machines {
		if ends(one) && s.store.Indexed(one.Name) != nil {
			return problem.Unavailable("what there is in the namespace is still being counted; the command was not stored")
		}
	}
	if s.living(birth{m.Name, cmd.Key}) {
		return nil // it begins none
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
	return problem.New(problem.CodeQuota, fmt.Sprintf("the namespace %s has %d entities that live, and may have %d (limits.entitiesPerNamespace); the command was not stored", namespace, living, s.Quota.Bound()))
}

// livingIn is how many live in a namespace, or are about to, but for one of these.
func (s *Sender) livingIn(namespace string, but birth) int {
	n := s.births.count(namespace, but) // before those that are seen: none is between
	for _, one := range s.store.Machines {
		n += livingOf(one, s.store.Index(one.Name).Counts(namespace))
	}
	return n
}

// birth is an entity that is about to begin a life.
type birth struct{ machine, key string }

// living reports whether the index knows that it has.
func (s *Sender) living(b birth) bool {
	it, there := s.store.Index(b.machine).Get(b.key)
	return there && lives(s.store.MachineNamed(b.machine), it.State)
}

// births are those that this process has let through, and that its indexes may not have yet.
type births struct {
	mu    sync.Mutex
	of    map[string]map[birth]*unseen // by namespace
	swept time.Time
}

// unseen is what is counted for a birth.
type unseen struct {
	commands int       // that are not decided
	until    time.Time // when it is counted no more, where there are none
}

func (u *unseen) over(now time.Time) bool { return u.commands == 0 && !now.Before(u.until) }

const (
	seenWithin    = 2 * time.Second // how long after the answer of the engine an index may take
	decidedWithin = time.Minute     // how long what may be stored and is not answered is counted
	sweepBirths   = 10 * time.Second
)

// count is how many there are of a namespace but for one, among them some that are over or seen since they were last swept.
func (b *births) count(namespace string, but birth) int {
	n := len(b.of[namespace])
	if b.of[namespace][but] != nil {
		n--
	}
	return n
}

// sweep forgets those of a namespace that are over, or seen to live.
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

// decided takes in what has become of a command that may have begun a life. What was not born has no place any more, what may still be keeps it, and so does what another
// command may have begun.
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

// sentBefore reports whether a command of the same id waits to be decided, or was answered.
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

// ends reports whether entities of a machine can end. The quota is of these only: nobody could make room by ending others.
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

// fullest is how many entities live in the namespace that has most.
func (s *Sender) fullest() (most int) {
	all := map[string]int{}
	for _, m := range s.store.Machines {
		for namespace, counts := range s.store.Index(m.Name).CountsByNamespace() {
			all[namespace] += livingOf(m, counts)
			most = max(most, all[namespace])
		}
	}
	return most
}
