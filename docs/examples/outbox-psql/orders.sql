-- An order and its event in one transaction, in plain SQL: what every language can send. The tables come from
-- `instar outbox init`; run it with
--   psql "$DATABASE_URL" -f docs/examples/outbox-psql/orders.sql
\set ON_ERROR_STOP on
create table if not exists orders (id text primary key, total int not null);

begin;
insert into orders values ('4711', 1200);
select outbox_append('order', '4711', 'order.placed', '{"total": 1200}', headers => '{"tenant": "acme"}') is not null as appended;
commit;

-- What is rolled back is never published.
begin;
select outbox_append('order', '4712', 'order.placed', '{"total": 1}') is not null as appended;
rollback;

-- All orders of a table at once, and a reminder that is published later.
begin;
select count(outbox_append('order', id, 'order.audited', jsonb_build_object('total', total))) as audited from orders;
select outbox_append('order', '4711', 'order.reminded', '{}', not_before => now() + interval '1 day') is not null as appended;
commit;

-- In a trigger: whoever changes a price, however.
create function order_repriced() returns trigger language plpgsql as $$
begin
    perform outbox_append('order', new.id, 'order.repriced', jsonb_build_object('from', old.total, 'to', new.total));
    return new;
end
$$;
create trigger order_repriced after update of total on orders for each row execute function order_repriced();
update orders set total = 1000 where id = '4711';

select event_type, convert_from(payload, 'UTF8') as payload, headers, not_before is not null as later, status from outbox_event_status order by seq;
