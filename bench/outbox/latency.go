package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"

	"github.com/bcc94042/instar/streams/embedded"
	"github.com/bcc94042/instar/streams/outbox"
)

// latency measures from the beginning of an insert to a subscriber, with nothing else to do.
func (b bench) latency(ctx context.Context) error {
	e, err := open(ctx, embedded.OS)
	if err != nil {
		return err
	}
	defer func() { _ = e.close(context.WithoutCancel(ctx)) }() // a temporary directory
	fmt.Printf("\nlatency when idle, insert to subscriber, NATS with its default sync, 300 inserts of one row each\n%-34s %10s %10s %10s\n", "", "p50", "p99", "most")
	for _, c := range []struct {
		what string
		contender
		subject string
	}{
		{"Watermill, poll 5 ms", &wm{batch: 100}, "wm.>"},
		{"instar log, woken", &ours{mode: outbox.Log, batch: 1000}, "outbox.>"},
		{"instar claim, woken", &ours{mode: outbox.Claim, batch: 100}, "outbox.>"},
		{"instar log, poll 1 s only", &ours{mode: outbox.Log, batch: 1000, silent: true}, "outbox.>"},
	} {
		n := 300
		if o, ok := c.contender.(*ours); ok && o.silent {
			n = 20
		}
		took, err := e.latencies(ctx, c.contender, c.subject, n)
		if err != nil {
			return fmt.Errorf("%s: %w", c.what, err)
		}
		slices.Sort(took)
		at := func(q float64) time.Duration {
			return took[min(int(q*float64(len(took))), len(took)-1)].Round(100 * time.Microsecond)
		}
		fmt.Printf("%-34s %10s %10s %10s\n", c.what, at(.5), at(.99), at(1))
	}
	return nil
}

func (e *env) latencies(ctx context.Context, c contender, subject string, n int) ([]time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	if err := e.fresh(ctx); err != nil {
		return nil, err
	}
	if err := c.prepare(ctx, e); err != nil {
		return nil, err
	}
	stream, _ := c.target()
	defer func() { _ = e.js.DeleteStream(context.WithoutCancel(ctx), stream) }()
	if err := c.start(ctx, e); err != nil {
		return nil, err
	}
	arrived := make(chan time.Time, 16)
	sub, err := e.nc.Subscribe(subject, func(*nats.Msg) { arrived <- time.Now() })
	if err != nil {
		return nil, err
	}
	defer func() { _ = sub.Unsubscribe() }()
	if err := e.nc.Flush(); err != nil {
		return nil, err
	}
	conn, err := pgx.Connect(ctx, e.dsn)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close(ctx) }()
	var took []time.Duration
	for _, r := range rows(n) {
		began := time.Now()
		if err := e.tx(ctx, conn, func(tx pgx.Tx) error { return c.write(ctx, tx, []event{r}) }); err != nil {
			return nil, err
		}
		c.committed()
		select {
		case at := <-arrived:
			took = append(took, at.Sub(began))
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		select { // so that the relay is idle again
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
		}
	}
	return took, c.stop()
}

// producers measures what a relay that works costs the application that writes: order and event in one transaction, one
// after the other at a steady rate, with the relay at work and without it, in turns.
func (b bench) producers(ctx context.Context) error {
	e, err := open(ctx, embedded.OS)
	if err != nil {
		return err
	}
	defer func() { _ = e.close(context.WithoutCancel(ctx)) }() // a temporary directory
	if err := e.fresh(ctx); err != nil {
		return err
	}
	o := &ours{mode: outbox.Log, batch: 1000}
	if err := o.prepare(ctx, e); err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, e.dsn)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	if _, err := conn.Exec(ctx, "create table orders (id bigint generated always as identity primary key, customer text, amount int)"); err != nil {
		return err
	}
	var with, without, ratios []float64
	for range 4 * b.rounds {
		alone, err := e.produce(ctx, o, time.Second)
		if err != nil {
			return err
		}
		if err := o.start(ctx, e); err != nil {
			return err
		}
		relayed, err := e.produce(ctx, o, time.Second)
		if err != nil {
			return err
		}
		if err := o.stop(); err != nil {
			return err
		}
		without, with, ratios = append(without, alone), append(with, relayed), append(ratios, relayed/alone)
	}
	slices.Sort(with)
	slices.Sort(without)
	slices.Sort(ratios)
	w, wo := with[len(with)/2], without[len(without)/2]
	fmt.Printf("\nproducers: an order and its event in one transaction, 2 connections, %d rounds of 1 s in turns\n", len(ratios))
	fmt.Printf("without a relay %.0f tx/s, with one %.0f tx/s; slowed by %.1f %% (median of the rounds; the middle half of them: %.1f to %.1f %%)\n",
		wo, w, 100*(1-ratios[len(ratios)/2]), 100*(1-ratios[len(ratios)*3/4]), 100*(1-ratios[len(ratios)/4]))
	return nil
}

// produce writes as fast as two connections can for a while, and returns transactions per second.
func (e *env) produce(ctx context.Context, o *ours, d time.Duration) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var all sync.WaitGroup
	counts, errs := make([]int, 2), make([]error, 2)
	began := time.Now()
	for i := range counts {
		all.Go(func() {
			conn, err := pgx.Connect(ctx, e.dsn)
			if err != nil {
				errs[i] = err
				return
			}
			defer func() { _ = conn.Close(ctx) }()
			for r := rows(1); time.Since(began) < d; counts[i]++ {
				if errs[i] = e.tx(ctx, conn, func(tx pgx.Tx) error {
					if _, err := tx.Exec(ctx, "insert into orders (customer, amount) values ($1, $2)", r[0].aggregate, counts[i]); err != nil {
						return err
					}
					return o.write(ctx, tx, rows(1))
				}); errs[i] != nil {
					return
				}
			}
		})
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return 0, err
		}
	}
	return float64(counts[0]+counts[1]) / time.Since(began).Seconds(), nil
}
