package database

import (
	"slices"
	"strings"
)

// Kinds of resources.
const (
	KindDatabase    = "database"
	KindReplication = "replication"
	KindFence       = "fence"
	KindRuntime     = "runtime"
)

// Action is one step of an undo.
type Action struct {
	Name string `json:"name"`
	Kind string `json:"kind"`
	Stop bool   `json:"stop,omitempty"` // an error stops the undo; others go on, and are shown
}

// ActionSettle is the first action of a revert that does not discard what was written since the switch. Where it is not done, nothing is.
const ActionSettle = "settle_writes"

// retirement are the actions that close a tenant.
var retirement = []Action{{Name: "retire_tenant_runtime", Kind: KindRuntime, Stop: true}, {Name: "invalidate_cache", Kind: KindRuntime}, {Name: "delete_database", Kind: KindDatabase}}

// actions are what the undo of a state does, without what is skipped.
func (d *Data) actions(state string) []Action {
	list := Undo(d.Ledger)
	switch {
	case state == Retiring:
		list = retirement
	case state == Reverting && d.Writes != DiscardWrites:
		list = append([]Action{{Name: ActionSettle, Kind: KindRuntime, Stop: true}}, list...)
	}
	return slices.DeleteFunc(slices.Clone(list), func(a Action) bool { return slices.Contains(d.Skip, a.Name) })
}

// resources are what a state may create, in order.
func (d *Data) resources(state string) []Entry {
	name := "tenant_" + strings.ReplaceAll(d.Request.EnterpriseID, "-", "_")
	online := d.Request.Mode == ModeOnline
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

// intend writes into the ledger what a state may create. What is there stays.
func (d *Data) intend(s *step, state string) {
	ledger := slices.Clone(d.Ledger)
	for _, e := range d.resources(state) {
		if !slices.ContainsFunc(ledger, func(old Entry) bool { return old.Kind == e.Kind }) {
			e.State, e.At = "intended", s.Now()
			ledger = append(ledger, e)
		}
	}
	d.Ledger = ledger
}

// mark sets the state of what was made in a state, or of everything.
func (d *Data) mark(s *step, state string, kinds ...string) {
	ledger := slices.Clone(d.Ledger)
	for i := range ledger {
		if slices.Contains(kinds, ledger[i].Kind) {
			ledger[i].State, ledger[i].At = state, s.Now()
		}
	}
	d.Ledger = ledger
}

// Undo are the actions that take back what a ledger has, in the reverse order of creation.
func Undo(ledger []Entry) []Action {
	var list []Action
	for _, e := range slices.Backward(ledger) {
		if e.State == "undone" {
			continue
		}
		switch e.Kind {
		case KindRuntime:
			list = append(list, Action{Name: "restore_tenant_runtime", Kind: e.Kind, Stop: true}, Action{Name: "invalidate_cache", Kind: e.Kind})
		case KindFence:
			list = append(list, Action{Name: "lift_fence", Kind: e.Kind})
		case KindReplication:
			list = append(list, Action{Name: "remove_replication", Kind: e.Kind})
		case KindDatabase:
			list = append(list, Action{Name: "delete_database", Kind: e.Kind})
		}
	}
	return list
}
