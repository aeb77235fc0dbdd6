package relays

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/bcc94042/instar/internal/postgres"
	"github.com/bcc94042/instar/internal/wait"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/outbox"
	"github.com/bcc94042/instar/torture/internal/part"
	"github.com/bcc94042/instar/torture/internal/rig"
)

// Outboxes tortures the relay: twelve writers with delays and rollbacks, transactions elsewhere that stay open, and two
// relays, Postgres and NATS that are killed, stopped and cut off in turn. In the end every aggregate has counted its
// changes in the database, and the stream holds exactly these, in order.
func Outboxes(t *part.T) error {
	runs := []struct {
		mode    outbox.Mode
		profile string
		life    time.Duration
	}{{outbox.Log, "interval", 18 * time.Second}}
	if t.Long {
		runs[0].life = 75 * time.Second
		for _, mode := range []outbox.Mode{outbox.Log, outbox.Claim} {
			runs = append(runs, runs[0])
			last := &runs[len(runs)-1]
			last.mode, last.profile, last.life = mode, "fsync", 40*time.Second
		}
	}
	for _, r := range runs {
		o := &orders{T: t, mode: r.mode, profile: r.profile, dir: t.Dir + "-" + string(r.mode) + "-" + r.profile, kills: map[string]int{}, relays: make([]*rig.Process, 2)}
		err := o.run(func() error { return o.disturb(r.life) })
		o.End()
		if err != nil {
			return err
		}
	}
	return nil
}

// orders is an application with an outbox.
type orders struct {
	*part.T
	mode         outbox.Mode
	profile, dir string

	pg     *postgres.Cluster
	nats   *rig.NATS // nil when the relays have servers of their own
	url    string    // where clients of NATS connect
	pool   *pgxpool.Pool
	relays []*rig.Process
	kills  map[string]int

	start func(i int) (*rig.Process, error) // of a relay; nil is one without a server

	committed, rolledBack atomic.Int64
}

const aggregates = 60

// run writes while disturb does what it does, and compares in the end.
func (o *orders) run(disturb func() error) error {
	if err := o.setUp(); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(o.Ctx)
	var writers sync.WaitGroup
	for w := range 12 {
		writers.Go(func() { o.write(ctx, w) })
	}
	writers.Go(func() { o.elsewhere(ctx) })
	err := disturb()
	stop()
	writers.Wait()
	if err != nil {
		return err
	}
	o.supervise()
	want, err := o.changes()
	if err != nil {
		return err
	}
	o.judgeStream(want)
	return nil
}

func (o *orders) setUp() error {
	var err error
	if o.pg, err = Postgres(o.T, map[string]string{"fsync": "off"}); err != nil {
		return err
	}
	if o.url == "" {
		if err := o.startNATS(); err != nil {
			return err
		}
	}
	if err := outbox.Init(o.Ctx, o.dsn(), "", outbox.Settings{Mode: o.mode}); err != nil {
		return err
	}
	config, err := pgxpool.ParseConfig(o.dsn())
	if err != nil {
		return err
	}
	config.MaxConns = 16 // one for each writer
	if o.pool, err = pgxpool.NewWithConfig(o.Ctx, config); err != nil {
		return err
	}
	o.OnEnd(o.pool.Close)
	if _, err := o.pool.Exec(o.Ctx, `create table elsewhere (x int); create table aggregates (id text primary key, n bigint not null default 0);
		insert into aggregates (id) select 'o-' || n from generate_series(0, $1::int - 1) as n`, pgx.QueryExecModeSimpleProtocol, aggregates); err != nil {
		return err
	}
	o.OnEnd(func() {
		for _, p := range o.relays {
			if p != nil {
				p.Signal(syscall.SIGCONT)
				p.Kill()
			}
		}
	})
	o.supervise()
	return nil
}

// postgresFor is a private server that ends with the part.
func Postgres(t *part.T, config map[string]string) (*postgres.Cluster, error) {
	base, err := os.MkdirTemp("", "instar-torture-pg-") // the user that Postgres runs as must reach it
	if err != nil {
		return nil, err
	}
	t.OnEnd(func() { _ = os.RemoveAll(base) })
	if err := os.Chmod(base, 0o755); err != nil { // the data in it is its user's alone
		return nil, err
	}
	pg, err := postgres.Start(t.Ctx, postgres.Options{Dir: filepath.Join(base, "pg"), Config: config})
	if errors.Is(err, postgres.ErrNoPostgres) {
		return nil, part.Skipped(err.Error())
	}
	if err == nil {
		t.OnEnd(func() { _ = pg.Stop(context.Background()) })
	}
	return pg, err
}

func (o *orders) startNATS() (err error) {
	if o.nats, err = rig.NewNATS(o.dir+"-nats", o.profile); err != nil {
		return err
	}
	if err := o.nats.Start(o.Ctx); err != nil {
		return err
	}
	o.OnEnd(o.nats.Kill)
	o.url = o.nats.URL()
	r, err := o.Reader(o.url)
	if err != nil {
		return err
	}
	_, err = streams.Ensure(o.Ctx, r.JS(), streams.Plan{}) // with the bucket of leases
	return err
}

func (o *orders) dsn() string { return o.pg.DSN("postgres") }

// supervise starts the relays that have ended, as an init system does.
func (o *orders) supervise() {
	for i, p := range o.relays {
		if p != nil && p.Running() {
			continue
		}
		start := o.start
		if start == nil {
			start = func(i int) (*rig.Process, error) { return o.relay(i) }
		}
		if p, err := start(i); err == nil {
			o.relays[i] = p
		}
	}
}

// relay starts a relay without a server.
func (o *orders) relay(i int, args ...string) (*rig.Process, error) {
	args = append([]string{"outbox", "relay", "--nats-url", o.url, "--source", "orders", "--node", fmt.Sprint("r", i)}, args...)
	if o.profile == "fsync" {
		args = append(args, "--fsync")
	}
	return rig.Run(fmt.Sprint(o.dir, "-relay", i, ".log"), []string{"INSTAR_OUTBOX_DSN=" + o.dsn()}, o.Bin, args...)
}

// write changes aggregates, several in a transaction, some of which take long or are rolled back.
func (o *orders) write(ctx context.Context, writer int) {
	r := rand.New(rand.NewPCG(o.Seed, uint64(writer))) // no secret
	for ctx.Err() == nil {
		err := pgx.BeginFunc(o.Ctx, o.pool, func(tx pgx.Tx) error { // to its end: Postgres may still commit what is cut off
			chosen := map[int]bool{}
			for range 1 + r.IntN(4) {
				chosen[r.IntN(aggregates)] = true
			}
			for _, a := range slices.Sorted(maps.Keys(chosen)) { // in one order, against deadlocks
				id := fmt.Sprint("o-", a)
				if _, err := tx.Exec(o.Ctx, `with c as (update aggregates set n = n + 1 where id = $1 returning n)
					select outbox_append('order', $1, 'order.changed', jsonb_build_object('n', n)) from c`, id); err != nil {
					return err
				}
				if r.IntN(6) == 0 {
					wait.For(ctx, time.Duration(r.IntN(40))*time.Millisecond)
				}
			}
			if r.IntN(6) == 0 {
				return errRollback
			}
			return nil
		})
		switch {
		case err == nil:
			o.committed.Add(1)
		case errors.Is(err, errRollback):
			o.rolledBack.Add(1)
		default:
			wait.For(ctx, 50*time.Millisecond)
		}
	}
}

var errRollback = errors.New("rolled back")

// elsewhere keeps transactions of another table open.
func (o *orders) elsewhere(ctx context.Context) {
	for ctx.Err() == nil {
		_ = pgx.BeginFunc(ctx, o.pool, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `insert into elsewhere values (1)`)
			wait.For(ctx, 4*time.Second)
			return err
		})
		wait.For(ctx, 50*time.Millisecond)
	}
}

// disturb kills, stops and cuts off, one thing after another.
func (o *orders) disturb(life time.Duration) error {
	for end := time.Now().Add(life); time.Now().Before(end); {
		if !wait.For(o.Ctx, o.Between(300*time.Millisecond, 1500*time.Millisecond)) {
			return o.Ctx.Err()
		}
		p := o.relays[o.Rand.IntN(len(o.relays))]
		var err error
		switch what := []string{"relay killed", "relay killed", "relay stopped", "Postgres killed", "NATS killed", "backends ended"}[o.Rand.IntN(6)]; what {
		case "relay killed":
			p.Kill()
			o.kills[what]++
		case "relay stopped": // beyond its leases, with whatever it has in its hands
			p.Signal(syscall.SIGSTOP)
			wait.For(o.Ctx, o.Between(time.Second, time.Duration(o.Amount(11, 16))*time.Second))
			p.Signal(syscall.SIGCONT)
			o.kills[what]++
		case "Postgres killed":
			if err = o.pg.Kill(); err == nil {
				err = o.pg.Restart(o.Ctx)
			}
			o.kills[what]++
		case "NATS killed":
			o.nats.Kill()
			wait.For(o.Ctx, o.Between(0, time.Second))
			err = o.nats.Start(o.Ctx)
			o.kills[what]++
		case "backends ended":
			_, _ = o.pool.Exec(o.Ctx, `select pg_terminate_backend(pid) from pg_stat_activity where application_name like 'instar relay%'`)
			o.kills[what]++
		}
		if err != nil {
			return err
		}
		o.supervise()
	}
	return nil
}

// changes is how often each aggregate was changed.
func (o *orders) changes() (map[string]int, error) {
	var rows pgx.Rows
	err := rig.Until(o.Ctx, 20*time.Second, "Postgres", func() bool { return o.pool.Ping(o.Ctx) == nil })
	if err == nil {
		rows, err = o.pool.Query(o.Ctx, `select id, n from aggregates`)
	}
	if err != nil {
		return nil, err
	}
	want := map[string]int{}
	var id string
	var n int
	_, err = pgx.ForEachRow(rows, []any{&id, &n}, func() error { want[id] = n; return nil })
	return want, err
}
