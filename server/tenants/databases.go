package tenants

import (
	"context"
	"net/url"

	"github.com/bcc94042/instar/consumers/audit"
	"github.com/bcc94042/instar/machines"
	machine "github.com/bcc94042/instar/machines/database"
	"github.com/bcc94042/instar/providers/database/pg"
	"github.com/bcc94042/instar/providers/database/secret"
	"github.com/bcc94042/instar/server"
)

// Databases performs the effects of machines/database for other machines that give tenants a database; [server.Shared] has it where tenants are configured.
type Databases struct {
	*performer
	keys *secret.Keys
	door *door

	chains *audit.Chains
}

// Audit records what happens to the entities of a machine in the audit of tenants, on one node at a time: the one that has the role.
func (d *Databases) Audit(ctx context.Context, h *server.Host, role string, m *machines.Machine) {
	h.Role(ctx, role, (&audit.Recorder{Deps: h.Deps, Machine: m, Chains: d.chains}).Run)
}

// Share has the door know the sessions of another machine, before the API listens: a tenant has one session at a time over all of them.
func (d *Databases) Share(s Sessions) { d.door.share(s) }

// Place is the server that a new database of a request would be on.
func (d *Databases) Place(ctx context.Context, r *machine.RequestBody) (string, *machines.Failure) {
	name, _, err := d.catalogue.place(ctx, r)
	if err != nil {
		return "", noServer(err)
	}
	return name, nil
}

// URL is how the application of a tenant enters its database. It has the password. What the address of the server says of TLS holds for it as well.
func (d *Databases) URL(enterprise string, has *machine.Allocated) (string, error) {
	s := d.having(has)
	if s == nil {
		return "", without(has)
	}
	c, err := d.keys.Unseal(has.Credentials, enterprise, has.Name)
	if err != nil {
		return "", err
	}
	u := url.URL{Scheme: "postgres", User: url.UserPassword(c.User, c.Password), Host: has.Host, Path: "/" + has.Name}
	if at, err := url.Parse(s.provider.Server.DSN); err == nil && at.Query().Get("sslmode") != "" {
		u.RawQuery = url.Values{"sslmode": {at.Query().Get("sslmode")}}.Encode()
	}
	return u.String(), nil
}

// Keys seal what is a tenant's secret.
func (d *Databases) Keys() *secret.Keys { return d.keys }

// Address is the database of a tenant, for who may read everything in it. The name is who it is for.
func (d *Databases) Address(has *machine.Allocated, name string) (pg.Address, error) {
	s := d.having(has)
	if s == nil {
		return pg.Address{}, without(has)
	}
	return s.provider.Server.Address(has.Name, name), nil
}
