package database_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/database"
	"github.com/bcc94042/instar/machines/machinetest"
)

// place is where a session may be, as far as anything depends on it.
type place struct {
	e      machines.Entity
	undo   []database.Action // that goes on
	onward []string          // places that it gets to where no worker fails and no time passes
	rests  bool              // nothing has to be done
}

// walk goes from place to place, by every input there is, until it finds no new one.
type walk struct {
	t      *testing.T
	places map[string]*place
	queue  []string
	told   map[string]bool // events
}

// says is the specification's table: what each event has to say, besides the session.
var says = map[string][]string{
	"provisioning.db.requested": {"enterpriseId", "request"}, "provisioning.db.allocating": {"enterpriseId"}, "provisioning.db.allocated": {"databaseId"},
	"provisioning.migrations.started": {"databaseId"}, "provisioning.migration.applied": {"migration"}, "provisioning.migrations.completed": {"count"},
	"provisioning.data_migration.started": {"enterpriseId"}, "provisioning.data_migration.progress": {"table", "progress"}, "provisioning.data_migration.completed": {"totalRows"},
	"provisioning.verification.started": {}, "provisioning.verification.completed": {"result"}, "provisioning.switching.started": {}, "provisioning.switching.completed": {},
	"provisioning.db.ready": {"enterpriseId", "databaseId"}, "provisioning.db.failed": {"error"}, "provisioning.db.rollback.started": {}, "provisioning.db.rollback.completed": {},
	"provisioning.state.transitioned": {"from", "to"}, "provisioning.rollback.started": {"fromState"}, "provisioning.rollback.action_failed": {"action", "error"}, "provisioning.rollback.completed": {},
	"provisioning.session.timeout": {"state"},
}

// tells requires that events say what they have to, on the way to each place and for the first time.
func (w *walk) tells(out machines.Output, fresh bool) {
	for _, m := range out.Messages {
		fields, specified := says[m.Name]
		if m.Kind != machines.KindEvent || !specified || !fresh && w.told[m.Name] {
			continue
		}
		var event struct {
			Data map[string]any `json:"data"`
		}
		require.NoError(w.t, json.Unmarshal(m.Body, &event))
		for _, field := range append(fields, "sessionId") {
			require.NotNil(w.t, event.Data[field], "%s of %s", field, m.Name)
		}
		w.told[m.Name] = true
	}
}

// Each state with each fault: whatever has failed, was late, was refused or was commanded before, a session keeps its promises, what is taken back is all that it has made, and a way leads on to rest.
func TestEverySessionWithEveryFault(t *testing.T) {
	t.Parallel()
	w := &walk{t: t, places: map[string]*place{}, told: map[string]bool{}}
	for _, body := range []string{
		`{"approval":true}`, `{"mode":"online","onFailure":"rollback"}`, `{"mode":"snapshot"}`, `{"dryRun":true}`,
	} {
		w.step(nil, &place{e: database.Machine.New("default", "acme", "db")}, machines.Input{Command: "request", Body: json.RawMessage(body)})
	}
	for len(w.queue) > 0 {
		from := w.places[w.queue[0]]
		w.queue = w.queue[1:]
		for _, in := range inputsAt(t, from) {
			w.step(from, from, in)
		}
	}
	t.Log(len(w.places), "places")
	require.Greater(t, len(w.places), 500)
	for event := range says {
		require.Contains(t, w.told, event, "it was never told")
	}
	into := map[string][]string{}
	var reached []string
	for key, p := range w.places {
		for _, to := range p.onward {
			into[to] = append(into[to], key)
		}
		if p.rests {
			reached = append(reached, key)
		}
	}
	led := map[string]bool{}
	for len(reached) > 0 {
		key := reached[0]
		if reached = reached[1:]; !led[key] {
			led[key] = true
			reached = append(reached, into[key]...)
		}
	}
	for key := range w.places {
		require.True(t, led[key], "no way leads on from %s", key)
	}
}

// step takes one input, and notes where that leads. One that is refused leads nowhere.
func (w *walk) step(from, at *place, in machines.Input) {
	seq := at.e.Version + 1
	in.Seq, in.ID, in.Actor = seq, fmt.Sprint(seq), "somebody"
	if in.Time.IsZero() {
		in.Time = machinetest.Begun
	}
	next, out, err := database.Machine.Step(at.e, in)
	if err != nil || out.Result != machines.Applied {
		return
	}
	p := &place{e: next, undo: at.undo}
	for _, m := range out.Messages {
		if m.Kind == machines.KindEffect && m.Name == database.EffectUndo {
			p.undo = planned(w.t, m)
			covers(w.t, next.Data.(*database.Data), p.undo)
		}
	}
	d := next.Data.(*database.Data)
	switch next.State {
	case database.RolledBack, database.Cancelled:
		p.rests = true
		for _, e := range d.Ledger {
			require.Equal(w.t, "undone", e.State, "%s after the end of the undo", e.Kind)
		}
	case database.Retired:
		p.rests = true
	case database.Ready:
		p.rests = d.Phase == ""
	}
	key := keyOf(&next, p.undo)
	fresh := w.places[key] == nil
	w.tells(out, fresh)
	if fresh {
		whole(w.t, next, out)
		w.places[key] = p
		w.queue = append(w.queue, key)
	}
	if from != nil && in.Command != machines.CommandFailed && in.Time.Equal(machinetest.Begun) || from != nil && d.Phase == database.Executing && at.e.Data.(*database.Data).Phase == database.RetryWait {
		from.onward = append(from.onward, key)
	}
}

func planned(t *testing.T, m machines.Message) []database.Action {
	var task machines.Task
	var body database.Task
	require.NoError(t, json.Unmarshal(m.Body, &task))
	require.NoError(t, json.Unmarshal(task.Data, &body))
	return body.Actions
}

// covers: what an undo leaves out of a ledger, somebody has said to skip, or it is kept: a tenant that is closed keeps its fence, and one that is let in everything.
func covers(t *testing.T, d *database.Data, undo []database.Action) {
	t.Helper()
	if d.LettingIn || slices.ContainsFunc(undo, func(a database.Action) bool { return a.Name == "retire_tenant_runtime" }) {
		return
	}
	for _, e := range d.Ledger {
		has := slices.ContainsFunc(undo, func(a database.Action) bool { return a.Kind == e.Kind })
		require.True(t, has || e.State == "undone" || len(d.Skip) > 0, "nothing takes back %s", e.Kind)
	}
}

// keyOf is a place: what is not in it changes nothing that follows.
func keyOf(e *machines.Entity, undo []database.Action) string {
	d := e.Data.(*database.Data)
	parts := []any{
		e.State, d.Phase, d.Attempt, d.Request.Mode, d.Request.OnFailure, d.Request.Approval, d.Request.DryRun, d.FailedFrom, d.Cancelled, d.Intact, len(d.Undone) > 0, d.Skip, d.Writes, d.LettingIn, d.Epoch > 0,
		d.Database != nil, d.Verified != nil, slices.Sorted(maps.Keys(e.Effects)), slices.Sorted(maps.Keys(e.Timers)), len(undo),
	}
	for _, l := range d.Ledger {
		parts = append(parts, l.Kind, l.State)
	}
	return strings.TrimSpace(fmt.Sprintln(parts...))
}

// faults are how effects fail for the machine; tries that the engine repeats by itself are none.
var faults = func() map[string][]machines.Failure {
	held := machines.Failure{Code: "x", Message: "y"}
	all := map[string][]machines.Failure{database.EffectUndo: {held}, database.EffectHalt: {held}, database.EffectRotate: {held}, database.EffectLook: {held}}
	for _, g := range database.Stages {
		all[g.Effect] = []machines.Failure{held, {Code: "x", Message: "y", Retryable: true}}
	}
	all["switch"] = []machines.Failure{held, {Code: database.CodeUnfenced, Message: "y"}}
	return all
}()

// results are what stages report, where an event says something of it.
var results = map[string]any{
	"allocated": database.Allocated{DatabaseID: "t1/tenant_acme"}, "migrated": database.Migrated{Applied: []string{"00001_first.sql"}},
}

// inputsAt are all that may come: commands, and reports, failures and times of what goes on.
func inputsAt(t *testing.T, p *place) (list []machines.Input) {
	for name, bodies := range map[string][]string{
		"request": {`{}`}, "approve": {""}, "pause": {""}, "resume": {""}, "cancel": {""}, "retry": {""}, "rotate": {""}, "deprovision": {`{"tenant":"acme"}`},
		"rollback": {`{}`, `{"keepWrites":true}`, `{"discardWrites":true}`, `{"skip":["delete_database"]}`}, "resolve": {`{"outcome":"ready"}`, `{"outcome":"rolled_back"}`},
		"revert": {`{}`, `{"keepWrites":true}`, `{"discardWrites":true}`},
	} {
		for _, body := range bodies {
			list = append(list, machines.Input{Command: name, Body: json.RawMessage(body)})
		}
	}
	for name, timer := range p.e.Timers {
		list = append(list, machines.Input{Command: machines.CommandElapsed, Time: timer.At, Body: machinetest.JSON(t, machines.Elapsed{Timer: name, Armed: timer.Armed})})
	}
	if p.e.State == database.Copying {
		list = append(list, machinetest.Report(t, database.ReportProgressed, "", database.Progress{Table: "orders", Rows: 1, Total: 2}))
	}
	for name, a := range p.e.Effects {
		for _, f := range faults[name] {
			list = append(list, machines.Input{Command: machines.CommandFailed, Body: machinetest.JSON(t, machines.EffectFailed{Effect: name, Attempt: a.ID, Failure: f})})
		}
		switch name {
		case database.EffectUndo:
			for failing := -1; failing < len(p.undo); failing++ {
				list = append(list, machinetest.Report(t, "undone", a.ID, undone(p.undo, failing)))
			}
		case database.EffectRotate:
			list = append(list, machinetest.Report(t, database.ReportRotated, a.ID, database.Rotated{Credentials: "new", Epoch: 3}))
		case database.EffectHalt:
			list = append(list, machinetest.Report(t, "halted", a.ID, nil))
		}
		for _, g := range database.Stages {
			if g.Effect == name {
				list = append(list, machinetest.Report(t, g.Done, a.ID, results[g.Done]))
			}
		}
	}
	return list
}

// undone is what an undo reports of which one action fails; none for -1.
func undone(actions []database.Action, failing int) (r database.Undone) {
	stopped := false
	for i, a := range actions {
		done := i != failing && !stopped
		stopped = stopped || i == failing && a.Stop
		result := database.ActionResult{Action: a.Name, Done: done, Epoch: 2}
		if !done {
			result.Error = "no"
		}
		r.Actions = append(r.Actions, result)
	}
	return r
}
