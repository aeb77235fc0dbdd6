package reconcile

// What the streams say of one entity, read from their leaders: its last event (LastEvent), where the stream of events begins (Begin), and whether a lost value was reported
// before (LossTold). The engine compares that with the value that it has loaded (engine/load.go, engine/reconcile.go) and publishes the events of the value's outbox that the
// stream lacks (Unpublished); a value that is older or newer than its events is reported with the data of Describe.

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/bcc94042/instar/consumers"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
)

// EventLife is how long every event is kept at least: one that is older is not missed.
var EventLife = streams.LifeOf(string(machines.ClassProgress))

// Reader reads what the streams say of an entity, from their leaders.
type Reader struct {
	NC    *nats.Conn
	Names streams.Names
}

// LastEvent is where the events of an entity end; sequence 0 says that there is none.
type LastEvent struct {
	Seq      uint64
	ID       string
	At       time.Time // when it was stored
	Birth    string    // of the life that it belongs to; empty for one of an earlier program version, or of no life
	Version  uint64    // of the entity when it was emitted
	Begin    Begin     // of the stream, where there is none
	Again    bool      // then: the command that the value took last has come again, or was lost, so that its events may never have been published
	Answered uint64    // version of the last answer that is kept under a key
}

// Begin is the oldest event that the stream still has, when older ones were removed for its size, for their age, or by hand. Events of an entity from before it are not missed.
type Begin struct {
	Seq uint64
	At  time.Time
}

// Highest is the highest version that the entity is known to have had.
func (l *LastEvent) Highest() uint64 { return max(l.Version, l.Answered) }

// Foreign reports whether the event belongs to a lost life of the entity, beside which the value (of birth) has begun another one above the version base. That happens when an
// entity is created speculatively whose value was lost, but not its events. It is found before any event of the new life is published.
func (l *LastEvent) Foreign(birth string, base uint64, outbox []machines.Message) bool {
	if l.Birth == "" || birth == "" || l.Birth == birth {
		return false
	}
	return slices.ContainsFunc(outbox, func(m machines.Message) bool { return m.Kind == machines.KindEvent && m.Version == base+1 })
}

// LastEvent finds the last event of an entity.
func (r Reader) LastEvent(ctx context.Context, machine, key string) (LastEvent, error) {
	m, err := streams.Last(ctx, r.NC, r.Names.Stream(streams.EventStream), r.Names.EventsOf(machine, key))
	if err != nil {
		return LastEvent{}, fmt.Errorf("cannot find the last event of %s %s: %w", machine, key, err)
	}
	if m == nil {
		return LastEvent{}, nil
	}
	h, err := nats.DecodeHeadersMsg(m.Header)
	if err != nil {
		return LastEvent{}, fmt.Errorf("cannot read the headers of event %d: %w", m.Sequence, err)
	}
	// Copies: they are kept for long, and parts of headers would keep these.
	last := LastEvent{Seq: m.Sequence, ID: strings.Clone(streams.Header(h, streams.HeaderID)), At: m.Time, Birth: strings.Clone(streams.Header(h, streams.HeaderBirth))}
	last.Version = consumers.EventVersion(machine, key, last.ID, m.Data)
	return last, nil
}

// Begin is where the stream of events begins; zero when it is whole, or empty.
func (r Reader) Begin(ctx context.Context) (Begin, error) {
	stream := r.Names.Stream(streams.EventStream)
	info, err := streams.Info(ctx, r.NC, stream)
	if err != nil {
		return Begin{}, fmt.Errorf("cannot ask where stream %s begins: %w", stream, err)
	}
	if info.State.Msgs == 0 || info.State.FirstSeq <= max(info.Config.FirstSeq, 1) {
		return Begin{}, nil // it is whole, also where a restore has let it begin above 1, or it is empty, and may have lost what it had
	}
	return Begin{info.State.FirstSeq, info.State.FirstTime}, nil
}

// LossTold is the version at which an event last reported that the value is lost; 0 when none did.
func (r Reader) LossTold(ctx context.Context, machine, key string) (uint64, error) {
	m, err := streams.Last(ctx, r.NC, r.Names.Stream(streams.EventStream), r.Names.Event(machine, key, machines.EventReconciled))
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

// Unpublished are the events of an outbox that the stream lacks, as its last event of the entity shows: events are published in order and without gaps, so everything up to that
// one is there. Now is the time of the clock that stamps ([History.Now]): what is older than the life of an event has expired.
func Unpublished(machine, key string, outbox []machines.Message, last *LastEvent, e *machines.Entity, now time.Time) []machines.Message {
	var events []machines.Message
	for _, m := range outbox {
		if m.Kind == machines.KindEvent {
			events = append(events, m)
		}
	}
	for i := len(events) - 1; i >= 0; i-- {
		if events[i].ID(machine, key) == last.ID {
			return events[i+1:]
		}
	}
	// A refusal names the version that it met, and was published after the events of that one. Its sequence may be that of a later command now, where a power loss has cost COMMANDS its
	// last messages, and its time later than the mark of a value that was lost and goes on above its events, or where the clock that stamps was set back.
	if seq, at, ok := streams.RefusedOf(machine, key, last.ID); ok && last.Version >= e.Version && (seq > e.Mark || at.After(e.MarkedAt) && last.Seq > e.LastEvent) {
		return nil
	}
	for i := range events {
		stored := last.Version > events[i].Version && !events[i].At.After(last.At) || !last.Again && events[i].At.Before(last.Begin.At)
		if !stored && now.Sub(events[i].At) < EventLife {
			return events[i:]
		}
	}
	return nil
}

// Describe is the data of the event that reports a problem with a value of some version.
func (l *LastEvent) Describe(problem string, version uint64) map[string]any {
	data := map[string]any{"problem": problem, "version": version, "lastEvent": l.ID, "lastEventVersion": l.Version}
	if l.Answered > l.Version {
		data["lastAnswerVersion"] = l.Answered
	}
	return data
}

// ToldBefore are the missing events of an outbox behind one that tells that events before them are lost. Another loss of power may leave no more than the first of them, and an older value
// beside it: as its last event it would say that all before it is there.
func ToldBefore(told machines.Message, missing []machines.Message) []machines.Message {
	if len(missing) == 0 || missing[0].Version <= 1 {
		return missing
	}
	return append([]machines.Message{under(told, missing[0].Version-1, len(missing))}, missing...)
}

// Renumbered are events under another version, as those after its first.
func Renumbered(events []machines.Message, version uint64) []machines.Message {
	list := make([]machines.Message, len(events))
	for i := range events {
		list[i] = under(events[i], version, i+1)
	}
	return list
}

// under is an event under a version and a number.
func under(m machines.Message, version uint64, n int) machines.Message {
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
