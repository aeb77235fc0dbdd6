package backup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/streams"
)

// Other is a stream that is in a backup as a snapshot.
type Other struct {
	Stream   string
	Messages int

	// Memory says that its messages are in memory, so that it ends with its server. A restore into a data directory leaves it out.
	Memory bool
	// Again are the streams that it mirrors or sources, and of which it has messages twice after a restore, or lacks some: it should be created anew.
	Again []string

	last uint64 // its last sequence
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

// ordered are the other streams that there are, each before those that it gets its messages from: so it has nothing that they lack, and goes on behind what it has. One whose
// messages go when they are read, or with its server, comes first instead.
func (s *Store) ordered(ctx context.Context) ([]string, error) {
	configs := map[string]jetstream.StreamConfig{}
	for _, name := range s.Others {
		st, err := s.JS.Stream(ctx, name)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("cannot look at stream %s: %w", name, err)
		}
		configs[name] = st.CachedInfo().Config
	}
	before := map[string][]string{} // by stream, those to read first
	for _, name := range s.Others {
		for _, origin := range origins(configs[name]) {
			if c := configs[origin]; c.Retention != jetstream.LimitsPolicy || c.Storage == jetstream.MemoryStorage {
				before[name] = append(before[name], origin)
			} else {
				before[origin] = append(before[origin], name)
			}
		}
	}
	var order []string
	seen := map[string]bool{}
	var visit func(string)
	visit = func(name string) {
		if _, there := configs[name]; seen[name] || !there {
			return
		}
		seen[name] = true // before the others: they may go in a circle
		for _, first := range before[name] {
			visit(first)
		}
		order = append(order, name)
	}
	for _, name := range s.Others {
		visit(name)
	}
	return order, nil
}

// other notes what a section says of its stream, if it is a snapshot.
func (r *reader) other(s *Section) error {
	if s.Kind != KindSnapshot || s.Snapshot == nil {
		return nil
	}
	c, err := configOf(s)
	if err != nil {
		return err
	}
	var state jetstream.StreamState
	if err := json.Unmarshal(s.Snapshot.State, &state); err != nil {
		return fmt.Errorf("the state of stream %s cannot be read: %w", s.Stream, err)
	}
	o := Other{Stream: s.Stream, Messages: int(state.Msgs), Memory: c.Storage == jetstream.MemoryStorage, last: state.LastSeq} // it counts
	for _, origin := range origins(c) {
		// One that was read before has other sequences, or may lack what this one has. Of one that it sources, the last message that it has tells where it is.
		_, before := r.found[origin]
		if o.last > 0 && (before || c.Mirror == nil && c.Retention != jetstream.LimitsPolicy) {
			o.Again = append(o.Again, origin)
		}
	}
	r.end.Others = append(r.end.Others, o)
	return nil
}

func configOf(s *Section) (c jetstream.StreamConfig, err error) {
	if err := json.Unmarshal(s.Snapshot.Config, &c); err != nil {
		return c, fmt.Errorf("the configuration of stream %s cannot be read: %w", s.Stream, err)
	}
	return c, nil
}

// snapshot gives the parts of one to the server.
func (r *restorer) snapshot(ctx context.Context, s *Section) error {
	other := &r.in.end.Others[len(r.in.end.Others)-1]
	if slices.Contains(r.s.Without, s.Stream) || other.Memory && !r.s.Shared {
		other.Again = nil
		for part, err := r.in.part(); part != nil || err != nil; part, err = r.in.part() {
			if err != nil {
				return err
			}
		}
		return nil
	}
	head, own := *s.Snapshot, map[string]any{}
	if err := json.Unmarshal(head.Config, &own); err != nil { // with what this program does not know
		return err
	}
	own["name"], own["num_replicas"] = s.Stream, max(r.s.Plan.Replicas, 1)
	delete(own, "republish") // it would write to whatever subject the file says
	var err error
	if head.Config, err = json.Marshal(own); err != nil {
		return err
	}
	resumed, err := r.resumed(s)
	if err != nil {
		return err
	}
	if len(resumed) == 0 {
		return streams.RestoreSnapshot(ctx, r.s.NC, s.Stream, head, r.in.part)
	}
	passed, err := newSourced(r.in.part, resumed)
	if err != nil {
		return err
	}
	if err := streams.RestoreSnapshot(ctx, r.s.NC, s.Stream, head, passed.next); err != nil {
		return err
	}
	for _, origin := range resumed {
		if !passed.from[origin] && other.last > 0 && !slices.Contains(other.Again, origin) {
			other.Again = append(other.Again, origin)
		}
	}
	return nil
}

// resumed are the streams that a stream sources, and that are restored after it with the sequences that they had.
func (r *restorer) resumed(s *Section) ([]string, error) {
	c, err := configOf(s)
	if err != nil || c.Mirror != nil {
		return nil, err
	}
	return slices.DeleteFunc(origins(c), func(name string) bool {
		_, before := r.in.found[name]
		return before || !slices.Contains(r.in.head.Others, name) || slices.Contains(r.s.Without, name)
	}), nil
}
