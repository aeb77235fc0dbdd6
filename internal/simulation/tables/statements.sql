-- identify () (text bool)
select (select system_identifier from pg_control_system()) || '/' || current_database() || '/' || (select oid from pg_database where datname = current_database()) || '/' || coalesce(current_schema(), ''), pg_is_in_recovery()

-- outboxThere () (bool)
select to_regclass('outbox_settings') is not null

-- version () (int4)
select coalesce((select (to_jsonb(s) ->> 'version')::int from outbox_settings s), 0)

-- readSettings () (text int2 int4 text text)
select mode, shards, case mode when 'claim' then greatest(shards, (select max(shard) + 1 from outbox_event where phase < 2)) else read_shards end, coalesce(source, ''), coalesce(renamed, '') from outbox_settings

-- nameSource (text) ()
update outbox_settings set source = $1 where source is null

-- sourceName () (text)
select source from outbox_settings

-- savedPosition (text int2) (int8 text)
select seq, system_identifier from outbox_cursor where source = $1 and shard = $2

-- notedMarker (text text int2 text text text) (int8)
select marker from outbox_stream where source = $1 and mode = $2 and shard = $3 and stream = $4 and subject = $5 and cluster = $6

-- generation (text text int2) (int8)
select generation from outbox_stream where source = $1 and mode = $2 and shard = $3

-- enter (text text int2 text text int8 text int8 int8) ()
insert into outbox_stream as n (source, mode, shard, stream, subject, marker, cluster, generation) values ($1, $2, $3, $4, $5, $6, $7, $8) on conflict (source, mode, shard) do update set generation = excluded.generation where n.generation = $9

-- firstRelay (text) (bool)
select not exists (select from outbox_cursor where source = $1) and not exists (select from outbox_stream where source = $1)

-- note (text text int2 text text int8 text int8 bool) ()
insert into outbox_stream as n (source, mode, shard, stream, subject, marker, cluster, generation) values ($1, $2, $3, $4, $5, $6, $7, $8) on conflict (source, mode, shard) do update set stream = excluded.stream, subject = excluded.subject, marker = excluded.marker, cluster = excluded.cluster, updated_at = now() where (n.stream, n.subject, n.cluster) <> (excluded.stream, excluded.subject, excluded.cluster) or n.marker < excluded.marker or $9

-- syncOn () (text)
select set_config('synchronous_commit', 'on', true)

-- raise (text text int2 int8) ()
update outbox_stream set generation = generation + 1 where source = $1 and mode = $2 and shard = $3 and generation = $4

-- saveCursor (text int2 int8 text text text int8) ()
insert into outbox_cursor as c (source, shard, seq, reading, system_identifier, owner) select $1, $2, $3, $3, $4, $5 where exists (select from outbox_stream where source = $1 and mode = $6 and shard = $2 and generation = $7) on conflict (source, shard) do update set seq = excluded.seq, reading = excluded.reading, system_identifier = excluded.system_identifier, owner = excluded.owner, updated_at = now() where (c.seq, c.owner, c.system_identifier) <> (excluded.seq, excluded.owner, excluded.system_identifier)

-- droppedUpTo (int2) (int8)
select seq from outbox_dropped where shard = $1

-- forgetLate (int2) ()
delete from outbox_late where shard = $1 and marker is not null

-- late (int2 int8) (int8 uuid int8)
select seq, event_id, marker from outbox_late where shard = $1 and marker >= $2

-- reclaim (int2 int8[] uuid[] bool[]) (int8 int8)
with w as materialized ( select $1::smallint as part, * from unnest($2::bigint[], $3::uuid[], $4::boolean[]) as w (seq, event_id, behind) ), late as ( delete from outbox_late t using w where t.shard = w.part and t.seq = w.seq and t.event_id = w.event_id returning t.*, w.behind ), found as ( select t.shard, t.seq, t.event_id, t.day, l.aggregate_type, l.aggregate_id, l.event_type from late t cross join lateral (select * from outbox_log l where l.seq = t.seq and l.day = t.day limit 1) as l where t.behind ), parked as ( insert into outbox_parked (shard, seq, event_id, day, aggregate_type, aggregate_id, event_type, state, next_retry_at) select *, 'NEW', now() from found on conflict do nothing ) select (select count(*) from found), (select count(*) from late where behind) - (select count(*) from found)

-- numbersThere (int8[]) (int8 uuid)
select l.seq, l.event_id from unnest($1::bigint[]) as k (seq) cross join lateral (select * from outbox_log l where l.seq = k.seq limit 1) as l

-- idsThere (uuid[]) (int8 uuid)
select seq, event_id from outbox_log where event_id = any ($1)

-- takeOut (int2 uuid[]) (int8 uuid text text)
select seq, event_id, aggregate_type, aggregate_id from outbox_parked where shard = $1 and event_id = any ($2)

-- published (int2[] int8[] int8[]) ()
with done as ( delete from outbox_parked p using unnest($1::smallint[], $2::bigint[], $3::bigint[]) as w (part, num, marker) where p.shard = w.part and p.seq = w.num returning p.*, w.marker ) insert into outbox_late (shard, seq, event_id, day, marker) select shard, seq, event_id, day, marker from done on conflict (shard, seq, event_id) do update set marker = excluded.marker, sent_at = excluded.sent_at

-- publishedBeside (int2[] int8[] uuid[] int8[]) ()
update outbox_late t set marker = w.marker, sent_at = now() from unnest($1::smallint[], $2::bigint[], $3::uuid[], $4::bigint[]) as w (part, num, id, marker) where t.shard = w.part and t.seq = w.num and t.event_id = w.id and t.marker is null

-- promote (text[] text[]) (int2 int8 uuid text text int4 bool float8)
with f as materialized (select f.* from unnest($1::text[], $2::text[]) as a (type, id) cross join lateral (select q.shard as part, q.seq as num from outbox_parked q where q.aggregate_id = a.id and q.aggregate_type = a.type and not coalesce(q.not_before > now(), false) order by q.seq limit 1) as f) update outbox_parked set next_retry_at = coalesce(next_retry_at, now()), updated_at = now() from f where shard = f.part and seq = f.num returning shard, seq, event_id, aggregate_type, aggregate_id, attempts, coalesce(not_before > now(), false), case when next_retry_at = 'infinity' then 1e9 else extract(epoch from next_retry_at - now())::float8 end

-- heads (int2) (int2 int8 uuid text text int4 bool float8)
with a as materialized (select distinct aggregate_type as type, aggregate_id as id from outbox_parked where shard = $1), f as materialized (select f.* from a cross join lateral (select q.shard as part, q.seq as num from outbox_parked q where q.aggregate_id = a.id and q.aggregate_type = a.type and not coalesce(q.not_before > now(), false) order by q.seq limit 1) as f), promoted as (update outbox_parked set next_retry_at = now(), updated_at = now() from f where shard = f.part and seq = f.num and next_retry_at is null returning shard, seq, event_id, aggregate_type, aggregate_id, attempts, coalesce(not_before > now(), false), case when next_retry_at = 'infinity' then 1e9 else extract(epoch from next_retry_at - now())::float8 end) select * from promoted union all select shard, seq, event_id, aggregate_type, aggregate_id, attempts, coalesce(not_before > now(), false), case when next_retry_at = 'infinity' then 1e9 else extract(epoch from next_retry_at - now())::float8 end from outbox_parked where shard = $1 and next_retry_at is not null union all select shard, seq, event_id, aggregate_type, aggregate_id, attempts, coalesce(not_before > now(), false), case when next_retry_at = 'infinity' then 1e9 else extract(epoch from next_retry_at - now())::float8 end from f cross join lateral (select * from outbox_parked p where p.shard = f.part and p.seq = f.num and f.part <> $1 limit 1) as p where next_retry_at is not null

-- aside (int2 int8) (int8 uuid)
select seq, event_id from outbox_parked where shard = $1 and seq > $2

-- discarded (int2) (int8 uuid)
select seq, event_id from outbox_late where shard = $1 and marker is null

-- lastNumber () (int8)
select coalesce(pg_sequence_last_value(pg_get_serial_sequence('outbox_log', 'seq')), 0)

-- fence () (int8 text[])
select mark, writers from outbox_fence()

-- readAll (int8 int8) (int8 int2 uuid timestamptz text text text bytea text jsonb bool)
select seq, shard, event_id, case when isfinite(occurred_at) then occurred_at else created_at end, aggregate_type, aggregate_id, event_type, payload, content_type, headers, coalesce(not_before > now(), false) from outbox_log where seq > $1 order by seq limit $2

-- readShards (int8 int8 int2[]) (int8 int2 uuid timestamptz text text text bytea text jsonb bool)
select seq, shard, event_id, case when isfinite(occurred_at) then occurred_at else created_at end, aggregate_type, aggregate_id, event_type, payload, content_type, headers, coalesce(not_before > now(), false) from outbox_log where seq > $1 and shard = any ($3) order by seq limit $2

-- flushLog (int8) (bool)
select case when (select coalesce(pg_sequence_last_value(pg_get_serial_sequence('outbox_log', 'seq')), 0)) > $1 and pg_current_wal_flush_lsn() < pg_current_wal_insert_lsn() then set_config('synchronous_commit', 'local', true) || pg_logical_emit_message(true, 'instar.flush', '')::text end is not null

-- park (text int4 float8 text text text int2 int8 int8 uuid) (numeric)
insert into outbox_parked (shard, seq, event_id, day, aggregate_type, aggregate_id, event_type, not_before, state, attempts, next_retry_at, last_error) select r.*, $1, $2, case when $1 = 'NEW' then coalesce(r.not_before, now()) else now() + $3 * interval '1 second' end, nullif($4, '') from (select from outbox_stream where source = $5 and mode = $6 and shard = $7 and generation = $8 for share) as entered, (select shard, seq, event_id, day, aggregate_type, aggregate_id, event_type, not_before from outbox_log where seq = $9 and event_id = $10) as r returning case when next_retry_at = 'infinity' then 1e9 else extract(epoch from next_retry_at - now()) end

-- entered (text text int2 int8) (bool)
select true from (select from outbox_stream where source = $1 and mode = $2 and shard = $3 and generation = $4 for share) as entered

-- wait (text text int2 int8 int8[] uuid[]) ()
insert into outbox_parked (shard, seq, event_id, day, aggregate_type, aggregate_id, event_type, not_before, state) select r.*, 'NEW' from (select from outbox_stream where source = $1 and mode = $2 and shard = $3 and generation = $4 for share) as entered, (select l.shard, l.seq, l.event_id, l.day, l.aggregate_type, l.aggregate_id, l.event_type, l.not_before from unnest($5::bigint[], $6::uuid[]) as w (seq, event_id) cross join lateral (select * from outbox_log l where l.seq = w.seq and l.event_id = w.event_id limit 1) as l) as r

-- due (int2[] int8) (int2 int8 uuid text text int4 bool float8)
select shard, seq, event_id, aggregate_type, aggregate_id, attempts, coalesce(not_before > now(), false), case when next_retry_at = 'infinity' then 1e9 else extract(epoch from next_retry_at - now())::float8 end from unnest($1::smallint[]) as s (n) cross join lateral ( select * from outbox_parked where shard = s.n and next_retry_at <= now() and not coalesce(not_before > now(), false) order by next_retry_at limit $2) as p order by next_retry_at

-- nextDue (int2[]) (float8)
select coalesce(min(extract(epoch from p.next_retry_at - now())), 1e9)::float8 from unnest($1::smallint[]) as s (n) cross join lateral ( select next_retry_at from outbox_parked where shard = s.n and next_retry_at > now() and next_retry_at < 'infinity' order by next_retry_at limit 1) as p

-- gone (int2[] int8[]) (int8)
select k.nth from unnest($1::smallint[], $2::bigint[]) with ordinality as k (shard, seq, nth) left join lateral (select true as there from outbox_parked p where p.shard = k.shard and p.seq = k.seq and p.next_retry_at is not null limit 1) as p on true where p.there is null

-- unpromote (int2[] int8[]) ()
update outbox_parked set next_retry_at = null, updated_at = now() where (shard, seq) in (select * from unnest($1::smallint[], $2::bigint[]))

-- countTries (int2[] int8[] float8[]) ()
update outbox_parked set attempts = attempts + 1, next_retry_at = now() + t.wait * interval '1 second', updated_at = now() from unnest($1::smallint[], $2::bigint[], $3::float8[]) as t (part, num, wait) where shard = t.part and seq = t.num

-- waiting (text[] text[] int8 int8) (int8 int2 uuid timestamptz text text text bytea text jsonb int4 int4 bool)
select seq, shard, event_id, at, aggregate_type, aggregate_id, event_type, payload, content_type, headers, attempts, redrives, gone from ( select p.seq, p.shard, p.event_id, case when isfinite(l.occurred_at) then l.occurred_at else p.parked_at end as at, p.aggregate_type, p.aggregate_id, p.event_type, coalesce(l.payload, '') as payload, coalesce(l.content_type, '') as content_type, coalesce(l.headers, '{}') as headers, p.attempts, p.redrives, l.seq is null as gone, a.nth, sum(coalesce(octet_length(l.payload), 0)) over (order by a.nth, p.seq rows between unbounded preceding and 1 preceding) as before from unnest($1::text[], $2::text[]) with ordinality as a (type, id, nth) cross join lateral (select * from outbox_parked p where p.aggregate_id = a.id and p.aggregate_type = a.type and not coalesce(p.not_before > now(), false) order by p.seq limit $3) as p left join lateral (select * from outbox_log l where l.seq = p.seq and l.day = p.day limit 1) as l on true) as w where coalesce(before, 0) <= $4 order by nth, seq

-- failedParked (int2 int8 text int4 text float8) ()
update outbox_parked set state = $3, attempts = $4, last_error = nullif($5, ''), updated_at = now(), next_retry_at = case $3 when 'DEAD' then 'infinity' else now() + $6 * interval '1 second' end where shard = $1 and seq = $2

-- async () (text)
select set_config('synchronous_commit', 'off', true)

-- markSent (uuid[] uuid) (uuid)
update outbox_event set status = 'SENT', sent_at = now(), locked_by = null, locked_until = null, lease_token = null, updated_at = now() where event_id = any ($1) and status = 'SENDING' and lease_token = $2 returning event_id

-- claim (int2[] int8 text float8 uuid int4) (bool uuid timestamptz text text text bytea text jsonb timestamptz int8 int4 int4 int4 timestamptz)
with due as materialized ( select d.* from unnest(case when cardinality($1::smallint[]) > 0 then $1 else array( select generate_series(0, greatest(s.shards, (select max(shard) + 1 from outbox_event where phase < 2)) - 1)::smallint from outbox_settings s) end) as shards (n) cross join lateral ( select event_id, aggregate_type, aggregate_id, seq, next_retry_at, status = 'SENDING' and attempts >= $6 as spent from outbox_event e where e.shard = shards.n and e.phase < 2 and e.next_retry_at <= now() and (e.status in ('NEW', 'FAILED') or e.status = 'SENDING' and e.locked_until < now()) order by e.next_retry_at, e.seq limit $2 for update skip locked ) as d ), chosen as ( select * from due order by next_retry_at, seq limit $2 ), linked as ( select c.event_id, c.aggregate_type, c.aggregate_id, c.seq, c.next_retry_at, c.spent, p.event_id is not distinct from lag(c.event_id) over w as follows, case when p.status in ('NEW', 'FAILED', 'DEAD') then p.next_retry_at end as until from chosen c left join lateral ( select e.event_id, e.status, e.next_retry_at from outbox_event e where e.aggregate_id = c.aggregate_id and e.aggregate_type = c.aggregate_type and e.seq < c.seq and e.phase < 2 and (e.not_before is null or e.not_before <= now()) order by e.seq desc limit 1 ) as p on true window w as (partition by c.aggregate_id, c.aggregate_type order by c.seq) ), judged as materialized ( select event_id, next_retry_at, spent, bool_and(follows and not spent) over w as free, max(case when not follows then until end) over w as until from linked window w as (partition by aggregate_id, aggregate_type order by seq) ), postponed as ( update outbox_event e set next_retry_at = greatest(j.next_retry_at, least(j.until, now() + interval '1 hour')), updated_at = now() from judged j where e.event_id = any (array(select event_id from judged where not free and until > next_retry_at)) and j.event_id = e.event_id returning e.event_id, e.seq ), ended as ( update outbox_event e set status = 'DEAD', next_retry_at = 'infinity', last_error = 'the lease of ' || e.locked_by || ' has ended', locked_by = null, locked_until = null, lease_token = null, updated_at = now() where e.event_id = any (array(select event_id from judged where spent)) returning e.event_id, e.seq ), claimed as ( update outbox_event e set status = 'SENDING', attempts = e.attempts + 1, locked_by = $3, locked_until = now() + $4 * interval '1 second', lease_token = $5, last_error = case when e.status = 'SENDING' then 'the lease of ' || e.locked_by || ' has ended' else e.last_error end, updated_at = now() where e.event_id = any (array(select event_id from judged where free)) returning e.event_id, case when isfinite(e.occurred_at) then e.occurred_at else e.created_at end, e.aggregate_type, e.aggregate_id, e.event_type, e.payload, e.content_type, e.headers, case when isfinite(e.not_before) then e.not_before end, e.seq, e.shard, e.attempts, e.redrives, e.locked_until ) select false, * from claimed union all select true, event_id, now(), '', '', '', ''::bytea, '', '{}', null, seq, 0, 0, 0, now() from (select * from postponed union all select * from ended) as others

-- settleSent (uuid[]) ()
update outbox_event set status = 'SENT', sent_at = now(), locked_by = null, locked_until = null, lease_token = null, updated_at = now() where event_id = any ($1) and status <> 'SENT'

-- settleLeases (int4) ()
update outbox_event set status = case when attempts >= $1 then 'DEAD' else 'NEW' end, next_retry_at = case when attempts >= $1 then 'infinity' else now() end, last_error = 'the lease of ' || locked_by || ' was ended', locked_by = null, locked_until = null, lease_token = null, updated_at = now() where event_id = any (array( select event_id from outbox_event where phase < 2 and status = 'SENDING' order by shard, next_retry_at, seq))

-- sentUpTo () (int8)
select coalesce((select (extract(epoch from sent_at) * 1000000)::bigint from outbox_event where phase = 2 order by sent_at desc limit 1), 0)

-- missing (int8 uuid[]) (text)
select event_id::text from outbox_event e where phase = 2 and sent_at > timestamptz 'epoch' + $1::bigint * interval '1 microsecond' and not exists (select from unnest($2::uuid[]) as s (id) where s.id = e.event_id) order by sent_at limit 1

-- release (uuid[] uuid) (uuid)
update outbox_event set status = case when last_error is null then 'NEW' else 'FAILED' end, attempts = attempts - 1, next_retry_at = now(), locked_by = null, locked_until = null, lease_token = null, updated_at = now() where event_id = any ($1) and status = 'SENDING' and lease_token = $2 returning event_id

-- markFailed (uuid[] text[] bool[] uuid int4 float8 float8) (uuid text int4 float8)
update outbox_event e set status = case when f.final or e.attempts >= $5 then 'DEAD' else 'FAILED' end, next_retry_at = case when f.final or e.attempts >= $5 then 'infinity' else now() + least($6 * power(2, least(e.attempts - 1, 40)), $7) * interval '1 second' end, last_error = left(f.error, 4000), locked_by = null, locked_until = null, lease_token = null, updated_at = now() from unnest($1::uuid[], $2::text[], $3::boolean[]) as f (id, error, final) where e.event_id = f.id and e.status = 'SENDING' and e.lease_token = $4 returning e.event_id, e.status, e.attempts, case when e.status = 'DEAD' then 0 else extract(epoch from e.next_retry_at - now()) end::float8

-- purge (int8) (uuid)
delete from outbox_event where event_id = any (array( select event_id from outbox_event where phase = 2 and sent_at < now() - (select retention from outbox_settings) order by sent_at limit $1 for update skip locked)) returning event_id

-- purgeInbox (float8 int8) ()
delete from outbox_inbox where ctid = any (array( select ctid from outbox_inbox where handled_at < now() - ( select case when $1::float8 > 0 then greatest(make_interval(secs => $1), coalesce(inbox_retention, greatest(2 * make_interval(secs => $1), interval '14 days'))) else inbox_retention end from outbox_settings) order by handled_at limit $2 for update skip locked))

-- maintain () (int4 int4 int4)
select made, dropped, postponed from outbox_maintain()

-- pressure (text int8) ()
insert into outbox_pressure (source, lag) values ($1, $2) on conflict (source) do update set lag = excluded.lag, at = now()

-- pressureOld (text) ()
delete from outbox_pressure where (source = $1 or starts_with(source, $1 || '/')) and at < now() - interval '1 minute'

-- statusHead () (text int2 timestamptz)
select mode, case mode when 'log' then read_shards else shards end, now() from outbox_settings

-- statusEvents (int8) (int8 int8 int8 int8 int8 timestamptz)
with ahead as ( select d.* from outbox_settings s, generate_series(0, greatest(s.shards, (select max(shard) + 1 from outbox_event where phase < 2)) - 1) as n cross join lateral ( select created_at, status, coalesce(not_before > now(), false) as later from outbox_event where shard = n and phase < 2 order by next_retry_at, seq limit $1) as d ), bad as ( select created_at, status from outbox_event where phase = 1 order by seq limit $1 ), n as ( select (select count(*) from ahead) as ahead, (select count(*) from ahead where status = 'NEW') as fresh, (select count(*) from ahead where status = 'SENDING') as sending, (select count(*) from bad where status = 'FAILED') as failed, (select count(*) from bad where status = 'DEAD') as dead, (select greatest(reltuples, 0)::bigint from pg_class where oid = 'idx_outbox_event_status_retry'::regclass) as guess, (select greatest(reltuples, 0)::bigint from pg_class where oid = 'idx_outbox_event_sent'::regclass) as sent ) select case when n.ahead >= $1 then greatest(n.fresh, n.guess - n.sending - n.failed - n.dead) else n.fresh end, n.sending, n.failed, n.dead, case when pg_relation_size('outbox_event') < 8388608 then (select count(*) from outbox_event where status = 'SENT') else n.sent end, least((select min(created_at) from ahead where status = 'SENDING' or status in ('NEW', 'FAILED') and not later), (select min(created_at) from bad)) from n

-- parkedEvents () (text text text text int4 timestamptz text int8)
select p.aggregate_type, p.aggregate_id, p.event_id::text, p.status, p.attempts, nullif(p.next_retry_at, 'infinity'), coalesce(p.last_error, ''), w.n from (select * from outbox_event where phase = 1 order by seq limit 100) as p cross join lateral ( select count(*) as n from ( select 1 from outbox_event q where q.aggregate_id = p.aggregate_id and q.aggregate_type = p.aggregate_type and q.phase < 2 and q.seq > p.seq order by q.seq limit 10000) as q ) as w order by p.seq

-- cursors () (int2 text int8)
select distinct on (shard) shard, owner, seq from outbox_cursor order by shard, seq

-- audit (text text jsonb int8 uuid[]) ()
insert into outbox_audit (actor, action, filter, affected, events) values ($1, $2, $3, $4, $5)

-- redriveEvents (uuid[] text text text int8) (uuid)
with bad as materialized ( select event_id, aggregate_id, aggregate_type from outbox_event where phase = 1 and (cardinality($1::uuid[]) = 0 or event_id = any ($1)) and ($2 = '' or aggregate_type = $2) and ($3 = '' or aggregate_id = $3) and ($4 = '' or event_type = $4) order by seq limit $5 for update), freed as ( update outbox_event set next_retry_at = now(), updated_at = now() where event_id = any (array( select w.event_id from (select distinct aggregate_id, aggregate_type from bad) as a cross join lateral ( select e.event_id from outbox_event e where e.aggregate_id = a.aggregate_id and e.aggregate_type = a.aggregate_type and e.phase < 2 and e.status in ('NEW', 'FAILED') and e.next_retry_at > now() and (e.not_before is null or e.not_before <= now()) order by e.seq limit 100000) as w where w.event_id not in (select event_id from bad)))) update outbox_event set status = 'NEW', attempts = 0, redrives = redrives + 1, next_retry_at = now(), updated_at = now() where event_id = any (array(select event_id from bad)) returning event_id

-- discardEvents (uuid[] text text text int8) (uuid)
with bad as materialized ( select event_id, aggregate_id, aggregate_type from outbox_event where phase = 1 and (cardinality($1::uuid[]) = 0 or event_id = any ($1)) and ($2 = '' or aggregate_type = $2) and ($3 = '' or aggregate_id = $3) and ($4 = '' or event_type = $4) order by seq limit $5 for update), freed as ( update outbox_event set next_retry_at = now(), updated_at = now() where event_id = any (array( select w.event_id from (select distinct aggregate_id, aggregate_type from bad) as a cross join lateral ( select e.event_id from outbox_event e where e.aggregate_id = a.aggregate_id and e.aggregate_type = a.aggregate_type and e.phase < 2 and e.status in ('NEW', 'FAILED') and e.next_retry_at > now() and (e.not_before is null or e.not_before <= now()) order by e.seq limit 100000) as w where w.event_id not in (select event_id from bad)))) delete from outbox_event where event_id = any (array(select event_id from bad)) returning event_id

-- redriveParked (uuid[] text text text int8) (uuid)
with bad as materialized ( select shard, seq from outbox_parked where state in ('FAILED', 'DEAD') and (cardinality($1::uuid[]) = 0 or event_id = any ($1)) and ($2 = '' or aggregate_type = $2) and ($3 = '' or aggregate_id = $3) and ($4 = '' or event_type = $4) order by seq limit $5 for update) update outbox_parked p set state = 'NEW', attempts = 0, redrives = redrives + 1, next_retry_at = now(), updated_at = now() from bad where p.shard = bad.shard and p.seq = bad.seq returning p.event_id

-- discardParked (uuid[] text text text int8) (uuid)
with bad as materialized ( select shard, seq from outbox_parked where state in ('FAILED', 'DEAD') and (cardinality($1::uuid[]) = 0 or event_id = any ($1)) and ($2 = '' or aggregate_type = $2) and ($3 = '' or aggregate_id = $3) and ($4 = '' or event_type = $4) order by seq limit $5 for update), gone as ( delete from outbox_parked p using bad where p.shard = bad.shard and p.seq = bad.seq returning p.* ) insert into outbox_late (shard, seq, event_id, day) select shard, seq, event_id, day from gone on conflict (shard, seq, event_id) do update set marker = null, sent_at = now() returning event_id

-- append (text text text bytea text jsonb uuid timestamptz timestamptz int8) (uuid)
select "public".outbox_append_bytes($1::text, $2::text, $3::text, $4::bytea, $5::text, $6::jsonb, $7::uuid, $8::timestamptz, $9::timestamptz, $10::bigint)

-- appendMany (uuid[] timestamptz[] text[] text[] text[] bytea[] text[] jsonb[] timestamptz[] int8) (void)
select "public".outbox_append_batch($1::uuid[], $2::timestamptz[], $3::text[], $4::text[], $5::text[], $6::bytea[], $7::text[], $8::jsonb[], $9::timestamptz[], $10::bigint)

-- flush () (text pg_lsn)
select set_config('synchronous_commit', case current_setting('synchronous_commit') when 'off' then 'local' else current_setting('synchronous_commit') end, true), pg_logical_emit_message(true, 'instar.flush', '')

