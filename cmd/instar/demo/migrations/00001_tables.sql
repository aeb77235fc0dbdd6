-- +goose Up
create table public.orders (id uuid primary key, enterprise_id text not null, at timestamptz not null default now(), filled boolean not null default false);
create unique index orders_tenant on public.orders (enterprise_id, id);
alter table public.orders replica identity using index orders_tenant;
create table public.lines (order_id uuid not null references public.orders on delete cascade, n int not null, primary key (order_id, n));
