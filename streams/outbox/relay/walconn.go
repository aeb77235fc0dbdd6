package relay

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/bcc94042/instar/streams/outbox"
)

const statusTime = 2000 // 2000-01-01 is where Postgres counts from

// walConn is a replication connection.
type walConn struct{ conn *pgconn.PgConn }

// answerTime is how long Postgres may take to begin the stream of changes.
const answerTime = 10 * time.Second

// connectWAL begins the stream of changes, which may be read beyond ctx.
func connectWAL(ctx context.Context, c outbox.Config) (*walConn, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	pool, err := pgxpool.ParseConfig(c.DSN) // it may have settings of the pool, and of pgx
	if err != nil {
		return nil, permanent(fmt.Errorf("relay: cannot read the DSN of %s: %w", c.Name, err))
	}
	config := &pool.ConnConfig.Config
	config.RuntimeParams["replication"] = "database"
	config.RuntimeParams["application_name"] = "instar relay " + c.Name
	config.ConnectTimeout = 5 * time.Second
	conn, err := pgconn.ConnectConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("relay: cannot connect to the WAL of %s: %w", c.Name, err)
	}
	w := &walConn{conn}
	sql := fmt.Sprintf(`START_REPLICATION SLOT %s LOGICAL 0/0 (proto_version '1', publication_names '%s', messages 'true')`, pgx.Identifier{c.Slot}.Sanitize(), pgx.Identifier{publication(c)}.Sanitize())
	_, err = conn.Exec(ctx, outbox.NoTimeouts).ReadAll()
	if err == nil {
		err = w.start(ctx, sql)
	}
	if err != nil {
		w.close()
		return nil, fmt.Errorf("relay: cannot read the WAL of %s: %w", c.Name, err)
	}
	return w, nil
}

// unreadable says how to go on where the publication was not there for a time: Postgres reads a change with the catalog of that time, so
// that the slot cannot be read beyond it, whatever is made since. It can be moved on beyond it, because nothing is published for that.
func (e *walEngine) unreadable(ctx context.Context, err error) error {
	refused, name := (*pgconn.PgError)(nil), publication(e.r.Config)
	if !errors.As(err, &refused) || refused.Code != "42704" || !strings.Contains(refused.Message, name) { // undefined_object
		return err
	}
	var at string
	if err := e.claim(ctx, e.pool); err != nil {
		return err
	}
	if err := e.pool.QueryRow(ctx, `select pg_current_wal_insert_lsn()::text`).Scan(&at); err != nil {
		return fmt.Errorf("relay: cannot ask how far the WAL is: %w", err)
	}
	return permanent(fmt.Errorf("%w. The publication %s was dropped, and Postgres cannot read what was committed until it was made again, nor anything behind that: it is missing in the stream. To go on with what is committed from now on: select pg_replication_slot_advance('%s', '%s'), then nats stream purge %s --subject %s",
		err, name, e.r.Config.Slot, at, e.shards.o.stream.Name, e.shards.o.subject(0)))
}

func (w *walConn) start(ctx context.Context, sql string) error {
	w.conn.Frontend().SendQuery(&pgproto3.Query{String: sql})
	if err := w.conn.Frontend().Flush(); err != nil {
		return err
	}
	for {
		m, err := w.conn.ReceiveMessage(ctx)
		if err != nil {
			return err
		}
		switch m := m.(type) {
		case *pgproto3.CopyBothResponse:
			return nil
		case *pgproto3.ErrorResponse:
			return pgconn.ErrorResponseToPgError(m)
		}
	}
}

// next is the next message of pgoutput, which is only good until the next call; nil with Postgres's word on how far it
// is.
func (w *walConn) next(ctx context.Context) (data []byte, sent uint64, err error) {
	for {
		m, err := w.conn.ReceiveMessage(ctx)
		if err != nil {
			return nil, 0, fmt.Errorf("relay: the WAL broke off: %w", err)
		}
		switch m := m.(type) {
		case *pgproto3.CopyData:
			switch {
			case len(m.Data) > 25 && m.Data[0] == 'w':
				return m.Data[25:], 0, nil
			case len(m.Data) >= 18 && m.Data[0] == 'k':
				return nil, binary.BigEndian.Uint64(m.Data[1:]), nil
			}
		case *pgproto3.ErrorResponse:
			return nil, 0, fmt.Errorf("relay: the WAL broke off: %w", pgconn.ErrorResponseToPgError(m))
		case *pgproto3.CopyDone:
			return nil, 0, errors.New("relay: Postgres ended the stream of changes")
		}
	}
}

// confirm says what is stored. It is called by one goroutine, beside the one that reads.
func (w *walConn) confirm(lsn uint64, answer bool) error {
	b := make([]byte, 0, 34)
	b = append(b, 'r')
	for range 3 { // written, flushed, applied
		b = binary.BigEndian.AppendUint64(b, lsn)
	}
	epoch := time.Date(statusTime, 1, 1, 0, 0, 0, 0, time.UTC)
	b = binary.BigEndian.AppendUint64(b, uint64(time.Since(epoch).Microseconds()))
	if answer {
		b = append(b, 1)
	} else {
		b = append(b, 0)
	}
	message, err := (&pgproto3.CopyData{Data: b}).Encode(nil)
	if err == nil {
		err = w.conn.Frontend().SendUnbufferedEncodedCopyData(message)
	}
	if err != nil {
		return fmt.Errorf("relay: cannot confirm the WAL: %w", err)
	}
	return nil
}

func (w *walConn) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	_ = w.conn.Close(ctx) // it may have gone
}
