package reconcile

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
)

// Armed is the version at which the schedule of a timer in the stream was armed, when it fires, and its sequence; all are 0 when there is none. Another time than that of the value is of a life that is lost, in
// which the entity had the same version.
func (r Reader) Armed(ctx context.Context, machine, key, timer string) (version uint64, at time.Time, seq uint64, err error) {
	stored, err := streams.Last(ctx, r.NC, r.Names.Stream(streams.CommandStream), r.Names.Timer(machine, key, timer))
	if err != nil {
		return 0, at, 0, fmt.Errorf("cannot look for timer %s of %s %s: %w", timer, machine, key, err)
	}
	if stored == nil {
		return 0, at, 0, nil
	}
	var body machines.Elapsed
	_ = json.Unmarshal(stored.Data, &body) // what cannot be read is nobody's, and is replaced
	return body.Armed, streams.ScheduledAt(stored.Headers()), stored.Sequence, nil
}

// UnderWay reports whether an effect lies in its stream under an attempt, or the result of that attempt waits among the commands. A worker
// stores the result before it takes the effect away, so the effect is looked for first: in its own queue, and in that of all, where an older program has put it.
func (r Reader) UnderWay(ctx context.Context, m *machines.Machine, key string, effect *machines.Message, attempt string) (bool, error) {
	for _, queue := range slices.Compact([]string{effect.Name, effect.Queue()}) {
		there, err := r.lastOf(ctx, streams.EffectStream, r.Names.Effect(m.Name, queue, key), attempt)
		if err != nil || there {
			return there, err
		}
	}
	info, _ := m.Effect(effect.Name)
	for _, result := range []string{info.Done, machines.CommandFailed} {
		waiting, err := r.lastOf(ctx, streams.CommandStream, r.Names.Stored(m.Name, key, result), attempt)
		if err != nil || waiting {
			return waiting, err
		}
	}
	return false, nil
}

// lastOf reports whether the last message under a subject, a task or a result, is of that attempt. What lies before it is of older ones, or
// the same result twice; at worst an effect is sent twice.
func (r Reader) lastOf(ctx context.Context, stream, subject, attempt string) (bool, error) {
	m, err := streams.Last(ctx, r.NC, r.Names.Stream(stream), subject)
	if err != nil || m == nil {
		return false, err
	}
	var body struct {
		Attempt string `json:"attempt"`
	}
	_ = json.Unmarshal(m.Data, &body) // what cannot be read is of no attempt
	return body.Attempt == attempt, nil
}
