package pg

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// Kept are connections that stay open between the things that one does after the other: to start one costs a server more than most of what is asked through it.
// [Connect] takes one of the same [Address], if it still answers, and [Close] gives it back. The zero value is ready; after [Kept.Close] it keeps none.
type Kept struct {
	Idle *Idle // where connections come from, and go to at the end; nil is nowhere

	mu   sync.Mutex
	idle map[Address][]*pgx.Conn
	over bool
}

// origin is where a connection has the address of those that are kept.
const origin = "instar.address"

// take is an idle connection, or nil: one that is kept here, or else one that rests.
func (k *Kept) take(ctx context.Context, a Address) *pgx.Conn {
	conn, silent := answering(ctx, func() *pgx.Conn { return k.pop(a) }, func(ctx context.Context, conn *pgx.Conn) error { return conn.Ping(ctx) })
	if conn != nil || silent || k.Idle == nil {
		return conn
	}
	return k.Idle.take(ctx, a)
}

// answering is the first of what is popped that answers, or nil. Servers restart, and others end what rests, so each is asked before. Where one gets no answer, neither would the others, and they are
// not asked: it takes no longer than that, however many there are.
func answering(ctx context.Context, pop func() *pgx.Conn, ask func(context.Context, *pgx.Conn) error) (_ *pgx.Conn, silent bool) {
	for conn := pop(); conn != nil; conn = pop() {
		once, cancel := context.WithTimeout(ctx, 5*time.Second)
		err := ask(once, conn)
		cancel()
		if err == nil {
			return conn, false
		}
		end(conn)
		if errors.Is(err, context.DeadlineExceeded) {
			for other := pop(); other != nil; other = pop() {
				end(other)
			}
			return nil, true
		}
	}
	return nil, false
}

func (k *Kept) pop(a Address) *pgx.Conn {
	k.mu.Lock()
	defer k.mu.Unlock()
	last := len(k.idle[a]) - 1
	if last < 0 {
		return nil
	}
	conn := k.idle[a][last]
	k.idle[a] = k.idle[a][:last]
	return conn
}

// give keeps a connection, if it can be used again.
func (k *Kept) give(a Address, conn *pgx.Conn) bool {
	wire := conn.PgConn()
	if conn.IsClosed() || wire.IsBusy() || wire.TxStatus() != 'I' {
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.over {
		return false
	}
	if k.idle == nil {
		k.idle = map[Address][]*pgx.Conn{}
	}
	k.idle[a] = append(k.idle[a], conn)
	return true
}

// Close ends those that are kept now, or lets them rest, and ends those that are in use when they are given back.
func (k *Kept) Close() {
	k.mu.Lock()
	idle := k.idle
	k.idle, k.over = nil, true
	k.mu.Unlock()
	var all sync.WaitGroup // each waits for its server
	for a, list := range idle {
		for _, conn := range list {
			all.Go(func() {
				if k.Idle == nil || !k.Idle.give(a, conn) {
					end(conn)
				}
			})
		}
	}
	all.Wait()
}
