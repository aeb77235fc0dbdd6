package outbox

import (
	"context"
	"database/sql"
	"fmt"
	"time"
)

// The name of a slot is noted in outbox_stream before it is made, and until it is dropped, with a question mark before it: then nothing is
// in it, and it may be there or not. Without that mark a slot that is not there was lost.
const (
	// SlotNoted is the name that a row of outbox_stream has, as Postgres cuts it: programs before this one noted longer ones.
	SlotNoted = `ltrim(slot, '?')::name`
	// SlotRead says that a row of outbox_stream has the name of a slot that may hold events, or has held some.
	SlotRead = `left(slot, 1) not in ('', '?')`

	sqlGiveUp = `update outbox_stream set slot = '?' || ltrim(slot, '?') where mode = 'wal' and slot <> ''`
)

// slot is a replication slot that a relay reads this outbox from.
type slot struct {
	source, name string
	active       bool // somebody reads it, or makes it
	making       bool // it is not yet there for anybody
}

// slots are those of mode wal that are still there, and the one of that name. One that was lost holds nothing any more: it is left out
// when no name is given.
func slots(ctx context.Context, q interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}, name string) ([]slot, error) {
	rows, err := q.QueryContext(ctx, `select coalesce(n.source, ''), r.slot_name::text, r.active, r.confirmed_flush_lsn is null from pg_replication_slots r left join outbox_stream n on n.mode = 'wal' and r.slot_name = `+SlotNoted+`
		where r.database = current_database() and r.plugin = 'pgoutput' and (n.source is not null or r.slot_name = $1::text::name) and (coalesce(r.wal_status, '') <> 'lost' or $1::text <> '')`, name)
	if err != nil {
		return nil, fmt.Errorf("outbox: replication slots: %w", err)
	}
	defer rows.Close()
	var list []slot
	for rows.Next() {
		var s slot
		if err := rows.Scan(&s.source, &s.name, &s.active, &s.making); err != nil {
			return nil, fmt.Errorf("outbox: replication slots: %w", err)
		}
		list = append(list, s)
	}
	return list, rows.Err()
}

// unreadError is [ErrRowsWait] in mode wal, where nobody can discard them.
type unreadError string

func (e unreadError) Error() string { return string(e) }

// Is makes it an ErrRowsWait.
func (e unreadError) Is(target error) bool { return target == ErrRowsWait }

// errReads says that a relay reads the log of the database right now: what it has not read cannot be seen. Or that Postgres makes the
// slot, for a relay that may have ended: nobody can drop it before it is there.
func (s slot) errReads() error {
	if s.making {
		return unreadError(fmt.Sprintf("outbox: the slot %s of source %s is being made, which waits for transactions of all databases of the cluster that were open before: change mode or shards when they have ended, or end the relay, which gives the making up. Of a relay that was killed: select pg_terminate_backend(active_pid) from pg_replication_slots where slot_name = '%s'", s.name, s.source, s.name))
	}
	return unreadError(fmt.Sprintf("outbox: the relay of source %s reads the slot %s, so it cannot be seen whether anything waits: drain the relay (instar relay drain %s, or end instar outbox relay when nothing waits), and change mode or shards while it stands", s.source, s.name, s.source))
}

// leaving is how long a relay that was told to stop may take to leave its slot.
const leaving = 5 * time.Second

// slotsFree waits until no relay reads. Nothing is locked yet.
func slotsFree(ctx context.Context, db *sql.DB) error {
	for end := time.Now().Add(leaving); ; {
		list, err := slots(ctx, db, "")
		if err != nil {
			return err
		}
		var busy error
		for _, s := range list {
			if s.active {
				busy = s.errReads()
			}
		}
		if busy == nil || time.Now().After(end) {
			return busy
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// noneUnread makes sure that a relay has read all that applications have emitted in mode wal: nothing but that mode can.
// Writers are locked out, so what is not there now does not come.
func noneUnread(ctx context.Context, db *sql.DB, tx *sql.Tx) ([]slot, error) {
	list, err := slots(ctx, tx, "")
	if err != nil || len(list) == 0 {
		return nil, err
	}
	if err := flush(ctx, db, tx); err != nil {
		return nil, err
	}
	for _, s := range list {
		if s.active {
			return nil, s.errReads()
		}
		unread, err := hasUnread(ctx, tx, s.name)
		if err != nil {
			return nil, fmt.Errorf("outbox: cannot see what is unread in the slot %s of source %s, so the mode stays: %w", s.name, s.source, err)
		}
		if unread {
			return nil, unreadError(fmt.Sprintf("outbox: mode wal: the relay of source %s has not confirmed all that was appended, and no other mode sees it: resume the relay and let it drain (instar relay drain %s, or run instar outbox relay --source %s for a while), then change mode or shards", s.source, s.source, s.source))
		}
	}
	return list, nil
}

// flush lets what was committed without waiting for the disk be seen: it is not before it is there. Another transaction
// takes it along. What follows in tx is bounded, because applications wait.
func flush(ctx context.Context, db *sql.DB, tx *sql.Tx) error {
	if _, err := db.ExecContext(ctx, `select set_config('synchronous_commit', 'local', true), pg_logical_emit_message(true, 'instar.flush', '')`); err != nil {
		return fmt.Errorf("outbox: write-ahead log: %w", err)
	}
	if _, err := tx.ExecContext(ctx, `set local statement_timeout = '20s'`); err != nil {
		return fmt.Errorf("outbox: settings: %w", err)
	}
	return nil
}

func hasUnread(ctx context.Context, tx *sql.Tx, name string) (unread bool, err error) {
	err = tx.QueryRowContext(ctx, sqlUnread, name, name+"_none").Scan(&unread)
	return unread, err
}

// sqlUnread looks for an emitted message of this outbox that the slot has not confirmed: pgoutput writes M, a byte of flags,
// eight of its position, and then the prefix with a zero.
const sqlUnread = `
	select exists (
		select from pg_logical_slot_peek_binary_changes($1, null, null, variadic array['proto_version', '1', 'publication_names', quote_ident($2), 'messages', 'true']) as c (lsn, xid, data),
			(select convert_to(wal_prefix, 'UTF8') || '\x00'::bytea as prefix from outbox_settings) as s
		where get_byte(c.data, 0) = ascii('M') and substring(c.data from 11 for length(s.prefix)) = s.prefix)`

// dropSlots gives free what Postgres keeps for slots that were given up, unless the mode has come back meanwhile: its relay reads on then.
// What is not dropped stays noted.
func dropSlots(ctx context.Context, db *sql.DB) error {
	for _, query := range []string{
		`select pg_drop_replication_slot(r.slot_name) from outbox_settings h, outbox_stream n join pg_replication_slots r on r.slot_name = ` + SlotNoted + `
			where h.mode <> 'wal' and n.mode = 'wal' and not ` + SlotRead + ` and r.database = current_database() and r.plugin = 'pgoutput'`,
		`update outbox_stream n set slot = '' from outbox_settings h where h.mode <> 'wal' and n.mode = 'wal' and slot <> '' and not ` + SlotRead + `
			and not exists (select from pg_replication_slots r where r.slot_name = ` + SlotNoted + ` and r.database = current_database() and r.plugin = 'pgoutput')`,
	} {
		if _, err := db.ExecContext(ctx, query); err != nil {
			return fmt.Errorf("outbox: the mode is changed, but the replication slot, which keeps the log of the database for nobody, cannot be dropped; do it by hand, or change to this mode again: %w", err)
		}
	}
	return nil
}

// DropSlot drops the replication slot of a relay of mode wal that has ended, and lets nothing be emitted until another one is
// made: the slot that the database knows, and in mode wal the one of that name, which may have been configured since. Unless it is forced, it fails
// with [ErrRowsWait] and drops nothing when there are events in them that were not read: nothing else has them.
func DropSlot(ctx context.Context, dsn, schema, name string, force bool) error {
	db, err := connect(dsn, schema)
	if err != nil {
		return err
	}
	defer db.Close()
	var emits bool
	if err := db.QueryRowContext(ctx, `select mode = 'wal' from outbox_settings`).Scan(&emits); err != nil {
		return fmt.Errorf("outbox: settings: %w", Pooled(err))
	}
	if !emits { // what has that name may be of another outbox of the database
		name = ""
	}
	list, err := slots(ctx, db, name)
	if err != nil {
		return err
	}
	if !emits && len(list) == 0 {
		return nil
	}
	for _, s := range list {
		if s.making { // whoever makes it keeps a lock on the settings, and what is locked behind it would wait as long
			return fmt.Errorf("outbox: the replication slot %s is being made, which waits for transactions of all databases of the cluster that were open before: it can be dropped when they have ended, or the relay that makes it. Of one that was killed: select pg_terminate_backend(active_pid) from pg_replication_slots where slot_name = '%s'", s.name, s.name)
		}
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	for _, query := range []string{
		`set local lock_timeout = '10s'`, // applications wait behind it
		`lock table outbox_settings in access exclusive mode`,
	} {
		if _, err := tx.ExecContext(ctx, query); err != nil {
			return fmt.Errorf("outbox: replication slot %s: %w (a transaction that has appended is still open, or a dump is under way)", name, err)
		}
	}
	if !force && len(list) > 0 {
		if err := flush(ctx, db, tx); err != nil {
			return err
		}
		for _, s := range list {
			unread, err := hasUnread(ctx, tx, s.name)
			if err != nil {
				return fmt.Errorf("outbox: cannot see what is unread in the slot %s: %w", s.name, err)
			}
			if unread {
				return unreadError(fmt.Sprintf("outbox: the slot %s has events that were not read and would be gone with it: resume the relay and let it drain, or delete it with force", s.name))
			}
		}
	}
	for _, query := range []string{
		`update outbox_settings set wal_slot = null`,
		`select outbox_settings_renew()`, // also for those with an older snapshot
		sqlGiveUp,
	} {
		if _, err := tx.ExecContext(ctx, query); err != nil {
			return fmt.Errorf("outbox: settings: %w", err)
		}
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("outbox: settings: %w", err)
	}
	for _, s := range list {
		if _, err := db.ExecContext(ctx, `select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name = $1`, s.name); err != nil {
			return fmt.Errorf("outbox: nothing is emitted for it any more, but the replication slot %s cannot be dropped: %w", s.name, err)
		}
	}
	return nil
}
