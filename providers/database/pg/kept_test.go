package pg_test

import (
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/providers/database/pg"
)

// A network that carries nothing more is waited for once, not for each connection that rests.
func TestOneConnectionIsAskedWhereNoneAnswers(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var asked atomic.Int32
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { silent(c, &asked) })
			all.Go(func() { <-t.Context().Done(); _ = c.Close() }) // a query that has timed out is waited for
		}
	})
	t.Cleanup(func() { _ = l.Close(); all.Wait() })
	kept := &pg.Kept{}
	t.Cleanup(kept.Close)
	a := pg.Address{DSN: "postgres://someone@" + l.Addr().String() + "/postgres?sslmode=disable", Kept: kept}
	var conns []*pgx.Conn
	for range 4 {
		conn, err := pg.Connect(t.Context(), a)
		require.NoError(t, err)
		conns = append(conns, conn)
	}
	for _, conn := range conns {
		pg.Close(conn)
	}
	conn, err := pg.Connect(t.Context(), a)
	require.NoError(t, err, "a new one")
	pg.Close(conn)
	require.EqualValues(t, 1, asked.Load())
}

// silent lets a connection in, counts those that ask something, and answers none of them.
func silent(c net.Conn, asked *atomic.Int32) {
	defer c.Close()
	b := pgproto3.NewBackend(c, c)
	if m, err := b.ReceiveStartupMessage(); err != nil {
		return
	} else if _, ends := m.(*pgproto3.CancelRequest); ends {
		return
	}
	b.Send(&pgproto3.AuthenticationOk{})
	b.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
	if b.Flush() != nil {
		return
	}
	once := false
	for {
		m, err := b.Receive()
		if err != nil {
			return
		}
		if _, ends := m.(*pgproto3.Terminate); !ends && !once {
			once = true
			asked.Add(1)
		}
	}
}
