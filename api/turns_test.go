package api_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/api"
	"github.com/bcc94042/instar/streams"
)

// Commands that one client sends without waiting for what comes of them wait for themselves at the door, while there is another client:
// not before the commands of that one in the stream, where nobody can tell them apart. All of them are stored and answered in the end. Without turns
// the other one waits for nearly all of them.
func TestAStormWaitsForItself(t *testing.T) {
	const storm, spec = 100, `{"spec":{"name":"x","hold":true}}`
	b := setup(t, func(o *api.Options) { o.Limits = api.DefaultLimits })
	require.NoError(t, b.server.Micro(t.Context()))
	b.ready("mine")
	b.engine.slow.Store(int64(8 * time.Millisecond))
	// waited is for how many commands the other client waits at most, its own included, while a storm lasts.
	waited := func(begin func(*sync.WaitGroup)) (most int64) {
		touch := func() int64 {
			before := b.engine.count.Load()
			require.Equal(t, http.StatusOK, b.post("/v1/gadgets/mine/touch", "").StatusCode)
			return b.engine.count.Load() - before
		}
		touch()
		var sent sync.WaitGroup
		begin(&sent)
		ended := make(chan struct{})
		go func() { sent.Wait(); close(ended) }()
		for {
			most = max(most, touch())
			select {
			case <-ended:
				return most
			default:
			}
		}
	}
	require.Less(t, waited(func(sent *sync.WaitGroup) {
		for i := range 5 {
			sent.Go(func() {
				for j := range storm / 5 {
					a := b.post(fmt.Sprintf("/v1/gadgets/s%d-%d/create", i, j), spec, "Authorization", "Bearer operate-token", "Prefer", "respond-async")
					require.Equal(t, http.StatusAccepted, a.StatusCode)
				}
			})
		}
	}), int64(storm/10*3), "over HTTP")

	answers, err := b.nc.SubscribeSync("_INBOX.storm.*")
	require.NoError(t, err)
	require.Less(t, waited(func(sent *sync.WaitGroup) {
		for i := range storm {
			require.NoError(t, b.nc.PublishMsg(&nats.Msg{Subject: fmt.Sprintf("instar.api.cmd.gadget.default.n%d.create", i), Reply: fmt.Sprint("_INBOX.storm.", i), Data: []byte(spec)}))
		}
		sent.Go(func() {
			for range storm {
				m, err := answers.NextMsg(2 * soon)
				require.NoError(t, err)
				require.Empty(t, m.Header.Get(micro.ErrorCodeHeader))
				require.Contains(t, string(m.Data), `"applied"`)
			}
		})
	}), int64(storm/10*3), "over NATS")
}

// A client that hangs up keeps its turns until the engine has answered: it comes no sooner to the next ones.
func TestATurnOutlivesItsRequest(t *testing.T) {
	const all = 40
	b := setup(t, func(o *api.Options) { o.Limits.CommandsAtOnce, o.AnswerWithin = 4, time.Second })
	b.ready("mine")
	b.engine.hush(func(string) bool { return true })
	before, begun := b.engine.count.Load(), time.Now()
	for range all {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, b.web.URL+"/v1/gadgets/mine/touch", nil)
		require.NoError(t, err)
		r.Header.Set("Authorization", "Bearer "+b.token)
		if a, err := b.web.Client().Do(r); err == nil {
			_ = a.Body.Close()
		}
		cancel()
	}
	given := 1 + time.Since(begun)/time.Second // nobody waits for an answer for longer than that
	require.LessOrEqual(t, b.engine.count.Load()-before, 4*int64(given))
}

// A command over NATS whose turn does not come in time is refused while its sender still listens, and is not stored afterwards.
func TestATurnThatDoesNotCome(t *testing.T) {
	b := setup(t, func(o *api.Options) { o.Limits.CommandsAtOnce, o.AnswerWithin = 1, time.Second })
	require.NoError(t, b.server.Micro(t.Context()))
	b.engine.hush(func(string) bool { return true })
	const sent = 12
	answers, err := b.nc.SubscribeSync("_INBOX.late.*")
	require.NoError(t, err)
	before, begun := b.stored(), time.Now()
	for i := range sent {
		require.NoError(t, b.nc.PublishRequest(fmt.Sprintf("instar.api.cmd.gadget.default.n%d.create", i), fmt.Sprint("_INBOX.late.", i), []byte(`{"spec":{"name":"x"}}`)))
	}
	late := 0
	for {
		m, err := answers.NextMsg(time.Second)
		if err != nil {
			break
		}
		require.Contains(t, m.Header.Get(micro.ErrorHeader), "the turn of this client did not come in time; nothing was done")
		late++
	}
	require.GreaterOrEqual(t, late, sent/2)
	require.EqualValues(t, sent-late, b.stored()-before)
	b.metric(fmt.Sprintf(`instar_limit_refused_total{limit="commands-at-once",of="late"} %d`, late))
	require.Less(t, time.Since(begun), soon)
}

// How long a sender prefers to wait begins when the turn of its client has come.
func TestAPreferredWaitBeginsWithTheTurn(t *testing.T) {
	b := setup(t, func(o *api.Options) { o.Limits.CommandsAtOnce = 1 })
	b.ready("mine")
	for i := range 25 {
		b.server.TakeTurns(fmt.Sprint("other ", i), 1)
	}
	begun := time.Now()
	a := b.post("/v1/gadgets/mine/touch", "", "Prefer", "wait=1")
	require.Equal(t, http.StatusOK, a.StatusCode, string(a.body))
	require.Greater(t, time.Since(begun), 2*time.Second, "longer than a command may take to be stored")
}

// A server that stops waits for no turn: what has had none is told so.
func TestAServerThatStopsWaitsForNoTurn(t *testing.T) {
	const sent = 100
	b := setup(t, func(o *api.Options) { o.Limits.CommandsAtOnce = 1 })
	require.NoError(t, b.server.Micro(t.Context()))
	b.engine.hush(func(string) bool { return true })
	answers, err := b.nc.SubscribeSync("_INBOX.last.*")
	require.NoError(t, err)
	for i := range sent {
		require.NoError(t, b.nc.PublishRequest(fmt.Sprintf("instar.api.cmd.gadget.default.n%d.create", i), fmt.Sprint("_INBOX.last.", i), []byte(`{"spec":{"name":"x"}}`)))
	}
	b.metric(fmt.Sprintf(`instar_limit_held{limit="commands"} %d`, sent))
	before, begun := b.stored(), time.Now()
	require.NoError(t, b.server.Close())
	require.Less(t, time.Since(begun), soon, "each turn takes a second")
	require.LessOrEqual(t, b.stored(), before+1)
	for range sent / 2 {
		m, err := answers.NextMsg(soon)
		require.NoError(t, err)
		require.Equal(t, "503", m.Header.Get(micro.ErrorCodeHeader))
	}
}

// A server that is closed, also one that was never asked over NATS, takes commands that nobody waits for as others do, and lets none of them
// wait for its turn.
func TestAClosedServerStoresWhatItTakes(t *testing.T) {
	const sent = 100
	b := setup(t, func(o *api.Options) { o.Limits.CommandsAtOnce = 1 })
	b.ready("mine")
	b.engine.hush(func(string) bool { return true })
	async := func() answer { return b.post("/v1/gadgets/mine/touch", "", "Prefer", "respond-async") }
	var all sync.WaitGroup
	answers := make([]answer, sent)
	for i := range sent {
		all.Go(func() { answers[i] = async() })
	}
	b.metric(fmt.Sprintf(`instar_limit_held{limit="commands"} %d`, sent))
	begun := time.Now()
	require.NoError(t, b.server.Close())
	all.Wait()
	require.Less(t, time.Since(begun), soon, "each turn takes a second")
	for _, a := range append(answers, async()) {
		require.Equal(t, http.StatusAccepted, a.StatusCode, string(a.body))
	}
}

// A panic on the way of a command ends that command only, and its sender is told, whether it waits for the engine or not.
func TestAPanicWhileACommandIsStored(t *testing.T) {
	b := setup(t, func(o *api.Options) { o.Commands.Gate = func() error { panic("secret dsn") } })
	require.NoError(t, b.server.Micro(t.Context()))
	for _, prefer := range []string{"", "respond-async"} {
		a := b.post("/v1/gadgets/a/create", `{"spec":{"name":"x"}}`, "Prefer", prefer)
		a.problem(t, http.StatusInternalServerError, "internal")
		require.NotContains(t, string(a.body), "secret")
	}
	m := b.ask("instar.api.cmd.gadget.default.a.create", `{"spec":{"name":"x"}}`)
	require.Equal(t, "500", m.Header.Get(micro.ErrorCodeHeader), string(m.Data))
	b.metric(`instar_limit_held{limit="commands"} 0`)
}

// A command that is sent again without waiting for it needs one place, as the first time. Its sender is told what became
// of that one, also where a client may have no more.
func TestARepeatedCommandTakesOnePlace(t *testing.T) {
	b := setup(t, func(o *api.Options) { o.Limits.Commands.Each, o.AnswerWithin = 1, 300*time.Millisecond })
	b.engine.hush(func(string) bool { return true })
	send := func(prefer string) answer {
		b.metric(`instar_limit_held{limit="commands"} 0`)
		return b.post("/v1/gadgets/x/create", `{"spec":{"name":"x"}}`, "Prefer", prefer, "Idempotency-Key", "k")
	}
	require.Equal(t, http.StatusAccepted, send("respond-async").StatusCode)
	for _, prefer := range []string{"respond-async", "wait=0"} {
		send(prefer).problem(t, http.StatusConflict, "idempotency-in-progress")
	}
	b.engine.hush(nil)
	a := send("respond-async")
	require.Equal(t, http.StatusOK, a.StatusCode, string(a.body))
	require.Equal(t, "applied", a.json(t)["outcome"])
}

// A batch waits while its client has all the places that it may have, and tells meanwhile that it is at work.
func TestABatchWaitsForAPlace(t *testing.T) {
	const all = 3
	b := setup(t, func(o *api.Options) { o.Limits.Commands.Each, o.AnswerWithin = 4, time.Second })
	for i := range all {
		b.post(fmt.Sprintf("/v1/gadgets/g%d/create", i), `{"spec":{"name":"x"}}`)
	}
	require.Eventually(t, func() bool { return b.indexes.Get("gadget").Counts("default")["READY"] == all }, soon, time.Millisecond)
	leave := b.server.TakeCommands("token boss")
	b.post("/v1/gadgets/g0/touch", "").problem(t, http.StatusTooManyRequests, "rate-limited")
	a := b.post("/v1/batches", `{"machine":"gadget","command":"touch"}`)
	require.Equal(t, http.StatusAccepted, a.StatusCode, string(a.body))
	look := func(wait string) map[string]any {
		return b.get(a.Header.Get("Location"), "Prefer", "wait="+wait).json(t)["metadata"].(map[string]any)
	}
	first := a.json(t)["metadata"].(map[string]any)
	var now map[string]any
	for until := time.Now().Add(4 * soon); ; {
		require.True(t, time.Now().Before(until), now)
		if now = look("1"); now["updatedAt"] != first["updatedAt"] {
			break
		}
	}
	require.Equal(t, "running", now["step"], now)
	require.EqualValues(t, 0, now["progress"].(map[string]any)["matched"])
	leave()
	now = look("20")
	require.Equal(t, "done", now["step"], now)
	p := now["progress"].(map[string]any)
	require.EqualValues(t, all, p["matched"])
	require.EqualValues(t, 0, p["refused"].(float64)+p["failed"].(float64), p)
}

// A batch keeps its place in the line of its client however long that is, and tells meanwhile that it is at work. Cancelled there, it ends, and it
// expires when it is too late for its commands by then.
func TestABatchKeepsItsPlaceInTheLine(t *testing.T) {
	b := setup(t, func(o *api.Options) { o.Limits.CommandsAtOnce, o.AnswerWithin = 1, 200*time.Millisecond })
	const all = 3
	for i := range all {
		b.ready(fmt.Sprint("g", i))
	}
	require.Eventually(t, func() bool { return b.indexes.Get("gadget").Counts("default")["READY"] == all }, soon, time.Millisecond)
	var touched atomic.Int64
	b.engine.hush(func(command string) bool {
		if command == "touch" {
			touched.Add(1)
		}
		return false
	})
	lines := 0
	line := func(more int) { // of clients that take turns of 100 ms with the batch
		for range more {
			b.server.TakeTurns(fmt.Sprint("other ", lines), 20)
			lines++
		}
		require.Eventually(t, func() bool { return b.server.CommandsHeld() > 15*lines }, soon, time.Millisecond)
	}
	const body = `{"machine":"gadget","command":"touch"}`
	send := func(key string) (at string) {
		a := b.post("/v1/batches", body, "Idempotency-Key", key)
		require.Equal(t, http.StatusAccepted, a.StatusCode, string(a.body))
		return a.Header.Get("Location")
	}
	end := func(at, step string) (matched int64) {
		op := b.get(at, "Prefer", "wait=10").json(t)["metadata"].(map[string]any)
		require.Equal(t, step, op["step"], op)
		matched = touched.Swap(0)
		require.EqualValues(t, matched, op["progress"].(map[string]any)["matched"])
		return matched
	}
	line(8)
	at := send("waits")
	require.Eventually(t, func() bool {
		op := b.get(at).json(t)["metadata"].(map[string]any)
		return op["step"] == "running" && op["updatedAt"] != op["startedAt"]
	}, soon, 10*time.Millisecond)
	require.EqualValues(t, all, end(at, "done"))
	require.NoError(t, b.server.LeaveBatch("default.late", body, "", streams.IdempotencyWindow-10*time.Minute-400*time.Millisecond))
	require.Zero(t, end(send("late"), "expired"))
	line(12)
	at = send("cancelled")
	require.Eventually(t, func() bool { return touched.Load() > 0 }, 2*soon, time.Millisecond)
	require.Equal(t, http.StatusOK, b.post(at+"/cancel", "").StatusCode)
	require.Less(t, end(at, "cancelled"), int64(all))
}

// On a server without tokens the client of a batch is, as that of its other requests, the address that sent it.
func TestABatchOfAnAddress(t *testing.T) {
	b := setup(t, func(o *api.Options) { o.Tokens, o.Open, o.Limits.Commands.Each = nil, true, 4 })
	b.token = ""
	b.ready("g")
	leave := b.server.TakeCommands("address 127.0.0.1")
	before := b.stored()
	a := b.post("/v1/batches", `{"machine":"gadget","command":"touch"}`)
	require.Equal(t, http.StatusAccepted, a.StatusCode, string(a.body))
	none := `instar_limit_refused_total{limit="commands",of="client"} 1` // that of TakeCommands
	require.Eventually(t, func() bool { return !slices.Contains(strings.Split(string(b.get("/metrics").body), "\n"), none) }, soon, 5*time.Millisecond)
	require.Equal(t, before, b.stored())
	leave()
	require.Equal(t, "done", b.get(a.Header.Get("Location"), "Prefer", "wait=10").json(t)["metadata"].(map[string]any)["step"])
}

// A client that sends much without waiting for answers has no more with an engine that is slow than all turns, however long that takes, and another
// one finds no more before it.
func TestAStormOnASlowEngine(t *testing.T) {
	const all, storm = 20, 250
	// The storm may take as long as it does.
	b := setup(t, func(o *api.Options) {
		o.Limits, o.AnswerWithin = api.DefaultLimits, time.Minute
		o.Limits.CommandsAtOnce = all
	})
	b.ready("mine")
	b.engine.slow.Store(int64(10 * time.Millisecond))
	var sent sync.WaitGroup
	for i := range storm {
		sent.Go(func() {
			a := b.post(fmt.Sprintf("/v1/gadgets/s%d/create", i), `{"spec":{"name":"x","hold":true}}`, "Authorization", "Bearer operate-token", "Prefer", "respond-async")
			require.Equal(t, http.StatusAccepted, a.StatusCode, string(a.body))
		})
	}
	begun := b.engine.count.Load()
	require.Eventually(t, func() bool { return b.engine.count.Load() > begun+3*all }, 2*soon, time.Millisecond) // turns of a tenth of a second would have passed
	b.metric(fmt.Sprintf("instar_limit_held{limit=\"commands-at-once\"} %d", all))                              // who made mine is remembered for a second, and leaves the others less until then
	before := b.engine.count.Load()
	require.Equal(t, http.StatusOK, b.post("/v1/gadgets/mine/touch", "").StatusCode)
	require.LessOrEqual(t, b.engine.count.Load()-before, int64(all+5))
	sent.Wait()
	b.engine.slow.Store(0)
	b.metric(`instar_limit_held{limit="commands-at-once"} 0`) // nothing of it is under way when the test ends
}
