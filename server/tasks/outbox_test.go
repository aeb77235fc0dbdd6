package tasks_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/internal/postgres"
	"github.com/bcc94042/instar/machines/relay"
	"github.com/bcc94042/instar/server"
	"github.com/bcc94042/instar/server/config"
	"github.com/bcc94042/instar/server/relays"
	"github.com/bcc94042/instar/streams/outbox"
)

var pg postgres.Suite

func TestMain(m *testing.M) { os.Exit(pg.Around(m).Run()) }

// The example that queues a task for each event of an outbox: what is committed is done, once, also what is committed while it is away; what is rolled back is not. What is no task
// holds up nothing that comes later.
func TestATaskIsQueuedByATransaction(t *testing.T) {
	t.Parallel()
	ctx, dsn := t.Context(), pg.Database(t)
	require.NoError(t, outbox.Init(ctx, dsn, "", outbox.Settings{}))
	r := startWith(t, func(o *server.Options) {
		o.Machines, o.Providers[relay.Machine.Name] = append(o.Machines, relay.Machine), relays.Provider()
	}, nil, func(c *config.Config) { c.Outbox.DSN = dsn })
	conn, err := pgx.Connect(ctx, dsn)
	require.NoError(t, err)
	defer conn.Close(ctx)
	var events outbox.Appender
	want := func(name string, commit bool, more ...outbox.Message) string {
		tx, err := conn.Begin(ctx)
		require.NoError(t, err)
		ids, err := events.Append(ctx, tx, append(more, outbox.Message{AggregateType: "guest", AggregateID: name, EventType: "greeting.wanted", Payload: []byte(`{"name":"` + name + `"}`)})...)
		require.NoError(t, err)
		if !commit {
			require.NoError(t, tx.Rollback(ctx))
			return ""
		}
		require.NoError(t, tx.Commit(ctx))
		return ids[len(more)].String()
	}

	bin := outboxTasks(t)
	begin := func() *exec.Cmd {
		cmd := exec.Command(bin, r.nats)
		runs(t, cmd)
		return cmd
	}
	first := begin()
	runs(t, exampleWorkers(t)["Go"](t, r.nats))
	ada := want("Ada", true)
	want("Bob", false)
	r.comes("/v1/tasks/"+ada, "succeeded")
	require.NoError(t, first.Process.Kill())
	var odd []outbox.Message // more than may be under way
	for i := range 66 {
		payload := []string{`[1]`, `"` + strings.Repeat("x", 65<<10) + `"`, `{"name":"` + strings.Repeat("x", 65<<10) + `"}`}[i%3]
		odd = append(odd, outbox.Message{AggregateType: "guest", AggregateID: "odd", EventType: "greeting.wanted", Payload: []byte(payload)})
	}
	eve := want("Eve", true, odd...)
	begin()
	r.comes("/v1/tasks/"+eve, "succeeded")
	require.Len(t, r.ok("GET", "/v1/repositories/greetings/tasks", "")["items"], 2)
}

func outboxTasks(t *testing.T) (bin string) {
	t.Helper()
	bin = filepath.Join(t.TempDir(), "outbox-tasks")
	out, err := exec.Command("go", "build", "-o", bin, filepath.Join("..", "..", "docs", "examples", "outbox-tasks")).CombinedOutput()
	require.NoError(t, err, string(out))
	return bin
}

// Where a queue is full, the example asks again when it was told to, and asks for nothing else: its repository is there, and would refuse to be made each time.
func TestATaskWaitsOutsideOfAFullQueue(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	nc, err := nats.Connect(r.nats)
	require.NoError(t, err)
	defer nc.Close()
	js, err := nc.JetStream()
	require.NoError(t, err)
	_, err = js.AddStream(&nats.StreamConfig{Name: "OUTBOX", Subjects: []string{"outbox.>"}})
	require.NoError(t, err)
	said, _ := runs(t, exec.Command(outboxTasks(t), r.nats))
	r.comes("/v1/repositories/greetings", "ready")
	r.ok("POST", "/v1/repositories/greetings/configure", `{"cap":1}`)
	for _, name := range []string{"ada", "bob", "eve"} {
		_, err := js.PublishMsg(&nats.Msg{Subject: "outbox.guest." + name + ".greeting.wanted", Header: nats.Header{"ce-id": {name}}, Data: []byte(`{"name":"` + name + `"}`)})
		require.NoError(t, err)
	}
	require.Eventually(t, func() bool { return strings.Count(said.String(), "has 1 queued tasks, as many as it may") >= 2 }, time.Minute, 20*time.Millisecond)
	r.ok("POST", "/v1/repositories/greetings/configure", `{"cap":3}`)
	for _, name := range []string{"ada", "bob", "eve"} {
		r.comes("/v1/tasks/"+name, "queued")
	}
	require.NotContains(t, strings.Join(r.events("/v1/repositories/greetings"), " "), "refused")
	require.Contains(t, said.String(), "as many as it may; again in 5s")

	r.ok("POST", "/v1/repositories/greetings/delete", `{}`)
	r.comes("/v1/repositories/greetings", "deleted")
	_, err = js.PublishMsg(&nats.Msg{Subject: "outbox.guest.kim.greeting.wanted", Header: nats.Header{"ce-id": {"kim"}}, Data: []byte(`{"name":"kim"}`)})
	require.NoError(t, err)
	r.comes("/v1/tasks/kim", "queued")
}
