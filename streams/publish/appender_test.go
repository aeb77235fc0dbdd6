package publish

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/embedded"
)

// inBoth runs a test with single publishes and with group commit.
func inBoth(t *testing.T, test func(t *testing.T, g *ground, a *Appender)) {
	t.Helper()
	for _, group := range []bool{false, true} {
		t.Run(fmt.Sprintf("Group=%v", group), func(t *testing.T) {
			t.Parallel()
			g := setup(t, embedded.OS)
			test(t, g, g.appender(AppenderOptions{Group: group}))
		})
	}
}

func TestResultsAreInOrder(t *testing.T) {
	t.Parallel()
	inBoth(t, func(t *testing.T, g *ground, a *Appender) {
		require.Empty(t, a.Append(g.Ctx, nil))
		for _, n := range []int{1, 2, few, few + 1, 300, 2500} {
			first := uint64(len(g.Held(streams.EventStream, ">"))) + 1
			var writes []Write
			for i := range n {
				writes = append(writes, Write{streams.EventStream, event(fmt.Sprintf("e-%d", i), "thing.made", fmt.Sprint(i))})
			}
			for i, r := range a.Append(g.Ctx, writes) {
				require.Equal(t, Result{Seq: first + uint64(i)}, r, "%d of %d", i, n)
			}
			held := g.Held(streams.EventStream, ">")
			require.Len(t, held, int(first)-1+n)
			for i, m := range held[first-1:] {
				require.Equal(t, fmt.Sprint(i), string(m.Data))
			}
			require.Empty(t, held[len(held)-1].Header.Get("Instar-Nothing"))
		}
	})
}

func TestAConflictDoesNotFailNeighbours(t *testing.T) {
	t.Parallel()
	inBoth(t, func(t *testing.T, g *ground, a *Appender) {
		for _, n := range []int{5, 200} {
			var writes []Write
			for i := range n {
				m := event(fmt.Sprintf("e-%d-%d", n, i), "thing.made", "x")
				streams.Expect(m, uint64(i%2)*77) // every other one expects what is not there
				writes = append(writes, Write{streams.EventStream, m})
			}
			before := len(g.Held(streams.EventStream, ">"))
			for i, r := range a.Append(g.Ctx, writes) {
				if i%2 == 0 {
					require.NoError(t, r.Err)
					continue
				}
				require.ErrorIs(t, r.Err, ErrConflict)
				require.False(t, Permanent(r.Err))
			}
			require.Len(t, g.Held(streams.EventStream, ">"), before+(n+1)/2)
		}
	})
}

func TestDuplicatesAreTold(t *testing.T) {
	t.Parallel()
	inBoth(t, func(t *testing.T, g *ground, a *Appender) {
		for _, n := range []int{4, 300} {
			var writes []Write
			for i := range n {
				m := event(fmt.Sprintf("e-%d-%d", n, i), "thing.made", "x")
				m.Header[streams.HeaderID] = []string{fmt.Sprintf("%d/%d", n, i/2)} // each id twice in one call
				writes = append(writes, Write{streams.EventStream, m})
			}
			results := a.Append(g.Ctx, writes)
			for i, r := range results {
				require.NoError(t, r.Err)
				require.Equal(t, i%2 == 1, r.Duplicate)
				require.Equal(t, results[i/2*2].Seq, r.Seq, "the sequence of then")
			}
			for i, r := range a.Append(g.Ctx, writes) {
				require.Equal(t, Result{Seq: results[i].Seq, Duplicate: true}, r)
			}
		}
	})
}

func TestWhatTheStreamNeverTakesIsPermanent(t *testing.T) {
	t.Parallel()
	inBoth(t, func(t *testing.T, g *ground, a *Appender) {
		big := make([]byte, 1<<20) // the stream's limit, and headers
		large := event("a", "thing.made", string(big))
		tooLarge := event("a", "thing.made", string(big)+strings.Repeat("x", 1<<10))
		lost := &nats.Msg{Subject: "no.stream.here", Header: nats.Header{}}
		badTTL := event("a", "thing.made", "x")
		badTTL.Header["Nats-TTL"] = []string{"10ms"}
		fine := event("a", "thing.made", "x")
		results := a.Append(g.Ctx, []Write{{streams.EventStream, large}, {streams.EventStream, tooLarge}, {streams.EventStream, lost}, {streams.EventStream, badTTL}, {streams.EventStream, fine}})
		require.NoError(t, results[4].Err)
		require.True(t, Permanent(results[1].Err), "%v", results[1].Err)
		require.ErrorIs(t, results[2].Err, ErrUnanswered)
		require.False(t, Permanent(results[2].Err))
		require.True(t, Permanent(results[3].Err), "%v", results[3].Err)
		require.False(t, Permanent(nil))
		require.False(t, Permanent(context.Canceled))
		require.EqualError(t, results[3].Err, "the stream refused: invalid per-message TTL (10165)")

		none := []string{"", "instar.evt.x y", "instar.evt.a..b", "instar.evt.", ".instar.evt", "instar.evt.a\r\nPING", "instar.evt." + strings.Repeat("a", 5000)}
		var subjects []Write
		for range 2 * few { // beside what would be a batch
			subjects = append(subjects, Write{streams.EventStream, event("b", "thing.made", "x")})
		}
		chains := []*Chain{{Filter: streams.Names{}.EventsOf("thing", "default.b"), Last: results[4].Seq + 2*few, Msgs: []*nats.Msg{event("b", "thing.made", "x"), event("b", "x y", "x")}}}
		for _, subject := range none {
			subjects = append(subjects, Write{streams.EventStream, &nats.Msg{Subject: subject, Header: nats.Header{}}})
		}
		for i, r := range a.Append(g.Ctx, subjects) {
			require.Equal(t, i >= 2*few, Permanent(r.Err), "%q: %v", subjects[i].Msg.Subject, r.Err)
			require.Equal(t, i < 2*few, r.Err == nil, "%v", r.Err)
		}
		a.AppendChains(g.Ctx, streams.EventStream, chains)
		require.True(t, Permanent(chains[0].Err), "%v", chains[0].Err)

		var writes []Write // one is too large, the last would be with the headers of a batch
		for i := range 2 * few {
			m := event("a", "thing.made", "x")
			m.Header["Some"] = []string{"header"}
			switch i {
			case few:
				m.Data = big
			case 2*few - 1:
				m.Data = big[:1<<20-40]
			}
			writes = append(writes, Write{streams.EventStream, m})
		}
		for i, r := range a.Append(g.Ctx, writes) {
			require.Equal(t, i == few, Permanent(r.Err), "%d: %v", i, r.Err)
		}
	})
}

// A schedule in a batch would fire with the headers of the batch.
func TestSchedulesAreNeverInABatch(t *testing.T) {
	t.Parallel()
	inBoth(t, func(t *testing.T, g *ground, a *Appender) {
		due := time.Now().Add(time.Hour)
		var writes []Write
		for i := range 3 * few {
			key := fmt.Sprintf("default.e-%d", i)
			timer := &nats.Msg{Subject: streams.Names{}.Timer("thing", key, "late"), Data: []byte("{}"), Header: nats.Header{}}
			streams.Schedule(timer, due, streams.Names{}.Stored("thing", key, "elapsed"))
			command := &nats.Msg{Subject: streams.Names{}.Stored("thing", key, "add"), Data: []byte("{}"), Header: nats.Header{}}
			writes = append(writes, Write{streams.CommandStream, timer}, Write{streams.CommandStream, command})
		}
		for _, r := range a.Append(g.Ctx, writes) {
			require.NoError(t, r.Err)
		}
		batched := 0
		for _, m := range g.Held(streams.CommandStream, ">") {
			if m.Header.Get("Nats-Schedule") == "" {
				if m.Header.Get(headerBatchID) != "" {
					batched++
				}
				continue
			}
			require.Equal(t, []string{"@at " + due.UTC().Format(time.RFC3339Nano)}, m.Header["Nats-Schedule"])
			require.Empty(t, m.Header.Get(headerBatchID))
		}
		require.Equal(t, a.group, batched > 0, "the commands beside them are")
	})
}

func TestAScheduleFiresNotEarly(t *testing.T) {
	t.Parallel()
	g := setup(t, embedded.OS)
	a := g.appender(AppenderOptions{Group: true})
	due := time.Now().Add(300 * time.Millisecond)
	m := &nats.Msg{Subject: streams.Names{}.Timer("thing", "default.a", "late"), Data: []byte("body"), Header: nats.Header{}}
	streams.Schedule(m, due, streams.Names{}.Stored("thing", "default.a", "elapsed"))
	require.NoError(t, a.Append(g.Ctx, []Write{{streams.CommandStream, m}})[0].Err)
	g.Eventually("it fires", func() bool { return len(g.Held(streams.CommandStream, "instar.in.>")) == 1 })
	fired := g.Held(streams.CommandStream, ">")
	require.Len(t, fired, 1, "the schedule is gone")
	require.Equal(t, "body", string(fired[0].Data))
	require.False(t, fired[0].Time.Before(due), "%s before %s", fired[0].Time, due)
}

// The server stops and starts while many writes are under way: each is called back exactly once, and what was
// acknowledged is stored.
func TestEveryWriteIsCalledBackOnceThroughRestarts(t *testing.T) {
	t.Parallel()
	for _, group := range []bool{false, true} {
		t.Run(fmt.Sprintf("Group=%v", group), func(t *testing.T) {
			t.Parallel()
			g := setup(t, embedded.Interval)
			a := g.appender(AppenderOptions{Group: group, Timeout: 2 * time.Second})
			const n = 6000
			calls := make([]atomic.Int32, n)
			acked := make([]atomic.Uint64, n)
			var all sync.WaitGroup
			var stored atomic.Int32
			all.Add(n)
			sent, room := make(chan int), make(chan struct{}, 400)
			go func() {
				defer close(sent)
				for i := range n {
					room <- struct{}{}
					a.Go(streams.EventStream, event(fmt.Sprintf("e-%d", i), "thing.made", fmt.Sprint(i)), func(r Result) {
						<-room
						if calls[i].Add(1) > 1 {
							t.Errorf("%d is called back again: %v", i, r)
							return
						}
						if r.Err == nil {
							acked[i].Store(r.Seq)
							stored.Add(1)
						} else if errors.Is(r.Err, ErrConflict) || Permanent(r.Err) {
							t.Errorf("%d: %v", i, r.Err)
						}
						all.Done()
					})
					if i%1000 == 500 {
						sent <- i
					}
				}
			}()
			for i := range sent {
				if i%3000 == 2500 {
					require.NoError(t, g.Server.Restart())
					g.Eventually("the connection is back", g.NC.IsConnected)
				}
			}
			all.Wait()
			bySeq := map[uint64]string{}
			for _, m := range g.Held(streams.EventStream, ">") {
				bySeq[m.Sequence] = string(m.Data)
			}
			for i := range n {
				if seq := acked[i].Load(); seq != 0 {
					require.Equal(t, fmt.Sprint(i), bySeq[seq])
				}
			}
			require.NotZero(t, stored.Load())
			require.Empty(t, a.pending)
		})
	}
}

// Close does not wait for a server that is away, and forgets nobody.
func TestCloseFailsWhatIsUnderWay(t *testing.T) {
	t.Parallel()
	for _, group := range []bool{false, true} {
		t.Run(fmt.Sprintf("Group=%v", group), func(t *testing.T) {
			t.Parallel()
			g := setup(t, embedded.OS)
			a, err := NewAppender(g.NC, AppenderOptions{Group: group, Timeout: time.Hour})
			require.NoError(t, err)
			// Nobody answers here: what is published stays under way.
			_, err = g.NC.Subscribe("silent.>", func(*nats.Msg) {})
			require.NoError(t, err)
			const n = 5000
			var closed, called atomic.Int32
			var senders sync.WaitGroup
			for s := range 4 {
				senders.Go(func() {
					for i := range n {
						stream := fmt.Sprint("S", i%3)
						a.Go(stream, &nats.Msg{Subject: fmt.Sprintf("silent.%d.%d", s, i), Header: nats.Header{}}, func(r Result) {
							called.Add(1)
							if errors.Is(r.Err, ErrClosed) {
								closed.Add(1)
							}
						})
						if s == 0 && i == n/2 {
							senders.Go(a.Close)
						}
					}
				})
			}
			senders.Wait()
			a.Close() // again is nothing
			require.EqualValues(t, 4*n, called.Load())
			require.EqualValues(t, 4*n, closed.Load())
			require.ErrorIs(t, a.Append(g.Ctx, []Write{{"S9", event("a", "x", "")}})[0].Err, ErrClosed)
		})
	}
}

func TestUnansweredWithinItsTime(t *testing.T) {
	t.Parallel()
	g := setup(t, embedded.OS)
	a := g.appender(AppenderOptions{Timeout: 300 * time.Millisecond})
	_, err := g.NC.Subscribe("silent", func(*nats.Msg) {})
	require.NoError(t, err)
	silent := Write{"S", &nats.Msg{Subject: "silent", Header: nats.Header{}}}
	r := a.Append(g.Ctx, []Write{silent, {streams.EventStream, event("a", "thing.made", "x")}})
	require.ErrorIs(t, r[0].Err, ErrUnanswered)
	require.EqualError(t, r[0].Err, "no answer from the stream within 300ms")
	require.Equal(t, Result{Seq: 1}, r[1])

	ctx, cancel := context.WithCancel(g.Ctx)
	cancel()
	r = a.Append(ctx, []Write{silent})
	require.ErrorIs(t, r[0].Err, ErrUnanswered)
	require.ErrorIs(t, r[0].Err, context.Canceled)
}
