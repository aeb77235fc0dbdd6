package shop

// An application appends events in transactions that stay open for a while, and commits or rolls back. Where it gets no answer, it appends the same ids again, until it is told that they are there.

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/bcc94042/instar/internal/simulation/schedule"
	"github.com/bcc94042/instar/streams/outbox"
)

// strange is the type of events that the relay does not publish.
const strange = "strange"

// Database is how somebody reaches the database of a world, and what he has beside it.
type Database struct {
	Options Options
	DSN     string
	Dial    pgconn.DialFunc
	Now     func() time.Time // the clock of the database
	Over    *atomic.Bool     // the world ends: what has no answer yet is given up
	Note    func(format string, args ...any)
}

// App is an application. Start it once.
type App struct {
	Database
	async    bool // its commits do not wait for the disk of the database
	r        *rand.Rand
	conn     *pgx.Conn
	appender outbox.Appender
	done     chan struct{}

	mu    sync.Mutex // where the runtime is not held still, the world looks while this goes on
	fates map[uuid.UUID]Fate
}

// Fate is what an application knows of an event.
type Fate struct {
	NotBefore time.Time
	Strange   bool
	Undone    bool // appended in a transaction that was rolled back, and nowhere else
	Promised  bool // the commit was answered, by a database that waits for its disk

	Began, Ended time.Time // when the append of its last try that had one was begun, and when that was known to be committed, or not
	Created      time.Time // Began by the clock of the database
}

// Start begins the i-th application, which ends by itself.
func (d Database) Start(i int) *App {
	a := &App{Database: d, async: d.Options.Async && i%2 == 0, r: schedule.Draws(d.Options.Seed, uint64(10+i)), done: make(chan struct{}), fates: map[uuid.UUID]Fate{}} // #nosec G115 -- a few
	go func() {
		defer close(a.done)
		for n := range a.Options.Turns {
			a.turn(i, n)
			a.pause(a.Options.Pace)
		}
		a.close()
	}()
	return a
}

// pause is up to so long.
func (a *App) pause(most time.Duration) {
	time.Sleep(a.Options.short(time.Duration(a.r.Int64N(int64(most)))))
}

// Done is closed when it has done all its turns.
func (a *App) Done() <-chan struct{} { return a.done }

// Fate is what it knows of an event; of one that it has not appended, nothing.
func (a *App) Fate(id uuid.UUID) (Fate, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f, ok := a.fates[id]
	return f, ok
}

// promised are the events whose commits were answered.
func (a *App) promised() (all []uuid.UUID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for id, f := range a.fates {
		if f.Promised {
			all = append(all, id)
		}
	}
	return all
}

func (a *App) close() {
	if a.conn != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = a.conn.Close(ctx)
		a.conn = nil
	}
}

// turn is one transaction, which is tried until its outcome is known.
func (a *App) turn(i, n int) {
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
		hold = a.Options.short(time.Duration(a.r.Int64N(int64(3 * time.Second))))
	}
	all := slices.Concat(parts...)
	a.note(all, func(m outbox.Message, f *Fate) {
		f.Undone, f.Strange, f.NotBefore = back, m.EventType == strange, m.NotBefore
	})
	for !a.Over.Load() {
		err := a.try(parts, hold, back)
		now := time.Now()
		if err == nil {
			a.note(all, func(_ outbox.Message, f *Fate) { f.Ended, f.Promised = now, !back && !a.async })
			return
		}
		var refused *pgconn.PgError
		if errors.As(err, &refused) && refused.Code == "23505" { // a commit of before, whose answer was lost
			a.note(all, func(_ outbox.Message, f *Fate) { f.Ended = now })
			return
		}
		a.Note("again: %v", err)
		a.close()
		a.pause(time.Second)
	}
}

func (a *App) note(all []outbox.Message, how func(m outbox.Message, f *Fate)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, m := range all {
		f := a.fates[m.ID]
		how(m, &f)
		a.fates[m.ID] = f
	}
}

func (a *App) event(i, n int) outbox.Message {
	m := outbox.Message{AggregateType: "order", AggregateID: fmt.Sprint(a.r.IntN(a.Options.Aggregates)), EventType: "order.paid", Payload: fmt.Appendf(nil, `{"app": %d, "turn": %d}`, i, n)}

	for j := range m.ID {
		m.ID[j] = byte(a.r.UintN(256))
	}
	m.ID[6], m.ID[8] = 0x70|m.ID[6]&0x0f, 0x80|m.ID[8]&0x3f
	if a.Options.Strange && a.r.IntN(8) == 0 {
		m.EventType = strange
	}
	if a.Options.Later && a.r.IntN(6) == 0 {
		m.NotBefore = a.Now().Add(a.Options.short(time.Duration(a.r.Int64N(int64(20 * time.Second))))).Truncate(time.Microsecond) // as the database keeps it
	}
	return m
}

// try makes one transaction.
func (a *App) try(parts [][]outbox.Message, hold time.Duration, back bool) error {
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
		began, created := time.Now(), a.Now()
		if _, err := a.appender.Append(ctx, tx, some...); err != nil {
			_ = tx.Rollback(ctx)
			return err
		}
		a.note(some, func(_ outbox.Message, f *Fate) { f.Began, f.Created = began, created }) // not of a try that finds the rows of another one
		time.Sleep(hold / time.Duration(len(parts)))
	}
	if back {
		_ = tx.Rollback(ctx) // it is, whatever the answer
		return nil
	}
	return tx.Commit(ctx)
}

func (a *App) connect(ctx context.Context) error {
	config, err := pgx.ParseConfig(a.DSN)
	if err != nil {
		return err
	}
	if a.async {
		config.RuntimeParams["synchronous_commit"] = "off"
	}
	config.DialFunc = a.Dial
	a.conn, err = pgx.ConnectConfig(ctx, config)
	return err
}
