// Command outbox-sql writes orders with database/sql, their events in the same transactions, and takes events of others
// once each.
//
//	DATABASE_URL=postgres://… go run ./docs/examples/outbox-sql
//
// The driver is pgx's; any other one that speaks Postgres's text format does as well.
package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/google/uuid"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver

	"github.com/bcc94042/instar/streams/outbox"
)

// shop is the application.
type shop struct {
	db     *sql.DB
	events outbox.Appender
	inbox  outbox.Inbox
}

// within runs a transaction.
func (s *shop) within(ctx context.Context, do func(*sql.Tx) error) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := do(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// place saves an order and says so in the same transaction.
func (s *shop) place(ctx context.Context, id string, total int) error {
	return s.within(ctx, func(tx *sql.Tx) error {
		if total <= 0 {
			return fmt.Errorf("order %s costs nothing", id)
		}
		if _, err := tx.ExecContext(ctx, `insert into orders (id, total) values ($1, $2)`, id, total); err != nil {
			return err
		}
		payload, err := json.Marshal(map[string]int{"total": total})
		if err != nil {
			return err
		}
		_, err = s.events.AppendSQL(ctx, tx, outbox.Message{AggregateType: "order", AggregateID: id, EventType: "order.placed", Payload: payload})
		return err
	})
}

// paid handles the event that an order was paid, however often it is delivered. It says so in turn: a chain of events,
// each link in one transaction.
func (s *shop) paid(ctx context.Context, eventID, order string) (first bool, err error) {
	err = s.within(ctx, func(tx *sql.Tx) error {
		first, err = s.inbox.HandleSQL(ctx, tx, eventID, "orders", func() error {
			if _, err := tx.ExecContext(ctx, `update orders set paid = paid + 1 where id = $1`, order); err != nil {
				return err
			}
			_, err := s.events.AppendSQL(ctx, tx, outbox.Message{AggregateType: "order", AggregateID: order, EventType: "order.released", Payload: []byte(`{}`)})
			return err
		})
		return err
	})
	return first, err
}

func run(ctx context.Context, dsn string, out io.Writer) error {
	if err := outbox.Init(ctx, dsn, "", outbox.Settings{}); err != nil { // or: instar outbox init
		return err
	}
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		return err
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, `create table if not exists orders (id text primary key, total int not null, paid int not null default 0)`); err != nil {
		return err
	}
	s := &shop{db: db}
	if err := s.place(ctx, uuid.NewString(), 1200); err != nil {
		return err
	}
	if err := s.place(ctx, "free", 0); err != nil {
		fmt.Fprintln(out, "refused, and no event of it:", err)
	}
	var order string
	if err := db.QueryRowContext(ctx, `select id from orders`).Scan(&order); err != nil {
		return err
	}
	event := uuid.NewString()
	for range 2 {
		first, err := s.paid(ctx, event, order)
		if err != nil {
			return err
		}
		fmt.Fprintln(out, "payment was new:", first)
	}
	rows, err := db.QueryContext(ctx, `select event_type, status from outbox_event_status order by seq`)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var event, status string
		if err := rows.Scan(&event, &status); err != nil {
			return err
		}
		fmt.Fprintln(out, status, event)
	}
	return rows.Err()
}

func main() {
	if err := run(context.Background(), os.Getenv("DATABASE_URL"), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
