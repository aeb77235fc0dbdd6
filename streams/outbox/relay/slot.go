package relay

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
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
	if err := e.fit(ctx); err != nil {
		return 0, err
	}
	found, err := e.find(ctx, e.pool)
	if err == nil {
		err = e.usable(found, s)
	}
	switch {
	case err != nil:
		return 0, err
	case !found.there:
		return e.makeSlot(ctx, s)
	}
	return *found.start, e.claim(ctx, e.pool)
}

// usable says whether a slot can be read, or made where it is not there.
func (e *walEngine) usable(found foundSlot, s *session) error {
	c, o := e.r.Config, e.shards.o
	remedy := fmt.Sprintf("remove the position: nats stream purge %s --subject %s", o.stream.Name, o.subject(0))
	switch {
	case found.taken != "":
		return permanent(claimedBy(c, found.taken))
	case found.other != "":
		return permanent(fmt.Errorf("relay: what was emitted for %s is in the slot %s, not in %s: let the relay read that (slot of the source), or drop it if nothing of it is wanted: select pg_drop_replication_slot('%s')", c.Name, found.other, c.Slot, found.other))
	case !found.there && !s.pos.zero() && !found.given:
		return permanent(fmt.Errorf("%w: %s was read up to %s and its slot %s is gone. What was committed since may be missing in the stream. To go on with what is committed from now on, %s", errLostSlot, c.Name, s.pos, c.Slot, remedy))
	case !found.there:
		return nil
	case found.ours && found.start == nil:
		return beingMade(c)
	case found.plugin != "pgoutput":
		return permanent(fmt.Errorf("relay: the replication slot %s is of %s, not of pgoutput: choose another name", c.Slot, found.plugin))
	case !found.ours:
		return permanent(fmt.Errorf("relay: the replication slot %s is of another database of the cluster: choose another name (slot of the source)", c.Slot))
	case !found.noted:
		return permanent(fmt.Errorf("relay: the replication slot %s was not made for this outbox, but for another one or by another program: choose another name (slot of the source), or drop it if nobody reads it: select pg_drop_replication_slot('%s')", c.Slot, c.Slot))
	case found.status == "lost":
		return permanent(lost(c, o))
	case !s.pos.zero() && *found.start > s.confirmed && !found.given:
		return permanent(fmt.Errorf("%w: %s was read up to %s, and its slot %s begins at %s: it was made again, or moved on by somebody else. What was committed between is missing in the stream. To go on with what the slot has, %s",
			errLostSlot, c.Name, lsn(s.confirmed), c.Slot, lsn(*found.start), remedy))
	}
	return nil
}

// fit makes sure that the database has what a slot needs.
func (e *walEngine) fit(ctx context.Context) error {
	c := e.r.Config
	if len(c.Slot) > longestName {
		return permanent(fmt.Errorf("relay: the replication slot of %s has a name of more than %d bytes: Postgres cuts it to %s, so that it may be that of another source. Name it so if it was read until now, or choose another name (slot of the source)", c.Name, longestName, c.Slot[:longestName]))
	}
	var level string
	if err := e.pool.QueryRow(ctx, `show wal_level`).Scan(&level); err != nil {
		return fmt.Errorf("relay: cannot ask for wal_level: %w", err)
	}
	if level != "logical" {
		return permanent(fmt.Errorf("relay: %s has wal_level %s, mode wal needs logical: set it in postgresql.conf and restart Postgres, or use mode log (instar outbox init --mode log; with --force it gives up what was appended and no relay has read)", c.Name, level))
	}
	return nil
}

// claimedBy says that another outbox of the database has claimed the slot. Its publication must not be dropped: see [walEngine.unreadable].
func claimedBy(c outbox.Config, schema string) error {
	return fmt.Errorf("relay: the replication slot %s is of the outbox in the schema %s of this database: choose another name (slot of the source). If that outbox has it no more: comment on publication %s is null", c.Slot, schema, pgx.Identifier{publication(c)}.Sanitize())
}

// beingMade says what a slot waits for before anybody can read it.
func beingMade(c outbox.Config) error {
	return fmt.Errorf("relay: the replication slot %s is being made: Postgres waits for transactions of its databases that were open before", c.Slot)
}

// foundSlot is what there is under the name of the slot.
type foundSlot struct {
	there, ours    bool   // of this database
	noted          bool   // it is of this outbox
	taken          string // by another outbox, in this schema
	plugin, status string
	start          *uint64 // nil while it is being made
	given          bool    // nothing is in it that was not read: it was given up, when the database left this mode, or nobody could emit yet
	other          string  // another one is there that was read, or that somebody began to make
}

// find looks at all at once: with a lock on the settings, so that nobody leaves the mode in between. A slot that was lost with nothing in
// it is none.
func (e *walEngine) find(ctx context.Context, q querier) (f foundSlot, err error) {
	err = q.QueryRow(ctx, `select r.slot_name is not null, coalesce(r.database = current_database(), false), coalesce(r.plugin, r.slot_type, ''), coalesce(r.wal_status, ''),
			(r.confirmed_flush_lsn - '0/0')::bigint, coalesce(not `+outbox.SlotRead+`, false), coalesce(`+outbox.SlotNoted+` = $1, false) or `+outbox.SlotMine("$1::text")+`, coalesce(`+outbox.SlotTaken("$1::text")+`, ''),
			coalesce((select o.slot_name::text from pg_replication_slots o where o.slot_name in (wal_slot::name, `+outbox.SlotNoted+`) and o.slot_name <> $1 and o.database = current_database() and coalesce(o.wal_status, '') <> 'lost' and `+outbox.SlotTaken("o.slot_name")+` is null limit 1), '')
		from outbox_settings left join outbox_stream n on n.source = $2 and n.mode = $3 and n.shard = 0 left join pg_replication_slots r on r.slot_name = $1`,
		e.r.Config.Slot, e.r.Config.Name, e.shards.o.mode).
		Scan(&f.there, &f.ours, &f.plugin, &f.status, &f.start, &f.given, &f.noted, &f.taken, &f.other)
	if err != nil {
		return f, fmt.Errorf("relay: cannot look at the replication slot %s: %w", e.r.Config.Slot, err)
	}
	if f.status == "lost" && f.ours && f.given && f.noted {
		f.there = false
	}
	return f, nil
}

// claim says of the publication, which it makes when it is missing, that it and the slot are of this outbox, unless another one was first.
func (e *walEngine) claim(ctx context.Context, q querier) error {
	name, mine := publication(e.r.Config), outbox.SlotClaim+e.r.Config.Schema
	var there, claimed bool
	err := q.QueryRow(ctx, `select count(*) > 0, coalesce(bool_or(obj_description(oid, 'pg_publication') = $2), false) from pg_publication where pubname = $1::text::name`, name, mine).Scan(&there, &claimed)
	if err != nil {
		return fmt.Errorf("relay: cannot look for the publication %s: %w", name, err)
	}
	if claimed {
		return nil
	}
	quoted := pgx.Identifier{name}.Sanitize()
	err = pgx.BeginFunc(ctx, q, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `select pg_advisory_xact_lock(hashtextextended('instar.outbox.claim.' || $1::text, 0))`, name); err != nil {
			return err
		}
		var comment, other string
		if err := tx.QueryRow(ctx, `select count(*) > 0, coalesce(max(obj_description(oid, 'pg_publication')), ''), coalesce(`+outbox.SlotTaken("$2::text")+`, '') from pg_publication where pubname = $1::text::name`, name, e.r.Config.Slot).Scan(&there, &comment, &other); err != nil {
			return err
		}
		switch {
		case other != "":
			return permanent(claimedBy(e.r.Config, other))
		case comment != "" && !strings.HasPrefix(comment, outbox.SlotClaim):
			return permanent(fmt.Errorf("it has the comment %q of somebody else: choose another name (slot of the source), or, if it is of nobody: comment on publication %s is null", comment, quoted))
		}
		if !there {
			if _, err := tx.Exec(ctx, `create publication `+quoted); err != nil {
				return err
			}
		}
		_, err := tx.Exec(ctx, `comment on publication `+quoted+` is '`+mine+`'`)
		return err
	})
	if refused := (*pgconn.PgError)(nil); there && errors.As(err, &refused) && refused.Code == "42501" { // it is of another role, from before this was said
		return nil
	}
	if err != nil {
		return fmt.Errorf("relay: cannot make the publication %s: %w", name, err)
	}
	return nil
}

// sqlMaker is the lock of whoever makes a slot of this outbox, whatever it is called. It is one of the session: whoever is killed while
// Postgres makes the slot has it for as long as that goes on.
const sqlMaker = `(hashtextextended('instar.outbox.slot.' || current_schema(), 0))`

// makeSlot makes the slot. Before that the stream says that nothing was read from it, if the stream takes anything now.
func (e *walEngine) makeSlot(ctx context.Context, s *session) (start uint64, err error) {
	if err := e.r.refuseAppends(ctx, e.pool); err != nil { // it may have gone while this relay stood by
		return 0, err
	}
	s.pos, s.confirmed = position{lsn: true}, 0
	if _, err := e.shards.o.publish(context.WithoutCancel(ctx), nil, []*session{s}); err != nil {
		return 0, err
	}
	waits := time.AfterFunc(makingTold, func() { e.r.problem(beingMade(e.r.Config)) })
	defer waits.Stop()
	err = e.pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
		var alone bool
		if err := conn.QueryRow(ctx, `select pg_try_advisory_lock`+sqlMaker).Scan(&alone); err != nil {
			return err
		}
		if !alone {
			return beingMade(e.r.Config)
		}
		start, err = e.makeAlone(ctx, conn, s)
		if _, unlock := conn.Exec(ctx, `select pg_advisory_unlock`+sqlMaker); err == nil { // where it fails the connection ends
			err = unlock
		}
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("relay: cannot make the replication slot %s: %w", e.r.Config.Slot, err)
	}
	e.r.Log.Info("made a replication slot", "slot", e.r.Config.Slot)
	return start, nil
}

// makeAlone makes it while no other relay makes one. The database has its name before: whoever leaves the mode finds it by that, also when this
// relay ends while Postgres makes it.
func (e *walEngine) makeAlone(ctx context.Context, conn *pgxpool.Conn, s *session) (start uint64, err error) {
	slot := e.r.Config.Slot
	found, err := e.find(ctx, conn)
	if err == nil {
		err = e.usable(found, s)
	}
	if err == nil && found.there {
		err = errors.New("it was made meanwhile")
	}
	if err == nil {
		err = e.wanted(ctx) // otherwise its name would be noted
	}
	if err == nil {
		err = e.claim(ctx, conn)
	}
	if err == nil { // those that were lost, also under another name
		_, err = conn.Exec(ctx, `select pg_drop_replication_slot(r.slot_name) from outbox_stream n join pg_replication_slots r on r.slot_name = `+outbox.SlotNoted+`
			where n.source = $1 and n.mode = $2 and n.shard = $3 and r.database = current_database() and r.plugin = 'pgoutput' and r.wal_status = 'lost' and `+outbox.SlotTaken("r.slot_name")+` is null`, e.shards.o.source, e.shards.o.mode, s.shard)
	}
	noted := "?" + slot // it is not there yet
	if err == nil {
		err = e.name(ctx, conn, s, noted)
	}
	if err != nil {
		return 0, err
	}
	e.r.at("named")
	// Nobody leaves the mode before the slot is there: the transaction keeps the lock of a reader of the settings. If somebody did before
	// that, its name is not noted any more, also when the mode is back; a relay that has opened the shard since may note another one. The
	// function is called with no table open, because it may leave the statement with another resource owner (15.18), which then cannot close
	// the table.
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		// A relay that is cut off while Postgres makes it does not end the transaction: its lock would keep the settings from everybody else.
		if _, err := tx.Exec(ctx, `set local idle_in_transaction_session_timeout = '10s'`); err != nil {
			return err
		}
		var still bool
		err := tx.QueryRow(ctx, `select exists (select from outbox_settings h join outbox_stream n using (mode) where n.source = $1 and n.mode = $2 and n.shard = $3 and n.slot = $4 and n.generation = $5)`,
			e.shards.o.source, e.shards.o.mode, s.shard, noted, s.generation).Scan(&still)
		if err != nil {
			return err
		}
		if !still {
			return e.unnamed(ctx, tx, s)
		}
		if err := e.wanted(ctx); err != nil {
			return err
		}
		e.r.at("making")
		return tx.QueryRow(ctx, `select (lsn - '0/0')::bigint from pg_create_logical_replication_slot($1, 'pgoutput')`, slot).Scan(&start)
	})
	return start, err
}

// wanted asks whether the relay is deleted. What deletes it locks the settings after that was decided: it finds the slot, or this finds that.
func (e *walEngine) wanted(ctx context.Context) error {
	if e.r.Wanted == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, wantedTime)
	defer cancel()
	return e.r.Wanted(ctx)
}

// querier is a pool, a connection or a transaction.
type querier interface {
	Begin(ctx context.Context) (pgx.Tx, error)
	Exec(ctx context.Context, query string, args ...any) (pgconn.CommandTag, error)
	QueryRow(ctx context.Context, query string, args ...any) pgx.Row
}

// name tells the database which slot is read, or made, unless the mode was left or another relay has opened the shard. Nothing else does:
// what was given up with the mode is not brought back.
func (e *walEngine) name(ctx context.Context, q querier, s *session, slot string) error {
	o := e.shards.o
	tag, err := q.Exec(ctx, `update outbox_stream n set slot = $1 from outbox_settings h where h.mode = n.mode and n.source = $2 and n.mode = $3 and n.shard = $4 and n.generation = $5`,
		slot, o.source, o.mode, s.shard, s.generation)
	if err != nil {
		return fmt.Errorf("relay: cannot write outbox_stream: %w", err)
	}
	if tag.RowsAffected() > 0 {
		return nil
	}
	return e.unnamed(ctx, q, s)
}

// unnamed says why the database does not take, or no more has, the name of a slot.
func (e *walEngine) unnamed(ctx context.Context, q querier, s *session) error {
	now, err := readSettings(ctx, q)
	if err != nil {
		return err
	}
	if now.mode != e.mode {
		return ErrChanged
	}
	return fmt.Errorf("%w: another relay opens shard %d, or the mode was left and is back", errFenced, s.shard)
}

// reads lets applications emit: from now on the slot has it.
func (e *walEngine) reads(ctx context.Context, s *session) error {
	err := pgx.BeginFunc(ctx, e.pool, func(tx pgx.Tx) error {
		if err := e.name(ctx, tx, s, e.r.Config.Slot); err != nil { // nobody leaves the mode any more until this has ended
			return err
		}
		var there bool
		if err := tx.QueryRow(ctx, `select exists (select from pg_replication_slots where slot_name = $1 and `+outbox.SlotReadable+`)`, e.r.Config.Slot).Scan(&there); err != nil {
			return err
		}
		if !there {
			return fmt.Errorf("the replication slot %s is gone", e.r.Config.Slot)
		}
		_, err := tx.Exec(ctx, `update outbox_settings set wal_slot = $1 where wal_slot is distinct from $1`, e.r.Config.Slot)
		return err
	})
	if err != nil {
		return fmt.Errorf("relay: cannot say that the WAL is read: %w", err)
	}
	return nil
}

func lsn(at uint64) string { return fmt.Sprintf("%X/%X", at>>32, uint32(at)) }

func lost(c outbox.Config, o *opener) error {
	return fmt.Errorf("%w: Postgres dropped WAL that slot %s of %s had not read (max_slot_wal_keep_size). What was committed meanwhile is missing in the stream. To go on from now: drop the slot, then nats stream purge %s --subject %s", errLostSlot, c.Slot, c.Name, o.stream.Name, o.subject(0))
}

// Periods of what is done beside the reading.
const (
	slotEvery  = 5 * time.Second
	makingTold = time.Second // after which it is told that a slot is not there yet
	wantedTime = 5 * time.Second
	beatEvery  = 10 * time.Second
	slotAlarm  = 1 << 30 // bytes of WAL that a slot keeps, where Postgres has no limit
	slotShare  = 0.8     // of the limit
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
		return permanent(lost(e.r.Config, e.shards.o))
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
