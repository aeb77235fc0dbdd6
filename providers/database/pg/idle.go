package pg

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// Idle are connections that rest for a moment between two who use some ([Kept]), such as the steps of a session: to start one costs a server some 50 ms of processor time, most of it for what it reads of its
// catalogue. The zero value is ready, and nothing has to be closed.
//
// Whoever takes one finds its settings, and neither locks nor prepared statements of others: a table may have changed since. While it rests it has no name of an attempt, so that the next attempt does not end
// it. One that is older than a minute rests no more, as its address may lead elsewhere by now. Who has to know where that leads takes none.
type Idle struct {
	For time.Duration // how long one rests at most; 0 is 5 s

	mu   sync.Mutex
	idle map[Address][]*resting
	many int
}

type resting struct {
	conn *pgx.Conn
	end  *time.Timer
}

const (
	mostIdle = 16 // of all addresses
	oldest   = time.Minute
	idleName = "instar idle"
)

// dialed is where a connection has when it was made.
const dialed = "instar.dialed"

func restingAt(a Address) Address {
	a.Name, a.Kept = "", nil
	return a
}

// take is one that answers to its new name, or nil.
func (i *Idle) take(ctx context.Context, a Address) *pgx.Conn {
	conn, _ := answering(ctx, func() *pgx.Conn { return i.pop(restingAt(a)) }, func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, `set application_name = `+Literal(clip(a.Name, 63)))
		return err
	})
	return conn
}

func (i *Idle) pop(a Address) *pgx.Conn {
	i.mu.Lock()
	defer i.mu.Unlock()
	for list := i.idle[a]; len(list) > 0; list = i.idle[a] {
		r := list[len(list)-1]
		i.drop(a, r)
		if r.end.Stop() { // else it ends by now
			return r.conn
		}
	}
	return nil
}

// drop forgets one that rests, under the lock.
func (i *Idle) drop(a Address, r *resting) {
	at := slices.Index(i.idle[a], r)
	if at < 0 {
		return
	}
	i.many--
	if i.idle[a] = slices.Delete(i.idle[a], at, at+1); len(i.idle[a]) == 0 {
		delete(i.idle, a)
	}
}

// give lets a connection rest, if there is room for it and it can be used again.
func (i *Idle) give(a Address, conn *pgx.Conn) bool {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	at, _ := conn.PgConn().CustomData()[dialed].(time.Time)
	if time.Since(at) > oldest || i.full() || conn.DeallocateAll(ctx) != nil {
		return false
	}
	if _, err := conn.PgConn().Exec(ctx, `select pg_advisory_unlock_all(); set application_name = '`+idleName+`'`).ReadAll(); err != nil {
		return false
	}
	a = restingAt(a)
	r := &resting{conn: conn}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.many >= mostIdle {
		return false
	}
	if i.idle == nil {
		i.idle = map[Address][]*resting{}
	}
	i.many++
	r.end = time.AfterFunc(cmp.Or(i.For, 5*time.Second), func() { i.expire(a, r) })
	i.idle[a] = append(i.idle[a], r)
	return true
}

func (i *Idle) full() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.many >= mostIdle
}

func (i *Idle) expire(a Address, r *resting) {
	i.mu.Lock()
	i.drop(a, r)
	i.mu.Unlock()
	end(r.conn)
}
