-- +goose Up

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
    select * into strict how from @.outbox_settings;
    limit_lag := coalesce(nullif(limit_lag, 0), how.max_lag);
    if limit_lag > 0 then
        select max(p.lag) into behind from @.outbox_pressure p;
        if behind > limit_lag then
            raise exception 'the outbox is % events behind, more than %', behind, limit_lag
                using errcode = 'OB001', hint = 'Try again later, or raise max_lag in @.outbox_settings.';
        end if;
    end if;
    if how.mode = 'log' then
        insert into @.outbox_log (shard, event_id, occurred_at, aggregate_type, aggregate_id, event_type, content_type, not_before, headers, payload)
        select @.outbox_shard(m.type, m.id, how.shards), coalesce(m.event_id, @.outbox_uuid_v7()), coalesce(m.at, clock_timestamp()), m.type, m.id, m.event,
            coalesce(m.content, 'application/json'), m.not_before, coalesce(m.headers, '{}'), m.payload
        from unnest(event_ids, occurred_at, aggregate_types, aggregate_ids, event_types, payloads, content_types, headers, not_befores)
            as m (event_id, at, type, id, event, payload, content, headers, not_before);
    elsif how.mode = 'claim' then
        insert into @.outbox_event (shard, event_id, occurred_at, aggregate_type, aggregate_id, event_type, content_type, not_before, next_retry_at, headers, payload)
        select @.outbox_shard(m.type, m.id, how.shards), coalesce(m.event_id, @.outbox_uuid_v7()), coalesce(m.at, clock_timestamp()), m.type, m.id, m.event,
            coalesce(m.content, 'application/json'), m.not_before, coalesce(m.not_before, now()), coalesce(m.headers, '{}'), m.payload
        from unnest(event_ids, occurred_at, aggregate_types, aggregate_ids, event_types, payloads, content_types, headers, not_befores)
            as m (event_id, at, type, id, event, payload, content, headers, not_before);
    else
        perform @.outbox_check(m.type, m.id, m.event, m.payload, coalesce(m.headers, '{}'))
        from unnest(aggregate_types, aggregate_ids, event_types, payloads, headers) as m (type, id, event, payload, headers);
        -- One line of JSON, a line feed, and the payload as it is.
        perform pg_logical_emit_message(true, how.wal_prefix, convert_to(jsonb_build_object(
            'event_id', coalesce(m.event_id, @.outbox_uuid_v7()), 'occurred_at', coalesce(m.at, clock_timestamp()),
            'aggregate_type', m.type, 'aggregate_id', m.id, 'event_type', m.event, 'content_type', coalesce(m.content, 'application/json'),
            'headers', coalesce(m.headers, '{}'), 'not_before', m.not_before, 'shard', @.outbox_shard(m.type, m.id, how.shards),
            'created_at', clock_timestamp())::text || E'\n', 'UTF8') || m.payload)
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
    select s.mode, s.shards, s.max_lag into strict how, part, most from @.outbox_settings s;
    event_id := coalesce(event_id, @.outbox_uuid_v7());
    part := @.outbox_shard(aggregate_type, aggregate_id, part);
    if how = 'wal' or most > 0 or limit_lag > 0 then
        perform @.outbox_append_batch(array[event_id], array[occurred_at], array[aggregate_type], array[aggregate_id], array[event_type],
            array[payload], array[content_type], array[headers], array[not_before], limit_lag);
    elsif how = 'log' then
        insert into @.outbox_log (shard, event_id, occurred_at, aggregate_type, aggregate_id, event_type, content_type, not_before, headers, payload)
        values (part, event_id, coalesce(occurred_at, clock_timestamp()), aggregate_type, aggregate_id,
            event_type, coalesce(content_type, 'application/json'), not_before, coalesce(headers, '{}'), payload);
    else
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
