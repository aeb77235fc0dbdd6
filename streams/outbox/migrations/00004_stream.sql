-- +goose Up

-- The last marker of each shard that a relay has noted, so that a stream that was set back is told from one that is whole: a
-- stream whose last marker is older than this has lost what was stored since. In mode wal also which slot is read.
create table outbox_stream (
    source text not null,
    mode text not null,               -- of the relay
    shard smallint not null,
    stream text not null,
    subject text not null,            -- of the marker
    marker bigint not null,           -- its sequence in the stream
    cluster text not null,            -- whose rows it is about: system_identifier, database and schema
    slot text not null default '',
    updated_at timestamptz not null default now(),
    primary key (source, mode, shard)
);

-- How long outbox_inbox remembers what was handled. Null is twice as long as the stream keeps its messages, and 14 days at
-- least: what is forgotten and delivered again is handled again.
alter table outbox_settings add column inbox_retention interval check (inbox_retention >= '1 minute');
