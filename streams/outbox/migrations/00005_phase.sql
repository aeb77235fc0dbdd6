-- +goose Up

-- Mode claim: what a claim changes of a row is in no index any more, and its page has room for the new version, so that it
-- writes the row and nothing else. The indexes go by the phase, which a claim does not change: 0 NEW and SENDING, 1 FAILED
-- and DEAD, 2 SENT. Leases that have ended are found where rows are claimed.
drop index idx_outbox_event_status_retry, idx_outbox_event_lock, idx_outbox_event_order, idx_outbox_event_dead, idx_outbox_event_sent;
alter table outbox_event set (fillfactor = 45);
-- The check of an event is for what comes in: an update reads the constraints of its table anew, too.
alter table outbox_event drop constraint outbox_event_check,
    add constraint outbox_event_check check (status in ('SENDING', 'SENT') or outbox_check(aggregate_type, aggregate_id, event_type, payload, headers)) not valid,
    add column phase smallint not null generated always as (case status when 'SENT' then 2 when 'FAILED' then 1 when 'DEAD' then 1 else 0 end) stored;
create index idx_outbox_event_status_retry on outbox_event (shard, next_retry_at, seq) where phase < 2;
create index idx_outbox_event_order on outbox_event (aggregate_id, aggregate_type, seq) where phase < 2;
create index idx_outbox_event_dead on outbox_event (seq) where phase = 1;
create index idx_outbox_event_sent on outbox_event (sent_at) where phase = 2;
