package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/client/tenantdb"
	"github.com/bcc94042/instar/machines/database"
	"github.com/bcc94042/instar/providers/database/pg"
	"github.com/bcc94042/instar/providers/database/secret"
)

// writers insert orders at a fixed rate, each timed from when it was due: who waits behind a writer that waits has waited, too.
type writers struct {
	db     *tenantdb.DB
	tenant string
	first  int64 // free key

	mu   sync.Mutex
	took []time.Duration
	ends []time.Time
	keys []int64
	err  error

	refused time.Time // the first time
}

// run writes until the context ends; what the fence refuses is repeated where the tenant is then.
func (w *writers) run(ctx context.Context, perSecond int) {
	due := make(chan time.Time, 100_000)
	var all sync.WaitGroup
	var next int64
	for range 16 {
		all.Go(func() {
			for at := range due {
				w.mu.Lock()
				key := w.first + next
				next++
				w.mu.Unlock()
				err := w.write(context.WithoutCancel(ctx), key)
				w.mu.Lock()
				now := time.Now()
				w.took, w.ends, w.err = append(w.took, now.Sub(at)), append(w.ends, now), errors.Join(w.err, err)
				if err == nil {
					w.keys = append(w.keys, key)
				}
				w.mu.Unlock()
			}
		})
	}
	began, sent := time.Now(), 0
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for ctx.Err() == nil {
		<-tick.C
		for ; sent < int(time.Since(began).Seconds()*float64(perSecond)); sent++ {
			due <- began.Add(time.Duration(sent) * time.Second / time.Duration(perSecond))
		}
	}
	close(due)
	all.Wait()
}

func (w *writers) write(ctx context.Context, key int64) error {
	for {
		conn, err := w.db.Acquire(ctx, w.tenant)
		if err != nil {
			return err
		}
		_, err = conn.Exec(ctx, `insert into public.orders (id, enterprise_id, total, note) values ($1, $2, 1, 'written')`, key, w.tenant)
		conn.Release()
		if state := pg.State(err); state != pg.ReadOnly && state != pg.Serialization {
			return err
		}
		w.mu.Lock()
		if w.refused.IsZero() {
			w.refused = time.Now()
		}
		w.mu.Unlock()
		time.Sleep(10 * time.Millisecond) // as an application does that leaves something to the others
	}
}

// cutover moves a tenant in mode online under writes, and tells how long they waited for the switch.
func (b *bench) cutover(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 4*time.Minute)
	defer cancel()
	source, err := b.shared(ctx, b.online, 0, 2)
	if err != nil {
		return err
	}
	s, err := b.instar(ctx, source)
	if err != nil {
		return err
	}
	defer s.process.Kill()
	db, done, err := s.application(ctx, source)
	if err != nil {
		return err
	}
	defer done()
	w := &writers{db: db, tenant: who, first: 1 << 40}
	writing, stop := context.WithCancel(ctx)
	defer stop()
	var all sync.WaitGroup
	all.Go(func() { w.run(writing, b.perSecond) })
	pause := func(d time.Duration) { // of writes before and after
		select {
		case <-time.After(d):
		case <-ctx.Done():
		}
	}
	pause(2 * time.Second)
	began := time.Now()
	switching := time.Time{}
	err = errors.Join(s.request(who, "online"), s.ready(ctx, who, 20*time.Millisecond, func(v *session) {
		if v.State == database.Switching && switching.IsZero() {
			switching = time.Now()
		}
	}))
	moved := time.Since(began)
	pause(2 * time.Second)
	stop()
	all.Wait()
	if err = errors.Join(err, w.err); err != nil {
		return err
	}
	there, err := ask(ctx, b.own(who), `select count(*) from public.orders where id = any($1)`, w.keys)
	if err != nil {
		return err
	}
	if there != int64(len(w.keys)) {
		return fmt.Errorf("%d writes were acknowledged, and %d are there", len(w.keys), there)
	}
	gap := time.Duration(0)
	for i := 1; i < len(w.ends); i++ {
		gap = max(gap, w.ends[i].Sub(w.ends[i-1]))
	}
	slices.Sort(w.took)
	at := func(q float64) time.Duration {
		return w.took[int(q*float64(len(w.took)-1))].Round(100 * time.Microsecond)
	}
	fmt.Printf("\nonline: a tenant of %d rows, moved in %s under %d writes per second: of %d acknowledged writes all are there; a write took p50 %s, p99 %s, at most %s from when it was due; the longest time without an acknowledgement was %s; %s passed from the first refusal to the state switching\n",
		b.online, moved.Round(time.Millisecond), b.perSecond, len(w.keys), at(0.5), at(0.99), at(1), gap.Round(time.Millisecond), switching.Sub(w.refused).Round(time.Millisecond))
	return nil
}

// application connects as one does that resolves tenants.
func (s *instar) application(ctx context.Context, source pg.Address) (*tenantdb.DB, func(), error) {
	raw, err := os.ReadFile(filepath.Join(s.dir, "keys.json"))
	if err != nil {
		return nil, nil, err
	}
	keys, err := secret.Open(raw)
	if err != nil {
		return nil, nil, err
	}
	c, err := pgxpool.ParseConfig(source.DSN)
	if err != nil {
		return nil, nil, err
	}
	configure := func(_ string, c *pgxpool.Config) { c.MaxConns = 16 }
	configure("", c)
	nc, err := nats.Connect("nats://" + s.nats)
	if err != nil {
		return nil, nil, err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		nc.Close()
		return nil, nil, err
	}
	db, err := tenantdb.Open(ctx, tenantdb.Options{JetStream: js, Keys: keys, Shared: c, Configure: configure})
	if err != nil {
		nc.Close()
		return nil, nil, err
	}
	return db, func() { _ = db.Close(); nc.Close() }, nil // the end of the benchmark
}

// many moves small tenants from the request to ready, some at a time.
func (b *bench) many(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 8*time.Minute)
	defer cancel()
	source, err := b.shared(ctx, b.small, 100, b.tenants)
	if err != nil {
		return err
	}
	s, err := b.instar(ctx, source)
	if err != nil {
		return err
	}
	defer s.process.Kill()
	_, family, err := b.spent()
	if err != nil {
		return err
	}
	var mu sync.Mutex
	var took []time.Duration
	todo := make(chan string, b.tenants)
	for i := range b.tenants {
		todo <- fmt.Sprint("t", 100+i)
	}
	close(todo)
	began := time.Now()
	var all sync.WaitGroup
	for range b.atOnce {
		all.Go(func() {
			for tenant := range todo {
				start := time.Now()
				e := errors.Join(s.request(tenant, "offline"), s.ready(ctx, tenant, 50*time.Millisecond, nil))
				mu.Lock()
				took, err = append(took, time.Since(start)), errors.Join(err, e)
				mu.Unlock()
				if e != nil {
					return
				}
			}
		})
	}
	all.Wait()
	elapsed := time.Since(began)
	if err != nil {
		return err
	}
	_, family2, err := b.spent()
	if err != nil {
		return err
	}
	own, err := s.process.CPU()
	if err != nil {
		return err
	}
	slices.Sort(took)
	at := func(q float64) time.Duration { return took[int(q*float64(len(took)-1))].Round(time.Millisecond) }
	per := func(d time.Duration) time.Duration { return (d / time.Duration(b.tenants)).Round(time.Millisecond) }
	fmt.Printf("\ntenants: %d of %d rows, %d at a time, from the request to ready: %.0f per minute; a tenant takes p50 %s, p99 %s; CPU per tenant: %s of the server, %s of Postgres\n",
		b.tenants, b.small, b.atOnce, float64(b.tenants)/elapsed.Minutes(), at(0.5), at(0.99), per(own), per(family2-family))
	return nil
}

// kills ends the server in the middle of a copy. Postgres counts what was inserted and not committed, too.
func (b *bench) kills(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 4*time.Minute)
	defer cancel()
	const tenant = "t10" // one that was not moved before
	total := 2 * b.rows
	source, err := b.shared(ctx, total, 10, 2)
	if err != nil {
		return err
	}
	s, err := b.instar(ctx, source)
	if err != nil {
		return err
	}
	defer func() { s.process.Kill() }()
	if err := s.request(tenant, "offline"); err != nil {
		return err
	}
	ranges := int64(0)
	for n := range b.kill {
		for {
			done, err := ask(ctx, b.own(tenant), `select count(*) filter (where done_at is not null) * 100 / greatest(count(*), 1) from instar.range`)
			switch state := pg.State(err); {
			case state == "3D000" || state == "42P01" || pg.NotSetUp(err): // it is not made yet
			case err != nil:
				return err
			}
			if err == nil && done >= int64(100*(n+1)/(b.kill+2)) {
				break
			}
			select {
			case <-time.After(time.Millisecond):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		s.process.Kill()
		if ranges, err = ask(ctx, b.own(tenant), `select count(*) filter (where done_at is null) from instar.range`); err != nil {
			return err
		}
		if ranges == 0 {
			return errors.New("the copy had ended before the kill: more rows are needed")
		}
		if err := s.start(ctx); err != nil {
			return err
		}
	}
	if err := s.ready(ctx, tenant, 50*time.Millisecond, nil); err != nil {
		return err
	}
	inserted, err := ask(ctx, b.own(tenant), `select sum(n_tup_ins)::bigint from pg_stat_user_tables where schemaname = 'public'`)
	if err != nil {
		return err
	}
	rows, err := ask(ctx, b.own(tenant), `select (select count(*) from public.orders) + (select count(*) from public.parts)`)
	if err != nil {
		return err
	}
	if rows != int64(total) {
		return fmt.Errorf("%d rows are there of %d", rows, total)
	}
	fmt.Printf("\nkill: the server was killed %d times during the copy of %d rows in two streams, ranges of 10,000: all rows are there, %d were copied again, %.1f ranges per kill and stream\n",
		b.kill, total, inserted-rows, float64(inserted-rows)/10000/float64(b.kill)/2)
	return nil
}
