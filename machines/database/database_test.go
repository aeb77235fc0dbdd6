package database_test

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/database"
	"github.com/bcc94042/instar/machines/machinetest"
	"github.com/bcc94042/instar/machines/transcript"
)

const transcripts = "testdata/*.txt"

func TestTranscripts(t *testing.T) {
	t.Parallel()
	transcript.Run(t, database.Machine, transcripts)
}

func TestEveryEdgeIsSeenInATranscript(t *testing.T) {
	t.Parallel()
	transcript.Cover(t, database.Machine, transcripts)
}

func TestDiagramsAreUpToDate(t *testing.T) {
	t.Parallel()
	transcript.Diagrams(t, database.Machine)
}

// handlers are the specification's table: timeout, retries beyond the first attempt, code.
var handlers = map[string]struct {
	timeout time.Duration
	retries int
	code    string
}{
	"allocating_db":      {10 * time.Minute, 3, "DB_ALLOCATION_FAILED"},
	"running_migrations": {30 * time.Minute, 2, "MIGRATIONS_FAILED"},
	"migrating_data":     {2 * time.Hour, 1, "DATA_MIGRATION_FAILED"},
	"verifying":          {30 * time.Minute, 2, "VERIFICATION_FAILED"},
	"switching":          {5 * time.Minute, 0, "SWITCHING_FAILED"},
}

// rollbacks is the specification's table: the actions by the state that failed, and whether an error stops them.
var rollbacks = map[string][]database.Action{
	"allocating_db":      {{Name: "delete_database", Kind: "database"}},
	"running_migrations": {{Name: "delete_database", Kind: "database"}},
	"migrating_data":     {{Name: "delete_database", Kind: "database"}},
	"verifying":          {{Name: "delete_database", Kind: "database"}},
	"switching":          {{Name: "restore_tenant_runtime", Kind: "runtime", Stop: true}, {Name: "invalidate_cache", Kind: "runtime"}, {Name: "delete_database", Kind: "database"}},
}

// session goes to a state, and fails there for good.
func session(t *testing.T, mode, state string) (e machines.Entity, attempts int) {
	t.Helper()
	now, seq := machinetest.Begun, uint64(0)
	e = database.Machine.New("default", "acme", "db")
	step := func(in machines.Input) machines.Output {
		seq++
		in.Seq, in.ID, in.Time = seq, fmt.Sprint(seq), now
		next, out, err := database.Machine.Step(e, in)
		require.NoError(t, err, "%s while %s", in.Command, e.State)
		e = next
		return out
	}
	step(machines.Input{Command: "request", Body: json.RawMessage(`{"enterpriseId":"acme","mode":"` + mode + `"}`)})
	for _, g := range database.Stages {
		if g.State == state {
			break
		}
		step(machinetest.Report(t, g.Done, e.Effects[g.Effect].ID, nil))
	}
	require.Equal(t, state, e.State)
	g := stage(state)
	for e.State != database.Failed {
		if e.Data.(*database.Data).Phase == database.Executing {
			attempts++
			body, err := json.Marshal(machines.EffectFailed{Effect: g.Effect, Attempt: e.Effects[g.Effect].ID, Failure: machines.Failure{Code: "unavailable", Message: "x", Retryable: true}})
			require.NoError(t, err)
			step(machines.Input{Command: machines.CommandFailed, Body: body})
			continue
		}
		timer := e.Timers["deadline"]
		require.LessOrEqual(t, timer.At.Sub(now), 5*time.Minute)
		now = timer.At
		body, err := json.Marshal(machines.Elapsed{Timer: "deadline", Armed: timer.Armed})
		require.NoError(t, err)
		step(machines.Input{Command: machines.CommandElapsed, Body: body})
	}
	return e, attempts
}

func stage(state string) database.Stage {
	return database.Stages[slices.IndexFunc(database.Stages, func(g database.Stage) bool { return g.State == state })]
}

func TestAttemptsTimeoutsAndCodesAreTheSpecification(t *testing.T) {
	t.Parallel()
	for state, h := range handlers {
		g := stage(state)
		require.Equal(t, h.timeout, g.Timeout, state)
		e, attempts := session(t, "offline", state)
		require.Equal(t, 1+h.retries, attempts, state)
		require.Equal(t, h.code, e.LastError.Code, state)
		d := e.Data.(*database.Data)
		require.Equal(t, state, d.FailedFrom)
		require.Equal(t, attempts, d.FailedAttempt)
	}
}

// The undo that follows from the ledger is that of the specification, and takes back besides what the specification knows nothing of.
func TestTheUndoIsTheSpecification(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"offline", "online", "snapshot"} {
		for state, want := range rollbacks {
			e, _ := session(t, mode, state)
			got := slices.DeleteFunc(database.Undo(e.Data.(*database.Data).Ledger), func(a database.Action) bool {
				return a.Name == "lift_fence" || a.Name == "remove_replication"
			})
			require.Equal(t, want, got, "%s, %s", mode, state)
			all := database.Undo(e.Data.(*database.Data).Ledger)
			require.Equal(t, "delete_database", all[len(all)-1].Name, "what was made first goes last")
		}
	}
}

// What a state may create is in the value before its effect is sent.
func TestResourcesAreIntendedBeforeTheyAreCreated(t *testing.T) {
	t.Parallel()
	for state, kinds := range map[string][]string{
		"requested": nil, "allocating_db": {"database"}, "migrating_data": {"database", "replication"}, "verifying": {"database", "replication", "fence"}, "switching": {"database", "replication", "fence", "runtime"},
	} {
		e, _ := session(t, "online", state)
		var got []string
		for _, entry := range e.Data.(*database.Data).Ledger {
			got = append(got, entry.Kind)
		}
		require.Equal(t, kinds, got, state)
	}
}

// law is the table again, written by hand.
func law() machinetest.Law {
	l := machinetest.Law{
		"":            {"request": {"requested"}},
		"rolled_back": {"request": {"requested"}}, "cancelled": {"request": {"requested"}}, "deprovisioned": {"request": {"requested"}},
		"failed": {
			"rollback": {"failed"}, "resolve": {"ready", "failed"}, "undone": {"rolled_back", "ready", "failed"}, "undo-failed": {"failed"},
			"retry": {"requested", "allocating_db", "running_migrations", "migrating_data", "verifying", "switching"},
		},
	}
	for _, s := range [][4]string{
		{"requested", "planned", "plan-failed", "allocating_db"},
		{"allocating_db", "allocated", "allocate-failed", "running_migrations"},
		{"running_migrations", "migrated", "migrate-failed", "migrating_data"},
		{"migrating_data", "copied", "copy-failed", "verifying"},
		{"verifying", "verified", "verify-failed", "switching"},
	} {
		l[s[0]] = map[string][]string{
			s[1]: {s[3]}, s[2]: {s[0], "failed"}, "timed-out": {s[0], "failed"}, "pause": {s[0]}, "resume": {s[0]}, "cancel": {s[0]}, "rollback": {s[0]},
			"halted": {s[0]}, "halt-failed": {s[0]}, "undone": {"cancelled", s[0]}, "undo-failed": {s[0]},
		}
	}
	l["ready"] = map[string][]string{"revert": {"reverting"}, "deprovision": {"deprovisioning"}, "rotate": {"ready"}, "rotated": {"ready"}, "rotate-failed": {"ready"}}
	l["reverting"] = map[string][]string{"rollback": {"reverting"}, "undone": {"rolled_back", "reverting", "ready"}, "undo-failed": {"reverting"}}
	l["deprovisioning"] = map[string][]string{"rollback": {"deprovisioning"}, "undone": {"deprovisioned", "deprovisioning"}, "undo-failed": {"deprovisioning"}}
	l["requested"]["planned"] = []string{"allocating_db", "requested", "cancelled"}
	for _, failed := range []string{"plan-failed", "timed-out"} { // of a dry run
		l["requested"][failed] = append(l["requested"][failed], "cancelled")
	}
	l["requested"]["approve"] = []string{"allocating_db"}
	l["migrating_data"]["progressed"] = []string{"migrating_data"}
	l["switching"] = map[string][]string{"switched": {"ready"}, "switch-failed": {"failed"}, "timed-out": {"failed"}}
	return l
}

func TestTheTableIsTheSpecification(t *testing.T) {
	t.Parallel()
	law().Table(t, database.Machine)
}

func TestAnySequenceOfInputsKeepsThePromises(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := &machinetest.Run{T: t, Machine: database.Machine, Law: law(), E: database.Machine.New("default", "acme", "db"), Now: machinetest.Begun}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			r.Pause(20 * time.Minute)
			r.Step(input(r), func(_ machines.Input, next machines.Entity, out machines.Output) { whole(t, next, out) })
		}
	})
}

func input(r *machinetest.Run) machines.Input {
	t := r.T
	switch rapid.SampledFrom([]string{"command", "success", "success", "success", "failure", "undone", "timer"}).Draw(t, "kind") {
	case "command":
		name := rapid.SampledFrom([]string{"request", "request", "approve", "pause", "resume", "cancel", "retry", "rollback", "resolve", "revert", "deprovision", "rotate"}).Draw(t, "command")
		body := map[string]string{
			"request": rapid.SampledFrom([]string{`{"enterpriseId":"a"}`, `{"enterpriseId":"a","mode":"online","onFailure":"rollback"}`, `{"enterpriseId":"a","approval":true}`, `{"enterpriseId":"a","idleSeconds":60}`, `{}`}).Draw(t, "body"),
			"resolve": rapid.SampledFrom([]string{`{"outcome":"rolled_back"}`, `{"outcome":"ready"}`}).Draw(t, "outcome"), "revert": rapid.SampledFrom([]string{`{}`, `{"keepWrites":true}`, `{"discardWrites":true}`}).Draw(t, "writes"), "deprovision": `{"tenant":"a"}`,
			"rollback": `{"skip":["delete_database"]}`,
		}[name]
		return machines.Input{Command: name, Body: json.RawMessage(body)}
	case "timer":
		return r.Elapsed("deadline")
	case "undone":
		return machinetest.Report(t, "undone", r.E.Effects["undo"].ID, database.Undone{Actions: []database.ActionResult{{Action: rapid.SampledFrom([]string{"settle_writes", "delete_database"}).Draw(t, "action"), Done: rapid.Bool().Draw(t, "done")}}})
	case "failure":
		for name, a := range r.E.Effects {
			return machines.Input{Command: machines.CommandFailed, Body: machinetest.JSON(t, machines.EffectFailed{Effect: name, Attempt: a.ID, Failure: machines.Failure{Code: "x", Message: "y", Retryable: rapid.Bool().Draw(t, "retryable")}})}
		}
	}
	if a, rotating := r.E.Effects["rotate"]; rotating {
		return machinetest.Report(t, "rotated", a.ID, database.Rotated{Credentials: "new", Epoch: 3})
	}
	for _, g := range database.Stages {
		if g.State == r.E.State {
			return machinetest.Report(t, g.Done, r.E.Effects[g.Effect].ID, nil)
		}
	}
	return machines.Input{Command: "request", Body: json.RawMessage(`{"enterpriseId":"a"}`)}
}

// whole: what holds of every session, whatever happened to it.
func whole(t require.TestingT, e machines.Entity, out machines.Output) {
	d := e.Data.(*database.Data)
	_, armed := e.Timers["deadline"]
	require.Equal(t, d.Phase == database.Executing || d.Phase == database.RetryWait, armed, "a clock runs in %s %s", e.State, d.Phase)
	require.Equal(t, d.Phase == database.RetryWait, !d.NextTry.IsZero(), "the next time is shown")
	_, undoing := e.Effects["undo"]
	require.Equal(t, d.Phase == database.RollingBack, undoing)
	switch e.State {
	case database.Failed:
		require.NotNil(t, e.LastError)
		require.NotEmpty(t, d.FailedFrom)
	case database.RolledBack, database.Cancelled, database.Retired, database.Ready:
		_, rotating := e.Effects["rotate"]
		require.Equal(t, d.Phase == database.Rotating, rotating)
		require.Equal(t, rotating, len(e.Effects) == 1)
		require.False(t, d.CompletedAt.IsZero())
	default:
		require.LessOrEqual(t, d.Attempt, 4)
	}
	for _, m := range out.Messages {
		if m.Kind == machines.KindEvent && m.Name != machines.EventRetrying && m.Name != machines.EventRetried {
			var event struct {
				Data map[string]any `json:"data"`
			}
			require.NoError(t, json.Unmarshal(m.Body, &event))
			require.NotEmpty(t, event.Data["sessionId"], m.Name)
		}
	}
}

// What somebody has finished by hand has no database that the session knows: nothing of it is rotated, and all other ways lead on.
func TestASessionThatWasFinishedByHandHasNoCredentials(t *testing.T) {
	t.Parallel()
	for _, state := range []string{"requested", "allocating_db"} {
		e, _ := session(t, "offline", state)
		in := machines.Input{Seq: 100, ID: "100", Time: machinetest.Begun, Command: "resolve", Body: json.RawMessage(`{"outcome":"ready"}`)}
		e, _, err := database.Machine.Step(e, in)
		require.NoError(t, err)
		if state != "requested" { // it may have made one: applications are told where the tenant is
			e, _, err = database.Machine.Step(e, machinetest.Report(t, "undone", e.Effects["undo"].ID, database.Undone{Actions: []database.ActionResult{{Action: database.ActionAdmit, Done: true}}}))
			require.NoError(t, err)
		}
		require.Equal(t, database.Ready, e.State)
		require.Nil(t, e.Data.(*database.Data).Database)
		_, _, err = database.Machine.Step(e, machines.Input{Seq: 101, ID: "101", Time: machinetest.Begun, Command: "rotate"})
		require.ErrorContains(t, err, "the session has no database")
		revert := machines.Input{Seq: 102, ID: "102", Time: machinetest.Begun, Command: "revert", Body: json.RawMessage(`{}`)}
		_, _, err = database.Machine.Step(e, revert)
		if state != "requested" {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, "the session has made no database: it was finished by hand. Send the tenant back by hand; revert with discardWrites ends the session then")
		revert.Body = json.RawMessage(`{"discardWrites":true}`)
		e, _, err = database.Machine.Step(e, revert)
		require.NoError(t, err)
		require.Equal(t, database.Reverting, e.State)
	}
}

// What was stored is written again byte for byte: parts that sessions share stand where their members always stood.
func TestStoredValuesKeepTheirForm(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("testdata/stored-1.jsonl")
	require.NoError(t, err)
	for line := range strings.Lines(string(raw)) {
		e, err := database.Machine.Decode([]byte(line))
		require.NoError(t, err)
		again, err := e.AppendJSON(nil)
		require.NoError(t, err)
		require.Equal(t, strings.TrimSpace(line), string(again))
	}
}
