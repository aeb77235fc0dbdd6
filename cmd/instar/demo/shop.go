package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/cmd/instar/cli/command"
	"github.com/bcc94042/instar/internal/wait"
)

// shop is the application of the demo: tills that take orders, and articles that all of them reserve.
type shop struct {
	dsn  string
	wake func()

	acked  atomic.Int64
	ids    sync.Map // event ids of transactions whose commit was acknowledged
	orders atomic.Int64
}

const (
	tills    = 4
	articles = 10
)

func (s *shop) acknowledged() int64 { return s.acked.Load() }

// open makes the tables of the application.
func (s *shop) open(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, s.dsn)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }() // nothing is lost with it
	_, err = conn.Exec(ctx, `
		create table orders (id text primary key, step int not null);
		create table articles (id text primary key, reserved int not null);
		insert into articles select 'a' || n, 0 from generate_series(0, 9) n`)
	return err
}

// run takes orders until ctx ends. A connection that breaks is opened again; whether its last transaction was committed
// is not known then, and does not matter: the event is there exactly when the order is.
func (s *shop) run(ctx context.Context) {
	var all sync.WaitGroup
	for till := range tills {
		all.Go(func() {
			for ctx.Err() == nil {
				if err := s.till(ctx, till); err != nil {
					_ = wait.Pause(ctx, 20*time.Millisecond) // the database is away
				}
			}
		})
	}
	all.Wait()
}

func (s *shop) till(ctx context.Context, till int) error {
	conn, err := pgx.Connect(ctx, s.dsn)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }() // it may be broken
	for ctx.Err() == nil {
		id := fmt.Sprintf("o-%d-%d", till, s.orders.Add(1))
		for step := range 3 { // placed, paid, shipped
			err := s.sell(ctx, conn, id, step)
			if errors.Is(err, errChangedMind) {
				break // there is no such order
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

var steps = []string{"order.placed", "order.paid", "order.shipped"}

var errChangedMind = errors.New("the customer changes his mind")

// sell is one transaction: an order goes a step on, an article is reserved, and each of them says so in the outbox.
// Some are rolled back, and some take their time before they commit, so that commits come out of order.
func (s *shop) sell(ctx context.Context, conn *pgx.Conn, id string, step int) error {
	tx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second) // the shop closes between transactions
	defer cancel()
	var written []string
	err := pgx.BeginFunc(tx, conn, func(t pgx.Tx) error {
		if _, err := t.Exec(tx, `insert into orders values ($1, $2) on conflict (id) do update set step = excluded.step`, id, step); err != nil {
			return err
		}
		one, err := appendEvent(tx, t, "order", id, steps[step], step+1)
		if err != nil {
			return err
		}
		written = append(written, one)
		if step == 0 {
			article, reserved := fmt.Sprintf("a%d", rand.IntN(articles)), 0 // no secret
			if err := t.QueryRow(tx, `update articles set reserved = reserved + 1 where id = $1 returning reserved`, article).Scan(&reserved); err != nil {
				return err
			}
			two, err := appendEvent(tx, t, "article", article, "article.reserved", reserved)
			if err != nil {
				return err
			}
			written = append(written, two)
		}
		switch rand.IntN(100) { // no secret
		case 0, 1:
			if step == 0 {
				return errChangedMind
			}
		case 2:
			return wait.Pause(tx, 20*time.Millisecond)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, id := range written {
		s.ids.Store(id, struct{}{})
	}
	s.acked.Add(int64(len(written)))
	s.wake()
	return nil
}

// appendEvent is what an application in any language does.
func appendEvent(ctx context.Context, tx pgx.Tx, typ, id, event string, n int) (string, error) {
	var written string
	err := tx.QueryRow(ctx, `select outbox_append($1, $2, $3, jsonb_build_object('n', $4::int))::text`, typ, id, event, n).Scan(&written)
	return written, err
}

// count is how many events the stream holds.
func (d *outboxDemo) count(ctx context.Context) (uint64, error) {
	s, err := d.js.Stream(ctx, "OUTBOX")
	if err != nil {
		return 0, err
	}
	info, err := s.Info(ctx, jetstream.WithSubjectFilter("outbox-pos.>")) // the relay's own positions
	if err != nil {
		return 0, err
	}
	n := info.State.Msgs
	for _, markers := range info.State.Subjects {
		n -= min(markers, n)
	}
	return n, nil
}

// verify waits until the stream has what the database has, then compares them event by event.
func (d *outboxDemo) verify(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 90*time.Second)
	defer cancel()
	rows, err := d.rows(ctx)
	if err != nil {
		return err
	}
	for {
		n, err := d.count(ctx)
		if err == nil && n >= uint64(len(rows)) {
			break
		}
		if wait.Pause(ctx, 50*time.Millisecond) != nil {
			d.tell("%d rows were written, only %d events came into the stream: %s", len(rows), n, LastWords(d.relay.log))
			return &command.Error{Code: command.ExitGeneric, Err: errors.New("the relay did not catch up")}
		}
	}
	if err := wait.Pause(ctx, 500*time.Millisecond); err != nil { // what is too much would come now
		return err
	}
	found, err := d.read(ctx)
	if err != nil {
		return err
	}
	return d.judge(rows, found)
}

// rows are the ids of all events that were committed.
func (d *outboxDemo) rows(ctx context.Context) (map[string]bool, error) {
	conn, err := pgx.Connect(ctx, d.shop.dsn)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close(ctx) }() // nothing is lost with it
	list, err := conn.Query(ctx, `select event_id::text from outbox_log`)
	if err != nil {
		return nil, err
	}
	ids, err := pgx.CollectRows(list, pgx.RowTo[string])
	rows := make(map[string]bool, len(ids))
	for _, id := range ids {
		rows[id] = true
	}
	return rows, err
}

// delivered is what a reader of the stream found.
type delivered struct {
	events, doubled, disordered int
	ids                         map[string]bool
}

// read reads the stream from its beginning, as any consumer does.
func (d *outboxDemo) read(ctx context.Context) (delivered, error) {
	f := delivered{ids: map[string]bool{}}
	want, err := d.count(ctx)
	if err != nil {
		return f, err
	}
	c, err := d.js.OrderedConsumer(ctx, "OUTBOX", jetstream.OrderedConsumerConfig{FilterSubjects: []string{"outbox.>"}})
	if err != nil {
		return f, err
	}
	messages, err := c.Messages(jetstream.PullMaxMessages(5000))
	if err != nil {
		return f, err
	}
	defer messages.Stop()
	last := map[string]int{}
	for f.events < int(want) { // a count
		m, err := messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			return f, fmt.Errorf("cannot read the stream: %w", err)
		}
		var body struct{ N int }
		if err := json.Unmarshal(m.Data(), &body); err != nil {
			return f, fmt.Errorf("an event is not as it was written: %w", err)
		}
		id, aggregate := m.Headers().Get("ce-id"), m.Headers().Get("ce-subject")
		if f.ids[id] {
			f.doubled++
		}
		f.ids[id] = true
		if body.N != last[aggregate]+1 {
			f.disordered++
		}
		last[aggregate] = body.N
		f.events++
	}
	return f, nil
}

// judge says what held.
func (d *outboxDemo) judge(rows map[string]bool, f delivered) error {
	lost, foreign, unkept := 0, 0, 0
	for id := range rows {
		if !f.ids[id] {
			lost++
		}
	}
	for id := range f.ids {
		if !rows[id] {
			foreign++
		}
	}
	d.shop.ids.Range(func(id, _ any) bool {
		if !rows[id.(string)] {
			unkept++
		}
		return true
	})
	fmt.Fprintf(d.out, `
  rows written                     %8d
  events in the stream             %8d
  lost                             %8d
  twice                            %8d
  out of order in their aggregate  %8d
  of transactions rolled back      %8d
  acknowledged, but not there      %8d

`, len(rows), f.events, lost, f.doubled, f.disordered, foreign, unkept)
	if lost+f.doubled+f.disordered+foreign+unkept > 0 || len(rows) != f.events || len(rows) == 0 {
		return &command.Error{Code: command.ExitGeneric, Err: errors.New("the promise was broken")}
	}
	fmt.Fprintf(d.out, "rows written = events in the stream, without duplicates and in order, after %d kills in %.0f s\n", d.kills, time.Since(d.began).Seconds())
	return nil
}
