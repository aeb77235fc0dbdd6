package backup

// Streams beside those of the plan, such as those of outboxes. A backup copies them (others) as snapshots of their server (write.go); a check or a
// restore notes what the section of each says of its stream (other), and a restore passes the snapshot to the server (restorer.snapshot) under a configuration that receives from
// no other stream of the account (restored).

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/streams"
)

// Other is a stream that is in a backup as a snapshot.
type Other struct {
	Stream   string
	Messages int

	// Memory says that its messages are in memory, so that it ends with its server. A restore into a data directory leaves it out.
	Memory bool
	// Origins are the streams of its account that it mirrors or sources. A restored stream has the messages that it had of them, and receives no more.
	Origins []string
}

// Stored is how many messages a backup has, with those in its snapshots.
func (e End) Stored() int {
	total := 0
	for _, n := range e.Messages {
		total += n
	}
	for _, o := range e.Others {
		total += o.Messages - e.Messages[o.Stream]
	}
	return total
}

// origins are the streams of its account that a stream gets its messages from.
func origins(c jetstream.StreamConfig) []string {
	var names []string
	for _, s := range append(slices.Clone(c.Sources), c.Mirror) {
		if s != nil && s.External == nil {
			names = append(names, s.Name)
		}
	}
	return names
}

// ErrUnknownBucket says that entities or a view of a machine would be missing from a backup, because the process that makes it does not have the machine.
var ErrUnknownBucket = errors.New("this process has no machine for these buckets of the installation, so that a backup would lack their values: " +
	"take it from a process that has the machine, or add the machine to this one first; a bucket that nobody needs any more has to be removed (nats stream rm NAME)")

// others are the streams beside those of the plan that a backup includes. It fails with [ErrUnknownBucket] where a bucket of the installation is not of the plan, unless it is empty:
// such a one is left by a machine that could not be added, and is made again.
func (w *writer) others(ctx context.Context) (others []string, err error) {
	list := w.s.JS.StreamNames(ctx)
	var names, unknown []string
	for name := range list.Name() {
		names = append(names, name)
	}
	if err := list.Err(); err != nil {
		return nil, fmt.Errorf("cannot list the streams: %w", err)
	}
	slices.Sort(names)
	planned := w.s.planned()
	for _, name := range names {
		if planned[name] {
			continue
		}
		if w.s.Plan.Names.OwnBucket(name, names) {
			info, err := w.info(ctx, name)
			if errors.Is(err, jetstream.ErrStreamNotFound) {
				continue
			}
			if err != nil {
				return nil, err
			}
			if streams.IsMachines(info.Config) {
				if info.State.Msgs > 0 {
					unknown = append(unknown, name)
				}
				continue
			}
		}
		if !w.s.Shared || slices.Contains(w.s.Others, name) {
			others = append(others, name)
		}
	}
	if len(unknown) > 0 {
		return nil, fmt.Errorf("%s: %w", strings.Join(unknown, ", "), ErrUnknownBucket)
	}
	return others, nil
}

// planned are the names of the streams of the plan.
func (s *Store) planned() map[string]bool {
	names := map[string]bool{}
	for _, c := range s.Plan.Configs() {
		names[c.Name] = true
	}
	return names
}

// other notes what a section says of its stream, if it is a snapshot.
func (r *reader) other(s *Section) error {
	if s.Kind != KindSnapshot || s.Snapshot == nil {
		return nil
	}
	var c jetstream.StreamConfig
	if err := json.Unmarshal(s.Snapshot.Config, &c); err != nil {
		return fmt.Errorf("the configuration of stream %s cannot be read: %w", s.Stream, err)
	}
	var state jetstream.StreamState
	if err := json.Unmarshal(s.Snapshot.State, &state); err != nil {
		return fmt.Errorf("the state of stream %s cannot be read: %w", s.Stream, err)
	}
	r.end.Others = append(r.end.Others, Other{Stream: s.Stream, Messages: int(state.Msgs), Memory: c.Storage == jetstream.MemoryStorage, Origins: origins(c)})
	return nil
}

// snapshot gives the parts of one to the server.
func (r *restorer) snapshot(ctx context.Context, s *Section) error {
	other := &r.in.end.Others[len(r.in.end.Others)-1]
	if slices.Contains(r.s.Without, s.Stream) || other.Memory && !r.s.Shared {
		other.Origins = nil
		for part, err := r.in.part(); part != nil || err != nil; part, err = r.in.part() {
			if err != nil {
				return err
			}
		}
		return nil
	}
	head := *s.Snapshot
	var c jetstream.StreamConfig
	err := json.Unmarshal(head.Config, &c)
	if err == nil && r.s.Plan.Names.OwnBucket(s.Stream, r.in.head.Others) && streams.IsMachines(c) {
		return strayed(s.Stream)
	}
	if head.Config, err = restored(head.Config, s.Stream, max(r.s.Plan.Replicas, 1)); err != nil {
		return fmt.Errorf("the configuration of stream %s cannot be read: %w", s.Stream, err)
	}
	return streams.RestoreSnapshot(ctx, r.s.NC, s.Stream, head, r.in.part)
}

// restored is the configuration that a stream is restored with, including what this program does not know of it. It receives messages of no other stream of its account: to the
// server a restored stream is another one, whatever its name, so that all of its messages would be stored a second time; and if its sequences are not those of
// before, some would be missed.
func restored(config json.RawMessage, name string, replicas int) (json.RawMessage, error) {
	type origin struct {
		External *json.RawMessage `json:"external"`
	}
	var has struct {
		Mirror   *origin           `json:"mirror"`
		Sources  []json.RawMessage `json:"sources"`
		Subjects []string          `json:"subjects"`
	}
	all := map[string]json.RawMessage{} // numbers stay as they are
	if err := errors.Join(json.Unmarshal(config, &all), json.Unmarshal(config, &has)); err != nil {
		return nil, err
	}
	if all == nil {
		return nil, errors.New("it is null")
	}
	if has.Mirror != nil && has.Mirror.External == nil {
		delete(all, "mirror")
		delete(all, "mirror_direct")
	}
	kept := has.Sources[:0]
	for _, raw := range has.Sources {
		var o origin
		if err := json.Unmarshal(raw, &o); err != nil {
			return nil, err
		}
		if o.External != nil {
			kept = append(kept, raw)
		}
	}
	delete(all, "sources")
	if len(kept) > 0 {
		raw, err := json.Marshal(kept)
		if err != nil {
			return nil, err
		}
		all["sources"] = raw
	}
	if _, mirrors := all["mirror"]; !mirrors && len(kept) == 0 && len(has.Subjects) == 0 {
		all["subjects"] = json.RawMessage("[" + strconv.Quote(restoredSubject+name) + "]") // the server would take its name, which may be a subject of another stream
	}
	delete(all, "republish") // it would write to whatever subject the file says
	all["name"], all["num_replicas"] = json.RawMessage(strconv.Quote(name)), json.RawMessage(strconv.Itoa(replicas))
	return json.Marshal(all)
}

// restoredSubject begins the subject of a restored stream that has had none.
const restoredSubject = "instar-restored."
