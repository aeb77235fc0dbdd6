package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/api"
	"github.com/bcc94042/instar/streams"
)

// A server that stops answers whoever waits over HTTP, however long the engine takes, and whoever waits for a turn. What nobody waits for, it lets go.
func TestAServerThatStopsAnswersWhoeverWaits(t *testing.T) {
	const sent = 60
	b := setup(t, func(o *api.Options) { o.Limits.CommandsAtOnce = 4 })
	b.ready("mine")
	release := make(chan struct{})
	b.engine.hush(func(string) bool { <-release; return false })
	var all sync.WaitGroup
	answers := make([]answer, sent)
	for i := range sent {
		all.Go(func() {
			answers[i] = b.post("/v1/gadgets/mine/touch", "", "Prefer", []string{"", "wait=10", "respond-async"}[i%3])
		})
	}
	b.metric(fmt.Sprintf(`instar_limit_held{limit="commands"} %d`, sent))
	require.NoError(t, b.server.Close())
	time.AfterFunc(1500*time.Millisecond, func() { close(release) })
	all.Wait()
	for i, a := range answers {
		require.Equal(t, []int{http.StatusOK, http.StatusOK, http.StatusAccepted}[i%3], a.StatusCode, string(a.body))
	}
	b.engine.hush(func(string) bool { return true })
	require.Equal(t, http.StatusAccepted, b.post("/v1/gadgets/mine/touch", "", "Prefer", "respond-async").StatusCode)
	b.metric(`instar_limit_held{limit="commands"} 0`)
}

// Who has an answer may send again at once: its place is free.
func TestAClientThatKeepsToItsBoundIsNotRefused(t *testing.T) {
	const atOnce, each = 4, 300
	b := setup(t, func(o *api.Options) { o.Limits.Commands.Each, o.Limits.Questions.Each = atOnce, atOnce })
	require.NoError(t, b.server.Micro(t.Context()))
	b.ready("mine")
	ask := func(subject string) func() string {
		return func() string { return b.ask(subject, "").Header.Get(micro.ErrorCodeHeader) }
	}
	for name, send := range map[string]func() string{
		"HTTP": func() string {
			r, w := newCall(http.MethodPost, "/v1/gadgets/mine/touch", "")
			if b.server.Handler().ServeHTTP(w, r); w.Code != http.StatusOK {
				return w.Body.String()
			}
			return ""
		},
		"NATS": ask("instar.api.cmd.gadget.default.mine.touch"), "reads over NATS": ask("instar.api.get.gadget.default.mine"),
	} {
		var all sync.WaitGroup
		var refused sync.Map
		for i := range atOnce {
			all.Go(func() {
				for j := range each {
					if told := send(); told != "" {
						refused.Store(fmt.Sprint(i, " ", j), told)
					}
				}
			})
		}
		all.Wait()
		refused.Range(func(at, told any) bool {
			t.Errorf("%s: %v was told %v", name, at, told)
			return true
		})
	}
}

// An answer of the engine is an answer, whether or not the stream has acknowledged the command.
func TestAnAnswerWithoutAnAcknowledgement(t *testing.T) {
	b := setup(t)
	b.ready("mine")
	s, err := b.js.Stream(t.Context(), streams.CommandStream)
	require.NoError(t, err)
	c := s.CachedInfo().Config
	c.NoAck = true
	_, err = b.js.UpdateStream(t.Context(), c)
	require.NoError(t, err)
	for prefer, want := range map[string]int{"": http.StatusOK, "wait=1": http.StatusOK, "respond-async": http.StatusAccepted} {
		begun := time.Now()
		a := b.post("/v1/gadgets/mine/touch", "", "Prefer", prefer)
		require.Equal(t, want, a.StatusCode, "%q: %s", prefer, a.body)
		require.Less(t, time.Since(begun), time.Second, prefer)
	}
	b.metric(`instar_limit_held{limit="commands"} 0`)
}

// A client that waits for less than the engine needs has its place until the engine has answered all the same.
func TestAPlaceIsHeldForAsLongAsTheEngineNeeds(t *testing.T) {
	for _, prefer := range []string{"wait=1", "respond-async"} {
		t.Run(prefer, func(t *testing.T) {
			b := setup(t, func(o *api.Options) { o.Limits.Commands.Each = 1 })
			b.ready("mine")
			release := make(chan struct{})
			answers := sync.OnceFunc(func() { close(release) })
			defer answers()
			b.engine.hush(func(string) bool { <-release; return false })
			require.Equal(t, http.StatusAccepted, b.post("/v1/gadgets/mine/touch", "", "Prefer", prefer).StatusCode)
			b.post("/v1/gadgets/mine/touch", "", "Prefer", prefer).problem(t, http.StatusTooManyRequests, "rate-limited")
			answers()
			b.metric(`instar_limit_held{limit="commands"} 0`)
			require.Equal(t, http.StatusOK, b.post("/v1/gadgets/mine/touch", "").StatusCode)
		})
	}
}

// Who has no place left costs no read of the answers that are kept.
func TestACommandWithoutAPlaceReadsNothing(t *testing.T) {
	b := setup(t, func(o *api.Options) { o.Limits.Commands.Each = 4 })
	b.ready("mine")
	asked, err := b.nc.SubscribeSync("$JS.API.>")
	require.NoError(t, err)
	require.NoError(t, b.nc.Flush())
	reads := func() (n int) {
		require.NoError(t, b.nc.Flush())
		for {
			m, err := asked.NextMsg(time.Millisecond)
			if err != nil {
				require.ErrorIs(t, err, nats.ErrTimeout)
				return n
			}
			if strings.Contains(m.Subject, "GET.KV_idempotency") {
				n++
			}
		}
	}
	send := func(key string) answer {
		return b.post("/v1/gadgets/mine/touch", "", "Prefer", "respond-async", "Idempotency-Key", key)
	}
	leave := b.server.TakeCommands("token boss")
	for range 10 {
		send("none").problem(t, http.StatusTooManyRequests, "rate-limited")
	}
	require.Zero(t, reads())
	leave()
	require.Equal(t, http.StatusAccepted, send("one").StatusCode)
	require.Equal(t, 1, reads(), "it is looked for once")
}
