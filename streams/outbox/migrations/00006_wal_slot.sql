-- +goose Up

-- Mode wal: the slot that a relay has made. A slot sees only what is committed after it was made, so without one nothing may
-- be emitted.
alter table outbox_settings add column wal_slot text;
update outbox_settings set wal_slot = (select slot_name from pg_replication_slots where database = current_database() and plugin = 'pgoutput' order by slot_name like 'instar_outbox_%' desc limit 1)
    where mode = 'wal';

-- +goose StatementBegin
do $do$
begin
    execute replace($fn$
create or replace function @.outbox_append_batch(
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
        if how.wal_slot is null then
            raise exception 'no relay reads the events of mode wal yet: what is emitted now would be seen by none'
                using errcode = 'OB002', hint = 'Start the relay: it makes its replication slot. Then try again.';
        end if;
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
$fn$, '@.', quote_ident(current_schema()) || '.');
end
$do$;
-- +goose StatementEnd
