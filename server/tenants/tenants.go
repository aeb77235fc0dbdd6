package tenants

import (
	"context"
	"fmt"
	"os"

	"github.com/bcc94042/instar/api"
	apiaudit "github.com/bcc94042/instar/api/audit"
	"github.com/bcc94042/instar/api/rest"
	"github.com/bcc94042/instar/consumers/audit"
	machine "github.com/bcc94042/instar/machines/database"
	"github.com/bcc94042/instar/providers/database"
	"github.com/bcc94042/instar/providers/database/admin"
	"github.com/bcc94042/instar/providers/database/catalog"
	"github.com/bcc94042/instar/providers/database/pg"
	"github.com/bcc94042/instar/providers/database/schema"
	"github.com/bcc94042/instar/server"
	"github.com/bcc94042/instar/server/config"
	"github.com/bcc94042/instar/server/keyset"
	records "github.com/bcc94042/instar/streams/audit"
)

// The roles: one drops what was taken back, one records what happens, and one copies the records to where they stay.
const (
	Role       = "tenants"
	RoleAudit  = "audit"
	RoleExport = "audit-export"
)

// Provider serves machines/database where tenants are configured.
func Provider() server.Provider {
	return server.Provider{
		When:    func(c config.Config) bool { return c.Tenants.On() },
		Decoder: func() func(string, []byte) (any, error) { return brief },
		Open:    open,
	}
}

// brief is what the door needs of a stored session: the tenant that has it, or "" when it has ended.
func brief(_ string, value []byte) (any, error) {
	e, err := machine.Machine.Decode(value)
	if err != nil {
		return nil, err
	}
	if d, ok := e.Data.(*machine.Data); ok {
		return d.Request.EnterpriseID, nil
	}
	return "", nil
}

func open(ctx context.Context, h *server.Host) (server.Work, error) {
	t := h.Config.Tenants
	keys, err := keyset.Open("tenants.keys", t.Keys, h.Config.Mode == config.Dev)
	if err != nil {
		return server.Work{}, err
	}
	source, err := config.ReadDSN(t.Source.DSN, t.Source.DSNFile)
	if err != nil {
		return server.Work{}, fmt.Errorf("cannot read the address of the shared database: %w", err)
	}
	rules := map[string]catalog.Rule{}
	for name, r := range t.Tables {
		rules[name] = catalog.Rule{Kind: catalog.Kind(r.Kind), Column: r.Column, Via: r.Via}
	}
	chains := new(audit.Chains)
	p := &performer{records: func(ctx context.Context, r records.Record) error { return audit.Note(ctx, h.Deps, chains, r) }}
	if p.catalogue, err = newCatalogue(ctx, h); err != nil {
		return server.Work{}, err
	}
	if p.mirror, err = newMirror(ctx, h); err != nil {
		return server.Work{}, err
	}
	if err := p.mirror.opens(ctx, keys); err != nil {
		return server.Work{}, err
	}
	for _, s := range t.Servers {
		dsn, err := config.ReadDSN(s.DSN, s.DSNFile)
		if err != nil {
			return server.Work{}, fmt.Errorf("cannot read the address of server %s: %w", s.Name, err)
		}
		p.servers = append(p.servers, &target{TenantServer: s, provider: &database.Provider{
			Source: pg.Address{DSN: source}, From: t.Source.From, Server: &admin.Server{Name: s.Name, Region: s.Region, DSN: dsn, Host: s.Host, Dropped: p.dropped},
			Catalogue: catalog.Catalogue{Schemas: t.Schemas, Column: t.Column, Tables: rules}, Migrations: schema.Set{Files: os.DirFS(t.Migrations)}, Keys: keys,
			RangeRows: t.RangeRows, Parallel: t.Parallel, Rate: t.BytesPerSecond(), Grace: t.Grace, Told: p.mirror.tell, Last: p.mirror.last,
		}})
	}
	for _, s := range p.servers {
		for _, a := range []pg.Address{s.provider.Source, {DSN: s.provider.Server.DSN}} {
			if _, err := pg.Parse(a); err != nil {
				return server.Work{}, fmt.Errorf("tenants, server %s: %w", s.Name, err)
			}
		}
		if _, err := s.provider.Migrations.Hash(); err != nil {
			return server.Work{}, fmt.Errorf("tenants.migrations: %w", err)
		}
	}
	d, err := newDoor(ctx, h, func(ctx context.Context, r *machine.RequestBody) error {
		_, _, err := p.catalogue.place(ctx, r)
		return err
	})
	if err != nil {
		return server.Work{}, err
	}
	d.share(Sessions{Machine: machine.Machine, Index: h.Indexes.Get(machine.Machine.Name), Asks: asks})
	if err := audits(ctx, h); err != nil {
		return server.Work{}, err
	}
	if err := export(ctx, h); err != nil {
		return server.Work{}, err
	}
	left := &leftovers{performer: p, door: d}
	if err := left.gauges(h); err != nil {
		return server.Work{}, err
	}
	all := &Databases{performer: p, keys: keys, door: d, chains: chains}
	all.Audit(ctx, h, RoleAudit, machine.Machine)
	h.API(func(o *api.Options) {
		d.next, d.back, o.Admit, o.Withdraw = o.Admit, o.Withdraw, d.admit, d.withdraw
		o.More = append(o.More, func(parts api.Parts) func(*rest.Router) []*rest.Route {
			return apiaudit.New(parts.JS, h.Deps.Names).Routes
		}, func(api.Parts) func(*rest.Router) []*rest.Route { return all.catalogue.routes }, func(api.Parts) func(*rest.Router) []*rest.Route { return left.routes })
	})
	h.Go(ctx, "the notes of who knows where tenants are", p.mirror.notes)
	h.Role(ctx, Role, func(ctx context.Context) error {
		defer left.tell(nil)
		for left.hour(ctx, h) {
		}
		return nil
	})
	h.Share(all)
	return server.Work{Performer: p, Looker: p}, nil
}
