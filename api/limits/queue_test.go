package limits_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/api/limits"
)

// stage begins what clients ask for, and ends what is under way of them.
type stage struct {
	t     *testing.T
	q     *limits.Queue
	mu    sync.Mutex // a turn passes beside the test
	under map[string][]func()
	back  []func() bool // takes back what was asked for, in order
}

func on(t *testing.T, turns limits.Turns) *stage {
	return &stage{t: t, q: limits.NewQueue(limits.NewPool("commands", limits.Bound{}), turns), under: map[string][]func(){}}
}

func (s *stage) ask(client string, n int) {
	for range n {
		back, err := s.q.Begin(client, func(end func()) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.under[client] = append(s.under[client], end)
		})
		require.NoError(s.t, err)
		s.back = append(s.back, back)
	}
}

func (s *stage) end(client string, n int) {
	for range n {
		s.mu.Lock()
		end := s.under[client][0]
		s.under[client] = s.under[client][1:]
		s.mu.Unlock()
		end()
		end() // once
	}
}

func (s *stage) has(a, b int) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	require.Equal(s.t, []int{a, b}, []int{len(s.under["a"]), len(s.under["b"])})
}

// A client that is alone has all turns. Another one is next as soon as one of them ends, and from then on finds no more before it
// than it has itself, until it was away for a while.
func TestAClientLeavesOthersRoom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := on(t, limits.Turns{All: 10, About: 2 * time.Second})
		s.ask("a", 200)
		s.has(10, 0)
		s.ask("b", 1)
		s.end("a", 1)
		s.has(9, 1)
		s.end("a", 8)
		s.has(1, 1)
		s.end("a", 1)
		s.has(1, 1)
		s.end("b", 1)
		s.end("a", 5)
		s.has(1, 0)
		s.ask("b", 3)
		s.has(1, 3)
		s.end("a", 1)
		s.has(3, 3)
		s.end("b", 3)
		time.Sleep(1900 * time.Millisecond)
		s.end("a", 3)
		s.has(3, 0)
		time.Sleep(2 * time.Second)
		s.ask("a", 1)
		s.end("a", 3)
		s.has(3, 0) // for as long again at most
		time.Sleep(2 * time.Second)
		s.ask("a", 1)
		s.has(10, 0)
	})
}

func TestClientsWithMuchShareAllTurns(t *testing.T) {
	t.Parallel()
	s := on(t, limits.Turns{All: 10, About: 2 * time.Second})
	s.ask("a", 50)
	s.ask("b", 50)
	s.end("a", 10)
	s.has(5, 5)
	s.q.Release()
	s.has(50-5-5, 50)
	s.ask("a", 7)
	s.has(47, 50)
	floor := on(t, limits.Turns{All: 10, About: time.Second, Least: 4})
	floor.ask("a", 50)
	floor.ask("b", 1)
	floor.end("a", 7)
	floor.has(4, 1)
	floor.end("a", 1)
	floor.has(4, 1) // one that has little to do costs another one no more than that
	free := on(t, limits.Turns{About: time.Second})
	free.ask("a", 50)
	free.ask("b", 1)
	free.has(50, 1)
}

// Who comes and goes is forgotten also while nobody asks for anything more.
func TestABacklogGoesOnWhenOthersHaveGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := on(t, limits.Turns{All: 10, About: time.Second, Least: 2})
		s.ask("b", 1)
		s.end("b", 1)
		s.ask("a", 100)
		s.has(2, 0)
		for range 4 {
			time.Sleep(500 * time.Millisecond)
			s.end("a", 1)
		}
		s.has(10, 0)
	})
}

// What is taken back stands in nobody's way, and has had no turn.
func TestWhatIsTakenBackLeavesTheLine(t *testing.T) {
	t.Parallel()
	for _, about := range []time.Duration{0, time.Minute} {
		s := on(t, limits.Turns{All: 1, About: about})
		s.ask("a", 10)
		s.ask("b", 1)
		require.False(t, s.back[0](), "it has begun")
		for _, back := range s.back[1:10] {
			require.True(t, back())
			require.False(t, back())
		}
		s.end("a", 1)
		s.has(0, 1)
		s.end("b", 1)
		s.has(0, 0)
		s.ask("b", 2)
		require.True(t, s.back[12]())
		s.end("b", 1)
		s.ask("a", 1)
		s.has(1, 0)
	}
}

// Those who ask for much do not allow each other more: what a small one finds before it are as many small shares.
func TestSeveralStormsHaveTheSameSmallShare(t *testing.T) {
	t.Parallel()
	s := on(t, limits.Turns{All: 100, About: time.Minute, Least: 2})
	s.ask("small", 1)
	for i, storm := range []string{"a", "b", "x"} {
		s.ask(storm, 200+100*i)
	}
	s.has(3, 2) // a part of all turns is theirs, whoever they are
	s.ask("small", 4)
	s.end("a", 2)
	s.end("b", 1)
	s.has(5, 5)
	for i := range 30 {
		s.ask(fmt.Sprint("other", i), 1)
	}
	s.end("b", 1)
	s.has(5, 35)
	s.q.Release()
	s.has(200-2, 300-2)
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

// What hangs keeps nobody from a turn, and gives none back when it ends.
func TestATurnPasses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := on(t, limits.Turns{All: 1, Hold: 100 * time.Millisecond})
		s.ask("a", 1)
		s.ask("b", 2)
		s.has(1, 0)
		time.Sleep(99 * time.Millisecond)
		s.has(1, 0)
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		s.has(1, 1)
		s.end("a", 1)
		s.has(0, 1)
		s.end("b", 1)
		s.has(0, 1)
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
