package audit

// From events to records. serve opens the feed of a machine and repeats batch: the events that no record is about yet (recorded) become records (recordOf), which are appended to
// the chains of their classes (append), and the batch is acknowledged. Whatever fails ends serve, which begins again without what was in memory.

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/bcc94042/instar/consumers"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/audit"
	"github.com/bcc94042/instar/streams/publish"
)

// Recorder records the events of a machine. Where two run, each event still has one record.
type Recorder struct {
	consumers.Deps
	Machine *machines.Machine
	Chains  *Chains // that the recorders of several machines share, so that one does not refuse what another appends; its own when nil

	feed consumers.Feed
	last map[string]place // by subject, as far as it was read
}

// Chains are the chains of all classes. The zero value can be used; one recorder at a time appends.
type Chains struct {
	mu    sync.Mutex
	heads map[string]*chain // by class, as far as they were read
}

// forget drops what is known of the chains, and what was to be appended.
func (c *Chains) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.heads = nil
}

// place is the last event of an entity that is recorded in a class.
type place struct {
	machines.Folded
	id string
}

// chain is that of a class, as it ends.
type chain struct {
	stream string
	head   audit.Head
	last   uint64 // sequence of the last message that is there; 0 for none
	msgs   []*nats.Msg
}

const (
	batch    = 256
	most     = 10000    // entities in memory
	maxExtra = 64 << 10 // bytes of what an event says besides
	unnamed  = "unnamed"
)

// Consumer is the durable consumer of a machine's events.
func Consumer(machine string) string { return "audit-" + machine }

// Run records until ctx ends.
func (r *Recorder) Run(ctx context.Context) error {
	r.Deps, r.Chains = r.WithDefaults(), cmp.Or(r.Chains, new(Chains))
	r.Keep(ctx, Consumer(r.Machine.Name), r.serve)
	return nil
}

func (r *Recorder) serve(ctx context.Context) error {
	r.last = map[string]place{}
	r.feed = consumers.Feed{
		Machine: r.Machine, Name: Consumer(r.Machine.Name), Doc: "Events that are recorded for the audit", Batch: batch,
		Subjects: []string{r.Names.Event(r.Machine.Name, streams.AnyKey(r.Machine.Parent != ""), ">")},
	}
	if err := r.feed.Open(ctx, &r.Deps); err != nil {
		return err
	}
	for ctx.Err() == nil {
		if err := r.batch(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (r *Recorder) batch(ctx context.Context) error {
	events, err := r.feed.Next(ctx)
	if err != nil || len(events) == 0 {
		return err
	}
	written, err := r.record(ctx, events)
	if err != nil {
		r.Chains.forget()
		return err
	}
	if len(r.last) > most {
		clear(r.last)
	}
	return r.feed.Done(ctx, events, written...)
}

// record appends the records of events that have none, and returns the streams that have grown.
func (r *Recorder) record(ctx context.Context, events []consumers.Happened) (written []string, err error) {
	r.Chains.mu.Lock()
	defer r.Chains.mu.Unlock()
	for i := range events {
		if err := r.add(ctx, &events[i]); err != nil {
			return nil, err
		}
	}
	return r.append(ctx)
}

// add puts an event behind the chain of its class, if no record is about it.
func (r *Recorder) add(ctx context.Context, ev *consumers.Happened) error {
	if ev.Err != nil {
		r.Meter.Skipped(r.feed.Name)
		r.Log.Error("an event is not recorded", "sequence", ev.Seq, "error", ev.Err)
		return nil
	}
	typ := streams.Header(ev.Msg.Headers(), "ce-type")
	class := machines.ClassState // of an event of an older table
	if t, ok := r.Machine.Event(typ); ok {
		class = t.Class
	}
	subject := r.Names.Audit(string(class), r.Machine.Name, ev.Key)
	c, err := r.chain(ctx, string(class)) // first: what is recorded after this look has the place of what is appended here
	if err != nil {
		return err
	}
	last, err := r.recorded(ctx, string(class), subject)
	id := streams.Header(ev.Msg.Headers(), streams.HeaderID)
	if err != nil || last.id == id || ev.In(&last.Folded) {
		return err
	}
	text, head, err := c.head.Seal(recordOf(r.Machine, string(class), typ, ev), time.Now())
	if err != nil {
		return fmt.Errorf("cannot write the record of event %d: %w", ev.Seq, err)
	}
	ev.Note(&last.Folded)
	last.id = id
	c.head, r.last[subject] = head, last // the id is the hash: that of another record in the same place must not be taken for this one
	c.msgs = append(c.msgs, &nats.Msg{Subject: subject, Data: text, Header: nats.Header{
		streams.HeaderID: {head.Hash}, headerEvent: {last.String()},
	}})
	return nil
}

// headerEvent is up to which event of the entity there are records: the record itself does not say that where its event has no number, or is not the latest one by its time. Sequences
// may be given out again, so it is not part of the record.
const headerEvent = "Instar-Event"

func (p *place) String() string {
	return fmt.Sprint(p.Seq, " ", p.Version, " ", p.N, " ", p.At.UTC().Format(time.RFC3339Nano))
}

// scan reads what String has written.
func (p *place) scan(text string) error {
	var at string
	if _, err := fmt.Sscan(text, &p.Seq, &p.Version, &p.N, &at); err != nil {
		return fmt.Errorf("header %s is not as it was written: %w", headerEvent, err)
	}
	return p.At.UnmarshalText([]byte(at))
}

// recorded is the last event of an entity that has a record of a class.
func (r *Recorder) recorded(ctx context.Context, class, subject string) (place, error) {
	if last, known := r.last[subject]; known {
		return last, nil
	}
	m, err := streams.LastHeld(ctx, r.NC, r.Names.AuditStream(class), subject)
	if err != nil {
		return place{}, fmt.Errorf("cannot read the last record under %s: %w", subject, err)
	}
	var last place
	if m != nil {
		_, record, err := audit.HeadOf(m.Data)
		if err := errors.Join(err, last.scan(m.Headers().Get(headerEvent))); err != nil { // whoever verifies the chain is told
			r.Log.Error("a record of the audit is not as it was written", "subject", subject, "sequence", m.Sequence, "error", err)
		}
		last.id = record.EventID
	}
	r.last[subject] = last
	return last, nil
}

// chain is how that of a class ends.
func (r *Recorder) chain(ctx context.Context, class string) (*chain, error) {
	if c := r.Chains.heads[class]; c != nil {
		return c, nil
	}
	c := &chain{stream: r.Names.AuditStream(class)}
	m, err := streams.LastHeld(ctx, r.NC, c.stream, r.Names.Audits(class))
	if err != nil {
		return nil, fmt.Errorf("cannot read the last record of stream %s: %w", c.stream, err)
	}
	info, err := streams.Info(ctx, r.NC, c.stream)
	if err != nil {
		return nil, fmt.Errorf("cannot look at stream %s: %w", c.stream, err)
	}
	if m == nil {
		c.head.At = info.State.LastTime // its hash is gone
	} else {
		c.last = m.Sequence
		if c.head, _, err = audit.HeadOf(m.Data); err != nil {
			r.Log.Error("the last record of a chain is not as it was written; the next one follows what it says", "stream", c.stream, "sequence", m.Sequence, "error", err)
		}
	}
	c.head.Sequence = info.State.LastSeq // what was before may have its age; and where somebody has removed the last one, the gap stays. If one was added since, append is refused
	if r.Chains.heads == nil {
		r.Chains.heads = map[string]*chain{}
	}
	r.Chains.heads[class] = c
	return c, nil
}

// append appends what was added, and returns the streams that have grown.
func (r *Recorder) append(ctx context.Context) (written []string, err error) {
	for class, c := range r.Chains.heads {
		if len(c.msgs) == 0 {
			continue
		}
		chain := &publish.Chain{Filter: r.Names.Audits(class), Last: c.last, Place: c.head.Sequence + 1 - uint64(len(c.msgs)), Msgs: c.msgs}
		r.Appender.AppendChains(ctx, c.stream, []*publish.Chain{chain})
		if chain.Err != nil {
			return nil, fmt.Errorf("cannot append to stream %s: %w", c.stream, chain.Err)
		}
		c.last, c.msgs = chain.Last, nil
		written = append(written, c.stream)
	}
	return written, nil
}

// recordOf is what an event says.
func recordOf(m *machines.Machine, class, typ string, ev *consumers.Happened) audit.Record {
	_, tenant, _, _ := streams.SplitKey(ev.Key) // it is one
	rec := audit.Record{
		Class: class, EventID: streams.Header(ev.Msg.Headers(), streams.HeaderID), EventType: typ, Timestamp: ev.At.UTC(),
		Target: audit.RecordTarget{Machine: m.Name, SessionID: ev.Key, TenantID: tenant, EnterpriseID: tenant}, Result: audit.RecordResult{Success: true},
	}
	var body struct {
		machines.Event
		Data json.RawMessage `json:"data"`
	}
	if err := json.Unmarshal(ev.Msg.Data(), &body); err != nil {
		rec.Metadata = "the event cannot be read: " + err.Error()
		return rec
	}
	var said struct {
		EnterpriseID string                `json:"enterpriseId"`
		DurationMs   int64                 `json:"durationMs"`
		Resource     *audit.RecordResource `json:"resource"`
	}
	_ = json.Unmarshal(body.Data, &said) // an event may say anything
	rec.Command, rec.Reason, rec.DurationMs, rec.Resource = body.Command, body.Reason, said.DurationMs, said.Resource
	if said.EnterpriseID != "" {
		rec.Target.EnterpriseID = said.EnterpriseID
	}
	if body.From != body.To {
		rec.Change = &audit.RecordChange{From: body.From, To: body.To}
	}
	rec.Actor = actorOf(m, body.Command, body.Actor)
	rec.Result = resultOf(m, class, typ, body.Data)
	if len(body.Data) <= maxExtra {
		rec.Metadata = body.Data
	} else {
		rec.Metadata = map[string]int{"truncated": len(body.Data)}
	}
	if len(body.Data) == 0 {
		rec.Metadata = nil
	}
	return rec
}

// actorOf tells users from the program. What the table has as a command is of a user, also of one who does not say who he is.
func actorOf(m *machines.Machine, command, actor string) audit.RecordActor {
	switch in, ok := m.Input(command); {
	case ok && !in.Report:
		return audit.RecordActor{Type: audit.User, ID: cmp.Or(actor, unnamed)}
	case actor == "":
		return audit.RecordActor{Type: audit.Scheduler, ID: "timer"}
	}
	return audit.RecordActor{Type: audit.System, ID: actor}
}

// resultOf reads whether something has failed, and why.
func resultOf(m *machines.Machine, class, typ string, data json.RawMessage) audit.RecordResult {
	var said struct {
		Error   json.RawMessage `json:"error"`
		Code    string          `json:"code"`
		Message string          `json:"message"`
		To      string          `json:"to"` // of a change of the state
	}
	_ = json.Unmarshal(data, &said) // an event may say anything
	to, _ := m.State(said.To)
	if class != string(machines.ClassError) && len(said.Error) == 0 && !to.Failed {
		return audit.RecordResult{Success: true}
	}
	why := &audit.RecordError{Code: said.Code, Message: said.Message}
	if len(said.Error) > 0 && json.Unmarshal(said.Error, why) != nil {
		_ = json.Unmarshal(said.Error, &why.Message) // the text alone
	}
	if why.Code == "" {
		why.Code = typ
	}
	if why.Message == "" && to.Failed {
		why.Message = "its state is " + to.Name
	}
	return audit.RecordResult{Error: why}
}
