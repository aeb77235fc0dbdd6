package databasetest

import (
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/bcc94042/instar/providers/database/pg"
)

// idle are connections of tests that wait for their next question: to start one costs a server more than most questions.
var idle = struct {
	sync.Mutex
	of map[*testing.T]map[pg.Address][]*pgx.Conn
}{of: map[*testing.T]map[pg.Address][]*pgx.Conn{}}

// take is an idle connection of the test, if it still answers, or a new one. It ends with the test.
func take(t *testing.T, a pg.Address) *pgx.Conn {
	t.Helper()
	for conn := pop(t, a); conn != nil; conn = pop(t, a) {
		if conn.Ping(t.Context()) == nil {
			return conn
		}
	}
	return Open(t, a)
}

func pop(t *testing.T, a pg.Address) *pgx.Conn {
	idle.Lock()
	defer idle.Unlock()
	last := len(idle.of[t][a]) - 1
	if last < 0 {
		return nil
	}
	conn := idle.of[t][a][last]
	idle.of[t][a] = idle.of[t][a][:last]
	return conn
}

func give(t *testing.T, a pg.Address, conn *pgx.Conn) {
	idle.Lock()
	defer idle.Unlock()
	if idle.of[t] == nil {
		idle.of[t] = map[pg.Address][]*pgx.Conn{}
		t.Cleanup(func() {
			idle.Lock()
			defer idle.Unlock()
			delete(idle.of, t)
		})
	}
	idle.of[t][a] = append(idle.of[t][a], conn)
}
