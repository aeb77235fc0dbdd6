-- An application that fills a table for Debezium's outbox event router, and stays as it is: a trigger brings each row into the outbox, in the same transaction. What
-- outbox_append_bytes refuses rolls the insert back, so what names cannot have is mapped, and the id as it was is kept in a header.
create table if not exists debezium_outbox (id uuid primary key, aggregatetype text not null, aggregateid text, type text not null, payload text);

create function debezium_to_outbox() returns trigger language plpgsql as $$
begin
    if new.aggregateid is not null and new.payload is not null then -- a row without them is a tombstone
        perform outbox_append_bytes(
            left(regexp_replace(new.aggregatetype, '[^A-Za-z0-9_-]', '_', 'g'), 128),
            left(regexp_replace(new.aggregateid, '[^A-Za-z0-9_-]', '_', 'g'), 128),
            regexp_replace(new.type, '[^A-Za-z0-9_.-]', '_', 'g'),
            convert_to(new.payload, 'UTF8'), 'application/json', -- the text as it was written; from a column of type jsonb it is what Postgres makes of it
            jsonb_build_object('aggregateid', new.aggregateid), new.id);
    end if;
    return null;
end
$$;

create trigger debezium_to_outbox after insert on debezium_outbox for each row execute function debezium_to_outbox();
