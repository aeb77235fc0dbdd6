package pg

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// Idle are connections that rest for a moment between two who use some ([Kept]), such as the steps of a session: to start one costs a server some 50 ms of processor time, most of it for what it reads of its
// catalogue. The zero value is ready, and nothing has to be closed.
//
// Whoever takes one finds its settings, and none of the prepared statements of others: a table may have changed since. While it rests it has no name of an attempt, so that the next attempt does not end it.
type Idle struct {
	mu   sync.Mutex
	idle map[Address][]*resting
}

type resting struct {
	conn *pgx.Conn
	end  *time.Timer
}

const (
	restFor  = 5 * time.Second
	mostIdle = 4 // of an address
	idleName = "instar idle"
)

func restingAt(a Address) Address {
	a.Name, a.Kept = "", nil
	return a
}

// take is one that answers to its new name, or nil. Where one gets no answer, the others are not asked.
func (i *Idle) take(ctx context.Context, a Address) *pgx.Conn {
	for conn := i.pop(restingAt(a)); conn != nil; conn = i.pop(restingAt(a)) {
		err := rename(ctx, conn, a.Name)
		if err == nil {
			return conn
		}
		end(conn)
		if errors.Is(err, context.DeadlineExceeded) {
			for other := i.pop(restingAt(a)); other != nil; other = i.pop(restingAt(a)) {
				end(other)
			}
			return nil
		}
	}
	return nil
}

func rename(ctx context.Context, conn *pgx.Conn, name string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_, err := conn.Exec(ctx, `set application_name = `+Literal(clip(name, 63)))
	return err
}

func (i *Idle) pop(a Address) *pgx.Conn {
	i.mu.Lock()
	defer i.mu.Unlock()
	for list := i.idle[a]; len(list) > 0; list = i.idle[a] {
		r := list[len(list)-1]
		i.idle[a] = list[:len(list)-1]
		if r.end.Stop() { // else it ends by now
			return r.conn
		}
	}
	delete(i.idle, a)
	return nil
}

// give lets a connection rest, if there is room for it and it can be used again.
func (i *Idle) give(a Address, conn *pgx.Conn) bool {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if !i.room(restingAt(a)) || conn.DeallocateAll(ctx) != nil || rename(ctx, conn, idleName) != nil {
		return false
	}
	a = restingAt(a)
	r := &resting{conn: conn}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.idle == nil {
		i.idle = map[Address][]*resting{}
	}
	r.end = time.AfterFunc(restFor, func() { i.expire(a, r) })
	i.idle[a] = append(i.idle[a], r)
	return true
}

func (i *Idle) room(a Address) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return len(i.idle[a]) < mostIdle
}

func (i *Idle) expire(a Address, r *resting) {
	i.mu.Lock()
	list := i.idle[a]
	for n := range list {
		if list[n] == r {
			i.idle[a] = append(list[:n:n], list[n+1:]...)
			break
		}
	}
	if len(i.idle[a]) == 0 {
		delete(i.idle, a)
	}
	i.mu.Unlock()
	end(r.conn)
}
