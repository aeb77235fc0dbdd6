-- +goose Up
create type public.colour as enum ('red', 'green', 'blue');
create table public.countries (code text primary key, name text not null);
insert into public.countries values ('xx', 'Nowhere');
create table public.orders (
	id bigint generated always as identity primary key,
	enterprise_id text not null,
	country text references public.countries,
	total numeric(12,2) not null,
	note text,
	doc jsonb,
	plain json,
	at timestamptz not null default now(),
	twice numeric generated always as (total * 2) stored,
	colours public.colour[],
	touched int not null default 0
);
create unique index orders_tenant on public.orders (enterprise_id, id);
create table public.lines (order_id bigint not null references public.orders on delete cascade, n int not null, article text not null, primary key (order_id, n));
create table public.remarks (id uuid primary key, order_id bigint not null, n int not null, text text not null, foreign key (order_id, n) references public.lines (order_id, n) on delete cascade);
create table public.settings (enterprise_id text not null, key text not null, value text, primary key (enterprise_id, key));
create table public.names (name text primary key, enterprise_id text not null, nick varchar(20) unique);
-- +goose Down
drop table public.orders;
