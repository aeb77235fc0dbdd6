package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/bcc94042/instar/machines/all"
	"github.com/bcc94042/instar/streams"
)

func deployed(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "deploy", name))
	require.NoError(t, err)
	return string(text)
}

func TestExampleConfigHasTheDefaults(t *testing.T) {
	t.Parallel()
	text := deployed(t, "instar.yaml")
	got, err := Load(ModeServe, flagSet(t, ModeServe, "--config", write(t, "instar.yaml", text)), nil)
	require.NoError(t, err)
	require.Equal(t, Defaults(ModeServe).String(), got.String())

	var doc map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(text), &doc))
	for _, o := range options {
		var at any = doc
		for _, step := range strings.Split(o.key, ".") {
			m, _ := at.(map[string]any)
			require.Contains(t, m, step, o.key)
			at = m[step]
		}
	}
}

func TestExamplesInTheExampleConfig(t *testing.T) {
	t.Parallel()
	example := regexp.MustCompile(`(?m)^( *)#([^ \n]|  )`) // a comment has a single space
	text := example.ReplaceAllString(deployed(t, "instar.yaml"), "$1$2")
	c, err := Load(ModeServe, flagSet(t, ModeServe, "--config", write(t, "instar.yaml", text)), nil)
	require.NoError(t, err)
	require.Len(t, c.Auth.Tokens, 1)
	require.Len(t, c.NATS.Users, 1)
	require.Equal(t, Template{
		Command: []string{"sh", "-c", `exec python3 -m http.server --bind 127.0.0.1 "$PORT"`}, Dir: "/srv/web", Socket: "port", Env: map[string]string{"PYTHONUNBUFFERED": "1"},
	}, c.Gateways.Process.Templates["web"])
	require.Equal(t, []OutboxSource{{Name: "orders", DSN: "postgres://relay@db/orders", Mode: "log", Shards: 4}}, c.Outbox.Sources)
}

func TestComposeRunsWhatTheProgramTakes(t *testing.T) {
	t.Parallel()
	var compose struct {
		Services map[string]struct {
			Command     []string
			Healthcheck struct{ Test []string }
		}
	}
	require.NoError(t, yaml.Unmarshal([]byte(deployed(t, "compose.yaml")), &compose))
	command := compose.Services["instar"].Command
	require.Equal(t, ModeServe, command[0])
	cfg, err := Load(ModeServe, flagSet(t, ModeServe, command[1:]...), nil)
	require.NoError(t, err)
	require.Contains(t, cfg.HTTP.hosts(), "instar", "other services of the file find it by its name, and no page of another site does by its own")
	_, _, err = rootCommand().Find(compose.Services["instar"].Healthcheck.Test[2:])
	require.NoError(t, err)
}

func TestUnitStartsWhatTheProgramTakes(t *testing.T) {
	t.Parallel()
	unit := deployed(t, "instar.service")
	start := regexp.MustCompile(`(?m)^ExecStart=/usr/local/bin/instar serve (.*)$`).FindStringSubmatch(unit)
	require.NotNil(t, start)
	flagSet(t, ModeServe, strings.Fields(start[1])...)
	require.Contains(t, unit, "\nKillMode=process\n", "services outlive the control plane")
}

// The server of the example configuration lets each of its users do what the comments say, and nothing else.
func TestNATSUsersOfTheExample(t *testing.T) { // not parallel: the file reads the environment
	for _, user := range []string{"INSTAR", "CI", "WORKER", "READER"} {
		t.Setenv(user+"_PASSWORD", "secret")
	}
	t.Setenv("NATS_DATA", t.TempDir())
	text := regexp.MustCompile(`(?ms)^tls \{.*?^\}`).ReplaceAllString(deployed(t, "nats-server.conf"), "")
	opts, err := server.ProcessConfigFile(write(t, "nats.conf", text))
	require.NoError(t, err)
	require.True(t, opts.SyncAlways)
	opts.Host, opts.Port, opts.NoSigs, opts.NoLog = "127.0.0.1", server.RANDOM_PORT, true, true
	srv, err := server.NewServer(opts)
	require.NoError(t, err)
	srv.Start()
	t.Cleanup(func() { srv.Shutdown(); srv.WaitForShutdown() })
	require.True(t, srv.ReadyForConnections(10*time.Second))
	connect := func(user string) (*nats.Conn, chan error) {
		refused := make(chan error, 10)
		nc, err := nats.Connect(srv.ClientURL(), nats.UserInfo(user, "secret"), nats.CustomInboxPrefix("_INBOX_"+user),
			nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { refused <- err }))
		require.NoError(t, err)
		t.Cleanup(nc.Close)
		return nc, refused
	}

	instar, _ := connect("instar")
	js, err := streams.JetStream(instar)
	require.NoError(t, err)
	plan := streams.Plan{Replicas: 1}
	for _, m := range all.Machines() {
		plan.States = append(plan.States, m.Plural)
	}
	_, err = streams.Ensure(t.Context(), js, plan)
	require.NoError(t, err)
	_, err = js.Publish(t.Context(), "$KV.services.default.web", []byte("{}"))
	require.NoError(t, err)

	reader, refused := connect("reader")
	rjs, err := jetstream.New(reader)
	require.NoError(t, err)
	bucket, err := rjs.KeyValue(t.Context(), "services")
	require.NoError(t, err)
	watcher, err := bucket.WatchAll(t.Context())
	require.NoError(t, err)
	require.Equal(t, "default.web", (<-watcher.Updates()).Key())
	require.NoError(t, watcher.Stop())
	require.NoError(t, reader.Publish("instar.cmd.service.default.web.delete", nil))
	require.ErrorIs(t, <-refused, nats.ErrPermissionViolation)

	ci, refused := connect("ci")
	answers, err := ci.SubscribeSync(ci.NewInbox())
	require.NoError(t, err)
	require.NoError(t, ci.PublishRequest("instar.api.cmd.service.default.web.delete", answers.Subject, nil))
	_, err = answers.NextMsg(5 * time.Second)
	require.ErrorIs(t, err, nats.ErrNoResponders, "it may ask; nobody serves the API here")
	require.NoError(t, ci.Publish("instar.cmd.service.default.web.purge", nil))
	require.ErrorIs(t, <-refused, nats.ErrPermissionViolation, "every command and report is open there")
	_, err = ci.SubscribeSync("instar.>")
	require.NoError(t, err)
	require.ErrorIs(t, <-refused, nats.ErrPermissionViolation)

	worker, refused := connect("worker")
	require.NoError(t, worker.Publish("instar.evt.service.default.web.service.ready", nil))
	require.ErrorIs(t, <-refused, nats.ErrPermissionViolation, "nobody but the control plane writes events")
}

// What a power loss may cost is told in the same words by the banner, /readyz and the documents.
func TestDocumentsSayWhatIntervalSurvives(t *testing.T) {
	t.Parallel()
	says := "interval: survives " + streams.Interval.Survives()
	for _, file := range []string{"README.md", "docs/operations.md"} {
		text, err := os.ReadFile(filepath.Join("..", "..", file))
		require.NoError(t, err)
		require.Contains(t, string(text), says, file)
	}
}
