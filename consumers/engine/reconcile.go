package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/bcc94042/instar/consumers"
	"github.com/bcc94042/instar/consumers/cluster"
	"github.com/bcc94042/instar/internal/boottime"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
)

// A value and the streams of its messages are stored apart. A crash leaves messages missing that the value's outbox has. A
// power loss without fsync, a restored backup or a purge by hand may take the end of any of them, in any combination. So
// whenever an entity is loaded, its value is held against its events, timers and effects: what is missing is published
// again, and what cannot be had again is told by an event, a log line and a metric.

// eventLife is how long every event is kept at least: after it nobody wonders where they are.
var eventLife = streams.LifeOf(string(machines.ClassProgress))

// reborn is for an entity without a value: its versions go on after those of its events and answers, so that no id of an event
// is given out twice. That the value is lost is told once.
func (p *partition) reborn(ctx context.Context, it *item, last *lastEvent) error {
	s := it.slot
	highest := last.highest()
	if highest == 0 {
		return nil
	}
	s.entity.Version = max(highest, s.entity.Version)
	if told, err := p.e.mourned(ctx, s); err != nil || told == highest {
		return err
	}
	if err := p.disown(ctx, s, 0); err != nil {
		return err
	}
	p.tell(s, consumers.ProblemValueLost, last)
	msg := it.event(machines.EventReconciled, lost(consumers.ProblemValueLost, 0, last))
	msg.Refusal, msg.N = it.seq, 1
	s.loose = append(s.loose, msg)
	return nil
}

// mourned is the version at which an event said last that the value is lost; 0 when none did.
func (e *Engine) mourned(ctx context.Context, s *slot) (uint64, error) {
	m, err := streams.Last(ctx, e.NC, e.Names.Stream(streams.EventStream), e.Names.Event(s.m.Name, s.key, machines.EventReconciled))
	if err != nil || m == nil {
		return 0, err
	}
	var body struct {
		Version uint64 `json:"version"`
		Data    struct {
			Problem string `json:"problem"`
		} `json:"data"`
	}
	if json.Unmarshal(m.Data, &body) != nil || body.Data.Problem != consumers.ProblemValueLost {
		return 0, nil
	}
	return body.Version, nil
}

// reconcile holds a loaded entity against its last event and the last answer to a key.
func (p *partition) reconcile(ctx context.Context, it *item, outbox []machines.Message, last *lastEvent) error {
	s := it.slot
	foreign, own := it.repaired == nil && last.foreign(s, outbox), last
	if foreign {
		own = &lastEvent{}
	}
	missing := unpublished(s.m.Name, s.key, outbox, own, &s.entity)
	problem, version := "", s.entity.Version
	switch {
	case it.repaired != nil:
		problem = consumers.ProblemRepaired // it disowns when nothing speaks against it any more
	case foreign:
		problem = consumers.ProblemValueOlder
		if err := p.disown(ctx, s, 0); err != nil { // the value has those of its own
			return err
		}
	case last.highest() > version:
		problem = consumers.ProblemValueOlder
		if err := p.disown(ctx, s, version); err != nil {
			return err
		}
	case last.seq < s.entity.LastEvent && s.entity.LastEvent >= last.kept.seq && time.Since(s.entity.UpdatedAt) < eventLife:
		problem = consumers.ProblemEventsLost
	case len(missing) > 0:
		s.loose = append(s.loose, missing...)
		return nil
	default:
		return nil
	}
	in := machines.Input{Command: machines.CommandReconcile, Seq: it.seq, Time: it.time.UTC()}
	data := lost(problem, version, last)
	if it.repaired != nil {
		in.Command, in.ID, in.Actor, in.Reason = machines.CommandRepair, it.id, it.actor, it.reason
		maps.Copy(data, it.repaired)
	} else {
		p.tell(s, problem, last)
	}
	next, event, err := s.m.Reconciled(s.entity, max(last.highest(), p.found.above), in, data)
	if err != nil {
		return err
	}
	s.entity, s.dirty = next, true
	if problem == consumers.ProblemEventsLost { // their ids are free again
		s.outbox = append(missing, event)
		return nil
	}
	s.outbox = append(s.outbox, event)
	for i, m := range missing { // of a value that was written after the loss; their ids are not free
		s.outbox = append(s.outbox, renumbered(m, next.Version, i+1))
	}
	return nil
}

func (p *partition) tell(s *slot, problem string, last *lastEvent) {
	if p.aside {
		return
	}
	p.e.reconciled.Add(1)
	p.e.Meter.Reconciled(s.m.Name, problem)
	p.e.Log.Error("an entity and its events do not belong together; it goes on with the value", "machine", s.m.Name, "key", s.key, "problem", problem,
		"version", s.entity.Version, "revision", s.revision, "lastEvent", last.id, "lastEventSeq", last.seq)
}

// lost is the data of the event.
func lost(problem string, version uint64, last *lastEvent) map[string]any {
	data := map[string]any{"problem": problem, "version": version, "lastEvent": last.id, "lastEventVersion": last.version}
	if last.answered > last.version {
		data["lastAnswerVersion"] = last.answered
	}
	return data
}

// renumbered is an event under another version.
func renumbered(m machines.Message, version uint64, n int) machines.Message {
	m.Version, m.N = version, n
	var body map[string]json.RawMessage
	if json.Unmarshal(m.Body, &body) != nil {
		return m
	}
	body["version"], _ = json.Marshal(version) // a number
	if raw, err := json.Marshal(body); err == nil {
		m.Body = raw
	}
	return m
}

// kept is where the events begin that the stream has kept, when its oldest have gone for its size, its age or by hand. What an entity
// without an event there had before it was stored and has gone: nobody wonders where it is.
type kept struct {
	seq uint64
	at  time.Time
}

func (e *Engine) kept(ctx context.Context) (kept, error) {
	stream := e.Names.Stream(streams.EventStream)
	info, err := streams.Info(ctx, e.NC, stream)
	if err != nil {
		return kept{}, fmt.Errorf("cannot ask where stream %s begins: %w", stream, err)
	}
	if info.State.Msgs == 0 || info.State.FirstSeq <= 1 {
		return kept{}, nil // it is whole, or it is empty, and may have lost what it had
	}
	return kept{info.State.FirstSeq, info.State.FirstTime}, nil
}

// unpublished is the events of an outbox that the stream lacks, told by the entity's last event there. Events are
// published in order and without gaps, so everything up to that one is there.
func unpublished(machine, key string, outbox []machines.Message, last *lastEvent, e *machines.Entity) []machines.Message {
	var events []machines.Message
	for _, m := range outbox {
		if m.Kind == machines.KindEvent {
			events = append(events, m)
		}
	}
	for i := len(events) - 1; i >= 0; i-- {
		if events[i].ID(machine, key) == last.id {
			return events[i+1:]
		}
	}
	if seq, at, ok := streams.RefusedOf(machine, key, last.id); ok && (seq > e.Mark || at.After(e.MarkedAt)) {
		return nil // of a later refusal: it was published after all of them
	}
	for i := range events {
		stored := last.version > events[i].Version && !events[i].At.After(last.at) || events[i].At.Before(last.kept.at)
		if !stored && time.Since(events[i].At) < eventLife {
			return events[i:]
		}
	}
	return nil
}

// foreign reports whether the event is of a life that was lost, beside which the value has begun another one at version 1: an
// entity that was taken for one that is not there begins so, where its value was lost and its events were not. It is found
// before any event of the new life is published.
func (l *lastEvent) foreign(s *slot, outbox []machines.Message) bool {
	if l.birth == "" || s.entity.Birth == "" || l.birth == s.entity.Birth {
		return false
	}
	return slices.ContainsFunc(outbox, func(m machines.Message) bool { return m.Kind == machines.KindEvent && s.begins(&m) })
}

// begins reports whether a message is emitted by the first transition of a life before which none is known.
func (s *slot) begins(m *machines.Message) bool { return m.Version == s.first+1 }

// lossWindow is how much of the end of a stream a power loss takes at most: the default of the server's own sync interval,
// which the profile os leaves as it is.
const lossWindow = 2 * time.Minute

// streamState is where the stream of commands ended when this process, or its connection, was new to it.
type streamState struct {
	reconnects uint64
	opened     time.Time     // by the clock that stamps commands
	since      time.Duration // then, by sinceBoot
	created    time.Time
	lastSeq    uint64
	lastTime   time.Time
	above      uint64 // versions that may have been given out before the streams were restored
}

// look takes note of the stream of commands, the first time and whenever the connection was made anew: its server may have
// lost what it had not synced. So it does when the stream itself was made anew, and takes none that a restore has not ended.
func (p *partition) look(ctx context.Context) error {
	reconnects := p.e.NC.Stats().Reconnects
	ctx, cancel := context.WithTimeout(ctx, streams.ReadWithin)
	defer cancel()
	stream := p.e.Names.Stream(streams.CommandStream)
	answer, err := streams.Info(ctx, p.e.NC, stream)
	if err != nil {
		return fmt.Errorf("cannot look at stream %s: %w", stream, err)
	}
	if err := streams.Unfinished(answer.Config.Metadata); err != nil {
		return err
	}
	if !p.found.opened.IsZero() && p.found.reconnects == reconnects && p.found.created.Equal(answer.Created) {
		return nil
	}
	p.top = 0
	p.found = streamState{reconnects: reconnects, opened: answer.TimeStamp, since: boottime.Now(), created: answer.Created, lastSeq: answer.State.LastSeq, lastTime: answer.State.LastTime, above: streams.Above(answer.Config.Metadata)}
	return nil
}

// mayLack reports whether schedules or effects of the entity may have been lost: its last command is one that the stream of
// commands does not have any more, or one of the last that it has. What this process wrote itself is there, because it
// waited for the answers.
func (p *partition) mayLack(e *machines.Entity) bool {
	f := &p.found
	at := e.MarkedAt
	if at.After(f.opened.Add(time.Second)) {
		return false
	}
	return e.Mark > f.lastSeq || at.Before(f.created) || at.After(f.lastTime.Add(-lossWindow))
}

// ahead reports whether the entity's last command was one of a history that the stream of commands has lost, and stamped by a
// clock that ran ahead: its sequence is behind all that the stream had and all that came since, and its time has not come.
// By these two, commands of now would be taken for ones of then until it comes. Now is what the clock says that stamps commands, not
// this machine's: where that is behind, a command that another owner has taken meanwhile would be taken twice.
func (p *partition) ahead(e *machines.Entity) bool {
	f := &p.found
	now := f.opened.Add(boottime.Now() - f.since)
	return !f.opened.IsZero() && e.Mark > max(f.lastSeq, p.top) && e.MarkedAt.Sub(now) > cluster.MaxSkew
}

// resume publishes again what the entity waits for and its streams have lost: schedules of its timers, and effects that
// are neither to be done nor have a result on its way.
func (p *partition) resume(ctx context.Context, s *slot) error {
	if len(s.entity.Timers) == 0 && len(s.entity.Effects) == 0 {
		return nil
	}
	for _, m := range s.m.Pending(s.entity) {
		var there bool
		var err error
		if m.Kind == machines.KindTimer {
			there, err = p.scheduled(ctx, s, &m)
		} else {
			m.At = time.Now() // the stream may still know the id under which it was lost
			there, err = p.underWay(ctx, s, &m)
		}
		if err != nil {
			return err
		}
		if !there {
			s.loose = append(s.loose, m)
		}
	}
	return nil
}

// underWay reports whether an effect lies in its stream under the attempt that the entity waits for, or the result of that attempt waits for
// this partition. A worker stores the result before it takes the effect away, so the effect is looked for first.
func (p *partition) underWay(ctx context.Context, s *slot, m *machines.Message) (bool, error) {
	attempt := s.entity.Effects[m.Name].ID
	there, err := p.lastOf(ctx, streams.EffectStream, p.e.Names.Effect(s.m.Name, m.Name, s.key), attempt)
	if err != nil || there {
		return there, err
	}
	info, _ := s.m.Effect(m.Name)
	for _, result := range []string{info.Done, machines.CommandFailed} {
		waiting, err := p.lastOf(ctx, streams.CommandStream, p.e.Names.Stored(s.m.Name, s.key, result), attempt)
		if err != nil || waiting {
			return waiting, err
		}
	}
	return false, nil
}

// lastOf reports whether the last message under a subject, a task or a result, is of that attempt. What lies before it is of older ones, or
// the same result twice; at worst an effect is sent twice.
func (p *partition) lastOf(ctx context.Context, stream, subject, attempt string) (bool, error) {
	m, err := streams.Last(ctx, p.e.NC, p.e.Names.Stream(stream), subject)
	if err != nil || m == nil {
		return false, err
	}
	var body struct {
		Attempt string `json:"attempt"`
	}
	_ = json.Unmarshal(m.Data, &body) // what cannot be read is of no attempt
	return body.Attempt == attempt, nil
}
