package database

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/bcc94042/instar/providers/database/admin"
	"github.com/bcc94042/instar/providers/database/cutover"
	"github.com/bcc94042/instar/providers/database/online"
	"github.com/bcc94042/instar/providers/database/pg"
)

// Leftover is something of moves that no session is about, or that a session is about and that is not there.
type Leftover struct {
	Kind    string // database, role, quarantine, session, fence, slot, publication, or missing: a database
	Name    string
	On      string // server NAME, shared database, or a table there
	Tenant  string // where it is known
	Session string // that it was made for, as the databases name it, where it is known
	Reason  string // what it means, and what to do
}

// Known reports of a session, as the databases name it, whether it has its tenant still. It is asked after all has been read: what is made meanwhile has its session before.
type Known func(session string) bool

// SessionName is the name of a session in the databases, by its machine and key.
func SessionName(machine, key string) string { return sessionOf(machine, key) }

// Leftovers compares what is on the server, and in the shared database of this server's tenants, with the sessions that go on. It changes nothing.
func (p *Provider) Leftovers(ctx context.Context, known Known) (list []Leftover, err error) {
	kept := &pg.Kept{Idle: &p.idle}
	defer kept.Close()
	routes, err := p.routing(ctx, kept)
	if err != nil {
		return nil, err
	}
	server := *p.Server
	server.Kept = kept
	there, err := server.Inventory(ctx)
	if err != nil {
		return nil, err
	}
	on := "server " + p.Server.Name
	registered := map[string]bool{}
	for _, d := range there.Register {
		if d.State != admin.Created && d.State != admin.Intended {
			continue
		}
		registered[d.Name] = true
		tenant, led := routes[p.Server.Name+"/"+d.Name]
		l := Leftover{Kind: "database", Name: d.StoredAs, On: on, Tenant: tenant, Session: d.Session}
		// What is put away is registered under the name that it will have before it has that.
		exists := slices.Contains(there.Databases, d.StoredAs) || slices.Contains(there.Databases, d.Name)
		if l.Kind, l.Reason = entry(d.State, known(d.Session), led, exists); l.Reason != "" {
			list = append(list, l)
		}
	}
	return append(list, unregistered(on, &there, registered)...), nil
}

// entry is what is wrong with an entry of the register, or nothing.
func entry(state string, known, led, exists bool) (kind, reason string) {
	switch {
	case !exists && state == admin.Created && (led || known):
		return "missing", "the database of a tenant is not there: restore it"
	case known, !exists:
		return "", ""
	case led:
		return "database", "its tenant is in it, and no session has it: request its move again under the same name, and resolve that as ready"
	}
	return "database", "its session has ended, or is not known: look at what is in it, and drop it and its role"
}

// unregistered is what was made for sessions and that the register does not have.
func unregistered(on string, there *admin.Inventory, registered map[string]bool) (list []Leftover) {
	for _, name := range there.Overdue {
		list = append(list, Leftover{Kind: "quarantine", Name: name, On: on, Reason: "its grace period is over, and it is not dropped: the log says why"})
	}
	for _, name := range there.Databases {
		if !registered[name] && !slices.Contains(there.Aside, name) {
			list = append(list, Leftover{Kind: "database", Name: name, On: on, Reason: "it was made for a tenant, and is not in the register: look at what is in it, and drop it"})
		}
	}
	for _, name := range there.Roles {
		if !registered[name] && !slices.Contains(there.Closed, name) {
			list = append(list, Leftover{Kind: "role", Name: name, On: on, Reason: "it was made for a tenant's database that has gone: drop it"})
		}
	}
	return list
}

// routing are the tenants that the shared database leads to databases, by the ids of those.
func (p *Provider) routing(ctx context.Context, kept *pg.Kept) (map[string]string, error) {
	conn, err := pg.Connect(ctx, p.shared(kept))
	if err != nil {
		return nil, fmt.Errorf("source: %w", err)
	}
	defer pg.Close(conn)
	routes := map[string]string{}
	rows, err := conn.Query(ctx, `select coalesce(nullif(database_id, ''), $1 || '/' || database_name), enterprise_id::text from public.tenant_runtime where coalesce(database_name, '') <> ''`, p.Server.Name)
	if err == nil {
		var id, tenant string
		_, err = pgx.ForEachRow(rows, []any{&id, &tenant}, func() error {
			routes[id] = tenant
			return nil
		})
	}
	if pg.NotSetUp(err) {
		err = nil
	}
	return routes, err
}

func (p *Provider) shared(kept *pg.Kept) pg.Address {
	return pg.Address{DSN: p.Source.DSN, Database: p.Source.Database, Name: "instar sweep", Kept: kept}
}

// SharedLeftovers compares what the shared database has of moves with the sessions that go on, whatever server they are for. It changes nothing.
func (p *Provider) SharedLeftovers(ctx context.Context, known Known) (list []Leftover, err error) {
	const on = "shared database"
	tenants, err := (&cutover.Source{Address: p.shared(nil)}).Tenants(ctx)
	if pg.NotSetUp(err) { // nothing was ever moved
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	slots, publications, err := online.Made(ctx, p.shared(nil))
	if err != nil {
		return nil, err
	}
	links := map[string]bool{}
	for i := range tenants {
		t := &tenants[i]
		if len(t.Passed) > 0 {
			list = append(list, Leftover{Kind: "fence", Name: t.Triggers, On: strings.Join(t.Passed, ", "), Tenant: t.Enterprise, Session: t.Session, Reason: "it lets everybody through, and could not be dropped while others read: the next sweep drops it, within an hour, unless they read all the time"})
		}
		if !t.Ended && known(t.Session) {
			for _, name := range (&online.Link{Session: t.Session}).Names() {
				links[name] = true
			}
			if t.Switched && len(t.Fenced) > 0 && !t.Away {
				list = append(list, Leftover{Kind: "fence", Name: t.Triggers, On: strings.Join(t.Fenced, ", "), Tenant: t.Enterprise, Session: t.Session, Reason: "its session has switched the tenant to a database of its own, and the routing leads it there no more, while its writers are refused here (25006): write its row in tenant_runtime again, or take the session back with discardWrites"})
			}
			continue
		}
		if !t.Ended {
			list = append(list, Leftover{Kind: "session", Name: t.Session, On: on, Tenant: t.Enterprise, Session: t.Session, Reason: "it has the tenant, and is not known, as after a restore: request it again under the same name; no other session gets the tenant before that has ended"})
		}
		if len(t.Fenced) > 0 && !t.Away {
			list = append(list, Leftover{Kind: "fence", Name: t.Triggers, On: strings.Join(t.Fenced, ", "), Tenant: t.Enterprise, Session: t.Session, Reason: "the tenant is in the shared database, and its writers are refused there (25006): move it again in the mode offline and revert that (or cancel it while it copies), or drop these triggers"})
		}
	}
	stray := func(kind string, names []string) {
		for _, name := range names {
			if !links[name] {
				list = append(list, Leftover{Kind: kind, Name: name, On: on, Reason: "no session that goes on has it: the next sweep removes it, within an hour, unless the log says why it cannot"})
			}
		}
	}
	stray("slot", slots)
	stray("publication", publications)
	return list, nil
}
