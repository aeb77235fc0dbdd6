package relay

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/internal/testenv"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/embedded"
	"github.com/bcc94042/instar/streams/outbox"
	"github.com/bcc94042/instar/streams/outbox/relay/shard"
)

// cluster is three NATS servers with streams of three replicas.
type cluster struct {
	t       *testing.T
	options []embedded.Options
	members []*embedded.Server
	nc      *nats.Conn
	js      jetstream.JetStream
}

func openCluster(t *testing.T) *cluster {
	t.Helper()
	dir := t.TempDir()
	c := &cluster{t: t, options: make([]embedded.Options, 3), members: make([]*embedded.Server, 3)}
	var routes []string
	for range c.members {
		routes = append(routes, "nats://"+testenv.Address(t))
	}
	for i := range c.members {
		c.options[i] = embedded.Options{
			Dir: filepath.Join(dir, fmt.Sprint(i)), Listen: "127.0.0.1:0", Open: true, Profile: embedded.Interval, Name: fmt.Sprint("n", i), Log: slog.New(slog.DiscardHandler),
			Cluster: &embedded.ClusterOptions{Name: "test", Listen: routes[i][len("nats://"):], Routes: routes, User: "member", Password: "secret"},
		}
		c.start(i)
		c.options[i].Listen = c.members[i].ClientURL()[len("nats://"):]
		t.Cleanup(func() { _ = c.members[i].Shutdown(context.Background()) })
	}
	c.nc, c.js = c.connect()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	_, err := streams.AwaitCluster(ctx, c.nc, c.js, streams.Plan{Replicas: 3}, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	return c
}

func (c *cluster) start(i int) {
	c.t.Helper()
	var err error
	c.members[i], err = embedded.Start(c.options[i])
	require.NoError(c.t, err)
}

// connect is a client of whichever member runs.
func (c *cluster) connect() (*nats.Conn, jetstream.JetStream) {
	c.t.Helper()
	var urls []string
	for _, m := range c.members {
		urls = append(urls, m.ClientURL())
	}
	nc, err := streams.Connect(streams.ConnectOptions{URL: strings.Join(urls, ","), Name: "test"})
	require.NoError(c.t, err)
	c.t.Cleanup(nc.Close)
	js, err := streams.JetStream(nc)
	require.NoError(c.t, err)
	return nc, js
}

// leader is the member that leads a stream, or -1.
func (c *cluster) leader(stream string) int {
	s, err := c.js.Stream(c.t.Context(), stream)
	if err != nil || s.CachedInfo().Cluster == nil {
		return -1
	}
	for i, o := range c.options {
		if o.Name == s.CachedInfo().Cluster.Leader {
			return i
		}
	}
	return -1
}

// account is a database whose application counts what it changes, so that the events can be compared in every mode.
type account struct {
	c    *cluster
	mode outbox.Mode
	name string
	dsn  string
	pool *pgxpool.Pool
}

func (c *cluster) account(mode outbox.Mode) *account {
	c.t.Helper()
	a := &account{c: c, mode: mode, name: "on-" + string(mode), dsn: migrate(c.t, outboxed(c.t), mode)}
	var err error
	a.pool, err = pgxpool.New(c.t.Context(), a.dsn)
	require.NoError(c.t, err)
	c.t.Cleanup(a.pool.Close)
	_, err = a.pool.Exec(c.t.Context(), `create table counters (id text primary key, n int not null default 0)`)
	require.NoError(c.t, err)
	return a
}

// relay runs a relay of the account, one of several nodes.
func (a *account) relay(node string) {
	t := a.c.t
	t.Helper()
	nc, js := a.c.connect()
	r := &Relay{
		NC: nc, JS: js, Node: node, Replicas: 3, Log: testLog(t), Leases: &shard.NATSLeases{JS: js, Source: a.name, Node: node, Life: 2 * time.Second},
		Config: outbox.Config{Name: a.name, DSN: a.dsn, Mode: a.mode, Stream: "OUTBOX_" + string(a.mode), Prefix: a.name, Poll: 20 * time.Millisecond, Lease: 10 * time.Second},
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	t.Cleanup(func() { cancel(); require.NoError(t, <-done) })
}

// write changes counters and appends what they are then, until stop is closed.
func (a *account) write(writer int, stop <-chan struct{}) {
	for i := 0; ; i++ {
		select {
		case <-stop:
			return
		case <-time.After(2 * time.Millisecond): // others have work to do
		}
		_ = pgx.BeginFunc(a.c.t.Context(), a.pool, func(tx pgx.Tx) error { // a fault is one that is not counted
			for k := range 3 {
				if _, err := tx.Exec(a.c.t.Context(), `with c as (insert into counters as c values ($1, 1) on conflict (id) do update set n = c.n + 1 returning n)
					select outbox_append('order', $1, 'order.changed', jsonb_build_object('n', n)) from c`, fmt.Sprintf("w%d-%d", writer, (i+k)%7)); err != nil {
					return err
				}
			}
			return nil
		})
	}
}

// events are the numbers of each aggregate, in the order of the stream.
func (a *account) events() (map[string][]int, int) {
	t := a.c.t
	t.Helper()
	s, err := a.c.js.Stream(t.Context(), "OUTBOX_"+string(a.mode))
	require.NoError(t, err)
	info, err := s.Info(t.Context(), jetstream.WithSubjectFilter(a.name+".>"))
	require.NoError(t, err)
	total := 0
	for _, n := range info.State.Subjects {
		total += int(n)
	}
	c, err := a.c.js.OrderedConsumer(t.Context(), "OUTBOX_"+string(a.mode), jetstream.OrderedConsumerConfig{FilterSubjects: []string{a.name + ".>"}})
	require.NoError(t, err)
	it, err := c.Messages()
	require.NoError(t, err)
	defer it.Stop()
	have := map[string][]int{}
	for range total {
		m, err := it.Next(jetstream.NextMaxWait(waitFor))
		require.NoError(t, err)
		var body struct{ N int }
		require.NoError(t, json.Unmarshal(m.Data(), &body))
		id := m.Headers().Get("ce-subject")[len("order/"):]
		have[id] = append(have[id], body.N)
	}
	return have, total
}

// stored is how many events there are now; -1 while nobody says so.
func (a *account) stored() int {
	ctx, cancel := context.WithTimeout(a.c.t.Context(), time.Second)
	defer cancel()
	s, err := a.c.js.Stream(ctx, "OUTBOX_"+string(a.mode))
	if err != nil {
		return -1
	}
	info, err := s.Info(ctx, jetstream.WithSubjectFilter(a.name+".>"))
	if err != nil {
		return -1
	}
	total := 0
	for _, n := range info.State.Subjects {
		total += int(n)
	}
	return total
}

// Three NATS servers with three replicas of everything: the one that leads the stream goes away under load, again and
// again, and every event is there once and in order all the same.
func TestRelaysOnThreeReplicas(t *testing.T) {
	t.Parallel()
	c := openCluster(t)
	stop := make(chan struct{})
	var writers sync.WaitGroup
	var accounts []*account
	for _, mode := range []outbox.Mode{outbox.Log, outbox.Claim} {
		a := c.account(mode)
		accounts = append(accounts, a)
		a.relay("a")
		a.relay("b")
	}
	for _, a := range accounts {
		for w := range 2 {
			writers.Go(func() { a.write(w, stop) })
		}
	}
	for round := range 3 {
		a := accounts[round%len(accounts)]
		for _, a := range accounts {
			n := a.stored()
			require.Eventually(t, func() bool { return a.stored() >= n+100 }, 60*time.Second, 50*time.Millisecond, "%s goes on in round %d", a.mode, round)
		}
		var i int
		require.Eventually(t, func() bool { i = c.leader("OUTBOX_" + string(a.mode)); return i >= 0 }, 20*time.Second, 50*time.Millisecond)
		require.NoError(t, c.members[i].Shutdown(t.Context()))
		n := a.stored()
		require.Eventually(t, func() bool { return a.stored() >= max(n, 0)+100 }, 60*time.Second, 50*time.Millisecond, "%s goes on with two servers", a.mode)
		c.start(i)
	}
	close(stop)
	writers.Wait()
	for _, a := range accounts {
		a.compare()
	}
}

// compare waits for the last event: what each aggregate was changed to is there once, in order.
func (a *account) compare() {
	t := a.c.t
	t.Helper()
	rows, err := a.pool.Query(t.Context(), `select id, n from counters`)
	require.NoError(t, err)
	want, total := map[string][]int{}, 0
	var id string
	var n int
	_, err = pgx.ForEachRow(rows, []any{&id, &n}, func() error {
		for i := range n {
			want[id] = append(want[id], i+1)
		}
		total += n
		return nil
	})
	require.NoError(t, err)
	require.Eventually(t, func() bool { return a.stored() >= total }, 60*time.Second, 100*time.Millisecond, "%s: all %d events", a.mode, total)
	have, stored := a.events()
	require.Equal(t, want, have, a.mode)
	require.Equal(t, total, stored, a.mode)
	t.Logf("%s: %d rows, %d events", a.mode, total, stored)
}
