package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/bcc94042/instar/consumers/bulkack"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/publish"
)

// schedule is one timer on its way into the stream of commands. A schedule replaces the one before it of the same name, so it is written only over the one that this owner knows:
// a process that should be dead cannot put an older deadline in the place of a newer one.
type schedule struct {
	cached *cachedEntity
	msg    *machines.Message
	publish.Write
}

// publishTimers arms timers: each over the schedule that is known, or over none. Where the stream has another one it is looked up.
func (p *partition) publishTimers(ctx context.Context, timers []schedule) error {
	for range 4 {
		writes := make([]publish.Write, len(timers))
		for i, t := range timers {
			streams.Expect(t.Msg, t.cached.schedules[t.msg.Name])
			writes[i] = t.Write
		}
		var again []schedule
		for i, r := range p.e.Appender.Append(ctx, writes) {
			t := timers[i]
			switch {
			case r.Err == nil:
				t.cached.setSchedule(t.msg.Name, r.Seq)
			case errors.Is(r.Err, publish.ErrConflict):
				if err := p.replaceable(ctx, t); err != nil {
					return err
				}
				again = append(again, t)
			case publish.Permanent(r.Err):
				if err := p.e.Bury(ctx, p.name, t.Msg, r.Err); err != nil {
					return err
				}
			default:
				return fmt.Errorf("cannot publish to %s: %w", t.Msg.Subject, r.Err)
			}
		}
		if timers = again; len(timers) == 0 {
			return nil
		}
	}
	return fmt.Errorf("cannot arm timer %s of %s %s: %w", timers[0].msg.Name, timers[0].cached.m.Name, timers[0].cached.key, publish.ErrConflict)
}

// dropReplacedTimers drops the timers that a later transition of the same commit has replaced or ended: of each name one schedule is armed at
// most, so two of them would replace each other.
func (s *cachedEntity) dropReplacedTimers() {
	var kept []string
	replaced := func(m machines.Message) bool {
		if m.Kind != machines.KindTimer {
			return false
		}
		if t, waits := s.entity.Timers[m.Name]; !waits || t.Armed != m.Version || slices.Contains(kept, m.Name) {
			return true
		}
		kept = append(kept, m.Name)
		return false
	}
	s.outbox, s.transient = slices.DeleteFunc(s.outbox, replaced), slices.DeleteFunc(s.transient, replaced)
}

// replaceable finds the schedule that a timer would replace. One that was armed at a later version, or for another time at the same one, is somebody else's,
// who has written the entity since, or of a version that the bucket has lost.
func (p *partition) replaceable(ctx context.Context, t schedule) error {
	armed, at, err := p.armed(ctx, t.cached, t.msg.Name)
	if err != nil || armed < t.msg.Version || armed == t.msg.Version && at.Equal(t.msg.At) {
		return err
	}
	bucket := p.e.Names.Bucket(t.cached.m.Plural)
	stored, err := streams.Last(ctx, p.e.NC, streams.BucketStream(bucket), streams.BucketSubject(bucket, t.cached.key))
	if err != nil {
		return fmt.Errorf("cannot load %s %s: %w", t.cached.m.Name, t.cached.key, err)
	}
	if stored == nil || stored.Sequence != t.cached.revision {
		return fmt.Errorf("timer %s of %s %s is armed at version %d, not at %d: %w", t.msg.Name, t.cached.m.Name, t.cached.key, armed, t.msg.Version, publish.ErrConflict)
	}
	return nil
}

// armed is the version of a timer's schedule in the stream, and when it fires; 0 when there is none. The cached entity knows its sequence then.
func (p *partition) armed(ctx context.Context, s *cachedEntity, name string) (uint64, time.Time, error) {
	version, at, seq, err := p.e.reader().Armed(ctx, s.m.Name, s.key, name)
	if err == nil {
		s.setSchedule(name, seq)
	}
	return version, at, err
}

// setSchedule keeps where the schedule of a timer lies in the stream; 0 is nowhere.
func (s *cachedEntity) setSchedule(timer string, seq uint64) {
	if seq == 0 {
		delete(s.schedules, timer)
		return
	}
	if s.schedules == nil {
		s.schedules = map[string]uint64{}
	}
	s.schedules[timer] = seq
}

// fired takes note that the server has taken a schedule away: it does so as the timer fires.
func (s *cachedEntity) fired(elapsed []byte) {
	var body machines.Elapsed
	if json.Unmarshal(elapsed, &body) == nil {
		s.setSchedule(body.Timer, 0)
	}
}

// cancelTimers takes the schedules of entities that have ended out of the stream: they would lie there until they fire, and fire for nothing. Only what this owner has stored is
// taken; a schedule of a next life is a later one. What is not taken within the time of one purge stays: the batch is not to wait for more.
func (p *partition) cancelTimers(ctx context.Context, entities []*cachedEntity) {
	ctx, cancel := context.WithTimeout(ctx, bulkack.Within)
	defer cancel()
	for _, s := range entities {
		if st, _ := s.m.State(s.entity.State); !st.Terminal {
			continue
		}
		for name, seq := range s.schedules {
			if _, waits := s.entity.Timers[name]; waits {
				continue
			}
			if err := p.purge(ctx, p.e.Names.Timer(s.m.Name, s.key, name), seq); err != nil {
				p.e.Log.Debug("timers of entities that have ended stay until they fire", "partition", p.n, "machine", s.m.Name, "key", s.key, "timer", name, "error", err)
				return
			}
			delete(s.schedules, name)
		}
	}
}
