package relay

import (
	"context"
	"crypto/sha256"
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

// longestName is how many bytes a name has in Postgres, which cuts longer ones without an error.
const longestName = 63

// Slot is the name of the replication slot of a source in mode wal. Where it would be cut, and be that of another source with the same
// beginning, it ends with a digest of the source's name.
func Slot(c outbox.Config) string {
	if c.Slot != "" {
		return c.Slot
	}
	name := "instar_outbox_" + strings.ReplaceAll(c.Name, "-", "_")
	if len(name) <= longestName {
		return name
	}
	digest := fmt.Sprintf("_%x", sha256.Sum256([]byte(c.Name)))[:17]
	return name[:longestName-len(digest)] + digest
}

// publication is what pgoutput has to be asked for: one of no table, because events are emitted.
func publication(c outbox.Config) string { return c.Slot + "_none" }

// errLostSlot says that Postgres no longer has the WAL that was not read.
var errLostSlot = errors.New("the replication slot was lost")

// slot checks the slot, or makes it when nothing was ever read from it, and returns where it begins.
func (e *walEngine) slot(ctx context.Context, s *session) (uint64, error) {
	c, pos := e.r.Config, s.pos
	var level string
	if err := e.pool.QueryRow(ctx, `show wal_level`).Scan(&level); err != nil {
		return 0, fmt.Errorf("relay: cannot ask for wal_level: %w", err)
	}
	if level != "logical" {
		return 0, permanent(fmt.Errorf("relay: %s has wal_level %s, mode wal needs logical: set it in postgresql.conf and restart Postgres, or use mode log", c.Name, level))
	}
	if err := e.publish0(ctx, c); err != nil {
		return 0, err
	}
	var other string
	err := e.pool.QueryRow(ctx, `select slot_name from outbox_settings join pg_replication_slots on slot_name = wal_slot and database = current_database() and coalesce(wal_status, '') <> 'lost' where wal_slot <> $1`, c.Slot).Scan(&other)
	if err == nil && pos.zero() {
		return 0, permanent(fmt.Errorf("relay: what was emitted for %s is in the slot %s, not in %s: let the relay read that (slot of the source), or drop it if nothing of it is wanted: select pg_drop_replication_slot('%s')", c.Name, other, c.Slot, other))
	}
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return 0, fmt.Errorf("relay: cannot look for the replication slot: %w", err)
	}
	var plugin, status string
	var ours bool
	var start int64
	err = e.pool.QueryRow(ctx, `select coalesce(plugin, ''), coalesce(database = current_database(), false), coalesce(wal_status, ''), coalesce((confirmed_flush_lsn - '0/0')::bigint, 0) from pg_replication_slots where slot_name = $1`, c.Slot).Scan(&plugin, &ours, &status, &start)
	given, failed := false, error(nil)
	if !pos.zero() && (errors.Is(err, pgx.ErrNoRows) || err == nil && uint64(start) > s.confirmed) {
		given, failed = e.given(ctx)
	}
	switch {
	case failed != nil:
		return 0, failed
	case errors.Is(err, pgx.ErrNoRows) && !pos.zero() && !given:
		return 0, permanent(fmt.Errorf("%w: %s was read up to %s and its slot %s is gone. What was committed since may be missing in the stream. To go on with what is committed from now on, remove the position: nats stream purge %s --subject %s", errLostSlot, c.Name, pos, c.Slot, e.shards.o.stream.Name, e.shards.o.subject(0)))
	case errors.Is(err, pgx.ErrNoRows):
		if err := e.pool.QueryRow(ctx, `select (lsn - '0/0')::bigint from pg_create_logical_replication_slot($1, 'pgoutput')`, c.Slot).Scan(&start); err != nil {
			return 0, fmt.Errorf("relay: cannot make the replication slot %s: %w", c.Slot, err)
		}
		e.r.Log.Info("made a replication slot", "slot", c.Slot)
		return uint64(start), nil
	case err != nil:
		return 0, fmt.Errorf("relay: cannot look at the replication slot %s: %w", c.Slot, err)
	case plugin != "pgoutput":
		return 0, permanent(fmt.Errorf("relay: the replication slot %s is of %s, not of pgoutput: choose another name", c.Slot, plugin))
	case !ours:
		return 0, permanent(fmt.Errorf("relay: the replication slot %s is of another database of the cluster: choose another name (slot of the source)", c.Slot))
	case status == "lost":
		return 0, permanent(lost(c, e.shards.o))
	case !pos.zero() && uint64(start) > s.confirmed && !given:
		return 0, permanent(fmt.Errorf("%w: %s was read up to %s, and its slot %s begins at %s: it was made again, or moved on by somebody else. What was committed between is missing in the stream. To go on with what the slot has, remove the position: nats stream purge %s --subject %s",
			errLostSlot, c.Name, lsn(s.confirmed), c.Slot, lsn(uint64(start)), e.shards.o.stream.Name, e.shards.o.subject(0)))
	}
	return uint64(start), nil
}

func lsn(at uint64) string { return fmt.Sprintf("%X/%X", at>>32, uint32(at)) }

// given says that the slot was read to its end and given up, when the database left this mode.
func (e *walEngine) given(ctx context.Context) (bool, error) {
	var given bool
	err := e.pool.QueryRow(ctx, `select exists (select from outbox_stream where source = $1 and mode = $2 and shard = 0 and slot = '')`, e.r.Config.Name, e.shards.o.mode).Scan(&given)
	if err != nil {
		return false, fmt.Errorf("relay: cannot ask whether the slot was given up: %w", err)
	}
	return given, nil
}

// How often, and how far apart, it is tried to refuse those with an older snapshot as well; applications wait behind each try for as
// long as it may take.
const (
	renewTries = 6
	renewEvery = 500 * time.Millisecond
	renewWait  = "100ms"
)

// refuseAppends lets nothing be emitted while there is no slot that sees it: it was dropped, lost, or is in the cluster that the
// tables were restored from. Transactions in repeatable read or serializable that began before are refused as well, unless one that
// has appended stays open for longer than it is tried, or the role of the relay may not. So it is tried by each relay that finds
// that a slot was read and none is: nobody knows whether an earlier one has come so far.
func (r *Relay) refuseAppends(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := pool.Exec(ctx, `update outbox_settings set wal_slot = null where wal_slot is not null
		and not exists (select from pg_replication_slots where slot_name = wal_slot and database = current_database() and coalesce(wal_status, '') <> 'lost')`)
	if err != nil {
		return fmt.Errorf("relay: cannot say that the WAL is not read: %w", err)
	}
	var gone bool
	if err := pool.QueryRow(ctx, `select wal_slot is null and exists (select from outbox_stream where mode = 'wal' and slot <> '') from outbox_settings`).Scan(&gone); err != nil {
		return fmt.Errorf("relay: cannot ask whether the WAL is read: %w", err)
	}
	if !gone {
		return nil
	}
	for try := range renewTries {
		if try > 0 && !sleep(ctx, renewEvery) {
			break
		}
		err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, `set local lock_timeout = '`+renewWait+`'`); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, `select outbox_settings_renew()`)
			return err
		})
		if refused := (*pgconn.PgError)(nil); !errors.As(err, &refused) || refused.Code != "55P03" { // lock_not_available
			break
		}
	}
	if err != nil {
		r.Log.Warn("the slot is gone and appending is refused, but maybe not in transactions in repeatable read or serializable that began before", "error", err)
	}
	return nil
}

func lost(c outbox.Config, o *opener) error {
	return fmt.Errorf("%w: Postgres dropped WAL that slot %s of %s had not read (max_slot_wal_keep_size). What was committed meanwhile is missing in the stream. To go on from now: drop the slot, then nats stream purge %s --subject %s", errLostSlot, c.Slot, c.Name, o.stream.Name, o.subject(0))
}

// publish0 makes the publication when it is missing.
func (e *walEngine) publish0(ctx context.Context, c outbox.Config) error {
	name := publication(c)
	var there bool
	if err := e.pool.QueryRow(ctx, `select exists (select 1 from pg_publication where pubname = $1)`, name).Scan(&there); err != nil {
		return fmt.Errorf("relay: cannot look for the publication %s: %w", name, err)
	}
	if there {
		return nil
	}
	if _, err := e.pool.Exec(ctx, `create publication `+pgx.Identifier{name}.Sanitize()); err != nil {
		return fmt.Errorf("relay: cannot make the publication %s: %w", name, err)
	}
	return nil
}

// Periods of what is done beside the reading.
const (
	slotEvery  = 5 * time.Second
	beatEvery  = 10 * time.Second
	slotAlarm  = 1 << 30 // bytes of WAL that a slot keeps, where Postgres has no limit
	slotShare  = 0.8     // of the limit
	statusTime = 2000    // 2000-01-01 is where Postgres counts from
)

// care looks at the slot, and lets the heart beat: a database whose other tables are busy would otherwise keep its WAL
// for an outbox that is idle.
func (e *walEngine) care(ctx context.Context) error {
	if time.Since(e.looked) < slotEvery {
		return nil
	}
	e.looked = time.Now()
	if err := e.tell(ctx, true); err != nil { // Postgres answers, if it is there
		return err
	}
	if silent := time.Since(time.Unix(0, e.feed.heard.Load())); silent > patience && e.feed.waits() {
		return fmt.Errorf("relay: nothing came from the WAL for %s", silent.Round(time.Second))
	}
	if err := errors.Join(e.look(ctx), e.save(ctx)); err != nil {
		return err
	}
	if time.Since(e.beat) >= beatEvery {
		e.beat = time.Now()
		if _, err := e.pool.Exec(ctx, `select pg_logical_emit_message(false, $1, '')`, e.walPrefix+".heartbeat"); err != nil {
			return fmt.Errorf("relay: cannot write a heartbeat: %w", err)
		}
	}
	var status string
	var kept, limit int64
	err := e.pool.QueryRow(ctx, `select coalesce(wal_status, ''), coalesce(pg_current_wal_lsn() - restart_lsn, 0)::bigint, (select setting::bigint from pg_settings where name = 'max_slot_wal_keep_size') from pg_replication_slots where slot_name = $1`, e.r.Config.Slot).Scan(&status, &kept, &limit)
	if errors.Is(err, pgx.ErrNoRows) || err == nil && status == "lost" {
		return errors.Join(permanent(lost(e.r.Config, e.shards.o)), e.r.refuseAppends(ctx, e.pool))
	}
	if err != nil {
		return fmt.Errorf("relay: cannot look at the replication slot: %w", err)
	}
	switch {
	case limit >= 0 && float64(kept) > slotShare*float64(limit<<20):
		e.r.Log.Error("the replication slot is about to be lost: it keeps most of what max_slot_wal_keep_size allows", "slot", e.r.Config.Slot, "bytes", kept, "limit", limit<<20)
	case limit < 0 && kept > slotAlarm:
		e.r.Log.Error("the replication slot keeps much WAL and nothing bounds it: set max_slot_wal_keep_size", "slot", e.r.Config.Slot, "bytes", kept)
	}
	return nil
}

// walConn is a replication connection.
type walConn struct{ conn *pgconn.PgConn }

func connectWAL(ctx context.Context, c outbox.Config) (*walConn, error) {
	config, err := pgconn.ParseConfig(c.DSN)
	if err != nil {
		return nil, permanent(fmt.Errorf("relay: cannot read the DSN of %s: %w", c.Name, err))
	}
	config.RuntimeParams["replication"] = "database"
	config.RuntimeParams["application_name"] = "instar relay " + c.Name
	config.ConnectTimeout = 5 * time.Second
	conn, err := pgconn.ConnectConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("relay: cannot connect to the WAL of %s: %w", c.Name, err)
	}
	w := &walConn{conn}
	sql := fmt.Sprintf(`START_REPLICATION SLOT %s LOGICAL 0/0 (proto_version '1', publication_names '%s', messages 'true')`, pgx.Identifier{c.Slot}.Sanitize(), pgx.Identifier{publication(c)}.Sanitize())
	if err := w.start(ctx, sql); err != nil {
		w.close()
		return nil, fmt.Errorf("relay: cannot read the WAL of %s: %w", c.Name, err)
	}
	return w, nil
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
