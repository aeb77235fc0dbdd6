-- +goose Up

-- What an event must be, so that a relay can publish it. One function, because an insert reads every constraint of its
-- table anew: as constraints of columns this costs more than the rest of the insert.
-- +goose StatementBegin
create function outbox_check(aggregate_type text, aggregate_id text, event_type text, payload bytea, headers jsonb) returns boolean
language plpgsql immutable parallel safe as $$
begin
    if (aggregate_type ~ '^[A-Za-z0-9_-]{1,128}$') is not true then
        raise exception 'aggregate_type % must be 1 to 128 letters, digits, - or _', quote_nullable(left(aggregate_type, 200)) using errcode = 'check_violation';
    elsif (aggregate_id ~ '^[A-Za-z0-9_-]{1,128}$') is not true then
        raise exception 'aggregate_id % must be 1 to 128 letters, digits, - or _', quote_nullable(left(aggregate_id, 200)) using errcode = 'check_violation';
    elsif (length(event_type) <= 256 and event_type ~ '^[A-Za-z0-9_-]+([.][A-Za-z0-9_-]+)*$') is not true then
        raise exception 'event_type % must be at most 256 letters, digits, -, _ and dots between them', quote_nullable(left(event_type, 300)) using errcode = 'check_violation';
    elsif (octet_length(payload) <= 1044480) is not true then
        raise exception 'the payload has % bytes, it must have at most 1044480', coalesce(octet_length(payload)::text, 'no') using errcode = 'check_violation';
    elsif (jsonb_typeof(headers) = 'object' and pg_column_size(headers) <= 3072) is not true then
        raise exception 'headers must be an object of at most 3072 bytes' using errcode = 'check_violation';
    end if;
    return true;
end
$$;
-- +goose StatementEnd

-- What holds for the whole outbox; one row. outbox.Init writes it.
create table outbox_settings (
    id boolean primary key default true check (id), -- there is one
    mode text not null default 'log' check (mode in ('claim', 'log', 'wal')),
    shards smallint not null default 4 check (shards between 1 and 64),
    retention interval not null default '7 days' check (retention >= '1 minute'),
    max_lag bigint not null default 0 check (max_lag >= 0), -- beyond it outbox_append refuses, in every language; 0 is no limit
    wal_prefix text not null default 'instar.outbox',       -- of emitted messages
    updated_at timestamptz not null default now()
);
insert into outbox_settings (id) values (true);

-- Mode claim: rows with a state.
create table outbox_event (
    event_id uuid primary key,
    occurred_at timestamptz not null default clock_timestamp(),
    aggregate_type text not null,
    aggregate_id text not null,
    event_type text not null,
    payload bytea not null,
    headers jsonb not null default '{}',
    status text not null default 'NEW' check (status in ('NEW', 'SENDING', 'SENT', 'FAILED', 'DEAD')),
    attempts integer not null default 0,                    -- counted when a row is claimed
    next_retry_at timestamptz not null default now(),       -- infinity: DEAD, or waits behind one that is
    sent_at timestamptz,
    locked_by text,
    locked_until timestamptz,
    lease_token uuid,                                       -- of the claim that holds the row
    last_error text,
    redrives integer not null default 0,
    created_at timestamptz not null default clock_timestamp(),
    updated_at timestamptz not null default clock_timestamp(),
    content_type text not null default 'application/json',
    not_before timestamptz,
    seq bigint generated always as identity,
    shard smallint not null,
    constraint outbox_event_check check (outbox_check(aggregate_type, aggregate_id, event_type, payload, headers))
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_analyze_scale_factor = 0.05);
create index idx_outbox_event_status_retry on outbox_event (shard, next_retry_at, seq) where status in ('NEW', 'FAILED');
create index idx_outbox_event_lock on outbox_event (locked_until) where status = 'SENDING';
create index idx_outbox_event_order on outbox_event (aggregate_id, aggregate_type, seq) where status <> 'SENT';
create index idx_outbox_event_dead on outbox_event (seq) where status in ('FAILED', 'DEAD');
create index idx_outbox_event_sent on outbox_event (sent_at) where status = 'SENT';

-- Mode log: append-only days. What was sent is said by outbox_cursor, what failed by outbox_parked. Rows are inserted
-- through this table only: the lock on it precedes the sequence, which is what a reader's fence relies on.
create table outbox_log (
    seq bigint generated always as identity (cache 1),      -- never a greater cache: numbers would be given out in advance
    day date not null default (clock_timestamp() at time zone 'UTC')::date,
    shard smallint not null,
    event_id uuid not null,
    occurred_at timestamptz not null default clock_timestamp(),
    created_at timestamptz not null default clock_timestamp(),
    aggregate_type text not null,
    aggregate_id text not null,
    event_type text not null,
    content_type text not null default 'application/json',
    not_before timestamptz,
    headers jsonb not null default '{}',
    payload bytea not null,
    constraint outbox_log_check check (outbox_check(aggregate_type, aggregate_id, event_type, payload, headers))
) partition by range (day);
create index outbox_log_seq on outbox_log (seq);
create table outbox_log_default partition of outbox_log default; -- an insert never fails for want of a day

-- How far each shard has come: for those who look, for the view, and for retention. The truth about positions is in the
-- stream. In mode wal seq is an LSN, as a number.
create table outbox_cursor (
    source text not null default '',
    shard smallint not null,
    seq bigint not null default 0,              -- every row up to here was published, or is in outbox_parked
    reading bigint not null default 0,          -- rows up to here are being published
    system_identifier text not null default '', -- of the cluster that seq belongs to
    owner text not null default '',
    updated_at timestamptz not null default now(),
    primary key (source, shard)
);

-- Modes log and wal: rows behind the cursor that are not published. The first one of an aggregate is FAILED, DEAD, or NEW
-- (redriven, or not before a time); next_retry_at says when it is due. The others wait behind it: NEW, next_retry_at null.
create table outbox_parked (
    shard smallint not null,
    seq bigint not null,
    event_id uuid not null,
    day date,                                   -- of its partition in outbox_log; null in mode wal
    aggregate_type text not null,
    aggregate_id text not null,
    event_type text not null,
    state text not null check (state in ('NEW', 'FAILED', 'DEAD')),
    attempts integer not null default 0,
    next_retry_at timestamptz,                  -- infinity: DEAD
    not_before timestamptz,
    last_error text,
    redrives integer not null default 0,        -- part of the message's id, so that a redrive is not taken for a duplicate
    message bytea,                              -- mode wal: the emitted message; null: read outbox_log
    parked_at timestamptz not null default now(),
    updated_at timestamptz not null default now(),
    primary key (shard, seq)
);
create index outbox_parked_due on outbox_parked (shard, next_retry_at) where next_retry_at is not null;
create index outbox_parked_order on outbox_parked (aggregate_id, aggregate_type, seq);
create index outbox_parked_event on outbox_parked (event_id);
create index outbox_parked_day on outbox_parked (day);
create index outbox_parked_bad on outbox_parked (seq) where state in ('FAILED', 'DEAD');

-- What the relay says about itself, for outbox_append's limit.
create table outbox_pressure (
    source text primary key,
    lag bigint not null,
    at timestamptz not null default now()
);

-- What a handler has handled: one row in the transaction of its effect.
create table outbox_inbox (
    event_id text not null,
    handler text not null,
    handled_at timestamptz not null default now(),
    primary key (event_id, handler)
);
create index outbox_inbox_age on outbox_inbox (handled_at);

-- What operators did.
create table outbox_audit (
    id bigint generated always as identity primary key,
    at timestamptz not null default now(),
    actor text not null,
    action text not null,
    filter jsonb not null default '{}',
    affected bigint not null,
    events uuid[] not null default '{}'         -- at most 1000 of them
);
