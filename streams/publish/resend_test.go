package publish

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/embedded"
)

// A stream whose leader has moved: what it does with each try is scripted.
func TestACommandIsSentAgain(t *testing.T) {
	t.Parallel()
	const stored, conflict, refused, silence = `{"stream":"COMMANDS","seq":7}`, `{"error":{"code":409,"err_code":10158,"description":"duplicate message id is in process"}}`, `{"error":{"code":400,"err_code":10054,"description":"too large"}}`, ""
	for name, c := range map[string]struct {
		answers []string
		ok      bool
	}{
		"AtOnce":               {[]string{stored}, true},
		"LostWithItsLeader":    {[]string{silence, stored}, true},
		"StillUnderWay":        {[]string{silence, conflict, conflict, stored}, true},
		"RefusedIsAnAnswer":    {[]string{refused}, false},
		"RefusedAfterASilence": {[]string{silence, refused}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := setup(t, embedded.Interval)
			names := streams.Names{Prefix: "scripted"}
			var tries atomic.Int32
			ids := make(chan string, 8)
			sub, err := g.NC.Subscribe("scripted.cmd.>", func(m *nats.Msg) {
				ids <- m.Header.Get(nats.MsgIdHdr)
				if n := int(tries.Add(1)); n <= len(c.answers) && c.answers[n-1] != silence {
					_ = m.Respond([]byte(c.answers[n-1]))
				}
			})
			require.NoError(t, err)
			defer func() { require.NoError(t, sub.Unsubscribe()) }()
			commands, err := NewCommands(g.appender(AppenderOptions{Names: names}))
			require.NoError(t, err)
			defer commands.Close()
			commands.Again = 300 * time.Millisecond
			results := make(chan Result, 8)
			require.NoError(t, commands.Start(testCommand("one"), "", func(r Result) { results <- r }))
			r := <-results
			require.Equal(t, c.ok, r.Err == nil, fmt.Sprint(r.Err))
			if c.answers[0] == silence && r.Err != nil {
				require.ErrorIs(t, r.Err, ErrUnanswered)
				require.NotErrorAs(t, r.Err, new(*RefusedError), "the first try may be stored")
			}
			require.EqualValues(t, len(c.answers), tries.Load())
			require.Never(t, func() bool { return len(results) > 0 || int(tries.Load()) > len(c.answers) }, 500*time.Millisecond, 50*time.Millisecond, "it has ended")
			first := <-ids
			for range len(c.answers) - 1 {
				require.Equal(t, first, <-ids)
			}
		})
	}
}

// A command that is answered is stored: it is not sent again, although the stream has not acknowledged it, and nobody may wait for the answer any more. A stream that was started anew might take it for another one.
func TestAnAnsweredCommandIsNotSentAgain(t *testing.T) {
	t.Parallel()
	for name, waits := range map[string]bool{"WhoAskedWaits": true, "WhoAskedHasGone": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := setup(t, embedded.Interval)
			var tries atomic.Int32
			asked := make(chan string, 8)
			sub, err := g.NC.Subscribe("scripted.cmd.>", func(m *nats.Msg) {
				tries.Add(1)
				asked <- streams.Header(m.Header, streams.HeaderReply)
			})
			require.NoError(t, err)
			defer func() { require.NoError(t, sub.Unsubscribe()) }()
			commands, err := NewCommands(g.appender(AppenderOptions{Names: streams.Names{Prefix: "scripted"}, Timeout: 10 * time.Second}))
			require.NoError(t, err)
			defer commands.Close()
			commands.Again = 4 * time.Second
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			told, left := make(chan Result, 2), make(chan error, 1)
			go func() {
				_, err := commands.AskMsg(ctx, testCommand("one"), func(r Result) { told <- r })
				left <- err
			}()
			reply := <-asked
			if !waits {
				leave()
				require.ErrorIs(t, <-left, context.Canceled)
			}
			require.NoError(t, g.NC.Publish(reply, []byte("{}")))
			if waits {
				require.NoError(t, <-left)
			}
			require.NoError(t, (<-told).Err, "when the try has ended")
			require.EqualValues(t, 1, tries.Load())
			g.Eventually("nobody hears of it any more", func() bool {
				heard := false
				commands.waiters.Range(func(any, any) bool { heard = true; return false })
				return !heard
			})
		})
	}
}

// What a stream was sent before another server came to lead it: the election is said, and its stream is scripted.
func TestAnElectionEndsTheWaiting(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		elected string
		moves   bool
		again   time.Duration
		tries   int32 // of the command
		silent  bool  // the write goes on waiting
	}{
		"OfTheStream":          {elected: "COMMANDS", moves: true, again: time.Hour, tries: 2},
		"NotSentAgainUnasked":  {elected: "COMMANDS", moves: true, tries: 1},
		"OfAnotherStream":      {elected: "EVENTS", moves: true, again: time.Hour, tries: 1, silent: true},
		"WithoutReplicas":      {elected: "COMMANDS", again: time.Hour, tries: 1, silent: true},
		"OfOneNamedAlmostSame": {elected: "COMMANDS_x", moves: true, again: time.Hour, tries: 1, silent: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := setup(t, embedded.Interval)
			names := streams.Names{Prefix: "scripted"}
			var tries atomic.Int32
			asked := make(chan struct{}, 8)
			sub, err := g.NC.Subscribe("scripted.cmd.>", func(m *nats.Msg) {
				if tries.Add(1) > 1 {
					_ = m.Respond([]byte(`{"stream":"COMMANDS","seq":7}`))
				}
				asked <- struct{}{}
			})
			require.NoError(t, err)
			defer func() { require.NoError(t, sub.Unsubscribe()) }()
			commands, err := NewCommands(g.appender(AppenderOptions{Names: names, Moves: c.moves}))
			require.NoError(t, err)
			defer commands.Close()
			commands.Again = c.again
			results := make(chan Result, 8)
			require.NoError(t, commands.Start(testCommand("one"), "", func(r Result) { results <- r }))
			<-asked // and so it waits for an answer
			require.NoError(t, g.NC.Publish(streamElected+strings.Replace(c.elected, "COMMANDS", names.Stream(streams.CommandStream), 1), []byte("{}")))
			if c.silent {
				require.Never(t, func() bool { return len(results) > 0 }, 300*time.Millisecond, 20*time.Millisecond)
			} else {
				r := <-results
				if c.again == 0 {
					require.ErrorIs(t, r.Err, ErrUnanswered)
				} else {
					require.NoError(t, r.Err)
				}
			}
			require.Equal(t, c.tries, tries.Load())
		})
	}
}

// The server says that it leads before it listens, and what it was sent first may be lost as well.
func TestACommandOutlivesAnElection(t *testing.T) {
	t.Parallel()
	const again = 300 * time.Millisecond
	g := setup(t, embedded.Interval)
	names := streams.Names{Prefix: "scripted"}
	elected := streamElected + names.Stream(streams.CommandStream)
	tries := make(chan *nats.Msg, 64)
	listen := func() *nats.Subscription {
		sub, err := g.NC.ChanSubscribe("scripted.cmd.>", tries)
		require.NoError(t, err)
		require.NoError(t, g.NC.Flush())
		return sub
	}
	commands, err := NewCommands(g.appender(AppenderOptions{Names: names, Moves: true}))
	require.NoError(t, err)
	defer commands.Close()
	commands.Again = again
	before := listen()
	began := time.Now()
	results := make(chan Result, 8)
	require.NoError(t, commands.Start(testCommand("one"), "", func(r Result) { results <- r }))
	<-tries
	<-tries // the same, after a silence
	g.Eventually("it has waited for longer than a leader takes to move", func() bool { return time.Since(began) > moves })
	require.NoError(t, before.Unsubscribe())
	for len(tries) > 0 {
		<-tries
	}
	require.NoError(t, g.NC.Publish(elected, []byte("{}")))
	require.Never(t, func() bool { return len(results) > 0 }, 100*time.Millisecond, 10*time.Millisecond, "nobody listens yet")
	after := listen()
	defer func() { require.NoError(t, after.Unsubscribe()) }()
	<-tries                                                                 // and is not answered
	require.NoError(t, (<-tries).Respond([]byte(`{"stream":"x","seq":7}`))) // but this one is
	r := <-results
	require.NoError(t, r.Err)
	require.EqualValues(t, 7, r.Seq)
}

// That no stream was there says that nothing is stored, unless another try before may have been.
func TestOnlyTheLastTryWasNotStored(t *testing.T) {
	t.Parallel()
	for _, before := range []error{nil, ErrUnanswered, errMoved} {
		var last error
		s := &sending{c: &Commands{}, began: time.Now().Add(-time.Hour), open: 1, due: true, done: func(r Result) { last = r.Err }}
		if before != nil {
			s.open++
			s.result(Result{Err: before})
		}
		s.due, s.began = false, time.Now().Add(-time.Hour)
		s.result(parseAck(&nats.Msg{}))
		require.ErrorIs(t, last, ErrUnanswered)
		require.Equal(t, before == nil, NotStored(last), before)
	}

	// Nor does a last try that could not even be sent tell what became of one that was.
	var last error
	s := &sending{c: &Commands{}, began: time.Now().Add(-time.Hour), open: 2, due: true, done: func(r Result) { last = r.Err }}
	s.result(Result{Err: ErrUnanswered})
	s.due = false
	s.result(Result{Err: nats.ErrReconnectBufExceeded})
	require.ErrorIs(t, last, ErrUnanswered)
	require.False(t, NotStored(last))
}
