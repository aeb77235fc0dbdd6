package relays

// An application appends events in transactions that stay open for a while, and commits or rolls back. Where it gets no answer, it appends the same ids again, until it is told that they are there.

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/bcc94042/instar/internal/simulation/schedule"
	"github.com/bcc94042/instar/streams/outbox"
)

type app struct {
	w        *World
	name     string
	async    bool // its commits do not wait for the disk of the database
	r        *rand.Rand
	conn     *pgx.Conn
	appender outbox.Appender
	done     chan struct{}

	mu       sync.Mutex         // where the runtime is not held still, the world looks while this goes on
	undone   map[uuid.UUID]bool // appended in transactions that were rolled back, and nowhere else
	promised map[uuid.UUID]bool // the commit was answered, by a database that waits for its disk
}

func (w *World) startApp(i int) *app {
	a := &app{w: w, name: fmt.Sprintf("app-%d", i), async: w.o.Async && i%2 == 0, r: schedule.Draws(w.o.Seed, uint64(10+i)), done: make(chan struct{}), undone: map[uuid.UUID]bool{}, promised: map[uuid.UUID]bool{}} // #nosec G115 -- a few
	go func() {
		defer close(a.done)
		for n := range w.o.Turns {
			a.turn(i, n)
			time.Sleep(time.Duration(a.r.Int64N(int64(w.o.Pace))))
		}
		a.close()
	}()
	return a
}

func (w *World) appsDone() bool {
	for _, a := range w.apps {
		select {
		case <-a.done:
		default:
			return false
		}
	}
	return true
}

func (a *app) close() {
	if a.conn != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = a.conn.Close(ctx)
		a.conn = nil
	}
}

// turn is one transaction, which is tried until its outcome is known.
func (a *app) turn(i, n int) {
	var parts [][]outbox.Message
	for range 1 + a.r.IntN(3) {
		var some []outbox.Message
		for range 1 + a.r.IntN(3) {
			some = append(some, a.event(i, n))
		}
		parts = append(parts, some)
	}
	back := a.r.IntN(5) == 0
	hold := time.Duration(0)
	if a.r.IntN(3) == 0 {
		hold = time.Duration(a.r.Int64N(int64(3 * time.Second)))
	}
	all := slices.Concat(parts...)
	a.note(a.undone, all, back)
	for !a.w.over.Load() {
		err := a.try(parts, hold, back)
		if err == nil {
			a.note(a.promised, all, !back && !a.async)
			return
		}
		var refused *pgconn.PgError
		if errors.As(err, &refused) && refused.Code == "23505" {
			return // a commit of before, whose answer was lost
		}
		a.w.trace.Note(a.name, "again: %v", err)
		a.close()
		time.Sleep(time.Duration(a.r.Int64N(int64(time.Second))))
	}
}

func (a *app) note(of map[uuid.UUID]bool, all []outbox.Message, is bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, m := range all {
		of[m.ID] = is
	}
}

func (a *app) event(i, n int) outbox.Message {
	m := outbox.Message{AggregateType: "order", AggregateID: fmt.Sprint(a.r.IntN(a.w.o.Aggregates)), EventType: "order.paid", Payload: fmt.Appendf(nil, `{"app": %d, "turn": %d}`, i, n)}

	for j := range m.ID {
		m.ID[j] = byte(a.r.UintN(256))
	}
	m.ID[6], m.ID[8] = 0x70|m.ID[6]&0x0f, 0x80|m.ID[8]&0x3f
	if a.w.o.Strange && a.r.IntN(8) == 0 {
		m.EventType = "strange"
	}
	if a.w.o.Later && a.r.IntN(6) == 0 {
		m.NotBefore = a.w.dbNow().Add(time.Duration(a.r.Int64N(int64(20 * time.Second))))
	}
	return m
}

// try makes one transaction.
func (a *app) try(parts [][]outbox.Message, hold time.Duration, back bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if a.conn == nil {
		if err := a.connect(ctx); err != nil {
			return err
		}
	}
	tx, err := a.conn.Begin(ctx)
	if err != nil {
		return err
	}
	for _, some := range parts {
		if _, err := a.appender.Append(ctx, tx, some...); err != nil {
			_ = tx.Rollback(ctx)
			return err
		}
		time.Sleep(hold / time.Duration(len(parts)))
	}
	if back {
		_ = tx.Rollback(ctx) // it is, whatever the answer
		return nil
	}
	return tx.Commit(ctx)
}

func (a *app) connect(ctx context.Context) error {
	config, err := pgx.ParseConfig("postgres://app@127.0.0.1/model?sslmode=disable")
	if err != nil {
		return err
	}
	if a.async {
		config.RuntimeParams["synchronous_commit"] = "off"
	}
	config.DialFunc = func(context.Context, string, string) (net.Conn, error) { return a.w.connect(a.name, nil, true) }
	a.conn, err = pgx.ConnectConfig(ctx, config)
	return err
}
