package database

import (
	"slices"
	"strings"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/session"
)

// Kinds of resources.
const (
	KindDatabase    = session.KindDatabase
	KindReplication = "replication"
	KindFence       = "fence"
	KindRuntime     = session.KindRuntime
)

// ActionSettle is the first action of an undo that takes back the routing and does not discard what was written since the switch, which a failed switch may have
// made. Where it is not done, nothing is.
const ActionSettle = "settle_writes"

// ActionCheck is the first action of an undo that has more to take back than databases, and does not take back the routing: it fails while the tenant is in the session's database,
// because the session is older than its switch. Where it is not done, nothing is.
const ActionCheck = "check_tenant_runtime"

// ActionLift lets the tenant's writers in again. It leaves the fence of a tenant that was closed before the session: it is skipped then.
const ActionLift = "lift_fence"

// ActionAdmit is [session.ActionAdmit].
const ActionAdmit = session.ActionAdmit

// CodeUnfenced is the code of a switch that found the tenant's writers let in again: nothing was switched, and everything has to be compared once more.
const CodeUnfenced = "FENCE_LOST"

// Unfenced has a retry after such a switch go on with the comparison.
func Unfenced(t *session.Trail, f machines.Failure, state, step string) {
	if f.Code == CodeUnfenced {
		t.FailedFrom, t.FailedStep = state, step
	}
}

// CodeShut is the code of an undo that has closed a tenant's own database to it and could not open it again. It is no end of an undo: the next one goes on there.
const CodeShut = "TENANT_SHUT_OUT"

// retirement are the actions that close a tenant. What the switch has left of a replication ends with it: a slot keeps the log of the shared database, and a database with a
// subscription is not dropped.
func retirement(d *Data) []Action {
	list := []Action{{Name: "retire_tenant_runtime", Kind: KindRuntime, Stop: true}, {Name: "invalidate_cache", Kind: KindRuntime}}
	for _, a := range Undo(d.Ledger) {
		if a.Kind == KindReplication {
			list = append(list, a)
		}
	}
	return append(list, Action{Name: "delete_database", Kind: KindDatabase})
}

// actions are what the undo of a state does.
func actions(d *Data, state string) []Action {
	if state == Retiring {
		return retirement(d)
	}
	undo := Undo(d.Ledger)
	if tried, _ := Switch(d.Ledger); state == Reverting && !tried { // somebody has switched by hand, or said so to an earlier version
		undo = append(LeadBack(d.Ledger), undo...)
	}
	return Settled(undo, d.Writes)
}

// Settled is an undo that begins with the writes since the switch, unless they are discarded, or the routing is not taken back.
func Settled(undo []Action, writes string) []Action {
	if writes == DiscardWrites || !slices.ContainsFunc(undo, func(a Action) bool { return a.Kind == KindRuntime }) {
		return undo
	}
	return append([]Action{{Name: ActionSettle, Kind: KindRuntime, Stop: true}}, undo...)
}

// updated is a change of the database.
func (d *Data) updated() session.Change {
	return session.Change{Type: KindDatabase, ID: d.Database.Name, Action: "updated"}
}

// resources are what a stage may create, in order.
func resources(d *Data, g *Stage) []Entry {
	name := "tenant_" + strings.ReplaceAll(d.Request.EnterpriseID, "-", "_")
	state, online := g.State, d.Request.Mode == ModeOnline
	switch {
	case state == Allocating:
		return []Entry{{Kind: KindDatabase, Name: name}}
	case state == Copying && online:
		return []Entry{{Kind: KindReplication, Name: name}}
	case state == Copying && d.Request.Mode != ModeSnapshot, state == Verifying && online:
		return []Entry{{Kind: KindFence, Name: name}}
	case state == Switching:
		return []Entry{{Kind: KindRuntime, Name: name}}
	}
	return nil
}

// Undo are the actions that take back what a ledger has, in the reverse order of creation.
func Undo(ledger []Entry) []Action {
	var list []Action
	for _, e := range slices.Backward(ledger) {
		if e.State == session.Undone {
			continue
		}
		switch e.Kind {
		case KindRuntime:
			list = append(list, LeadBack(ledger)...)
		case KindFence:
			list = append(list, Action{Name: ActionLift, Kind: e.Kind})
		case KindReplication:
			list = append(list, Action{Name: "remove_replication", Kind: e.Kind})
		case KindDatabase:
			list = append(list, Action{Name: "delete_database", Kind: e.Kind})
		}
	}
	return list
}

// LeadBack are the actions that take back the routing. The tenant may write in the shared database when applications have been told: a fence that the ledger does not have, which the undo itself
// has raised to keep writes in (mode snapshot), or which is of before the store was restored, is lifted after that; that of the ledger has its own action.
func LeadBack(ledger []Entry) []Action {
	list := []Action{{Name: "restore_tenant_runtime", Kind: KindRuntime, Stop: true}, {Name: "invalidate_cache", Kind: KindRuntime}}
	if slices.ContainsFunc(ledger, func(e Entry) bool { return e.Kind == KindFence && e.State != session.Undone }) {
		return list
	}
	return append(list, Action{Name: ActionLift, Kind: KindFence})
}

// Switch reports whether a ledger has a switch that was tried and not taken back, and whether it is known to have been done.
func Switch(ledger []Entry) (tried, done bool) {
	for _, e := range ledger {
		if e.Kind == KindRuntime && e.State != session.Undone {
			return true, e.State == session.Created
		}
	}
	return false, false
}
