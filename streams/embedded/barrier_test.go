package embedded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/internal/powerloss"
)

// This version of the server can be told to sync. Where another one cannot, [Interval] goes on as the server does by itself.
func TestTheServerSyncsWhenItIsTold(t *testing.T) {
	t.Parallel()
	_, err := provenStores()
	require.NoError(t, err)
	for profile, want := range map[Profile]bool{Fsync: false, Interval: true, OS: false} {
		s := &Server{o: Options{Profile: profile}}
		s.barrier = s.o.barrier()
		require.Equal(t, want, s.barrier != nil, profile)
		require.Equal(t, want, s.Acking() != nil, profile)
		opts, err := s.options()
		require.NoError(t, err)
		if want {
			require.Equal(t, max(backstop, syncInterval), opts.SyncInterval)
		}
	}
	require.Nil(t, (&Options{Profile: Interval, Cluster: &ClusterOptions{}}).barrier())
}

// Every stream is synced by the next round, also one of somebody else, and what is not written to is left alone.
func TestARoundSyncsWhatWasWritten(t *testing.T) {
	t.Parallel()
	g := run(t, Options{Profile: Interval})
	things(t, g.JS)
	b := g.Server.barrier
	b.stop(g.Server.running()) // the test takes over
	dirty := func() (names []string) {
		for _, s := range b.where.of(g.Server.running()) {
			if b.where.dirty(s) {
				names = append(names, s.name)
			}
		}
		return names
	}
	require.Empty(t, dirty())
	for _, subject := range []string{"instar.evt.thing.a.x", "$KV.things.a", "instar.in.3.thing.a.b.c"} {
		_, err := g.JS.Publish(t.Context(), subject, []byte("x"))
		require.NoError(t, err)
	}
	require.ElementsMatch(t, []string{"EVENTS", "KV_things", "COMMANDS"}, dirty())
	b.round(g.Server.running())
	require.Empty(t, dirty())
	s, err := g.JS.Stream(t.Context(), "COMMANDS")
	require.NoError(t, err)
	require.NoError(t, s.Purge(t.Context())) // as an ack: what is removed counts as well
	require.Equal(t, []string{"COMMANDS"}, dirty())
	b.round(g.Server.running())
	require.Empty(t, dirty())

	require.NoError(t, g.Server.Restart())
	require.Eventually(t, g.NC.IsConnected, 20*time.Second, 5*time.Millisecond)
	_, err = g.JS.Publish(t.Context(), "$KV.things.b", []byte("x"))
	require.NoError(t, err)
	b.round(g.Server.running())
	require.Empty(t, dirty(), "of the server that runs now")
}

// No ack goes out from before the values are synced until the commands are.
func TestAcksWaitForTheBarrier(t *testing.T) {
	t.Parallel()
	g := run(t, Options{Profile: Interval})
	things(t, g.JS)
	acking := g.Server.Acking()
	acking.Lock()
	rounds := make(chan struct{})
	go func() { g.Server.barrier.round(g.Server.running()); close(rounds) }()
	select {
	case <-rounds:
		t.Fatal("the barrier passed while a command was acked")
	case <-time.After(300 * time.Millisecond):
	}
	acking.Unlock()
	<-rounds
}

// A power loss takes from all streams alike: what was acknowledged since the last round, and nothing before it. Only where it
// comes in the middle of a round they may differ by one.
func TestAPowerLossCostsAllStreamsTheSame(t *testing.T) { // not parallel: the disk that the others use stalls for seconds
	const every = 100 * time.Millisecond
	d, err := powerloss.New(t.TempDir(), powerloss.Ext4, 96<<20)
	if errors.Is(err, powerloss.ErrCannot) {
		t.Skip(err)
	}
	require.NoError(t, err)
	t.Cleanup(func() { _ = d.Close() })
	for round := range 4 {
		between := round < 3 // rounds
		o := Options{Dir: filepath.Join(d.Path, "data"), Profile: Interval, Log: slog.New(slog.DiscardHandler), syncEvery: every}
		s, err := Start(o)
		require.NoError(t, err)
		nc, js := connected(t, s)
		things(t, js)

		// One entity: its command, its value, its event, and again, as fast as they go.
		subjects := []string{fmt.Sprintf("instar.in.3.thing.a.%d.c", round), fmt.Sprintf("$KV.things.a%d", round), fmt.Sprintf("instar.evt.thing.a.%d", round)}
		var times []time.Time // when a transition was begun, by its number
		var cut atomic.Bool
		done := make(chan struct{})
		go func() {
			defer close(done)
			for !cut.Load() {
				began := time.Now()
				for _, subject := range subjects {
					ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
					_, err := js.PublishMsg(ctx, &nats.Msg{Subject: subject, Data: []byte(fmt.Sprint(len(times)))})
					cancel()
					if err != nil {
						return
					}
				}
				times = append(times, began)
			}
		}()
		time.Sleep(time.Duration(1500+137*round) * time.Millisecond) // a moment that no round knows
		if between {
			s.barrier.mu.Lock()
		}
		at := time.Now()
		require.NoError(t, d.Cut())
		cut.Store(true)
		<-done
		nc.Close()
		if between {
			s.barrier.mu.Unlock()
		}
		longest := s.barrier.longestRound()
		_ = s.Shutdown(context.Background()) // its disk is gone
		require.NoError(t, d.Back())

		s, err = Start(o)
		require.NoError(t, err)
		nc, js = connected(t, s)
		var lost []time.Duration
		for i, stream := range []string{"COMMANDS", "KV_things", "EVENTS"} {
			st, err := js.Stream(t.Context(), stream)
			require.NoError(t, err)
			m, err := st.GetLastMsgForSubject(t.Context(), subjects[i])
			require.NoError(t, err, stream)
			n := 0
			_, err = fmt.Sscan(string(m.Data), &n)
			require.NoError(t, err)
			age := time.Duration(0)
			if n+1 < len(times) {
				age = at.Sub(times[n+1])
			}
			lost = append(lost, age)
		}
		t.Logf("commands lost %s, values %s, events %s; %d transitions, the longest round %s", lost[0], lost[1], lost[2], len(times), longest)
		for _, l := range lost {
			require.Less(t, l, every+2*longest, "since the round before the last, if the last did not end")
		}
		if between {
			slowest := time.Duration(0) // what is lost is told by whole transitions, and a busy machine takes its time for one
			for i := range len(times) - 1 {
				slowest = max(slowest, times[i+1].Sub(times[i]))
			}
			require.Less(t, (lost[1] - lost[2]).Abs(), every/5+slowest, "values and events are of one moment")
			require.LessOrEqual(t, lost[0], lost[1], "commands are of a later one")
		}
		nc.Close()
		require.NoError(t, s.Shutdown(context.Background()))
	}
}
