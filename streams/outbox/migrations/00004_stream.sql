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

-- How long outbox_inbox remembers what was handled. Never less than a stream keeps its messages.
alter table outbox_settings add column inbox_retention interval not null default '14 days' check (inbox_retention >= '1 minute');
