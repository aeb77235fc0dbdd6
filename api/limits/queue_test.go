package limits_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/api/limits"
)

// stage has what clients have asked for, in order.
type stage struct {
	t      *testing.T
	q      *limits.Queue
	places map[string][]*limits.Place
}

func on(t *testing.T, turns limits.Turns) *stage {
	return &stage{t: t, q: limits.NewQueue(limits.NewPool("commands", limits.Bound{}), turns), places: map[string][]*limits.Place{}}
}

func (s *stage) ask(client string, n int) {
	s.t.Helper()
	for range n {
		p, err := s.q.Join(client)
		require.NoError(s.t, err)
		s.places[client] = append(s.places[client], p)
	}
}

// end ends the first ones of a client.
func (s *stage) end(client string, n int) {
	for _, p := range s.places[client][:n] {
		p.Leave()
		p.Leave() // once
	}
	s.places[client] = s.places[client][n:]
}

// has requires that so many of each client have begun and not ended.
func (s *stage) has(a, b int) {
	s.t.Helper()
	require.Equal(s.t, []int{a, b}, []int{s.begun("a"), s.begun("b")})
}

func (s *stage) begun(client string) (n int) {
	for _, p := range s.places[client] {
		if p.Begun() {
			n++
		}
	}
	return n
}

// A client that is alone has all turns. Another one is next as soon as one of them ends, and from then on finds no more than a few before it, until it
// was away for a while: also where nobody asks for anything then.
func TestAClientLeavesOthersRoom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := on(t, limits.Turns{All: 20, Small: 4})
		s.ask("a", 200)
		s.has(20, 0)
		s.ask("b", 1)
		s.end("a", 1)
		s.has(19, 1)
		s.end("a", 15)
		s.has(4, 1)
		s.end("b", 1)
		s.end("a", 5)
		s.has(4, 0)
		s.ask("b", 4)
		s.has(4, 4)
		s.end("b", 4)
		time.Sleep(600 * time.Millisecond)
		s.end("a", 1)
		s.has(4, 0)
		time.Sleep(500 * time.Millisecond) // for as long again at most
		s.end("a", 1)
		s.has(20, 0)
		s.ask("b", 5) // as much as others
		s.end("a", 10)
		s.has(15, 5)
	})
}

// However many there are that ask for much, a small client finds no more before it; and it costs them no more than that, either.
func TestStormsShareAFewTurns(t *testing.T) {
	t.Parallel()
	s := on(t, limits.Turns{All: 100, Small: 8})
	s.ask("small", 1)
	for i, storm := range []string{"a", "b", "x", "y"} {
		s.ask(storm, 200+100*i)
	}
	s.end("a", 8)
	s.end("b", 8)
	s.has(2, 2)
	for i := range 60 { // however many there are of them
		s.ask(fmt.Sprint("other", i), 1)
	}
	s.end("b", 1)
	s.has(2, 2)
	for _, storm := range []string{"x", "y"} {
		s.end(storm, len(s.places[storm]))
	}
	for range 4 {
		s.ask(fmt.Sprint("many", len(s.places)), 100)
	}
	s.end("b", 1)
	s.has(2, 2)
	s.q.Release()
	s.has(len(s.places["a"]), len(s.places["b"]))
	s.ask("a", 7)
	s.has(len(s.places["a"]), len(s.places["b"]))
	free := on(t, limits.Turns{})
	free.ask("b", 1)
	free.ask("a", 50)
	free.has(50, 1)
}

// Clients that all have much to do share all turns.
func TestClientsWithMuchShareAllTurns(t *testing.T) {
	t.Parallel()
	s := on(t, limits.Turns{All: 10})
	s.ask("a", 50)
	s.ask("b", 50)
	s.end("a", 10)
	s.has(5, 5)
}

// What is given up stands in nobody's way, and has had no turn.
func TestWhatIsGivenUpLeavesTheLine(t *testing.T) {
	t.Parallel()
	s := on(t, limits.Turns{All: 1})
	s.ask("a", 10)
	s.ask("b", 1)
	for _, p := range s.places["a"][1:] {
		p.Leave()
	}
	s.has(1, 0)
	s.end("a", 1)
	s.has(0, 1)
	s.end("b", 1)
	s.ask("b", 2)
	s.places["b"][1].Leave()
	s.end("b", 1)
	s.ask("a", 1)
	require.True(t, s.places["a"][9].Begun())
}

func TestJobsMayBeginWhileSomebodyWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var j limits.Jobs
		j.Wait()
		j.Begin()
		j.Begin()
		ended := make(chan struct{})
		for range 2 {
			go func() { j.Wait(); ended <- struct{}{} }()
		}
		synctest.Wait()
		j.End()
		synctest.Wait()
		require.Empty(t, ended)
		j.End()
		j.Begin()
		<-ended
		<-ended
	})
}

// What hangs keeps others from a turn for a while only, and its own client until it ends: that has no more under way than all turns. It gives
// none back when it ends.
func TestATurnPasses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := on(t, limits.Turns{All: 4, Hold: time.Second})
		s.ask("a", 20)
		s.ask("b", 6)
		s.has(4, 0)
		time.Sleep(999 * time.Millisecond)
		s.has(4, 0)
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		s.has(4, 4)
		require.Equal(t, 8, s.q.UnderWay())
		s.end("a", 1)
		s.has(3, 4)
		s.end("b", 1)
		s.has(4, 3) // a is next
		time.Sleep(time.Minute)
		synctest.Wait()
		s.has(4, 4)
		s.end("a", 2)
		synctest.Wait()
		s.has(4, 4)
		require.Equal(t, 8, s.q.UnderWay())
	})
}

func TestAGivenUpTurnIsPassedOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := limits.NewQueue(limits.NewPool("commands", limits.Bound{Each: 1}), limits.Turns{All: 1})
		leave, err := q.Take(t.Context(), "a")
		require.NoError(t, err)
		var full *limits.Full
		_, err = q.Take(t.Context(), "a")
		require.ErrorAs(t, err, &full)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = q.Take(ctx, "b")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		leave()
		leave()
		synctest.Wait()
		leave, err = q.Take(t.Context(), "b")
		require.NoError(t, err)
		leave()
	})
}

// storage does one thing at a time, in the order in which their turns came.
type storage struct {
	*stage
	waiting, begun []*limits.Place
	each           time.Duration
}

func (s *storage) join(client string) *limits.Place {
	s.t.Helper()
	p, err := s.q.Join(client)
	require.NoError(s.t, err)
	s.waiting = append(s.waiting, p)
	return p
}

func (s *storage) begin() {
	s.waiting = slices.DeleteFunc(s.waiting, func(p *limits.Place) bool {
		if p.Begun() {
			s.begun = append(s.begun, p)
		}
		return p.Begun()
	})
}

// alone measures how long each of the things takes that a small client asks for, one after the other, while again goes on with those of the others.
func (s *storage) alone(n int, again func(p *limits.Place)) (waited []time.Duration) {
	s.t.Helper()
	s.begin()
	for mine, asked := s.join("small"), time.Now(); len(waited) < n; {
		time.Sleep(s.each)
		synctest.Wait() // turns that pass
		s.begin()
		require.NotEmpty(s.t, s.begun)
		p := s.begun[0]
		s.begun = s.begun[1:]
		if p != mine {
			again(p)
		} else {
			p.Leave()
			waited = append(waited, time.Since(asked))
			mine, asked = s.join("small"), time.Now()
		}
		s.begin()
	}
	return waited
}

// A small client is protected for as long as it waits for an engine that is slow, and a while longer: also where that needs more than a second for
// all turns, and for the first command that stood behind all of them.
func TestASmallClientOnAnEngineThatIsSlow(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ storms, perSecond int }{{1, 200}, {1, 100}, {1, 40}, {1, 12}, {20, 60}, {60, 200}} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := &storage{stage: on(t, limits.Turns{All: 256, Small: 8, Hold: time.Second}), each: time.Second / time.Duration(c.perSecond)}
				storm := 0
				more := func() {
					storm++
					s.join(fmt.Sprint("storm", storm%c.storms))
				}
				for range 1000 {
					more()
				}
				waited := s.alone(60, func(p *limits.Place) {
					p.Leave()
					more()
				})
				few := time.Duration(max(8, 2*c.storms))
				for i, d := range waited[1:] { // before it may be as many as may have passed while the one before it waited
					require.LessOrEqual(t, d, (2*few+2+few*(waited[i]/time.Second))*s.each, "the command %d: %v", i+2, waited)
				}
			})
		})
	}
}

// Commands that hang, as those of a partition without an owner do, hold up the others of their client for no more than their turns, also beside a small one, and also when
// that one's command hangs.
func TestWhatHangsDoesNotStopItsClient(t *testing.T) {
	t.Parallel()
	for _, small := range []time.Duration{5 * time.Millisecond, 10 * time.Second} {
		t.Run(fmt.Sprint(small), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				q := limits.NewQueue(limits.NewPool("commands", limits.Bound{}), limits.Turns{All: 256, Small: 8, Hold: time.Second})
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				var all sync.WaitGroup
				var asked, done atomic.Int64
				var first time.Duration
				began := time.Now()
				client := func(name string, pause time.Duration, command func()) {
					all.Go(func() {
						for {
							leave, err := q.Take(ctx, name)
							if err != nil {
								return
							}
							command()
							leave()
							time.Sleep(pause)
						}
					})
				}
				client("small", 200*time.Millisecond, func() { time.Sleep(small) })
				time.Sleep(time.Millisecond)
				for range 200 {
					client("large", 0, func() {
						if n := asked.Add(1); n <= 8 || n%12 == 0 { // all of its turns at first
							time.Sleep(10 * time.Second)
							return
						}
						time.Sleep(5 * time.Millisecond)
						if done.Add(1) == 1 {
							first = time.Since(began)
						}
					})
				}
				all.Wait()
				require.Less(t, first, 3*time.Second)
				require.Greater(t, int(done.Load()), 4000, "of %d", asked.Load())
			})
		})
	}
}

// However much requests ask for, piece by piece, somebody else is next after a few pieces. They keep their places in the pool.
func TestPiecesOfARequestTakeTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const few = 8
		pool := limits.NewPool("reads", limits.Bound{Each: 1000})
		s := &storage{stage: &stage{t: t, q: limits.NewQueue(pool, limits.Turns{All: 64, Small: few, Hold: time.Second})}, each: time.Millisecond}
		for range 1000 {
			s.join("storm")
		}
		waited := s.alone(1000, func(p *limits.Place) {
			p.Again()
			s.waiting = append(s.waiting, p)
		})
		require.LessOrEqual(t, waited[0], 65*s.each)
		require.LessOrEqual(t, slices.Max(waited[2:]), (few+2)*s.each)
		require.Equal(t, 1001, pool.Held())
		_, err := s.q.Join("storm")
		require.Error(t, err)
		left := s.join("once")
		left.Leave()
		left.Again()
		require.Equal(t, 1001, pool.Held())
	})
}

// The time after which a turn passes is that of the turn, not of the place.
func TestATurnThatIsTakenAgainPassesLater(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := on(t, limits.Turns{All: 1, Hold: time.Second})
		s.ask("a", 1)
		time.Sleep(900 * time.Millisecond)
		s.places["a"][0].Again()
		s.has(1, 0)
		s.ask("b", 1)
		time.Sleep(900 * time.Millisecond)
		synctest.Wait()
		s.has(1, 0)
		s.places["a"][0].Again()
		s.has(0, 1)
		time.Sleep(time.Second)
		synctest.Wait()
		s.has(1, 1)
	})
}
