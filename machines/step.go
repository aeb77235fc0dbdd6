package machines

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"time"
)

// Step takes one input. It returns the entity that follows and what is to be done, or the entity as it was and
// either a [*Refusal] (an answer: nothing changed) or another error (the table or the data is broken; retrying the
// same input gives the same error).
//
// Of the bookkeeping fields it touches none but Outbox, which stays as it was: the caller appends Output.Messages.
func (m *Machine) Step(e Entity, in Input) (Entity, Output, error) { return m.step(m, e, &in) }

// stepper closes over the typed table, so that Machine needs no type parameter.
func stepper[D any](d *Definition[D]) func(*Machine, Entity, *Input) (Entity, Output, error) {
	states := byName(d.States, func(s *State[D]) string { return s.Name })
	effects := byName(d.Effects, func(e *Effect[D]) string { return e.Name })
	comparable := reflect.TypeFor[D]().Comparable()
	return func(m *Machine, e Entity, in *Input) (Entity, Output, error) {
		s := &stepping[D]{m: m, def: d, states: states, effects: effects, comparable: comparable, before: e, in: in}
		return s.run()
	}
}

func byName[T any](list []T, name func(*T) string) map[string]*T {
	all := make(map[string]*T, len(list))
	for i := range list {
		all[name(&list[i])] = &list[i]
	}
	return all
}

// stepping is one run of Step.
type stepping[D any] struct {
	m       *Machine
	def     *Definition[D]
	states  map[string]*State[D]
	effects map[string]*Effect[D]

	comparable bool // D has no slices and maps of its own
	before     Entity
	in         *Input

	next Entity
	out  Output
	tx   *Tx[D]
}

func (s *stepping[D]) run() (Entity, Output, error) {
	s.begin()
	err := s.dispatch()
	if err != nil {
		return s.before, Output{From: s.before.State, To: s.before.State}, err
	}
	if s.out.Result != Applied {
		return s.before, Output{Result: s.out.Result, From: s.before.State, To: s.before.State, Edge: s.out.Edge}, nil
	}
	if max(s.next.Version, s.next.Generation) > maxVersion { // what is written has to be one that can be read
		return s.before, Output{From: s.before.State, To: s.before.State}, &Refusal{
			Code: CodeEvaluation, State: s.before.State, Command: s.in.Command,
			Message: fmt.Sprintf("the version %d or the generation %d cannot rise any more; they do not come near that by themselves: use another id", s.before.Version, s.before.Generation),
		}
	}
	if s.comparable && any(*s.tx.Data) == any(*s.before.Data.(*D)) {
		s.next.Data = s.before.Data // the same pointer says that it is unchanged
	}
	return s.next, s.out, nil
}

// begin is where the step stands before anything of it has happened.
func (s *stepping[D]) begin() {
	s.next = s.before
	data := *s.before.Data.(*D)
	s.next.Data = &data
	s.tx = &Tx[D]{Data: &data, In: s.in, entity: &s.next, out: &s.out, detail: map[string]any{}}
	s.out = Output{Result: Applied, From: s.before.State, To: s.before.State}
}

func (s *stepping[D]) dispatch() error {
	switch s.in.Command {
	case CommandElapsed:
		return s.elapsed()
	case CommandFailed:
		return s.failed()
	case CommandReconcile, CommandRepair, CommandDrop: // the engine has done what there is to do
		s.out.Result = Ignored
		return nil
	}
	c, ok := s.m.inputs[s.in.Command]
	if !ok {
		return &Refusal{Code: CodeNotFound, Message: fmt.Sprintf("%s has no command %q", s.m.Name, s.in.Command), State: s.before.State, Command: s.in.Command, Allowed: s.m.Allowed(s.before.State)}
	}
	body, in := s.in.Body, s.in
	if c.Report {
		var r Report
		if err := json.Unmarshal(body, &r); err != nil {
			return fmt.Errorf("machines: report %s is not {attempt, data}: %w", c.Name, err)
		}
		if effect := s.answered(c.Name); r.Attempt != "" {
			if s.before.Effects[effect].ID != r.Attempt {
				return s.late(effect, &Late{Attempt: r.Attempt, Outcome: LateDone})
			}
			s.settle(effect)
		}
		body = r.Data
		copied := *in
		copied.Attempt = r.Attempt
		s.in, s.tx.In = &copied, &copied
	}
	if in.Unsent {
		return s.feed(c.Name)
	}
	decoded, refusal := decodeBody(c, body)
	if refusal != nil {
		return s.unfit(c.Name, decoded, len(body), refusal)
	}
	s.tx.Body = decoded
	return s.feed(c.Name)
}

// answered is the effect that a result belongs to: the one under way, if there are several that end alike.
func (s *stepping[D]) answered(done string) string {
	name := ""
	for _, e := range s.m.Effects {
		if e.Done == done {
			if _, ok := s.before.Effects[e.Name]; ok || name == "" {
				name = e.Name
			}
		}
	}
	return name
}

// elapsed handles a timer that fired: the next try of an effect, or the timeout of the state. One that fires before its
// time is ignored like an outdated one, and stays armed: the clock it fired by has been stepped back since, or it is
// somebody's guess.
func (s *stepping[D]) elapsed() error {
	var body Elapsed
	if err := json.Unmarshal(s.in.Body, &body); err != nil {
		return fmt.Errorf("machines: %s is not {timer, armed}: %w", s.in.Command, err)
	}
	t, ok := s.before.Timers[body.Timer]
	if !ok || t.Armed != body.Armed || s.in.Time.Before(t.At) {
		s.out.Result = Ignored
		return nil
	}
	s.disarm(body.Timer)
	if effect, ok := strings.CutPrefix(body.Timer, retryPrefix); ok {
		return s.retry(effect)
	}
	for i := range s.def.Alarms {
		if a := &s.def.Alarms[i]; a.Name == body.Timer {
			return s.ring(a.Input, t.At)
		}
	}
	state := s.states[s.before.State]
	if state == nil || state.Timeout == nil {
		s.out.Result = Ignored
		return nil
	}
	if err := s.ring(state.Timeout.Input, t.At); err != nil {
		return err
	}
	if _, armed := s.next.Timers[timeoutTimer]; !armed && s.next.State == s.before.State {
		s.armTimeout() // a state that stays keeps a deadline
	}
	return nil
}

// ring feeds the input of a timer that was due.
func (s *stepping[D]) ring(input string, due time.Time) error {
	s.in = &Input{Command: input, ID: s.in.ID, Seq: s.in.Seq, Time: s.in.Time, Actor: s.in.Actor, Reason: s.in.Reason, Trace: s.in.Trace}
	s.tx.In, s.tx.due = s.in, due
	if c := s.m.inputs[input]; c.Body != nil {
		s.tx.Body = c.NewBody()
	}
	return s.feed(input)
}

func (s *stepping[D]) feed(input string) error {
	if s.before.State == None && !s.m.inputs[input].Birth {
		return &Refusal{Code: CodeNotFound, Message: fmt.Sprintf("%s %s does not exist", s.m.Name, s.before.Key()), Command: input, Allowed: s.m.Allowed(None)}
	}
	var shut *Guard[D]
	needs := "" // as the first guard says that has something to say
	for _, info := range s.rows(input) {
		edge := &s.def.Edges[info.row]
		open := edge.If == nil || edge.If.Holds(s.tx)
		if err := s.tx.failed; err != nil {
			if !s.mustLeadOn(input) {
				return s.aborted(input, "guard "+edge.If.Name, err)
			}
			open, s.tx.failed = false, nil
		}
		if open {
			return s.take(info, edge)
		}
		shut, needs = cmp.Or(shut, edge.If), cmp.Or(needs, edge.If.Doc)
	}
	r := &Refusal{Code: CodeTransition, State: s.before.State, Command: input, Allowed: s.m.Allowed(s.before.State)}
	switch state := s.states[s.before.State]; {
	case shut != nil:
		r.Code = CodeGuard
		r.Message = fmt.Sprintf("cannot %s %s %s while it is %s: %s", input, s.m.Name, s.before.Key(), cmp.Or(s.before.State, "not there"), cmp.Or(needs, "not "+shut.Name))
	case s.m.inputs[input].Birth && state != nil && !state.Terminal:
		r.Code = CodeExists
		r.Message = fmt.Sprintf("%s %s exists already and is %s", s.m.Name, s.before.Key(), s.before.State)
	default:
		r.Message = fmt.Sprintf("cannot %s %s %s while it is %s", input, s.m.Name, s.before.Key(), s.before.State)
	}
	return r
}

// rows are the edges that an input may take from the state, in the order of the table.
func (s *stepping[D]) rows(input string) []*EdgeInfo {
	if !s.m.takes(s.before.State, input) {
		return nil
	}
	return s.m.rows[[2]string{s.before.State, input}]
}

// take goes along one edge; without its action where that fails and the input must lead on.
func (s *stepping[D]) take(info *EdgeInfo, edge *Edge[D]) error {
	next, data, out := s.next, *s.tx.Data, s.out
	err := s.follow(info, edge, nil)
	failed := s.tx.failed
	if failed == nil {
		return err
	}
	what := fmt.Sprintf("edge from %s on %s", stateName(info.From), edge.On)
	if !s.mustLeadOn(edge.On) {
		return s.aborted(edge.On, what, failed)
	}
	s.next, *s.tx.Data, s.out = next, data, out
	s.tx.failed, s.tx.detail, s.tx.own = nil, map[string]any{}, nil
	failure := evaluationFailed(what, failed)
	return s.follow(info, edge, &failure)
}

// follow goes along one edge. With a failure of its action, it is left out.
func (s *stepping[D]) follow(info *EdgeInfo, edge *Edge[D], failure *Failure) error {
	s.out.Edge = info
	if edge.Noop {
		s.out.Result = Unchanged
		return nil
	}
	to, err := s.m.leads(s.before.State, edge.On, info.row)
	if err != nil {
		return err
	}
	s.advance()
	born := s.m.inputs[edge.On].Birth && (s.before.State == None || s.states[s.before.State].Terminal)
	if born {
		s.rebirth()
	}
	enter := to != s.before.State || edge.Reenter || born
	if enter {
		s.next.State, s.next.Since = to, s.in.Time
		s.next.Timers, s.next.Effects = s.alarms(), nil
	}
	s.out.To = to
	for _, ev := range edge.Emit {
		s.out.Messages = append(s.out.Messages, Message{Kind: KindEvent, Name: ev})
	}
	switch {
	case failure != nil:
		s.tx.Fail(failure)
	case edge.Do != nil:
		edge.Do(s.tx)
	}
	for _, fx := range edge.Effects {
		if s.start(fx, 1); s.tx.failed != nil {
			if failure == nil {
				return nil // the caller sees why
			}
			s.settle(fx)
			s.out.Messages, s.tx.failed = s.out.Messages[:len(s.out.Messages)-1], nil
		}
	}
	if s.tx.failed != nil {
		return nil
	}
	if enter || edge.Rearm {
		s.armTimeout()
	}
	s.setAlarms()
	return s.seal(edge.On)
}

func (s *stepping[D]) advance() {
	s.next.Version++
	s.next.UpdatedAt = s.in.Time
}

// rebirth begins a life: everything of an earlier one is gone but its version, generation and commit bookkeeping.
func (s *stepping[D]) rebirth() {
	*s.tx.Data = *new(D)
	s.next.CreatedAt, s.next.Birth, s.next.Replaced = s.in.Time, s.in.Nonce, 0
	s.next.Labels, s.next.Conditions, s.next.Timers, s.next.Effects, s.next.LastError, s.next.rest = nil, nil, nil, nil, nil, nil
}

// seal fills in what every message carries and gives each its number.
func (s *stepping[D]) seal(command string) error {
	for i := range s.out.Messages {
		msg := &s.out.Messages[i]
		msg.Version, msg.N, msg.Trace = s.next.Version, i, s.in.Trace
		if msg.Kind != KindEvent {
			continue
		}
		if _, ok := s.m.events[msg.Name]; !ok {
			return fmt.Errorf("machines: %s: %s emits event %q, which the table does not have", s.m.Name, command, msg.Name)
		}
		data, own := s.tx.own[i]
		if !own {
			data = s.tx.detail[msg.Name]
		}
		msg.At = s.in.Time
		event := Event{
			From: s.before.State, To: s.next.State, Version: s.next.Version, Generation: s.next.Generation, Time: s.in.Time,
			Command: command, CommandID: s.in.ID, Actor: s.in.Actor, Reason: s.in.Reason, Data: data,
		}
		body, err := event.AppendJSON(make([]byte, 0, 384))
		if err != nil {
			return fmt.Errorf("machines: cannot write event %s: %w", msg.Name, err)
		}
		msg.Body = body
	}
	return nil
}

// timeoutTimer is the name of the timer that ends a transitional state.
const timeoutTimer = "deadline"

func (s *stepping[D]) armTimeout() {
	timeout := s.states[s.next.State].Timeout
	switch {
	case timeout == nil:
	case timeout.Until == nil:
		s.arm(timeoutTimer, s.in.Time.Add(timeout.After(s.tx.Data)))
	default:
		s.disarm(timeoutTimer)
		if at := timeout.Until(s.tx); !at.IsZero() {
			s.arm(timeoutTimer, at)
		}
	}
}

func (s *stepping[D]) arm(name string, at time.Time) {
	s.next.Timers = with(s.next.Timers, name, Timer{At: at, Armed: s.next.Version})
	body, _ := json.Marshal(Elapsed{Timer: name, Armed: s.next.Version}) // a string and a number
	s.out.Messages = append(s.out.Messages, Message{Kind: KindTimer, Name: name, At: at, Body: body, Version: s.next.Version, N: len(s.out.Messages), Trace: s.in.Trace})
}

func (s *stepping[D]) disarm(name string) {
	s.next.Timers = without(s.next.Timers, name)
}

// with and without are a map with another member, and without one: what an entity has is replaced, never written.
func with[T any](all map[string]T, name string, one T) map[string]T {
	more := make(map[string]T, len(all)+1)
	maps.Copy(more, all)
	more[name] = one
	return more
}

func without[T any](all map[string]T, name string) map[string]T {
	if _, there := all[name]; !there {
		return all
	}
	if len(all) == 1 {
		return nil
	}
	rest := maps.Clone(all)
	delete(rest, name)
	return rest
}
