package consumers

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
)

// However often a timer is armed and ended within one batch, one schedule is written, or none: they would replace each other, and
// the partition would take that for somebody else's doing.
func TestATimerIsArmedOnceInABatch(t *testing.T) {
	t.Parallel()
	for _, profile := range []streams.Profile{streams.Interval, streams.Fsync} {
		t.Run(string(profile), func(t *testing.T) {
			t.Parallel()
			w, n := setup(t, profile, thingMachine), &notes{ends: map[string]int{}}
			w.Meter = n
			written := make(chan *nats.Msg, 100)
			_, err := w.NC.ChanSubscribe(w.Names.Timer("thing", "default.a", "*"), written)
			require.NoError(t, err)
			require.NoError(t, w.NC.Flush())
			const arms = 20
			w.bare("a", "create", "")
			for range arms {
				w.bare("a", "work", `{"how":"x"}`)
				w.bare("a", "done", `{"data":{"how":"y"}}`)
			}
			w.start()
			w.eventually("all", func() bool { return w.version("a") == 1+2*arms })
			w.ask(toThing("a", "work", `{"how":"x"}`))
			w.eventually("its schedule", func() bool {
				schedules, armed := w.stream(streams.CommandStream, "instar.timer.>"), machines.Elapsed{}
				return len(schedules) == 1 && json.Unmarshal(schedules[0].Data, &armed) == nil && armed.Armed == 2+2*arms
			})
			require.Zero(t, n.count("restarted p"))
			require.Zero(t, n.count("conflict"))
			// The first batch of a process may hold less than was waiting.
			require.Less(t, len(written), 6)
			w.reaches("a", "broken")
		})
	}
}

// A batch that arms a timer anew, and ends with it armed, has a schedule for it.
func TestTheLastArmOfABatchIsKept(t *testing.T) {
	t.Parallel()
	for _, profile := range []streams.Profile{streams.Interval, streams.Fsync} {
		t.Run(string(profile), func(t *testing.T) {
			t.Parallel()
			w := setup(t, profile, thingMachine)
			w.bare("a", "create", "")
			w.bare("a", "work", `{"how":"x"}`)
			w.bare("a", "done", `{"data":{"how":"y"}}`)
			w.bare("a", "work", `{"how":"x"}`)
			w.start()
			w.reaches("a", "broken")
		})
	}
	armed := func(version uint64) machines.Message {
		return machines.Message{Kind: machines.KindTimer, Name: "deadline", Version: version}
	}
	s := &slot{entity: machines.Entity{Timers: map[string]machines.Timer{"deadline": {Armed: 4}}}, outbox: []machines.Message{armed(2), armed(4)}, loose: []machines.Message{armed(4)}}
	s.keepArmed()
	require.Equal(t, []machines.Message{armed(4)}, append(s.outbox, s.loose...))
}

// Many entities end while nothing can be purged: their batch does not wait for each of them, and what stays in the stream is still
// known. Purges are one at a time in the process.
func TestEndsDoNotWaitForTheirTimers(t *testing.T) {
	t.Parallel()
	w := setup(t, streams.Interval, thingMachine)
	p := &partition{e: &Engine{Deps: w.withDefaults(), purging: make(chan struct{}, 1)}, found: streamState{reconnects: w.NC.Stats().Reconnects}}
	var slots []*slot
	for i := range 100 {
		slots = append(slots, &slot{m: thingMachine, key: fmt.Sprint("default.o", i), entity: machines.Entity{State: "closed"}, schedules: map[string]uint64{"deadline": 1}})
	}
	p.e.purging <- struct{}{} // another partition
	began := time.Now()
	p.cancelTimers(w.ctx, slots)
	require.Less(t, time.Since(began), 3*sweepWithin)
	for _, s := range slots {
		require.Contains(t, s.schedules, "deadline")
	}
	<-p.e.purging
	p.cancelTimers(w.ctx, slots)
	for _, s := range slots {
		require.Empty(t, s.schedules)
	}
}
