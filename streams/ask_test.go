package streams

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
)

// withoutStreams is a connection to a server without streams, so that the answers are the test's.
func withoutStreams(t *testing.T) *nats.Conn {
	t.Helper()
	s, err := server.NewServer(&server.Options{DontListen: true, NoLog: true, NoSigs: true})
	require.NoError(t, err)
	s.Start()
	t.Cleanup(s.Shutdown)
	require.True(t, s.ReadyForConnections(10*time.Second))
	nc, err := nats.Connect("", nats.InProcessServer(s))
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	return nc
}

// A leader that is overloaded, or being elected, answers after seconds. Who gave up a read earlier would drop what it has in memory and read
// all of it again.
func TestAReadWaitsForASlowLeader(t *testing.T) {
	t.Parallel()
	nc, began := withoutStreams(t), time.Now()
	var first, last, asked atomic.Int64
	_, err := nc.Subscribe("$JS.API.STREAM.MSG.GET.SLOW", func(m *nats.Msg) {
		asked.Add(1)
		first.CompareAndSwap(0, int64(time.Since(began)))
		last.Store(int64(time.Since(began)))
		if last.Load()-first.Load() > int64(3*time.Second) {
			_ = m.Respond([]byte(`{"message":{"subject":"a","seq":7}}`))
		}
	})
	require.NoError(t, err)
	m, err := Last(t.Context(), nc, "SLOW", "a")
	require.NoError(t, err)
	require.EqualValues(t, 7, m.Sequence)
	require.LessOrEqual(t, asked.Load(), int64(6), "each time it waits for longer, so it does not add to the load")
}

// A question to a leader that is being elected: what becomes of each time that it is put is scripted.
func TestAQuestionIsPutAgain(t *testing.T) {
	t.Parallel()
	const yes, silence, leaderless, refused = `{"yes":1}`, "", `{"error":{"code":503,"err_code":10008}}`, `{"error":{"code":404,"err_code":10014}}`
	const member, led = `{"cluster":{"name":"c","replicas":[]}}`, `{"cluster":{"name":"c","leader":"a","replicas":[]}}`
	nc := withoutStreams(t)
	for name, c := range map[string]struct {
		answers []string
		want    string // empty: there is none
	}{
		"AtOnce":              {[]string{yes}, yes},
		"AskedOfADeadLeader":  {[]string{silence, silence, yes}, yes},
		"TheClusterHasNobody": {[]string{leaderless, leaderless, yes}, yes},
		"AMemberAnswers":      {[]string{member, member, led}, led},
		"ARefusalIsAnAnswer":  {[]string{refused}, refused},
		"ForAsLongAsItMay":    {[]string{silence}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var asked atomic.Int32
			subject := "question." + name
			sub, err := nc.Subscribe(subject, func(m *nats.Msg) {
				if n := int(asked.Add(1)); n <= len(c.answers) && c.answers[n-1] != silence {
					_ = m.Respond([]byte(c.answers[n-1]))
				}
			})
			require.NoError(t, err)
			defer func() { require.NoError(t, sub.Unsubscribe()) }()
			within := time.Minute
			if c.want == "" {
				within = 3 * askEvery
			}
			ctx, cancel := context.WithTimeout(t.Context(), within)
			defer cancel()
			m, err := new(questions).ask(ctx, nc, &nats.Msg{Subject: subject, Data: []byte("?")})
			if c.want == "" {
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.Greater(t, asked.Load(), int32(1))
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.want, string(m.Data))
			require.GreaterOrEqual(t, int(asked.Load()), len(c.answers), "more often where answers are slow")
		})
	}
	t.Run("NobodyWaitsAnyMore", func(t *testing.T) {
		t.Parallel()
		sub, err := nc.Subscribe("question.vain", func(m *nats.Msg) { _ = m.Respond([]byte(leaderless)) })
		require.NoError(t, err)
		defer func() { require.NoError(t, sub.Unsubscribe()) }()
		for n := range 1000 { // some end between the answer and the look at it
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(n%300)*time.Microsecond)
			m, err := new(questions).ask(ctx, nc, &nats.Msg{Subject: "question.vain"})
			cancel()
			require.Nil(t, m)
			require.Error(t, err)
		}
	})
	t.Run("NobodyListensYet", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		time.AfterFunc(2*askEvery, func() {
			_, err := nc.Subscribe("question.late", func(m *nats.Msg) { _ = m.Respond([]byte(yes)) })
			if err != nil {
				t.Error(err)
			}
		})
		m, err := new(questions).ask(ctx, nc, &nats.Msg{Subject: "question.late"})
		require.NoError(t, err)
		require.Equal(t, yes, string(m.Data))
	})
}

// A leader that answers others is slow, and not gone: what is put again only makes it slower.
func TestASlowLeaderIsLeftAlone(t *testing.T) {
	t.Parallel()
	nc := withoutStreams(t)
	var q questions
	var asked atomic.Int32
	_, err := nc.Subscribe("question.slow", func(m *nats.Msg) {
		asked.Add(1)
		now := time.Now()
		q.heard.Store(&now) // another question was answered
		time.AfterFunc(4*askEvery, func() { _ = m.Respond([]byte("{}")) })
	})
	require.NoError(t, err)
	m, err := q.ask(t.Context(), nc, &nats.Msg{Subject: "question.slow"})
	require.NoError(t, err)
	require.Equal(t, "{}", string(m.Data))
	require.Equal(t, int32(1), asked.Load())
}

// The time for an answer begins when the question is put, not when it waits for others to be answered; and it waits for a place no longer than so long.
func TestAQuestionWaitsForItsPlace(t *testing.T) {
	nc, another := withoutStreams(t), withoutStreams(t)
	nc.Close()
	another.Close()
	synctest.Test(t, func(t *testing.T) {
		const stream = "WITHOUT_A_PLACE"
		full := make(chan struct{}, 1)
		full <- struct{}{}
		by := [2]any{weak.Make(nc), stream}
		places.Store(by, &questions{places: full})
		defer places.Delete(by)
		_, err := Last(t.Context(), another, stream, "a")
		require.ErrorIs(t, err, nats.ErrConnectionClosed, "a connection does not wait behind another one")
		defer places.Delete([2]any{weak.Make(another), stream})
		asked := make(chan error, 1)
		go func() {
			_, err := Last(t.Context(), nc, stream, "a")
			asked <- err
		}()
		time.Sleep(2 * messageWithin)
		require.Empty(t, asked)
		<-full
		require.ErrorIs(t, <-asked, nats.ErrConnectionClosed, "it was put, and had time")

		full <- struct{}{}
		began := time.Now()
		_, err = Info(t.Context(), nc, stream)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, stream)
		require.Equal(t, placeWithin, time.Since(began))
	})
}

// The places of a connection go with it.
func TestThePlacesOfAConnectionGoWithIt(t *testing.T) {
	t.Parallel()
	const stream = "GONE"
	by := func() any {
		nc := new(nats.Conn)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := Last(ctx, nc, stream, "a")
		require.ErrorIs(t, err, context.Canceled)
		by := [2]any{weak.Make(nc), stream}
		_, there := places.Load(by)
		require.True(t, there)
		runtime.KeepAlive(nc)
		return by
	}()
	require.Eventually(t, func() bool {
		runtime.GC()
		_, there := places.Load(by)
		return !there
	}, 30*time.Second, 10*time.Millisecond)
}

// However many ask, a stream has so many questions before it and no more, and all are answered in the end.
func TestAStreamHasFewQuestionsBeforeItAtATime(t *testing.T) {
	t.Parallel()
	nc := withoutStreams(t)
	var mu sync.Mutex
	waiting := map[string]*nats.Msg{} // by what is asked for; it is asked again
	answering, puts := false, 0
	answer := func(m *nats.Msg) { _ = m.Respond([]byte(`{"message":{"subject":"a","seq":7}}`)) }
	_, err := nc.Subscribe("$JS.API.STREAM.MSG.GET.WANTED", func(m *nats.Msg) {
		mu.Lock()
		defer mu.Unlock()
		puts++
		if waiting[string(m.Data)] = m; answering {
			answer(m)
		}
	})
	require.NoError(t, err)
	const askers = 4 * atOnce
	var all sync.WaitGroup
	for n := range askers {
		all.Go(func() {
			m, err := Last(t.Context(), nc, "WANTED", fmt.Sprint(n))
			if err != nil || m.Sequence != 7 {
				t.Errorf("%v %v", m, err)
			}
		})
	}
	require.Eventually(t, func() bool {
		mu.Lock()
		defer mu.Unlock()
		return puts >= 2*atOnce // they are put again, so others had the time to come
	}, 30*time.Second, time.Millisecond)
	mu.Lock()
	answering = true
	require.Len(t, waiting, atOnce)
	for _, m := range waiting {
		answer(m)
	}
	mu.Unlock()
	all.Wait()
	require.Len(t, waiting, askers)
}
