-- +goose Up
-- +goose StatementBegin
create function public.bend() returns trigger language plpgsql as $$ begin new.at := new.at + interval '1 second'; return new; end $$;
-- +goose StatementEnd
create trigger bend before insert on public.orders for each row execute function public.bend();
alter table public.orders enable always trigger bend;
