-- +goose Up
create table public.events (enterprise_id text not null, at date not null, id bigserial, body text, primary key (enterprise_id, at, id)) partition by range (at);
create table public.events_old partition of public.events for values from ('2000-01-01') to ('2020-01-01');
create table public.events_new partition of public.events default;
create table public.log (line text);
-- +goose StatementBegin
create function public.touch() returns trigger language plpgsql as $$ begin new.touched := new.touched + 1; return new; end $$;
-- +goose StatementEnd
create trigger touch before insert or update on public.orders for each row execute function public.touch();
-- +goose Down
drop table public.log;
