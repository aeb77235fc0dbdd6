package outbox

// What operators do with an outbox, for the command line (instar outbox) and the API of relays: Redrive, Discard and Purge change rows of both modes, up to 10,000 in a
// transaction with a record of it in outbox_audit; Tail reads the newest events and their states. Nothing is sent to a relay: it finds what has changed in the tables (claim.go,
// relay/log/deliver/retry.go).

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Filter selects rows that failed (FAILED or DEAD): by ids, by aggregates or the type of events, or all. With both aggregates and a type, rows must match both.
type Filter struct {
	IDs           []uuid.UUID `json:"ids,omitempty"`
	AggregateType string      `json:"aggregateType,omitempty"`
	AggregateID   string      `json:"aggregateId,omitempty"` // needs AggregateType
	EventType     string      `json:"eventType,omitempty"`
	All           bool        `json:"all,omitempty"`
}

// ErrFilter says that a filter is empty, or contradicts itself.
var ErrFilter = errors.New("outbox: say which rows: ids, an aggregate's type (and id), an event's type, or all; ids and all stand alone")

func (f *Filter) check() error {
	fields := f.AggregateType != "" || f.EventType != ""
	switch {
	case f.AggregateID != "" && f.AggregateType == "", len(f.IDs) > 0 && (fields || f.All), f.All && fields, len(f.IDs) == 0 && !fields && !f.All:
		return ErrFilter
	}
	return nil
}

// most is how many rows one statement changes at most.
const most = 10000

// Redrive makes rows that failed NEW again: due at once, with all attempts before them. What waits behind them waits for
// their outcome. It returns how many rows that were, and [ErrFilter] before it reads any. They are changed 10,000 at a time: after
// any other error, earlier changes remain, and are counted.
func (s *Store) Redrive(ctx context.Context, f Filter, actor string) (int64, error) {
	return s.change(ctx, "redrive", f, actor, sqlRedriveEvents, sqlRedriveParked)
}

// Discard gives rows that failed up: they are never published, and the rows behind them are. Their ids are in outbox_audit.
// In the mode log the row itself stays in outbox_log until its day is dropped. It returns how many rows that were, and errors as
// [Store.Redrive] does.
func (s *Store) Discard(ctx context.Context, f Filter, actor string) (int64, error) {
	return s.change(ctx, "discard", f, actor, sqlDiscardEvents, sqlDiscardParked)
}

func (s *Store) change(ctx context.Context, action string, f Filter, actor string, queries ...string) (int64, error) {
	if err := f.check(); err != nil {
		return 0, err
	}
	if f.IDs == nil {
		f.IDs = []uuid.UUID{}
	}
	total := int64(0)
	for _, query := range queries {
		for {
			n, err := s.changeSome(ctx, action, f, actor, query)
			total += n
			if err != nil {
				return total, fmt.Errorf("outbox: cannot %s: %w", action, err)
			}
			if n < most {
				break
			}
		}
	}
	return total, nil
}

// changeSome changes as many rows as one statement may, and records who did it, in the same transaction.
func (s *Store) changeSome(ctx context.Context, action string, f Filter, actor string, query string) (n int64, err error) {
	return s.audited(ctx, func(tx pgx.Tx, ids []uuid.UUID) error {
		return audit(ctx, tx, action, actor, f, int64(len(ids)), ids)
	}, query, f.IDs, f.AggregateType, f.AggregateID, f.EventType, most)
}

// audited runs a statement that returns the ids of the rows that it changed, and records them, if there are any, in the
// same transaction.
func (s *Store) audited(ctx context.Context, record func(pgx.Tx, []uuid.UUID) error, query string, args ...any) (n int64, err error) {
	err = pgx.BeginFunc(ctx, s.Pool, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, query, args...)
		if err != nil {
			return err
		}
		ids, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
		if err != nil || len(ids) == 0 {
			return err
		}
		n = int64(len(ids))
		return record(tx, ids)
	})
	return n, err
}

func audit(ctx context.Context, tx pgx.Tx, action, actor string, filter any, n int64, ids []uuid.UUID) error {
	text, err := json.Marshal(filter)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, sqlAudit, actor, action, string(text), n, append([]uuid.UUID{}, ids[:min(len(ids), 1000)]...))
	return err
}

const sqlAudit = `insert into outbox_audit (actor, action, filter, affected, events) values ($1, $2, $3, $4, $5)`

// bad are the rows of a table that a filter selects.
const (
	badEvents = `bad as materialized (
		select event_id, aggregate_id, aggregate_type from outbox_event
		where phase = 1 and (cardinality($1::uuid[]) = 0 or event_id = any ($1)) and ($2 = '' or aggregate_type = $2)
			and ($3 = '' or aggregate_id = $3) and ($4 = '' or event_type = $4)
		order by seq limit $5 for update)`
	badParked = `bad as materialized (
		select shard, seq from outbox_parked
		where state in ('FAILED', 'DEAD') and (cardinality($1::uuid[]) = 0 or event_id = any ($1)) and ($2 = '' or aggregate_type = $2)
			and ($3 = '' or aggregate_id = $3) and ($4 = '' or event_type = $4)
		order by seq limit $5 for update)`
	// Rows that a claim has postponed behind them become due, too.
	freed = `freed as (
		update outbox_event set next_retry_at = now(), updated_at = now()
		where event_id = any (array(
			select w.event_id from (select distinct aggregate_id, aggregate_type from bad) as a cross join lateral (
				select e.event_id from outbox_event e where e.aggregate_id = a.aggregate_id and e.aggregate_type = a.aggregate_type and e.phase < 2
					and e.status in ('NEW', 'FAILED') and e.next_retry_at > now() and (e.not_before is null or e.not_before <= now())
				order by e.seq limit 100000) as w
			where w.event_id not in (select event_id from bad))))`
)

const sqlRedriveEvents = `
	with ` + badEvents + `, ` + freed + `
	update outbox_event set status = 'NEW', attempts = 0, redrives = redrives + 1, next_retry_at = now(), updated_at = now()
	where event_id = any (array(select event_id from bad)) returning event_id`

const sqlDiscardEvents = `
	with ` + badEvents + `, ` + freed + `
	delete from outbox_event where event_id = any (array(select event_id from bad)) returning event_id`

const sqlRedriveParked = `
	with ` + badParked + `
	update outbox_parked p set state = 'NEW', attempts = 0, redrives = redrives + 1, next_retry_at = now(), updated_at = now()
	from bad where p.shard = bad.shard and p.seq = bad.seq returning p.event_id`

const sqlDiscardParked = `
	with ` + badParked + `, gone as (
		delete from outbox_parked p using bad where p.shard = bad.shard and p.seq = bad.seq returning p.*
	)
	insert into outbox_late (shard, seq, event_id, day) select shard, seq, event_id, day from gone
	on conflict (shard, seq, event_id) do update set marker = null, sent_at = now() returning event_id`

// Purged is what [Store.Purge] removed.
type Purged struct {
	Rows int64 // of mode claim
	Days int   // of mode log
}

// Purge removes what was sent longer ago than the retention of the settings. A relay does it by itself, once an hour.
func (s *Store) Purge(ctx context.Context, actor string) (Purged, error) {
	var p Purged
	for {
		n, err := s.purgeSome(ctx, actor)
		p.Rows += n
		if err != nil {
			return p, fmt.Errorf("outbox: cannot purge: %w", err)
		}
		if n < most {
			break
		}
	}
	m, err := s.Maintain(ctx)
	p.Days = m.Dropped
	return p, err
}

func (s *Store) purgeSome(ctx context.Context, actor string) (n int64, err error) {
	return s.audited(ctx, func(tx pgx.Tx, ids []uuid.UUID) error {
		return audit(ctx, tx, "purge", actor, struct{}{}, int64(len(ids)), nil) // too many to keep, and all were sent
	}, sqlPurge, most)
}

const sqlPurge = `
	delete from outbox_event where event_id = any (array(
		select event_id from outbox_event where phase = 2 and sent_at < now() - (select retention from outbox_settings)
		order by sent_at limit $1 for update skip locked)) returning event_id`

// Entry is an event with its state.
type Entry struct {
	Message
	Seq       int64
	Shard     int
	State     string
	Attempts  int
	Error     string
	CreatedAt time.Time
	Cursor    string // for Tail
}

// Tail is the n newest events (1 to 1000), oldest first; with the cursor of an entry, those after it. An event may come in before the
// newest ones, because transactions commit in another order than they begin: this is for people to read.
func (s *Store) Tail(ctx context.Context, after string, n int) ([]Entry, error) {
	var mode Mode
	if err := s.Pool.QueryRow(ctx, `select mode from outbox_settings`).Scan(&mode); err != nil {
		return nil, fmt.Errorf("outbox: cannot read the settings: %w", err)
	}
	query, key := sqlTailLog, any(nil)
	switch {
	case mode == Claim && after != "":
		id, err := uuid.Parse(after)
		if err != nil {
			return nil, fmt.Errorf("outbox: the cursor %.50q is none of this outbox", after)
		}
		query, key = sqlTailEventsAfter, id
	case mode == Claim:
		query = sqlTailEvents
	case after != "":
		var seq int64
		if _, err := fmt.Sscan(after, &seq); err != nil {
			return nil, fmt.Errorf("outbox: the cursor %.50q is none of this outbox", after)
		}
		query, key = sqlTailLogAfter, seq
	}
	args := []any{min(max(n, 1), 1000)}
	if key != nil {
		args = append(args, key)
	}
	rows, err := s.Pool.Query(ctx, query, args...)
	if err != nil {
		return nil, fmt.Errorf("outbox: cannot read events: %w", err)
	}
	list, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) (e Entry, err error) {
		var headers []byte
		err = r.Scan(&e.Cursor, &e.Seq, &e.Shard, &e.ID, &e.OccurredAt, &e.CreatedAt, &e.AggregateType, &e.AggregateID, &e.EventType, &e.ContentType,
			&headers, &e.Payload, &e.State, &e.Attempts, &e.Error)
		e.Headers = ReadHeaders(headers)
		return e, err
	})
	if err != nil {
		return nil, fmt.Errorf("outbox: cannot read events: %w", err)
	}
	return list, nil
}

const (
	eventColumns  = `seq, shard, event_id, case when isfinite(occurred_at) then occurred_at else created_at end as occurred_at, created_at, aggregate_type, aggregate_id, event_type, content_type, headers, payload`
	tailEvents    = `select event_id::text as cursor, ` + eventColumns + `, status, attempts, coalesce(last_error, '') from outbox_event`
	sqlTailEvents = `select * from (` + tailEvents + ` order by event_id desc limit $1) as t order by event_id`

	sqlTailEventsAfter = tailEvents + ` where event_id > $2 order by event_id limit $1`

	// What outbox_event_status says, for a few rows.
	tailLog = `select l.seq::text, l.*, coalesce(p.state, case when d.is then '` + StateDiscarded + `' when l.seq <= coalesce(c.seq, 0) then 'SENT' when l.seq <= c.reading then 'SENDING' else 'NEW' end),
			coalesce(p.attempts, 0), coalesce(p.last_error, '')
		from l left join lateral (select * from outbox_parked p where p.shard = l.shard and p.seq = l.seq limit 1) as p on true
		left join lateral (select true as is from outbox_late d where d.shard = l.shard and d.seq = l.seq and d.event_id = l.event_id and d.marker is null limit 1) as d on true
		left join (select shard, min(seq) as seq, max(reading) as reading from outbox_cursor group by shard) c on c.shard = l.shard order by l.seq`
	sqlTailLog      = `with l as materialized (select ` + eventColumns + ` from outbox_log order by seq desc limit $1) ` + tailLog
	sqlTailLogAfter = `with l as materialized (select ` + eventColumns + ` from outbox_log where seq > $2 order by seq limit $1) ` + tailLog
)
