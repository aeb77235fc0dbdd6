// Command outbox-pgx writes orders and their events in one transaction each, with pgx.
//
//	DATABASE_URL=postgres://… go run ./docs/examples/outbox-pgx
//
// A relay (instar serve, or instar outbox relay) brings the events into the stream OUTBOX, under
// outbox.order.<id>.order.placed and so on.
package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/jackc/pgx/v5"

	"github.com/bcc94042/instar/streams/outbox"
)

// Order is an aggregate: its methods raise events, nothing publishes them.
type Order struct {
	outbox.Recorder
	ID    string
	Total int // cents
	Paid  bool
}

// Placed and Paid are what happens to orders.
type (
	Placed struct {
		Total int `json:"total"`
	}
	Paid struct {
		By string `json:"by"`
	}
)

// EventType is what others subscribe to.
func (Placed) EventType() string { return "order.placed" }

// EventType is what others subscribe to.
func (Paid) EventType() string { return "order.paid" }

// Place begins the life of an order.
func Place(id string, total int) *Order {
	o := &Order{ID: id, Total: total}
	o.Raise(Placed{Total: total})
	return o
}

// Pay may happen once.
func (o *Order) Pay(by string) error {
	if o.Paid {
		return fmt.Errorf("order %s was paid already", o.ID)
	}
	o.Paid = true
	o.Raise(Paid{By: by})
	return nil
}

// shop is the application: it saves orders, with their events.
type shop struct {
	conn   *pgx.Conn
	events outbox.Appender
	wake   outbox.Waker
}

func (s *shop) save(ctx context.Context, o *Order) error {
	err := pgx.BeginFunc(ctx, s.conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `insert into orders (id, total, paid) values ($1, $2, $3) on conflict (id) do update set paid = excluded.paid`, o.ID, o.Total, o.Paid); err != nil {
			return err
		}
		_, err := s.events.RecordPulledDomainEvents(ctx, tx, o, outbox.DomainEventContext{
			AggregateType: "order", AggregateID: o.ID, Headers: map[string]string{"tenant": "acme", "schemaVersion": "1"},
		})
		return err
	})
	if err == nil {
		s.wake.Wake() // after the commit; with no connection to NATS the relay finds it by itself, within a second
	}
	return err
}

func run(ctx context.Context, dsn string, out io.Writer) error {
	if err := outbox.Init(ctx, dsn, "", outbox.Settings{}); err != nil { // or: instar outbox init
		return err
	}
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, `create table if not exists orders (id text primary key, total int not null, paid boolean not null)`); err != nil {
		return err
	}
	s := &shop{conn: conn, wake: outbox.Waker{Source: "shop"}}
	o := Place("4711", 1200)
	if err := s.save(ctx, o); err != nil {
		return err
	}
	if err := o.Pay("card"); err != nil {
		return err
	}
	if err := s.save(ctx, o); err != nil {
		return err
	}
	return tell(ctx, dsn, out)
}

// tell prints what waits to be published.
func tell(ctx context.Context, dsn string, out io.Writer) error {
	store, err := outbox.Open(ctx, dsn, "")
	if err != nil {
		return err
	}
	defer store.Pool.Close()
	entries, err := store.Tail(ctx, "", 10)
	for _, e := range entries {
		fmt.Fprintf(out, "%s %s/%s %s %s %v\n", e.State, e.AggregateType, e.AggregateID, e.EventType, e.Payload, e.Headers)
	}
	return err
}

func main() {
	if err := run(context.Background(), os.Getenv("DATABASE_URL"), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
