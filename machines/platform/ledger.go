package platform

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/bcc94042/instar/machines/database"
	"github.com/bcc94042/instar/machines/session"
)

// Kinds of resources, besides those of machines/database.
const (
	KindSlug     = "slug"
	KindInstance = "instance"
	KindStorage  = "storage"
	KindApp      = "app"
	KindRoute    = "route"
	KindDomain   = "domain"
	KindCert     = "certificate"
)

// Name is that of what a tenant has one of.
func (d *Data) Name() string { return "tenant-" + d.Slug }

// appName is that of a release.
func (d *Data) appName(release int) string { return fmt.Sprintf("%s-r%d", d.Name(), release) }

// databaseName is that of its database, as machines/database has it.
func (d *Data) databaseName() string {
	return "tenant_" + strings.ReplaceAll(d.Request.EnterpriseID, "-", "_")
}

// resources are what a stage may create, in order.
func resources(d *Data, g *session.Stage) []session.Entry {
	db := d.databaseName()
	online := d.Request.Mode == database.ModeOnline
	switch {
	case g.State == AllocatingInstance:
		return []session.Entry{{Kind: KindSlug, Name: d.Slug}, {Kind: KindInstance, Name: d.Name()}}
	case g.State == AllocatingDB:
		return []session.Entry{{Kind: database.KindDatabase, Name: db}}
	case g.State == AllocatingStorage:
		return []session.Entry{{Kind: KindStorage, Name: d.Name()}}
	case g.State == Deploying:
		return []session.Entry{{Kind: KindApp, Name: d.appName(d.Release)}}
	case g.State == Copying && online:
		return []session.Entry{{Kind: database.KindReplication, Name: db}}
	case g.State == Copying && d.Request.Mode != database.ModeSnapshot, g.Step == stepCompare && online:
		return []session.Entry{{Kind: database.KindFence, Name: db}}
	case g.State == ConfiguringDomain && d.Request.CustomDomain != "":
		return []session.Entry{{Kind: KindRoute, Name: d.PrimaryDomain}, {Kind: KindDomain, Name: d.Request.CustomDomain}}
	case g.State == ConfiguringDomain:
		return []session.Entry{{Kind: KindRoute, Name: d.PrimaryDomain}}
	case g.State == IssuingCert:
		return []session.Entry{{Kind: KindCert, Name: d.PrimaryDomain}}
	case g.Step == stepSwitch:
		return []session.Entry{{Kind: database.KindRuntime, Name: db}}
	case g.State == Upgrading && g.Step == stepDeploy:
		return []session.Entry{{Kind: KindApp, Name: d.appName(d.Upgrade.Release)}}
	}
	return nil
}

// undoing are the names of the actions by kind; those of the routing are two.
var undoing = map[string]string{
	KindSlug: "release_slug", KindInstance: "delete_instance", KindStorage: "delete_storage", KindApp: "delete_app", KindRoute: "remove_route", KindDomain: "cancel_domain_binding", KindCert: "delete_certificate",
	database.KindDatabase: "delete_database", database.KindReplication: "remove_replication", database.KindFence: "lift_fence",
}

// Unbound reports whether the last undo has removed the custom domain.
func (d *Data) Unbound() bool {
	return slices.ContainsFunc(d.Undone, func(r session.ActionResult) bool { return r.Action == undoing[KindDomain] && r.Done })
}

// Undo are the actions that take back what a ledger has, in the reverse order of creation. Of several releases there is one action for each, by its name.
func Undo(ledger []session.Entry) []session.Action {
	var list []session.Action
	for _, e := range slices.Backward(ledger) {
		switch {
		case e.State == session.Undone:
		case e.Kind == database.KindRuntime:
			list = append(list, database.LeadBack(ledger)...)
		case e.Kind == KindApp:
			list = append(list, session.Action{Name: undoing[e.Kind] + ":" + e.Name, Kind: e.Kind})
		default:
			list = append(list, session.Action{Name: undoing[e.Kind], Kind: e.Kind})
		}
	}
	return list
}

// holding are the kinds that hold what an export is made of, and what is under them.
var holding = map[string]bool{KindSlug: true, KindInstance: true, KindStorage: true, database.KindDatabase: true}

// inside ranks what is under a route: it goes after the route, also when it was made after it, as the release of an upgrade was.
var inside = map[string]int{KindCert: 1, KindApp: 2}

// checked is an undo that begins with a look whether the tenant is where it takes something away, as when the store was restored from before the switch. One that takes back the routing knows.
func checked(undo []session.Action) []session.Action {
	if len(undo) == 0 || slices.ContainsFunc(undo, func(a session.Action) bool { return a.Kind == database.KindRuntime }) {
		return undo
	}
	return append([]session.Action{{Name: database.ActionCheck, Kind: database.KindRuntime, Stop: true}}, undo...)
}

// actions are what the undo of a state does. To close a tenant, the routing is closed instead of restored, and what keeps the tenant out of the shared database stays.
// An export comes when nothing serves the tenant any more: what was written after it would be lost.
func actions(d *Data, state string) []session.Action {
	list := Undo(d.Ledger)
	if state != Retiring {
		return checked(database.Settled(list, d.Writes))
	}
	closing := []session.Action{{Name: "retire_tenant_runtime", Kind: database.KindRuntime, Stop: true}, {Name: "invalidate_cache", Kind: database.KindRuntime}}
	slices.SortStableFunc(list, func(a, b session.Action) int { return cmp.Compare(inside[a.Kind], inside[b.Kind]) })
	var held []session.Action
	for _, a := range list {
		switch {
		case a.Kind == database.KindRuntime || a.Kind == database.KindFence:
		case holding[a.Kind]:
			held = append(held, a)
		default:
			a.Stop = d.Export && (a.Kind == KindRoute || a.Kind == KindApp)
			closing = append(closing, a)
		}
	}
	if d.Export {
		closing = append(closing, session.Action{Name: "export_data", Kind: database.KindDatabase, Stop: true})
	}
	return append(closing, held...)
}
