package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nats.go/micro"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/client/tenantdb"
	"github.com/bcc94042/instar/machines/all"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/embedded"
)

var writeMatrix = flag.Bool("update", false, "write the list of what users may do anew")

// shipped are the users of deploy/nats-server.conf, and of an embedded server with the same roles.
var shipped = []embedded.User{
	{Name: "instar", Password: "secret", Role: embedded.RoleAdmin},
	{Name: "app", Password: "secret", Role: embedded.RoleResolve},
	{Name: "ci", Password: "secret", Role: embedded.RoleOperate},
	{Name: "provider", Password: "secret", Role: embedded.RoleProvide},
	{Name: "worker", Password: "secret", Role: embedded.RoleWork},
	{Name: "reader", Password: "secret", Role: embedded.RoleRead},
}

// doors is a server with the streams, somebody who answers whatever is asked, and a spy who hears all that arrives in the account of
// the control plane.
type doors struct {
	t    *testing.T
	url  string
	own  *nats.Conn
	js   jetstream.JetStream
	spy  *nats.Conn
	came chan *nats.Msg
}

func openDoors(t *testing.T, url string) *doors {
	d := &doors{t: t, url: url, came: make(chan *nats.Msg, 1<<16)}
	d.own, d.spy = d.connect("instar"), d.connect("instar")
	var err error
	d.js, err = streams.JetStream(d.own)
	require.NoError(t, err)
	plan := streams.Plan{Replicas: 1, Live: []string{"instances"}}
	for _, m := range all.Machines() {
		plan.States = append(plan.States, m.Plural)
	}
	_, err = streams.Ensure(t.Context(), d.js, plan)
	require.NoError(t, err)
	require.NoError(t, streams.EnsureBucket(t.Context(), d.js, tenantdb.RoutesBucket, "", 0, 1))
	require.NoError(t, streams.EnsureBucket(t.Context(), d.js, tenantdb.SeenBucket, "", tenantdb.SeenLife, 1))
	_, err = d.js.CreateConsumer(t.Context(), "EFFECTS", jetstream.ConsumerConfig{Durable: "fx-service-apply", AckPolicy: jetstream.AckExplicitPolicy})
	require.NoError(t, err)
	_, err = d.js.Publish(t.Context(), "$KV.services.default.a", []byte(`{"state":"READY"}`))
	require.NoError(t, err)
	_, err = d.js.Publish(t.Context(), "instar.evt.service.default.a.service.ready", []byte(`{}`))
	require.NoError(t, err)
	_, err = d.own.Subscribe("instar.api.>", func(m *nats.Msg) { _ = m.Respond([]byte("{}")) }) // a deputy that asks nothing
	require.NoError(t, err)
	_, err = micro.AddService(d.own, micro.Config{Name: "instar", Version: "1.0.0"})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	copies := make(chan error, 1)
	go func() { copies <- (&streams.Copies{NC: d.own, Plan: func() streams.Plan { return plan }}).Run(ctx) }()
	t.Cleanup(func() { cancel(); require.NoError(t, <-copies) })
	_, err = d.spy.ChanSubscribe(">", d.came)
	require.NoError(t, err)
	require.NoError(t, errors.Join(d.own.Flush(), d.spy.Flush())) // who asks finds whoever answers, and not the spy alone
	return d
}

func (d *doors) connect(user string) *nats.Conn {
	nc, err := nats.Connect(d.url, nats.UserInfo(user, "secret"), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	require.NoError(d.t, err)
	d.t.Cleanup(nc.Close)
	return nc
}

// heard are the subjects that came to the control plane since the last time, once all that nc has sent was delivered.
func (d *doors) heard(nc *nats.Conn) []string {
	for _, c := range []*nats.Conn{nc, d.own, nc, d.own, d.spy} { // there and back
		require.NoError(d.t, c.Flush())
	}
	subjects := make([]string, len(d.came))
	for i := range subjects {
		subjects[i] = (<-d.came).Subject
	}
	return subjects
}

// subjects are all that the NATS library of this build names as JetStream's, and ours, with names in place of wildcards.
func subjects(t *testing.T) []string {
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-f", "{{.Dir}}", "github.com/nats-io/nats-server/v2/server").Output()
	require.NoError(t, err)
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(strings.TrimSpace(string(dir)), "jetstream_api.go"), nil, 0)
	require.NoError(t, err)
	var list []string
	ast.Inspect(file, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			if s, err := strconv.Unquote(lit.Value); err == nil && strings.HasPrefix(s, "$JS.") && !strings.Contains(s, ".ADVISORY.") && strings.Count(s, ".") > 1 && !strings.HasSuffix(s, ".") {
				list = append(list, strings.ReplaceAll(s, "%s", "*"))
			}
		}
		return true
	})
	require.Greater(t, len(list), 50)
	list = append(list, "$JS.API.DIRECT.GET.*", "$JS.API.DIRECT.GET.*.>", "$JS.ACK.*.*.1.1.1.1.0", "$JS.FC.*.*.abcd", "$KV.services.default.a", "$O.x.C.y", "$SYS.REQ.SERVER.PING", "$SRV.PING", "$SRV.INFO.instar",
		"instar.cmd.service.default.a.delete", "instar.in.1.service.default.a.delete", "instar.evt.service.default.a.service.ready", "instar.fx.service.apply.default.a", "instar.timer.service.default.a.x",
		"instar.dead.x.service.default.a", "instar.probe", "instar.hb.default.a.b", "instar.obs.default.a.b", "instar.ack.default.a", "instar.live.instances.default.a.b", "instar.log.task.default.a.b", "instar.moved.acme", "instar.seen.acme.x", "instar.worker.x", "instar.worker.provider-instance", "instar.copy.ELSEWHERE", "instar.provider.instance.look",
		"instar.api.cmd.service.default.a.delete", "instar.api.get.service.default.a", "instar.api.list.service", "instar.api.discover.default.a", "_INBOX.x", "_INBOX_instar.x", "elsewhere")
	var named []string
	for _, s := range list {
		for _, names := range [][2]string{{"EVENTS", "readers"}, {"EFFECTS", "fx-service-apply"}, {"COMMANDS", "in-1"}, {"KV_services", "x"}, {"KV_tenant_runtime", "x"}} {
			tokens := strings.Split(s, ".")
			next := 0
			for i, token := range tokens {
				if token == "*" || token == ">" {
					tokens[i] = names[min(next, 1)]
					next++
				}
			}
			named = append(named, strings.Join(tokens, "."))
		}
	}
	slices.Sort(named)
	return slices.Compact(named)
}

// What comes from each user to the account of the control plane, of all that there is to send, is listed in testdata.
func (d *doors) matrix() string {
	known := subjects(d.t)
	var b strings.Builder
	for _, user := range []string{"app", "ci", "provider", "reader", "worker"} {
		nc := d.connect(user)
		var came []string
		d.heard(nc)
		for _, s := range known {
			require.NoError(d.t, nc.PublishRequest(s, nc.NewInbox(), nil))
			if verb, ok := strings.CutPrefix(s, "$JS.API."); ok {
				require.NoError(d.t, nc.PublishRequest("$JS.INSTAR.API."+verb, nc.NewInbox(), nil))
			}
		}
		for _, s := range d.heard(nc) {
			if slices.Contains(known, s) {
				came = append(came, s)
			}
		}
		slices.Sort(came)
		fmt.Fprintln(&b, user)
		for _, s := range slices.Compact(came) {
			fmt.Fprintln(&b, " ", s)
		}
	}
	return b.String()
}

// evil are replies that would do harm in the account of the control plane.
var evil = []string{
	"$JS.API.STREAM.DELETE.DEAD_LETTERS", "$JS.API.STREAM.PURGE.EVENTS", "$JS.API.CONSUMER.DELETE.EFFECTS.fx-service-apply", "$KV.services.default.a", "instar.cmd.service.default.b.delete",
	"instar.in.1.service.default.a.delete", "instar.evt.service.default.a.service.ready", "instar.fx.service.apply.default.a", "instar.api.cmd.service.default.b.delete", "$JS.ACK.COMMANDS.in-1.1.1.1.1.0", "_INBOX_instar.x",
}

// tricks let others publish to a subject: whoever answers, JetStream that delivers, traces.
func (d *doors) tricks(user string, allowed []string, reply string) {
	nc := d.connect(user) // the server closes connections that name a reserved reply
	js, err := jetstream.New(nc)
	require.NoError(d.t, err)
	ctx, cancel := context.WithTimeout(d.t.Context(), 20*time.Second)
	defer cancel()
	for _, subject := range allowed {
		_ = nc.PublishRequest(subject, reply, nil)
		_ = nc.PublishRequest(strings.Replace(subject, "$JS.API.", "$JS.INSTAR.API.", 1), reply, nil)
		_ = nc.PublishMsg(&nats.Msg{Subject: subject, Header: nats.Header{"Nats-Trace-Dest": {reply}}})
		_ = nc.PublishMsg(&nats.Msg{Subject: subject, Header: nats.Header{"Nats-Trace-Dest": {reply}, "Nats-Trace-Only": {"true"}}})
		_ = nc.PublishMsg(&nats.Msg{Subject: subject, Header: nats.Header{"Nats-Consumer-Stalled": {reply}, "Status": {"100"}}})
	}
	_ = nc.PublishRequest("$JS.INSTAR.API.CONSUMER.MSG.NEXT.EFFECTS.fx-service-apply", reply, []byte(`{"batch":1,"no_wait":true}`))
	if user == "reader" {
		// The attack that was seen: an empty consumer answers a request that does not wait with an empty message.
		c, err := js.CreateConsumer(ctx, "EVENTS", jetstream.ConsumerConfig{FilterSubject: "instar.evt.none", AckPolicy: jetstream.AckNonePolicy})
		require.NoError(d.t, err)
		_ = nc.PublishRequest("$JS.API.CONSUMER.MSG.NEXT.EVENTS."+c.CachedInfo().Name, reply, []byte(`{"batch":1,"no_wait":true}`))
		for _, stream := range []string{"EVENTS", "KV_services"} {
			body, _ := json.Marshal(map[string]any{"stream_name": stream, "config": map[string]any{"name": "push", "deliver_subject": reply, "ack_policy": "none", "deliver_policy": "all", "idle_heartbeat": 1e8, "flow_control": true}})
			_, _ = nc.RequestWithContext(ctx, "$JS.API.CONSUMER.CREATE."+stream+".push", body)
			_, _ = nc.RequestWithContext(ctx, "$JS.API.CONSUMER.DELETE."+stream+".push", nil)
		}
	}
	for _, stream := range []jetstream.StreamConfig{
		{Name: "T1", Subjects: []string{"t1"}, RePublish: &jetstream.RePublish{Source: "t1", Destination: reply}},
		{Name: "T2", Sources: []*jetstream.StreamSource{{Name: "EVENTS", External: &jetstream.ExternalStream{APIPrefix: "$JS.API", DeliverPrefix: reply}}}},
		{Name: "T3", Mirror: &jetstream.StreamSource{Name: "EVENTS", External: &jetstream.ExternalStream{APIPrefix: "$JS.INSTAR.API", DeliverPrefix: reply}}},
	} {
		body, _ := json.Marshal(stream)
		_ = nc.PublishRequest("$JS.API.STREAM.CREATE."+stream.Name, nc.NewInbox(), body)
		_ = nc.PublishRequest("$JS.INSTAR.API.STREAM.CREATE."+stream.Name, nc.NewInbox(), body)
		_ = nc.Publish("t1", nil)
	}
	body, _ := json.Marshal(map[string]any{"stream_name": "EVENTS", "config": map[string]any{"deliver_subject": reply}})
	_ = nc.PublishRequest("$JS.INSTAR.API.CONSUMER.CREATE.EVENTS", nc.NewInbox(), body)
	if nc.IsConnected() {
		_ = nc.FlushWithContext(ctx)
	}
	nc.Close()
}

// hold sees to it that no user reaches what it may not publish to, whatever it names as the place for an answer.
func (d *doors) hold(matrix string) {
	before := d.state()
	for user, allowed := range parseMatrix(matrix) {
		for _, reply := range evil {
			if slices.ContainsFunc(allowed, func(s string) bool { return purpose(s) == purpose(reply) }) {
				continue // it may publish there anyway
			}
			d.heard(d.own)
			d.tricks(user, allowed, reply)
			require.NotContains(d.t, d.heard(d.own), reply, "%s brought somebody to publish there", user)
		}
	}
	require.Equal(d.t, before, d.state())
}

// purpose is what a subject is for: all but whom it is of.
func purpose(subject string) string {
	before, _, _ := strings.Cut(subject, ".service.")
	return before
}

func parseMatrix(text string) map[string][]string {
	users, user := map[string][]string{}, ""
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if s, ok := strings.CutPrefix(line, "  "); ok {
			users[user] = append(users[user], s)
		} else {
			user = line
			users[user] = nil
		}
	}
	return users
}

// state is what the control plane has, but for commands, which a worker may send.
func (d *doors) state() string {
	var b strings.Builder
	for info := range d.js.ListStreams(d.t.Context()).Info() {
		if info.Config.Name != "COMMANDS" {
			fmt.Fprintln(&b, info.Config.Name, info.State.LastSeq, info.State.Msgs, info.State.Consumers)
		}
	}
	return b.String()
}

// Each user does what it is for, over the connection of an ordinary client.
func (d *doors) uses() {
	d.resolves()
	d.provides()
	t, ctx := d.t, d.t.Context()
	ci := d.connect("ci")
	m, err := ci.Request("instar.api.cmd.service.default.a.refresh", nil, 10*time.Second)
	require.NoError(t, err)
	require.Equal(t, "{}", string(m.Data))

	_, err = d.js.Publish(ctx, "instar.fx.service.apply.default.a", []byte("task"))
	require.NoError(t, err)
	worker, err := jetstream.NewWithAPIPrefix(d.connect("worker"), "$JS.INSTAR.API")
	require.NoError(t, err)
	tasks, err := worker.Consumer(ctx, "EFFECTS", "fx-service-apply")
	require.NoError(t, err)
	task, err := tasks.Next(jetstream.FetchMaxWait(10 * time.Second))
	require.NoError(t, err)
	_, err = worker.Publish(ctx, "instar.cmd.service.default.a.applied", nil) // stored
	require.NoError(t, err)
	require.NoError(t, task.DoubleAck(ctx))

	nc := d.connect("reader")
	live, err := nc.SubscribeSync("instar.evt.service.default.a.>")
	require.NoError(t, err)
	require.NoError(t, nc.Flush())
	reader, err := jetstream.New(nc)
	require.NoError(t, err)
	var watcher jetstream.KeyWatcher
	require.Eventually(t, func() bool { // the copies are made by and by
		bucket, err := reader.KeyValue(ctx, "services")
		if err == nil {
			watcher, err = bucket.WatchAll(ctx)
		}
		return err == nil
	}, 20*time.Second, 20*time.Millisecond)
	for _, value := range []string{`{"state":"READY"}`, "changed"} {
		for e := range watcher.Updates() {
			if e != nil && string(e.Value()) == value {
				break
			}
		}
		_, err = d.js.Publish(ctx, "$KV.services.default.a", []byte("changed"))
		require.NoError(t, err)
	}
	require.NoError(t, watcher.Stop())
	_, err = d.js.Publish(ctx, "instar.evt.service.default.a.service.ready", []byte("told"))
	require.NoError(t, err)
	m, err = live.NextMsg(10 * time.Second)
	require.NoError(t, err)
	require.Equal(t, "told", string(m.Data))
	view, err := reader.OrderedConsumer(ctx, "EVENTS", jetstream.OrderedConsumerConfig{})
	require.NoError(t, err)
	for _, want := range []string{"{}", "told"} {
		m, err := view.Next(jetstream.FetchMaxWait(10 * time.Second))
		require.NoError(t, err)
		require.Equal(t, want, string(m.Data()))
	}
}

// The users of the example of a NATS server, and those of an embedded server, may do what testdata lists and nothing else.
func TestNATSUsers(t *testing.T) { // not parallel: the file of the example reads the environment
	check := func(t *testing.T, url string) {
		d := openDoors(t, url)
		d.uses()
		matrix := d.matrix()
		at := filepath.Join("testdata", "nats_users.txt")
		if *writeMatrix {
			require.NoError(t, os.WriteFile(at, []byte(matrix), 0o600))
		}
		want, err := os.ReadFile(at)
		require.NoError(t, err)
		require.Equal(t, string(want), matrix)
		d.hold(matrix)
	}
	t.Run("OfTheExample", func(t *testing.T) {
		for _, u := range shipped {
			t.Setenv(strings.ToUpper(u.Name)+"_PASSWORD", "secret")
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
		check(t, srv.ClientURL())
	})
	t.Run("OfTheEmbeddedServer", func(t *testing.T) {
		srv, err := embedded.Start(embedded.Options{Dir: t.TempDir(), Listen: "127.0.0.1:0", Profile: embedded.OS, Users: shipped})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, srv.Shutdown(context.Background())) })
		_, err = nats.Connect(srv.ClientURL())
		require.ErrorIs(t, err, nats.ErrAuthorization)
		check(t, srv.ClientURL())
	})
}

// The accounts of the example are what the embedded server makes of the roles.
func TestTheExampleHasTheAccountsOfTheRoles(t *testing.T) {
	t.Parallel()
	plain := func(text string) string {
		return strings.TrimSpace(regexp.MustCompile(`(?m)^\s*(#.*|SYS .*)?\n`).ReplaceAllString(text, ""))
	}
	text := deployed(t, "nats-server.conf")
	_, text, _ = strings.Cut(text, "\naccounts {")
	text, _, _ = strings.Cut(text, "\nsystem_account")
	want := embedded.Accounts("INSTAR", streams.Names{}, shipped, func(u embedded.User) string { return "$" + strings.ToUpper(u.Name) + "_PASSWORD" })
	require.Equal(t, plain(want), plain("accounts {"+text+"\n"))
}
