package publish

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/embedded"
)

// answering is an engine that answers each command with its name, and knows the outcome of what it took.
type answering struct {
	mu     sync.Mutex
	took   []string          // ids
	known  map[string]string // answer by id
	silent map[string]bool   // names that it does not answer
}

func (g *ground) engine(silent ...string) *answering {
	g.T.Helper()
	e := &answering{known: map[string]string{}, silent: map[string]bool{}}
	for _, s := range silent {
		e.silent[s] = true
	}
	cons, err := g.JS.CreateOrUpdateConsumer(g.Ctx, streams.CommandStream, jetstream.ConsumerConfig{Durable: "fake", FilterSubject: "instar.in.>", AckPolicy: jetstream.AckExplicitPolicy})
	require.NoError(g.T, err)
	cc, err := cons.Consume(func(m jetstream.Msg) {
		h := m.Headers()
		a, err := streams.Names{}.ParseStored(m.Subject())
		if err != nil {
			g.T.Errorf("%v", err)
		}
		e.mu.Lock()
		id := streams.Header(h, streams.HeaderID)
		answer := fmt.Sprintf("%s %s %d", a.Last, m.Data(), len(e.took)+1)
		if was := streams.Header(h, streams.HeaderLookup); was != "" {
			answer = e.known[was] + " again"
		} else {
			e.took = append(e.took, id)
			e.known[id] = answer
		}
		e.mu.Unlock()
		if reply := streams.Header(h, streams.HeaderReply); reply != "" && !e.silent[a.Last] {
			_ = g.NC.Publish(reply, []byte(answer))
		}
		_ = m.Ack()
	})
	require.NoError(g.T, err)
	g.T.Cleanup(func() { cc.Stop(); <-cc.Closed() })
	return e
}

func testCommand(id string) Command {
	return Command{Machine: "thing", Key: "default." + id, Name: "create", Body: []byte(id)}
}

func TestAskGetsItsOwnAnswer(t *testing.T) {
	t.Parallel()
	for _, group := range []bool{false, true} {
		t.Run(fmt.Sprintf("Group=%v", group), func(t *testing.T) {
			t.Parallel()
			g := setup(t, embedded.OS)
			c := g.commands(g.appender(AppenderOptions{Group: group}))
			e := g.engine()
			var all sync.WaitGroup
			for i := range 200 {
				all.Go(func() {
					id := fmt.Sprintf("e-%d", i)
					answer, err := c.Ask(g.Ctx, testCommand(id))
					if err != nil || !strings.HasPrefix(string(answer), "create "+id+" ") {
						t.Errorf("%s: %s %v", id, answer, err)
					}
				})
			}
			all.Wait()
			require.Len(t, e.took, 200)
			c.waiters.Range(func(k, _ any) bool { t.Errorf("waiter %v is left", k); return true })
		})
	}
}

func TestADuplicateIsAnsweredAsThen(t *testing.T) {
	t.Parallel()
	g := setup(t, embedded.OS)
	c := g.commands(g.appender(AppenderOptions{}))
	e := g.engine()
	cmd := testCommand("a")
	cmd.ID = "once"
	first, err := c.Ask(g.Ctx, cmd)
	require.NoError(t, err)
	require.Equal(t, "create a 1", string(first))
	again, err := c.Ask(g.Ctx, cmd)
	require.NoError(t, err)
	require.Equal(t, "create a 1 again", string(again))
	r, err := c.Send(g.Ctx, cmd)
	require.NoError(t, err)
	require.True(t, r.Duplicate)
	other := cmd
	other.Key = "default.b"
	answer, err := c.Ask(g.Ctx, other)
	require.NoError(t, err)
	require.Equal(t, "create a 2", string(answer), "the same id of another entity is another command")
	require.Equal(t, []string{"thing/default.a/once", "thing/default.b/once"}, e.took)
}

func TestAStoredCommandWithoutAnswerIsAccepted(t *testing.T) {
	t.Parallel()
	g := setup(t, embedded.OS)
	c := g.commands(g.appender(AppenderOptions{}))
	e := g.engine("slow")
	cmd := testCommand("a")
	cmd.Name = "slow"
	ctx, cancel := context.WithCancel(g.Ctx)
	go func() {
		g.Eventually("it is taken", func() bool { e.mu.Lock(); defer e.mu.Unlock(); return len(e.took) == 1 })
		time.AfterFunc(100*time.Millisecond, cancel) // the stream's answer is on its way
	}()
	_, err := c.Ask(ctx, cmd)
	var accepted *AcceptedError
	require.ErrorAs(t, err, &accepted)
	require.EqualValues(t, 1, accepted.Seq)
	require.ErrorIs(t, err, context.Canceled)
	require.False(t, errors.Is(err, ErrUnanswered))
	require.EqualError(t, err, "the command is stored as 1, its answer did not come in time: context canceled")

	_, err = c.Ask(ctx, cmd) // nothing is known of this one
	require.Error(t, err)
	require.False(t, errors.As(err, new(*AcceptedError)) && !errors.Is(err, context.Canceled))
	_, err = c.Send(ctx, cmd)
	if err != nil {
		require.ErrorIs(t, err, ErrUnanswered)
	}
}

func TestTheGateRefusesAtOnce(t *testing.T) {
	t.Parallel()
	g := setup(t, embedded.OS)
	c := g.commands(g.appender(AppenderOptions{}))
	full := errors.New("the disk takes no writes")
	c.Gate = func() error { return full }
	for _, try := range []func() error{
		func() error { _, err := c.Ask(g.Ctx, testCommand("a")); return err },
		func() error { _, err := c.Send(g.Ctx, testCommand("a")); return err },
		func() error { return c.Start(testCommand("a"), "", func(Result) { t.Error("called") }) },
	} {
		err := try()
		require.ErrorIs(t, err, ErrUnanswered)
		require.ErrorIs(t, err, full)
	}
	require.Empty(t, g.Held(streams.CommandStream, ">"))
}

func TestBadNamesAreRefusedBeforeAnythingIsSent(t *testing.T) {
	t.Parallel()
	g := setup(t, embedded.OS)
	c := g.commands(g.appender(AppenderOptions{}))
	heard, err := g.NC.SubscribeSync("instar.>")
	require.NoError(t, err)
	for _, bad := range []string{"", "*", ">", "a*", "a>b", " ", "a b", "\t", "\r\n", "a\x00b", "a.b", ".", "é", "名", "a\u200bb", "\xff", strings.Repeat("x", 64), strings.Repeat("a", 5000)} {
		for _, cmd := range []Command{
			{Machine: bad, Key: "default.a", Name: "create"},
			{Machine: "thing", Key: "default.a", Name: bad},
			{Machine: "thing", Key: bad, Name: "create"},
			{Machine: "thing", Key: bad + ".a", Name: "create"},
			{Machine: "thing", Key: "default." + bad, Name: "create"},
			{Machine: "thing", Key: "default.p." + bad, Name: "create"},
		} {
			if cmd.Key == "default.a.b" || cmd.Key == "a.b" || cmd.Key == "a.b.a" { // keys of other entities; doors check ids one by one
				continue
			}
			_, err := c.Ask(g.Ctx, cmd)
			require.ErrorIs(t, err, streams.ErrSubject, "%+q", cmd)
			_, err = c.Send(g.Ctx, cmd)
			require.ErrorIs(t, err, streams.ErrSubject)
			require.ErrorIs(t, c.Start(cmd, "", nil), streams.ErrSubject)
		}
	}
	require.NoError(t, g.NC.Flush())
	n, _, err := heard.Pending()
	require.NoError(t, err)
	require.Zero(t, n)
	require.Zero(t, g.NC.Stats().Reconnects)
}

// What a caller says lands in the headers that are meant for it, whatever it says.
func TestCallersCannotWriteHeaders(t *testing.T) {
	t.Parallel()
	g := setup(t, embedded.OS)
	c := g.commands(g.appender(AppenderOptions{}))
	for i, evil := range []string{"x\r\nNats-Rollup: all", "x\nNats-Expected-Last-Sequence: 99", "x\r\n\r\nbody", "\r\nNats-Schedule: @at 2030-01-01T00:00:00Z", "x\x00y", "é"} {
		cmd := Command{Machine: "thing", Key: "default.a", Name: "create", ID: fmt.Sprint(i, evil), Actor: evil, Reason: evil, Trace: evil, Expect: evil, Body: []byte("body")}
		_, err := c.Send(g.Ctx, cmd)
		require.NoError(t, err, "%q", evil)
	}
	for _, m := range g.Held(streams.CommandStream, ">") {
		for name := range m.Header {
			require.Contains(t, []string{streams.HeaderID, streams.HeaderActor, streams.HeaderReason, streams.HeaderTrace, streams.HeaderExpect}, name)
		}
		require.Equal(t, "body", string(m.Data))
	}
	require.Len(t, g.Held(streams.CommandStream, ">"), 6)
}

func TestHeadersAreReadInAnyCase(t *testing.T) {
	t.Parallel()
	h := nats.Header{"instar-actor": {"ann"}, "Empty": {}, streams.HeaderReason: {"exact", "second"}}
	require.Equal(t, "ann", streams.Header(h, streams.HeaderActor))
	require.Equal(t, "exact", streams.Header(h, streams.HeaderReason))
	require.Empty(t, streams.Header(h, "Empty"))
	require.Empty(t, streams.Header(nil, streams.HeaderActor))
	require.Equal(t, "Instar-Actor", http.CanonicalHeaderKey(streams.HeaderActor), "HTTP writes it as NATS does")
	m := &nats.Msg{Header: nats.Header{}}
	at := time.Date(2026, 1, 2, 3, 4, 5, 600, time.FixedZone("x", 3600))
	streams.CloudEvent(m, "id", "/s", "t", "default.a", at)
	require.Equal(t, nats.Header{
		"ce-specversion": {"1.0"}, "ce-id": {"id"}, "ce-source": {"/s"}, "ce-type": {"t"}, "ce-subject": {"default.a"}, "ce-time": {"2026-01-02T02:04:05.0000006Z"}, "ce-datacontenttype": {"application/json"}, "content-type": {"application/json"}, streams.HeaderID: {"id"},
	}, m.Header)
}

// Two installations on one server do not see each other.
func TestPrefixesAreApart(t *testing.T) {
	t.Parallel()
	g := setup(t, embedded.OS)
	acme := streams.Names{Prefix: "acme"}
	diffs, err := streams.Ensure(g.Ctx, g.JS, streams.Plan{Names: acme, States: []string{"things"}, Views: []string{"thing_steps"}})
	require.NoError(t, err)
	require.Empty(t, diffs)
	account, err := g.JS.AccountInfo(g.Ctx)
	require.NoError(t, err)
	require.Equal(t, 2*(5+5), account.Streams)
	one, two := g.appender(AppenderOptions{}), g.appender(AppenderOptions{Names: acme})
	ones, twos := g.commands(one), g.commands(two)
	cmd := Command{Machine: "thing", Key: "default.a", Name: "create", ID: "same"}
	for _, c := range []*Commands{ones, twos} {
		r, err := c.Send(g.Ctx, cmd)
		require.NoError(t, err)
		require.Equal(t, Result{Seq: 1}, r, "neither a duplicate nor behind another")
	}
	require.Len(t, g.Held(streams.CommandStream, ">"), 1)
	require.Len(t, g.Held("ACME_COMMANDS", "acme.in.>"), 1)
	for _, bucket := range []string{"things", "acme_things"} {
		kv, err := g.JS.KeyValue(g.Ctx, bucket)
		require.NoError(t, err)
		_, err = kv.Create(g.Ctx, "default.a", []byte(bucket))
		require.NoError(t, err)
	}
	_, err = g.JS.PublishMsg(g.Ctx, &nats.Msg{Subject: acme.Probe(), Data: []byte("x")})
	require.NoError(t, err)
	require.Empty(t, g.Held(streams.ProbeStream, ">"))
}
