package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// The name of a slot is noted in outbox_stream before it is made, and until it is dropped, with a question mark before it: then nothing is
// in it that anybody wants, and it may be there or not. Without that mark a slot that cannot be read was lost.
//
// Two outboxes of a database may be relayed under one name. Whose the slot of a name is says its publication, which every role sees.
const (
	// SlotNoted is the name that a row of outbox_stream has, as Postgres cuts it: programs before this one noted longer ones.
	SlotNoted = `ltrim(slot, '?')::name`
	// SlotRead says that a row of outbox_stream has the name of a slot that may hold events, or has held some.
	SlotRead = `left(slot, 1) not in ('', '?')`
	// SlotClaim is the comment of a publication, before the name of the schema.
	SlotClaim = `replication slot of the outbox in schema `

	sqlGiveUp  = `update outbox_stream set slot = '?' || slot where mode = 'wal' and ` + SlotRead
	sqlNumbers = `coalesce(pg_sequence_last_value(pg_get_serial_sequence('outbox_log', 'seq')), 0)` // that were given out
)

// SlotReadable is what a slot must be to see what is emitted. It is listed before: it has no position while Postgres waits for the
// transactions of the cluster that were open when somebody began to make it, and goes on with that when nobody waits for it any more.
var SlotReadable = `database = current_database() and plugin = 'pgoutput' and confirmed_flush_lsn is not null and coalesce(wal_status, '') <> 'lost' and ` + SlotTaken("slot_name") + ` is null`

// SlotTaken selects the schema of the other outbox of the database that has claimed the slot of a name, an expression of SQL; null for
// none.
func SlotTaken(name string) string {
	return `(select s.nspname::text from pg_publication p join pg_namespace s on obj_description(p.oid, 'pg_publication') = '` + SlotClaim + `' || s.nspname
		where p.pubname = (` + name + ` || '_none')::name and s.nspname <> current_schema() and exists (select from pg_class c where c.relnamespace = s.oid and c.relname = 'outbox_settings'))`
}

// SlotMine says that this outbox has claimed the slot of a name, an expression of SQL.
func SlotMine(name string) string {
	return `exists (select from pg_publication p where p.pubname = (` + name + ` || '_none')::name and obj_description(p.oid, 'pg_publication') = '` + SlotClaim + `' || current_schema())`
}

// slot is a replication slot of this outbox that is there.
type slot struct {
	source, name string
	active       bool // somebody reads it, or makes it
	making       bool // it is not yet there for anybody
	lost         bool // Postgres has dropped what it had not read
	given        bool // nothing of it is wanted
}

type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// slots are those that relays have noted, unless another outbox has claimed them, and the one of that name, if this one has.
func slots(ctx context.Context, q querier, name string) (list []slot, err error) {
	rows, err := q.QueryContext(ctx, `select n.source, r.slot_name::text, r.active, r.confirmed_flush_lsn is null, coalesce(r.wal_status, '') = 'lost', left(n.slot, 1) = '?' and r.slot_name = `+SlotNoted+`
		from outbox_stream n join pg_replication_slots r on (r.slot_name = `+SlotNoted+` or r.slot_name = $1::text::name and `+SlotMine("r.slot_name")+`) where n.mode = 'wal' and `+slotOurs, name)
	if err != nil {
		return nil, fmt.Errorf("outbox: replication slots: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var s slot
		if err := rows.Scan(&s.source, &s.name, &s.active, &s.making, &s.lost, &s.given); err != nil {
			return nil, fmt.Errorf("outbox: replication slots: %w", err)
		}
		list = append(list, s)
	}
	return list, rows.Err()
}

var slotOurs = `r.database = current_database() and r.plugin = 'pgoutput' and ` + SlotTaken("r.slot_name") + ` is null`

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

// reads is the error of one that is read.
func reads(list []slot) error {
	for _, s := range list {
		if s.active {
			return s.errReads()
		}
	}
	return nil
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
		if err = reads(list); err == nil || time.Now().After(end) {
			return err
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// lockSettings locks writers out, when those have ended that have appended.
func lockSettings(ctx context.Context, tx *sql.Tx) error {
	for _, query := range []string{
		`set local lock_timeout = '10s'`, // applications wait behind it
		`lock table outbox_settings in access exclusive mode`,
	} {
		if _, err := tx.ExecContext(ctx, query); err != nil {
			return fmt.Errorf("outbox: settings: %w (a transaction that has appended is still open, or a dump is under way)", err)
		}
	}
	return nil
}

// peek makes sure that relays have read all that was emitted until now, and returns how many numbers had been given out: nothing else comes
// before there are more. It locks writers out for a moment only, because Postgres decodes the whole log that a slot keeps. The remedy
// is how to give up what is unread.
func peek(ctx context.Context, db *sql.DB, name, remedy string) (numbers int64, err error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return 0, err
	}
	defer func() { _ = tx.Rollback() }()
	if err := lockSettings(ctx, tx); err != nil {
		return 0, err
	}
	list, err := slots(ctx, tx, name)
	if err != nil {
		return 0, err
	}
	if err := tx.QueryRowContext(ctx, `select `+sqlNumbers).Scan(&numbers); err != nil {
		return 0, fmt.Errorf("outbox: settings: %w", err)
	}
	if err := tx.Rollback(); err != nil {
		return 0, err
	}
	list = slices.DeleteFunc(list, func(s slot) bool { return s.given || s.lost })
	if len(list) == 0 {
		return numbers, nil
	}
	// What was committed without waiting for the disk is not seen before it is there. Another transaction takes it along.
	if _, err := db.ExecContext(ctx, `select set_config('synchronous_commit', 'local', true), pg_logical_emit_message(true, 'instar.flush', '')`); err != nil {
		return 0, fmt.Errorf("outbox: write-ahead log: %w", err)
	}
	for _, s := range list {
		unread, err := s.hasUnread(ctx, db)
		refused := (*pgconn.PgError)(nil)
		switch {
		case errors.As(err, &refused) && refused.Code == "57014": // query_canceled
			return 0, unreadError(fmt.Sprintf("outbox: the slot %s of source %s keeps so much of the log that it takes too long to see whether events are in it that were not read: resume the relay and let it drain (instar relay drain %s); or give them up: %s", s.name, s.source, s.source, remedy))
		case errors.As(err, &refused) && refused.Code == "42704": // undefined_object
			return 0, unreadError(fmt.Sprintf("outbox: nobody can read the slot %s of source %s any more (%s): its publication was not there for a time, and Postgres reads the log with the catalog of that time. To give up what is in it: %s; or resume the relay, which says how to go on", s.name, s.source, refused.Message, remedy))
		case err != nil:
			return 0, fmt.Errorf("outbox: cannot see what is unread in the slot %s of source %s, so it stays: %w", s.name, s.source, err)
		case unread:
			return 0, unreadError(fmt.Sprintf("outbox: the slot %s has events that the relay of source %s has not confirmed, and nothing else sees: resume the relay and let it drain (instar relay drain %s, or run instar outbox relay --source %s for a while); or give them up: %s", s.name, s.source, s.source, s.source, remedy))
		}
	}
	return numbers, nil
}

// peeked is how many messages are looked at first: those of a long backlog are seen at once.
const peeked = 1000

func (s slot) hasUnread(ctx context.Context, db *sql.DB) (unread bool, err error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return false, err
	}
	defer func() { _ = tx.Rollback() }()
	if end, ok := ctx.Deadline(); ok { // Postgres says so before that
		if _, err := tx.ExecContext(ctx, `select set_config('statement_timeout', $1, true)`, fmt.Sprint(max(1, time.Until(end).Milliseconds()*3/4))); err != nil {
			return false, err
		}
	}
	for _, most := range []any{peeked, nil} {
		var seen int
		if err := tx.QueryRowContext(ctx, sqlUnread, s.name, s.name+"_none", most).Scan(&unread, &seen); err != nil || unread || seen < peeked {
			return unread, err
		}
	}
	return false, nil
}

// sqlUnread looks for an emitted message of this outbox that the slot has not confirmed: pgoutput writes M, a byte of flags,
// eight of its position, and then the prefix with a zero.
const sqlUnread = `
	select coalesce(bool_or(get_byte(c.data, 0) = ascii('M') and substring(c.data from 11 for length(s.prefix)) = s.prefix), false), count(*)
	from pg_logical_slot_peek_binary_changes($1, null, $3::int, variadic array['proto_version', '1', 'publication_names', quote_ident($2), 'messages', 'true']) as c (lsn, xid, data),
		(select convert_to(wal_prefix, 'UTF8') || '\x00'::bytea as prefix from outbox_settings) as s`

// noneUnread makes sure that nothing would go with the slots: relays have read all that applications have emitted in mode wal, which nothing
// but that mode can. Writers are locked out, so what is not there now does not come; numbers are those that had been given out when peek
// had seen nothing.
func noneUnread(ctx context.Context, tx *sql.Tx, numbers int64, remedy string) error {
	var source, gone string
	var upto, now int64
	err := tx.QueryRowContext(ctx, `select source, `+SlotNoted+`::text, (select greatest(`+sqlNumbers+` - coalesce(max(c.seq), 0), 0) from outbox_cursor c where c.shard = 0)
		from outbox_stream where mode = 'wal' and `+SlotRead+` and not exists (select from pg_replication_slots where slot_name = `+SlotNoted+` and `+SlotReadable+`) limit 1`).Scan(&source, &gone, &upto)
	switch {
	case err == nil && upto > 0: // a relay accounts for a number when all is read that was open when it was given out
		return unreadError(fmt.Sprintf("outbox: the slot %s of source %s is gone: it was dropped, lost (max_slot_wal_keep_size), or is in another cluster or of another outbox. What it had not been read of, up to %d events, is in no stream and cannot be published any more. To give that up: %s; or resume the relay, which says how to go on", gone, source, upto, remedy))
	case err != nil && !errors.Is(err, sql.ErrNoRows):
		return fmt.Errorf("outbox: replication slots: %w", err)
	}
	if err := tx.QueryRowContext(ctx, `select `+sqlNumbers).Scan(&now); err != nil {
		return fmt.Errorf("outbox: settings: %w", err)
	}
	if now != numbers {
		return unreadError("outbox: something was appended just now that no relay has read: let a relay drain it, or try again if that was rolled back; or give it up: " + remedy)
	}
	return nil
}

// dropSlots gives free what Postgres keeps for slots that were given up, and for the one of that name, unless the mode is another one
// by now, or a relay reads on: it notes that before, and waits here. What is not dropped stays noted.
func dropSlots(ctx context.Context, db *sql.DB, mode Mode, name string) error {
	if _, err := db.ExecContext(ctx, `
		with n as materialized (select n.slot from outbox_settings h, outbox_stream n where h.mode = $1 and n.mode = 'wal' for update of n)
		select pg_drop_replication_slot(r.slot_name) from pg_replication_slots r
		where exists (select from n where left(slot, 1) = '?' and r.slot_name = `+SlotNoted+` or r.slot_name = $2::text::name and `+SlotMine("r.slot_name")+`) and not exists (select from n where `+SlotRead+`) and `+slotOurs, string(mode), name); err != nil {
		return err
	}
	_, err := db.ExecContext(ctx, `update outbox_stream n set slot = '' from outbox_settings h where h.mode = $1 and n.mode = 'wal' and left(slot, 1) = '?'
		and not exists (select from pg_replication_slots r where r.slot_name = `+SlotNoted+` and `+slotOurs+`)`, string(mode))
	return err
}

// DropSlot drops the replication slot of a relay of mode wal that has ended, and lets nothing be emitted until another one is
// made: the slot that the database knows, unless another outbox of the database has claimed it, and in mode wal the one of that name,
// which may have been configured since, if this outbox has claimed it. Unless it is forced, it fails with [ErrRowsWait] and drops nothing when there are events in them that were not read, or when
// the slot is gone with them: nothing else has them.
func DropSlot(ctx context.Context, dsn, schema, name string, force bool) error {
	db, err := connect(dsn, schema)
	if err != nil {
		return err
	}
	defer db.Close()
	var mode Mode
	if err := db.QueryRowContext(ctx, `select mode from outbox_settings`).Scan(&mode); err != nil {
		return fmt.Errorf("outbox: settings: %w", Pooled(err))
	}
	if mode != WAL { // what is left is given up
		name = ""
	} else if err := giveUp(ctx, db, name, force); err != nil {
		return err
	}
	if err := dropSlots(ctx, db, mode, name); err != nil {
		return fmt.Errorf("outbox: nothing is emitted for it any more, but the replication slot cannot be dropped: %w", err)
	}
	if list, err := slots(ctx, db, name); err != nil || len(list) > 0 {
		return errors.Join(err, errors.New("outbox: the replication slot was not dropped: a relay has begun to read or make one again"))
	}
	return nil
}

// giveUp lets nothing be emitted any more, and notes that nothing of the slots is wanted.
func giveUp(ctx context.Context, db *sql.DB, name string, force bool) error {
	const remedy = "delete it with --force"
	var numbers int64
	_, err := idle(ctx, db, name) // whoever makes one keeps a lock on the settings, and what is locked behind it would wait as long
	if err == nil && !force {
		numbers, err = peek(ctx, db, name, remedy)
	}
	if err != nil {
		return err
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if err := lockSettings(ctx, tx); err != nil {
		return err
	}
	if _, err = idle(ctx, tx, name); err == nil && !force {
		err = noneUnread(ctx, tx, numbers, remedy)
	}
	if err != nil {
		return err
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
	return nil
}

// idle are the slots, if nobody reads or makes one.
func idle(ctx context.Context, q querier, name string) ([]slot, error) {
	list, err := slots(ctx, q, name)
	for _, s := range list {
		switch {
		case s.making:
			return nil, fmt.Errorf("outbox: the replication slot %s is being made, which waits for transactions of all databases of the cluster that were open before: it can be dropped when they have ended, or the relay that makes it. Of one that was killed: select pg_terminate_backend(active_pid) from pg_replication_slots where slot_name = '%s'", s.name, s.name)
		case s.active:
			return nil, fmt.Errorf("outbox: a relay reads the replication slot %s at this moment: it can be dropped when that has ended", s.name)
		}
	}
	return list, err
}
