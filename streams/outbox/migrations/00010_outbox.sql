-- +goose Up

-- The whole outbox. Version 10, because databases of earlier ones, which were never released, have the numbers below it.

-- What an event must be, so that a relay can publish it. One function, because an insert reads every constraint of its
-- table anew: as constraints of columns this costs more than the rest of the insert.
-- +goose StatementBegin
create function outbox_check(aggregate_type text, aggregate_id text, event_type text, payload bytea, content_type text, headers jsonb) returns boolean
language plpgsql immutable parallel safe as $$
begin
    if (aggregate_type ~ '^[A-Za-z0-9_-]{1,128}$') is not true then
        raise exception 'aggregate_type % must be 1 to 128 letters, digits, - or _', quote_nullable(left(aggregate_type, 200)) using errcode = 'check_violation';
    elsif (aggregate_id ~ '^[A-Za-z0-9_-]{1,128}$') is not true then
        raise exception 'aggregate_id % must be 1 to 128 letters, digits, - or _', quote_nullable(left(aggregate_id, 200)) using errcode = 'check_violation';
    elsif (length(event_type) <= 256 and event_type ~ '^[A-Za-z0-9_-]+([.][A-Za-z0-9_-]+)*$') is not true then
        raise exception 'event_type % must be at most 256 letters, digits, -, _ and dots between them', quote_nullable(left(event_type, 300)) using errcode = 'check_violation';
    elsif (octet_length(payload) <= 1040384) is not true then
        raise exception 'the payload has % bytes, it must have at most 1040384', coalesce(octet_length(payload)::text, 'no') using errcode = 'check_violation';
    elsif (octet_length(content_type) <= 256 and content_type !~ '[\r\n]') is not true then
        raise exception 'content_type % must be one line of at most 256 bytes', quote_nullable(left(content_type, 300)) using errcode = 'check_violation';
    elsif (jsonb_typeof(headers) = 'object') is not true then
        raise exception 'headers must be an object' using errcode = 'check_violation';
    elsif headers <> '{}' and (select sum(octet_length(h.key) + coalesce(octet_length(h.value), 0) + 4) from jsonb_each_text(headers) as h) > 3000 then
        raise exception 'headers must have at most 3000 bytes, with 4 for each' using errcode = 'check_violation';
    end if;
    return true;
end
$$;
-- +goose StatementEnd

-- The id of a message whose content type says that its payload is a whole CloudEvent: the event's own, which has to be that of
-- the message if it has one, as its type has to be.
-- +goose StatementBegin
create function outbox_cloudevent(event_id uuid, event_type text, payload bytea, content_type text) returns uuid language plpgsql immutable parallel safe as $$
declare
    event jsonb;
    own text;
begin
    if content_type !~* '^application/cloudevents[+]json *(;|$)' then
        raise exception 'of structured CloudEvents only application/cloudevents+json is taken, one event at a time, not %', quote_nullable(left(content_type, 300)) using errcode = 'check_violation';
    end if;
    begin
        event := convert_from(payload, 'UTF8')::jsonb;
        own := (event ->> 'id')::uuid::text;
    exception when data_exception then
        raise exception 'the payload is no CloudEvent in JSON whose id is a UUID: %', sqlerrm using errcode = 'check_violation';
    end;
    if (event ->> 'specversion' = '1.0' and event ->> 'source' <> '' and event ->> 'type' = event_type and event ->> 'id' = own and own = coalesce(event_id::text, own)) is not true then
        raise exception 'the CloudEvent must have specversion 1.0, a source, the type % and the id of its message, as text', quote_nullable(left(event_type, 300)) using errcode = 'check_violation';
    end if;
    return own::uuid;
end
$$;
-- +goose StatementEnd

-- What holds for the whole outbox; one row. outbox.Init writes it.
create table outbox_settings (
    id boolean primary key default true check (id), -- there is one
    mode text not null default 'log' check (mode in ('claim', 'log')),
    shards smallint not null default 4 check (shards between 1 and 64),
    read_shards smallint not null default 4 check (read_shards >= shards), -- mode log: what relays read, more than shards while the table may have rows of when there were more
    narrowed date,                                          -- when shards was lowered last
    retention interval not null default '7 days' check (retention >= '1 minute'),
    max_lag bigint not null default 0 check (max_lag >= 0), -- beyond it outbox_append refuses, in every language; 0 is no limit
    inbox_retention interval check (inbox_retention >= '1 minute'), -- null: twice as long as the stream keeps its messages, 14 days at least; what is forgotten and delivered again is handled again
    source text,                                            -- the name under which it is relayed; the first relay writes it
    renamed text,                                           -- the one before it
    version integer not null default 10,                    -- of this schema; each migration raises it
    updated_at timestamptz not null default now()
);
insert into outbox_settings (id) values (true);

-- Ends a change of what decides where events are appended. A transaction whose snapshot is older sees the row neither as it
-- was nor as it is (truncate is not of any snapshot), so it cannot append where nobody reads any more.
-- +goose StatementBegin
create function outbox_settings_renew() returns void language plpgsql volatile set search_path from current as $$
declare
    how outbox_settings;
begin
    lock table outbox_settings in access exclusive mode; -- truncate takes it, too late: what somebody else changed before that would be undone
    select * into strict how from outbox_settings for update; -- and fails where the snapshot is older than such a change
    truncate outbox_settings;
    insert into outbox_settings select how.*;
end
$$;
-- +goose StatementEnd

-- Mode claim: rows with a state. What a claim changes of a row is in no index, and its page has room for the new version, so
-- that it writes the row and nothing else. The indexes go by the phase, which a claim does not change: 0 NEW and SENDING, 1
-- FAILED and DEAD, 2 SENT. Leases that have ended are found where rows are claimed.
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
    phase smallint not null generated always as (case status when 'SENT' then 2 when 'FAILED' then 1 when 'DEAD' then 1 else 0 end) stored,
    -- For what comes in: an update reads the constraints of its table anew, too.
    constraint outbox_event_check check (status in ('SENDING', 'SENT') or outbox_check(aggregate_type, aggregate_id, event_type, payload, content_type, headers))
) with (fillfactor = 45, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_analyze_scale_factor = 0.05);
create index idx_outbox_event_status_retry on outbox_event (shard, next_retry_at, seq) where phase < 2;
create index idx_outbox_event_order on outbox_event (aggregate_id, aggregate_type, seq) where phase < 2;
create index idx_outbox_event_dead on outbox_event (seq) where phase = 1;
create index idx_outbox_event_sent on outbox_event (sent_at) where phase = 2;

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
    constraint outbox_log_check check (outbox_check(aggregate_type, aggregate_id, event_type, payload, content_type, headers))
) partition by range (day);
create index outbox_log_seq on outbox_log (seq);
create unique index outbox_log_event on outbox_log (event_id, day); -- a key of partitions has their day in it: an id can be appended once a day
create table outbox_log_default partition of outbox_log default; -- an insert never fails for want of a day

-- How far each shard has come: for those who look, for the view, and for retention. The truth about positions is in the
-- stream.
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

-- The last marker of each shard that a relay has noted, so that a stream that was set back is told from one that is whole: a
-- stream whose last marker is older than this has lost what was stored since.
create table outbox_stream (
    source text not null,
    mode text not null,               -- of the relay
    shard smallint not null,
    stream text not null,
    subject text not null,            -- of the marker
    marker bigint not null,           -- its sequence in the stream; 0 accepts whatever the stream has
    generation bigint not null default 0, -- raised before each marker, which names it: a database that has a lower one was set back to an older state
    cluster text not null,            -- whose rows it is about: system_identifier, database and schema
    updated_at timestamptz not null default now(),
    primary key (source, mode, shard)
);

-- Mode log: rows behind the cursor that are not published. The first one of an aggregate is FAILED, DEAD, or NEW
-- (redriven, or not before a time); next_retry_at says when it is due. The others wait behind it: NEW, next_retry_at null.
create table outbox_parked (
    shard smallint not null,
    seq bigint not null,
    event_id uuid not null,
    day date,                                   -- of its partition in outbox_log
    aggregate_type text not null,
    aggregate_id text not null,
    event_type text not null,
    state text not null check (state in ('NEW', 'FAILED', 'DEAD')),
    attempts integer not null default 0,
    next_retry_at timestamptz,                  -- infinity: DEAD
    not_before timestamptz,
    last_error text,
    redrives integer not null default 0,        -- part of the message's id, so that a redrive is not taken for a duplicate
    parked_at timestamptz not null default now(),
    updated_at timestamptz not null default now(),
    primary key (shard, seq)
);
create index outbox_parked_due on outbox_parked (shard, next_retry_at) where next_retry_at is not null;
create index outbox_parked_order on outbox_parked (aggregate_id, aggregate_type, seq);
create index outbox_parked_event on outbox_parked (event_id);
create index outbox_parked_day on outbox_parked (day);
create index outbox_parked_bad on outbox_parked (seq) where state in ('FAILED', 'DEAD');

-- Mode log: rows that were parked and published, or discarded, since. No position tells of them, so whoever opens the shard
-- looks whether the stream has them; what it lost is parked again. What was discarded is passed over when it is read once more.
create table outbox_late (
    shard smallint not null,
    seq bigint not null,
    event_id uuid not null,
    day date,                                   -- of its partition in outbox_log, which is kept for it
    marker bigint,                              -- it was stored after this message of the stream, and before the next marker; null: discarded
    sent_at timestamptz not null default now(),
    primary key (shard, seq, event_id)
);
create index outbox_late_marker on outbox_late (shard, marker);
create index outbox_late_age on outbox_late (sent_at);
create index outbox_late_day on outbox_late (day);

-- Mode log: up to which of its rows each shard has lost days by retention. A relay that finds the stream below it cannot publish again what is missing.
create table outbox_dropped (
    shard smallint primary key,
    seq bigint not null
);

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

-- Version 7 with 12 bits of the microsecond, so that ids of one session rise: 48 bits of milliseconds and those 12 bits in
-- one number, the version put between them. One expression, so that it is inlined, as all short functions here.
-- +goose StatementBegin
create function outbox_uuid_v7() returns uuid language sql volatile parallel safe as $$
    select (overlay(lpad(to_hex((date_part('epoch', clock_timestamp()) * 4096000)::bigint), 15, '0') placing '7' from 13 for 0)
        || right(gen_random_uuid()::text, 17))::uuid
$$;
-- +goose StatementEnd

-- The shard of an aggregate; outbox.ShardOf in Go.
-- +goose StatementBegin
create function outbox_shard(aggregate_type text, aggregate_id text, shards integer) returns smallint language sql immutable parallel safe as $$
    select ((('x' || encode(substring(sha256(convert_to($1 || '/' || $2, 'UTF8')) from 1 for 3), 'hex'))::bit(24)::integer) % $3)::smallint
$$;
-- +goose StatementEnd

-- What appends is called once for each event of an application, so it is made with the names of its schema (@), not with a
-- search path of its own, which costs more than the insert.
-- +goose StatementBegin
do $do$
declare
    definition text;
begin
    foreach definition in array array[
-- Appends many events in one call: arrays of equal length; null in event_ids, occurred_at, content_types and not_befores
-- is the default. limit_lag 0 takes the limit of outbox_settings.
$fn$
create function @.outbox_append_batch(
    event_ids uuid[], occurred_at timestamptz[], aggregate_types text[], aggregate_ids text[], event_types text[],
    payloads bytea[], content_types text[], headers jsonb[], not_befores timestamptz[], limit_lag bigint default 0
) returns void language plpgsql volatile as $body$
declare
    how @.outbox_settings;
    behind bigint;
begin
    select * into how from @.outbox_settings;
    if not found then
        raise exception 'the mode of the outbox was changed after this transaction took its snapshot'
            using errcode = 'serialization_failure', hint = 'Try the transaction again.';
    end if;
    limit_lag := coalesce(nullif(limit_lag, 0), how.max_lag);
    if limit_lag > 0 then
        select max(p.lag) into behind from @.outbox_pressure p;
        if behind > limit_lag then
            raise exception 'the outbox is % events behind, more than %', behind, limit_lag
                using errcode = 'OB001', hint = 'Try again later, or raise max_lag in @.outbox_settings. When no relay is to read this outbox any more: truncate @.outbox_pressure';
        end if;
    end if;
    if how.mode = 'log' then
        insert into @.outbox_log (shard, event_id, occurred_at, aggregate_type, aggregate_id, event_type, content_type, not_before, headers, payload)
        select coalesce(@.outbox_shard(m.type, m.id, how.shards), 0), case when m.content ilike 'application/cloudevents%' then @.outbox_cloudevent(m.event_id, m.event, m.payload, m.content) else coalesce(m.event_id, @.outbox_uuid_v7()) end, coalesce(m.at, clock_timestamp()), m.type, m.id, m.event,
            coalesce(m.content, 'application/json'), m.not_before, coalesce(m.headers, '{}'), m.payload
        from unnest(event_ids, occurred_at, aggregate_types, aggregate_ids, event_types, payloads, content_types, headers, not_befores)
            as m (event_id, at, type, id, event, payload, content, headers, not_before);
    else
        if current_setting('synchronous_commit') = 'off' then -- what is claimed is published at once: no crash may undo it then
            perform set_config('synchronous_commit', 'local', true);
        end if;
        insert into @.outbox_event (shard, event_id, occurred_at, aggregate_type, aggregate_id, event_type, content_type, not_before, next_retry_at, headers, payload)
        select coalesce(@.outbox_shard(m.type, m.id, how.shards), 0), case when m.content ilike 'application/cloudevents%' then @.outbox_cloudevent(m.event_id, m.event, m.payload, m.content) else coalesce(m.event_id, @.outbox_uuid_v7()) end, coalesce(m.at, clock_timestamp()), m.type, m.id, m.event,
            coalesce(m.content, 'application/json'), m.not_before, coalesce(m.not_before, now()), coalesce(m.headers, '{}'), m.payload
        from unnest(event_ids, occurred_at, aggregate_types, aggregate_ids, event_types, payloads, content_types, headers, not_befores)
            as m (event_id, at, type, id, event, payload, content, headers, not_before);
    end if;
end
$body$;
$fn$,
-- Appends one event, in the transaction of the caller, and returns its id.
$fn$
create function @.outbox_append_bytes(
    aggregate_type text, aggregate_id text, event_type text, payload bytea, content_type text, headers jsonb default '{}',
    event_id uuid default null, occurred_at timestamptz default null, not_before timestamptz default null, limit_lag bigint default 0
) returns uuid language plpgsql volatile as $body$
declare
    how text;
    part integer; -- computed here, because in the statement it is no longer inlined
    most bigint;
begin
    select s.mode, s.shards, s.max_lag into how, part, most from @.outbox_settings s;
    if not found then
        raise exception 'the mode of the outbox was changed after this transaction took its snapshot'
            using errcode = 'serialization_failure', hint = 'Try the transaction again.';
    end if;
    if content_type ilike 'application/cloudevents%' then
        event_id := @.outbox_cloudevent(event_id, event_type, payload, content_type);
    end if;
    event_id := coalesce(event_id, @.outbox_uuid_v7());
    part := coalesce(@.outbox_shard(aggregate_type, aggregate_id, part), 0); -- of what is null the check tells
    if most > 0 or limit_lag > 0 then
        perform @.outbox_append_batch(array[event_id], array[occurred_at], array[aggregate_type], array[aggregate_id], array[event_type],
            array[payload], array[content_type], array[headers], array[not_before], limit_lag);
    elsif how = 'log' then
        insert into @.outbox_log (shard, event_id, occurred_at, aggregate_type, aggregate_id, event_type, content_type, not_before, headers, payload)
        values (part, event_id, coalesce(occurred_at, clock_timestamp()), aggregate_type, aggregate_id,
            event_type, coalesce(content_type, 'application/json'), not_before, coalesce(headers, '{}'), payload);
    else
        if current_setting('synchronous_commit') = 'off' then -- what is claimed is published at once: no crash may undo it then
            perform set_config('synchronous_commit', 'local', true);
        end if;
        insert into @.outbox_event (shard, event_id, occurred_at, aggregate_type, aggregate_id, event_type, content_type, not_before, next_retry_at, headers, payload)
        values (part, event_id, coalesce(occurred_at, clock_timestamp()), aggregate_type, aggregate_id,
            event_type, coalesce(content_type, 'application/json'), not_before, coalesce(not_before, now()), coalesce(headers, '{}'), payload);
    end if;
    return event_id;
end
$body$;
$fn$,
-- The same for JSON, the usual way in for every language:
--   select outbox_append('order', '4711', 'order.paid', '{"amount": 12}');
$fn$
create function @.outbox_append(
    aggregate_type text, aggregate_id text, event_type text, payload jsonb, headers jsonb default '{}',
    event_id uuid default null, occurred_at timestamptz default null, not_before timestamptz default null
) returns uuid language sql volatile
return @.outbox_append_bytes($1, $2, $3, convert_to($4::text, 'UTF8'), 'application/json', $5, $6, $7, $8);
$fn$
    ] loop
        execute replace(definition, '@.', quote_ident(current_schema()) || '.');
    end loop;
end
$do$;
-- +goose StatementEnd

-- Who may have taken a number from the sequence of outbox_log and has not ended: the virtual transactions, prepared ones
-- too, that hold a lock on the table or on one of its partitions. PREPARE TRANSACTION keeps the name of a transaction (it
-- is -1/<xid> only after a restart of the server, which also ends the connection of who asked).
-- +goose StatementBegin
create function outbox_writers() returns text[] language sql volatile set search_path from current as $$
    select coalesce(array_agg(distinct l.virtualtransaction), '{}') from pg_locks l
    where l.locktype = 'relation' and l.mode = 'RowExclusiveLock' and l.granted
        and l.database = (select d.oid from pg_database d where d.datname = current_database())
        and (l.relation = 'outbox_log'::regclass or l.relation in (select i.inhrelid from pg_inherits i where i.inhparent = 'outbox_log'::regclass))
$$;
-- +goose StatementEnd

-- The first half of a fence: rows up to mark are complete when those writers have ended. The order of the statements
-- matters. A crash of the server forgets numbers of which it had not written the log, and gives them out again; what has not
-- been written is written by the commit of the statement that calls this.
-- +goose StatementBegin
create function outbox_fence(out mark bigint, out writers text[]) language plpgsql volatile set search_path from current as $$
begin
    if current_setting('transaction_isolation') in ('repeatable read', 'serializable') then
        raise exception 'outbox_fence needs a transaction with isolation read committed' using errcode = 'active_sql_transaction';
    end if;
    mark := coalesce(pg_sequence_last_value(pg_get_serial_sequence('outbox_log', 'seq')::regclass), 0);
    writers := outbox_writers();
    if pg_current_wal_flush_lsn() < pg_current_wal_insert_lsn() then
        perform set_config('synchronous_commit', 'local', true), pg_logical_emit_message(true, 'instar.flush', '');
    end if;
end
$$;
-- +goose StatementEnd

-- Since when the oldest writer holds readers back; null for nobody.
-- +goose StatementBegin
create function outbox_oldest_writer() returns timestamptz language sql volatile set search_path from current as $$
    select min(coalesce(a.xact_start, p.prepared)) from pg_locks l
    left join pg_stat_activity a on a.pid = l.pid
    left join pg_prepared_xacts p on l.locktype = 'transactionid' and p.transaction = l.transactionid
    where l.virtualtransaction = any (outbox_writers())
$$;
-- +goose StatementEnd

-- Makes the partition of a day, with those of its rows that are in the default partition. Not for a day of which rows may
-- be coming in right now: an insert that has chosen the default partition would fail.
-- +goose StatementBegin
create function outbox_make_day(wanted date) returns boolean language plpgsql volatile set search_path from current as $$
declare
    name text := 'outbox_log_' || to_char(wanted, 'YYYYMMDD');
begin
    if to_regclass(name) is not null then
        return false;
    end if;
    -- Attached rather than made in place: that would stop all writers for a moment.
    execute format('create table %I (like outbox_log including defaults including constraints)', name);
    execute format('alter table %I add constraint bounds check (day >= %L and day < %L)', name, wanted, wanted + 1);
    if exists (select 1 from outbox_log_default d where d.day = wanted) then
        -- Of the whole: who has looked at the list of partitions before, and at the rows after, would find them in neither.
        lock table outbox_log in access exclusive mode;
        execute format('with moved as (delete from outbox_log_default d where d.day = %L returning *) insert into %I select * from moved', wanted, name);
    end if;
    execute format('alter table outbox_log attach partition %I for values from (%L) to (%L)', name, wanted, wanted + 1);
    execute format('alter table %I drop constraint bounds', name);
    return true;
end
$$;
-- +goose StatementEnd

-- Makes the days to come and drops those that were sent and are older than the retention of outbox_settings. It never
-- waits long for a lock: what it could not do now is for the next time. Call it once an hour. If nobody calls it, rows go
-- into the default partition, and into their days when somebody does.
-- +goose StatementBegin
create function outbox_maintain(ahead integer default 3, out made integer, out dropped integer, out postponed integer)
language plpgsql volatile set search_path from current set lock_timeout = '200ms' as $$
declare
    today date := (clock_timestamp() at time zone 'UTC')::date;
    oldest date;
    d date;
    part regclass;
    lowest bigint;
    unsent boolean;
begin
    if current_setting('transaction_isolation') in ('repeatable read', 'serializable') then
        raise exception 'outbox_maintain needs a transaction with isolation read committed' using errcode = 'active_sql_transaction';
    end if;
    made := 0; dropped := 0; postponed := 0;
    if not pg_try_advisory_xact_lock(hashtext('outbox_maintain'), 'outbox_log'::regclass::oid::integer) then
        postponed := 1;
        return;
    end if;
    for d in select today + n from generate_series(1, ahead) as n
             union select distinct l.day from outbox_log_default l where l.day <> today order by 1 loop
        begin
            if outbox_make_day(d) then made := made + 1; end if;
        exception when lock_not_available then postponed := postponed + 1;
        end;
    end loop;
    select ((clock_timestamp() - s.retention) at time zone 'UTC')::date into oldest from outbox_settings s;
    -- What was discarded is passed over for as long as it can be read: its day is there.
    delete from outbox_late t where t.sent_at < clock_timestamp() - (select s.retention from outbox_settings s) and t.marker is not null;
    select coalesce(min(coalesce(c.seq, 0)), 0) into lowest from outbox_settings s, generate_series(0, s.read_shards - 1) as n
        left join (select shard, min(seq) as seq from outbox_cursor group by shard) c on c.shard = n;
    for part, d in
        select i.inhrelid::regclass, to_date(right(c.relname, 8), 'YYYYMMDD')
        from pg_inherits i join pg_class c on c.oid = i.inhrelid
        where i.inhparent = 'outbox_log'::regclass and c.relname ~ '^outbox_log_[0-9]{8}$' and to_date(right(c.relname, 8), 'YYYYMMDD') < oldest
        order by 2 loop
        begin
            execute format('lock table %s in share mode', part); -- nobody is writing into it any more
            execute format('select exists (select 1 from %s l left join (select shard, min(seq) as seq from outbox_cursor group by shard) c using (shard)'
                || ' where l.seq > %s and l.seq > coalesce(c.seq, 0))', part, lowest) into unsent;
            if unsent or exists (select 1 from outbox_parked p where p.day = d) or exists (select 1 from outbox_late t where t.day = d and t.marker is not null) then
                continue;
            end if;
            execute format('insert into outbox_dropped as o (shard, seq) select c.shard, l.seq from (select distinct shard from outbox_cursor) as c'
                || ' cross join lateral (select seq from %s l where l.shard = c.shard order by l.seq desc limit 1) as l'
                || ' on conflict (shard) do update set seq = greatest(o.seq, excluded.seq)', part);
            delete from outbox_late t where t.day = d;
            execute format('truncate %s', part); -- gives the space back and stops no writer of other days
        exception when lock_not_available then
            postponed := postponed + 1;
            continue;
        end;
        begin
            execute format('alter table outbox_log detach partition %s', part); -- this one needs a moment without writers
            execute format('drop table %s', part);
            dropped := dropped + 1;
        exception when lock_not_available then postponed := postponed + 1;
        end;
    end loop;
    update outbox_settings s set read_shards = s.shards where s.read_shards > s.shards and not exists (select from outbox_log_default)
        and s.narrowed < (select min(to_date(right(c.relname, 8), 'YYYYMMDD')) from pg_inherits i join pg_class c on c.oid = i.inhrelid
            where i.inhparent = 'outbox_log'::regclass and c.relname ~ '^outbox_log_[0-9]{8}$');
end
$$;
-- +goose StatementEnd
select outbox_make_day((clock_timestamp() at time zone 'UTC')::date);
select outbox_maintain();

-- Lets the outbox be relayed under another name, once its relay has ended. What it knows of positions goes along, and what the
-- stream has under the old name is read back under the new one.
-- +goose StatementBegin
create function outbox_rename_source(wanted text) returns void language plpgsql volatile set search_path from current as $$
declare
    was text;
begin
    select s.source into was from outbox_settings s for update;
    if was is null or was = wanted then
        return;
    end if;
    if exists (select from outbox_pressure p where (p.source = was or starts_with(p.source, was || '/')) and p.at > clock_timestamp() - interval '10 seconds') then
        raise exception 'the relay of source % was at work less than 10 seconds ago', was using hint = 'End it, then try again.';
    end if;
    delete from outbox_cursor where source = wanted;
    update outbox_cursor set source = wanted where source = was;
    delete from outbox_stream where source = wanted;
    update outbox_stream set source = wanted where source = was;
    delete from outbox_pressure;
    update outbox_settings set source = wanted, renamed = was, updated_at = now();
end
$$;
-- +goose StatementEnd

-- Each event and its state, in modes claim and log. For people: filter by seq.
create view outbox_event_status as
    select l.seq, l.event_id, l.occurred_at, l.aggregate_type, l.aggregate_id, l.event_type,
        coalesce(p.state, case when t.shard is not null then 'DISCARDED' when l.seq <= coalesce(c.seq, 0) then 'SENT' when l.seq <= c.reading then 'SENDING' else 'NEW' end) as status,
        coalesce(p.attempts, 0) as attempts, p.next_retry_at, p.last_error, l.not_before, l.created_at, l.shard, l.content_type, l.headers, l.payload
    from outbox_log l
    left join outbox_parked p on p.shard = l.shard and p.seq = l.seq
    left join outbox_late t on t.shard = l.shard and t.seq = l.seq and t.event_id = l.event_id and t.marker is null
    left join (select shard, min(seq) as seq, max(reading) as reading from outbox_cursor group by shard) c on c.shard = l.shard
    union all
    select seq, event_id, occurred_at, aggregate_type, aggregate_id, event_type, status, attempts, next_retry_at, last_error, not_before, created_at, shard, content_type, headers, payload
    from outbox_event;
