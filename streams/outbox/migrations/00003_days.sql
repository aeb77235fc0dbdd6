-- +goose Up

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
    select coalesce(min(coalesce(c.seq, 0)), 0) into lowest from outbox_settings s, generate_series(0, s.shards - 1) as n
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
            if unsent or exists (select 1 from outbox_parked p where p.day = d) then
                continue;
            end if;
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
end
$$;
-- +goose StatementEnd
select outbox_make_day((clock_timestamp() at time zone 'UTC')::date);
select outbox_maintain();

-- Each event and its state, in modes claim and log. For people: filter by seq.
create view outbox_event_status as
    select l.seq, l.event_id, l.occurred_at, l.aggregate_type, l.aggregate_id, l.event_type,
        coalesce(p.state, case when l.seq <= coalesce(c.seq, 0) then 'SENT' when l.seq <= c.reading then 'SENDING' else 'NEW' end) as status,
        coalesce(p.attempts, 0) as attempts, p.next_retry_at, p.last_error, l.not_before, l.created_at, l.shard, l.content_type, l.headers, l.payload
    from outbox_log l
    left join outbox_parked p on p.shard = l.shard and p.seq = l.seq
    left join (select shard, min(seq) as seq, max(reading) as reading from outbox_cursor group by shard) c on c.shard = l.shard
    union all
    select seq, event_id, occurred_at, aggregate_type, aggregate_id, event_type, status, attempts, next_retry_at, last_error, not_before, created_at, shard, content_type, headers, payload
    from outbox_event;
