package platform_test

import (
	"cmp"
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
	"github.com/bcc94042/instar/machines/platform"
	"github.com/bcc94042/instar/machines/session"
)

// handlers are the specification's table: timeout, retries beyond the first attempt, code.
var handlers = map[string]struct {
	timeout time.Duration
	retries int
	code    string
}{
	"provision": {15 * time.Minute, 3, "INSTANCE_ALLOCATION_FAILED"},
	"allocate":  {10 * time.Minute, 3, "DB_ALLOCATION_FAILED"},
	"store":     {5 * time.Minute, 3, "STORAGE_ALLOCATION_FAILED"},
	"deploy":    {30 * time.Minute, 2, "DEPLOYMENT_FAILED"},
	"migrate":   {30 * time.Minute, 2, "MIGRATIONS_FAILED"},
	"copy":      {2 * time.Hour, 1, "DATA_MIGRATION_FAILED"},
	"route":     {10 * time.Minute, 3, "DOMAIN_CONFIGURATION_FAILED"},
	"certify":   {15 * time.Minute, 5, "CERT_ISSUANCE_FAILED"},
	"verify":    {30 * time.Minute, 2, "VERIFICATION_FAILED"},
	"probe":     {30 * time.Minute, 2, "VERIFICATION_FAILED"},
	"switch":    {5 * time.Minute, 0, "SWITCHING_FAILED"},
}

// rollbacks is the specification's table, where it has one: what an undo does at least, by the effect that failed.
var rollbacks = map[string][]string{
	"provision": {"delete_instance"},
	"deploy":    {"delete_storage", "delete_database", "delete_instance"},
	"route":     {"cancel_domain_binding", "remove_route"},
	"switch":    {"restore_tenant_runtime", "invalidate_cache", "delete_database"},
}

// whole is the order of an undo of everything.
var whole = []string{
	"restore_tenant_runtime", "invalidate_cache", "delete_certificate", "cancel_domain_binding", "remove_route", "lift_fence", "delete_app:tenant-acme-r1", "delete_storage", "delete_database", "delete_instance", "release_slug",
}

// life is a session that takes one input after the other.
type life struct {
	t   *testing.T
	e   machines.Entity
	out machines.Output // of the last one
	now time.Time
	seq uint64
}

func (l *life) step(in machines.Input) {
	l.seq++
	in.Seq, in.ID, in.Time = l.seq, fmt.Sprint(l.seq), l.now
	next, out, err := platform.Machine.Step(l.e, in)
	require.NoError(l.t, err, "%s while %s", in.Command, l.e.State)
	l.e, l.out = next, out
}

func (l *life) data() *platform.Data { return l.e.Data.(*platform.Data) }

// reach is a session of which a stage has begun.
func reach(t *testing.T, effect, request string) *life {
	l := &life{t: t, e: platform.Machine.New("default", "acme", "own"), now: machinetest.Begun}
	l.step(machines.Input{Command: "request", Body: json.RawMessage(request)})
	for _, g := range platform.Stages {
		if g.Effect == effect {
			break
		}
		l.step(machinetest.Report(t, g.Done, l.e.Effects[g.Effect].ID, nil))
	}
	require.Contains(t, l.e.Effects, effect)
	return l
}

// fail makes every attempt fail, and says how many there were.
func (l *life) fail(effect, code string) (attempts int) {
	for l.e.State != platform.Failed {
		if l.data().Phase == session.Executing {
			attempts++
			l.step(machines.Input{Command: machines.CommandFailed, Body: machinetest.JSON(l.t, machines.EffectFailed{Effect: effect, Attempt: l.e.Effects[effect].ID, Failure: machines.Failure{Code: code, Message: "x", Retryable: true}})})
			continue
		}
		timer := l.e.Timers["deadline"]
		require.LessOrEqual(l.t, timer.At.Sub(l.now), 30*time.Minute)
		l.now = timer.At
		l.step(machines.Input{Command: machines.CommandElapsed, Body: machinetest.JSON(l.t, machines.Elapsed{Timer: "deadline", Armed: timer.Armed})})
	}
	return attempts
}

// What a certificate authority has refused it refuses for minutes at least, and each order counts.
func TestTheWaitsOfACertificateAreThoseOfAnAuthority(t *testing.T) {
	t.Parallel()
	l := reach(t, "certify", `{"data":"shared"}`)
	for attempt := 1; attempt <= 5; attempt++ {
		failure := machines.Failure{Code: "unavailable", Message: "too soon", Retryable: true}
		l.step(machines.Input{Command: machines.CommandFailed, Body: machinetest.JSON(t, machines.EffectFailed{Effect: "certify", Attempt: l.e.Effects["certify"].ID, Failure: failure})})
		timer, least := l.e.Timers["deadline"], min(time.Minute<<(attempt-1), 15*time.Minute)
		require.GreaterOrEqual(t, timer.At.Sub(l.now), least)
		require.LessOrEqual(t, timer.At.Sub(l.now), 2*least)
		require.Equal(t, fmt.Sprintf("unavailable: too soon; attempt %d of 6 begins at %s", attempt+1, timer.At.UTC().Format(time.RFC3339)), l.e.LastError.Message)
		l.now = timer.At
		l.step(machines.Input{Command: machines.CommandElapsed, Body: machinetest.JSON(t, machines.Elapsed{Timer: "deadline", Armed: timer.Armed})})
	}
	require.Equal(t, 6, l.data().Attempt)

	l = reach(t, "certify", `{"data":"shared"}`)
	failure := machines.Failure{Code: "unavailable", Message: "retry after", Retryable: true, RetryAfter: 3 * time.Hour}
	l.step(machines.Input{Command: machines.CommandFailed, Body: machinetest.JSON(t, machines.EffectFailed{Effect: "certify", Attempt: l.e.Effects["certify"].ID, Failure: failure})})
	require.Equal(t, session.RetryWait, l.data().Phase)
	require.GreaterOrEqual(t, l.e.Timers["deadline"].At.Sub(l.now), 3*time.Hour, "what the authority asks for, though the state has 15 minutes")
}

// The last word of a certificate authority is not asked for again, as each order counts; whoever has mended the name retries.
func TestARefusedCertificateIsNotTriedAgain(t *testing.T) {
	t.Parallel()
	l := reach(t, "certify", `{"data":"shared"}`)
	failure := machines.Failure{Code: platform.CodeCertificate, Message: "CAA forbids it"}
	l.step(machines.Input{Command: machines.CommandFailed, Body: machinetest.JSON(t, machines.EffectFailed{Effect: "certify", Attempt: l.e.Effects["certify"].ID, Failure: failure})})
	require.Equal(t, platform.Failed, l.e.State)
	require.Equal(t, platform.CodeCertificate, l.e.LastError.Code)
	require.Equal(t, "CAA forbids it", l.e.LastError.Message)
	l.step(machines.Input{Command: "retry"})
	require.Equal(t, platform.IssuingCert, l.e.State)
}

// A release that is watched for longer than a session may be idle makes no progress that could be told.
func TestAShareIsNotIdleWhileItIsWatched(t *testing.T) {
	t.Parallel()
	l := reach(t, "switch", `{"data":"shared","idleSeconds":10}`)
	require.Equal(t, 10*time.Second, l.e.Timers["deadline"].At.Sub(l.now))
	l.step(machinetest.Report(t, "switched", l.e.Effects["switch"].ID, nil))
	l.step(machines.Input{Command: "upgrade", Body: json.RawMessage(`{"version":"9","holdSeconds":600}`)})
	for _, of := range [][2]string{{"plan", "planned"}, {"migrate", "migrated"}, {"deploy", "deployed"}} {
		l.step(machinetest.Report(t, of[1], l.e.Effects[of[0]].ID, nil))
	}
	require.Contains(t, l.e.Effects, "shift")
	require.Equal(t, 11*time.Minute, l.e.Timers["deadline"].At.Sub(l.now))
}

const moved = `{"data":"shared","customDomain":"shop.example.com"}`

func TestAttemptsTimeoutsAndCodesAreTheSpecification(t *testing.T) {
	t.Parallel()
	for effect, h := range handlers {
		l := reach(t, effect, `{"data":"shared","idleSeconds":86400}`)
		require.Equal(t, h.timeout, l.e.Timers["deadline"].At.Sub(l.now), effect)
		require.Equal(t, 1+h.retries, l.fail(effect, "unavailable"), effect)
		require.Equal(t, h.code, l.e.LastError.Code, effect)
	}
	require.Equal(t, len(handlers)+1, len(platform.Stages), "all but the plan")
}

// A retry begins with the step that failed: after a switch that has moved the routing, the comparison would find the tenant elsewhere.
func TestARetryBeginsWithTheStepThatFailed(t *testing.T) {
	t.Parallel()
	for effect := range handlers {
		l := reach(t, effect, `{"data":"shared","onFailure":"hold","idleSeconds":86400}`)
		l.fail(effect, "unavailable")
		l.step(machines.Input{Command: "retry"})
		require.Contains(t, l.e.Effects, effect)
		require.Empty(t, l.data().FailedStep)
	}
}

// A switch that has found the tenant's writers let in again is not repeated before everything is compared once more.
func TestARetryAfterALostFenceComparesAgain(t *testing.T) {
	t.Parallel()
	l := reach(t, "switch", moved)
	l.fail("switch", database.CodeUnfenced)
	require.Equal(t, database.CodeUnfenced, l.e.LastError.Code)
	l.step(machines.Input{Command: "retry"})
	require.Contains(t, l.e.Effects, "verify")
}

// A rollback that was refused because of what the tenant has written since has taken nothing back, so the session may also go on.
func TestARetryIsPossibleAfterARollbackThatWasRefused(t *testing.T) {
	t.Parallel()
	l := reach(t, "switch", moved)
	l.fail("switch", "unavailable")
	l.step(machines.Input{Command: "rollback", Body: json.RawMessage(`{"keepWrites":true}`)})
	undone := func(first, second bool) {
		l.step(machinetest.Report(t, "undone", l.e.Effects["undo"].ID, session.Results{Actions: []session.ActionResult{{Action: "settle_writes", Done: first}, {Action: "restore_tenant_runtime", Done: second}}}))
		require.Equal(t, session.RollbackStuck, l.data().Phase)
	}
	undone(false, false)
	retried := func() error {
		_, _, err := platform.Machine.Step(l.e, machines.Input{Command: "retry", Seq: l.seq + 1, Time: l.now, ID: "x"})
		return err
	}
	require.NoError(t, retried())
	l.step(machines.Input{Command: "rollback", Body: json.RawMessage(`{}`)})
	undone(true, false)
	require.Error(t, retried())
	l.step(machines.Input{Command: "rollback", Body: json.RawMessage(`{}`)})
	undone(false, false)
	require.Error(t, retried(), "an undo before this one has taken something back")
	l = reach(t, "switch", moved)
	l.fail("switch", "unavailable")
	l.step(machines.Input{Command: "rollback", Body: json.RawMessage(`{"keepWrites":true}`)})
	undone(false, false)
	l.step(machines.Input{Command: "retry"})
	require.Contains(t, l.e.Effects, "switch")
	require.Empty(t, l.data().Writes)
	require.Empty(t, l.data().Undone)
}

// Codes of the specification stand for themselves, and some end a session whatever the provider says.
func TestCodesThatStandForThemselves(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		effect, code, request string
		attempts              int
	}{
		{"provision", "SLUG_ALREADY_EXISTS", `{"preferredSlug":"shop"}`, 1},
		{"plan", "SLUG_ALREADY_EXISTS", `{"preferredSlug":"shop"}`, 1},
		{"plan", "QUOTA_EXCEEDED", `{}`, 1},
		{"provision", "QUOTA_EXCEEDED", `{}`, 1},
		{"deploy", "DEPLOYMENT_UNHEALTHY", `{}`, 3},
	} {
		l := reach(t, c.effect, c.request)
		require.Equal(t, c.attempts, l.fail(c.effect, c.code), c.code)
		require.Equal(t, c.code, l.e.LastError.Code)
	}
}

func TestUndoIsTheReverseOfCreation(t *testing.T) {
	t.Parallel()
	for effect := range handlers {
		var got []string
		for _, a := range platform.Undo(reach(t, effect, moved).data().Ledger) {
			require.Equal(t, a.Name == "restore_tenant_runtime", a.Stop, a.Name)
			got = append(got, a.Name)
		}
		require.Equal(t, whole[len(whole)-len(got):], got, effect)
		require.Subset(t, got, rollbacks[effect], effect)
	}
}

// What an effect may create is in the ledger of its task, and not yet created.
func TestResourcesAreIntendedBeforeTheyAreCreated(t *testing.T) {
	t.Parallel()
	for effect, kinds := range map[string][]string{
		"plan": nil, "provision": {"slug", "instance"}, "allocate": {"database"}, "store": {"storage"}, "deploy": {"app"}, "migrate": nil, "copy": {"fence"},
		"route": {"route", "domain"}, "certify": {"certificate"}, "verify": nil, "probe": nil, "switch": {"runtime"},
	} {
		var got []string
		for _, e := range reach(t, effect, moved).data().Ledger {
			if e.State == session.Intended {
				got = append(got, e.Kind)
			}
		}
		require.Equal(t, kinds, got, effect)
	}
}

// A worker of machines/database reads the tasks of the database steps as its own.
func TestTasksOfTheDatabaseStepsAreThoseOfItsMachine(t *testing.T) {
	t.Parallel()
	ours := reach(t, "copy", `{"enterpriseId":"ACME","data":"shared","mode":"online","dbSpec":"large","region":"eu"}`)
	var got database.Task
	require.NoError(t, json.Unmarshal(taskOf(t, ours, "copy"), &got))
	require.Equal(t, "default.acme.own", got.Session)
	require.Equal(t, database.RequestBody{EnterpriseID: "ACME", Mode: database.ModeOnline, Spec: "large", Region: "eu"}, got.Request)
	require.NotNil(t, got.Database)
	for _, effect := range []string{"allocate", "migrate", "copy", "verify", "switch"} {
		require.True(t, slices.ContainsFunc(database.Stages, func(g database.Stage) bool { return g.Effect == effect }), effect)
		require.True(t, slices.ContainsFunc(platform.Stages, func(g session.Stage) bool { return g.Effect == effect }), effect)
	}
}

// An upgrade is taken back at any of its steps, also before its plan has said to which version.
func TestWhatIsWithdrawnIsNotTheReleaseThatServes(t *testing.T) {
	t.Parallel()
	for _, body := range []string{`{}`, `{"version":"2"}`} {
		for _, until := range []string{"plan", "migrate", "deploy", "shift"} {
			l := reach(t, "switch", `{"data":"shared","version":"1"}`)
			l.step(machinetest.Report(t, "switched", l.e.Effects["switch"].ID, nil))
			l.step(machines.Input{Command: platform.CommandUpgrade, Body: json.RawMessage(body)})
			for _, g := range []session.Stage{{Effect: "plan", Done: "planned", Body: platform.Plan{Version: "3"}}, {Effect: "migrate", Done: "migrated"}, {Effect: "deploy", Done: "deployed"}} {
				if g.Effect == until {
					break
				}
				l.step(machinetest.Report(t, g.Done, l.e.Effects[g.Effect].ID, g.Body))
			}
			require.Contains(t, l.e.Effects, until)
			l.step(machines.Input{Command: session.CommandCancel})
			var got platform.Task
			require.NoError(t, json.Unmarshal(taskOf(t, l, platform.EffectWithdraw), &got))
			require.NotNil(t, got.Release, "%s at %s", body, until)
			require.Equal(t, "tenant-acme-r2", got.Release.Name, "%s at %s", body, until)
		}
	}
}

// A session keeps to the server of its plan in all that it does, also after an upgrade has planned anew, for no server.
func TestAllTasksAreForTheServerOfThePlan(t *testing.T) {
	t.Parallel()
	l := &life{t: t, e: platform.Machine.New("default", "acme", "own"), now: machinetest.Begun}
	l.step(machines.Input{Command: platform.CommandRequest, Body: json.RawMessage(moved)})
	requireServer := func(effect string) {
		t.Helper()
		var got platform.Task
		require.NoError(t, json.Unmarshal(taskOf(t, l, effect), &got))
		require.Equal(t, "t2", got.Server, effect)
	}
	for _, g := range platform.Stages {
		if g.Effect != "plan" {
			requireServer(g.Effect)
			l.step(machinetest.Report(t, g.Done, l.e.Effects[g.Effect].ID, nil))
			continue
		}
		l.step(machinetest.Report(t, g.Done, l.e.Effects[g.Effect].ID, platform.Plan{Version: "1", Server: "t2"}))
	}
	require.Equal(t, platform.Ready, l.e.State)
	l.step(machines.Input{Command: platform.CommandUpgrade, Body: json.RawMessage(`{"version":"2"}`)})
	l.step(machinetest.Report(t, "planned", l.e.Effects["plan"].ID, platform.Plan{Version: "2"}))
	requireServer("migrate")
	l.step(machines.Input{Command: session.CommandCancel})
	requireServer(platform.EffectWithdraw)
	require.Equal(t, "t2", l.data().Plan.Server)
}

// upgraded is a session whose tenant has its second release.
func upgraded(t *testing.T) *life {
	l := reach(t, "switch", moved)
	l.step(machinetest.Report(t, "switched", l.e.Effects["switch"].ID, nil))
	l.step(machines.Input{Command: platform.CommandUpgrade, Body: json.RawMessage(`{"version":"2","weights":[100]}`)})
	for _, g := range [][2]string{{"plan", "planned"}, {"migrate", "migrated"}, {"deploy", "deployed"}, {"shift", "shifted"}, {"retire", "retired"}} {
		l.step(machinetest.Report(t, g[1], l.e.Effects[g[0]].ID, nil))
	}
	require.Equal(t, platform.Ready, l.e.State)
	return l
}

// What serves goes when nothing leads to it any more, also when it was made after the route.
func TestAnUpgradedTenantIsClosedFromOutside(t *testing.T) {
	t.Parallel()
	l := upgraded(t)
	l.step(machines.Input{Command: platform.CommandRetire, Body: json.RawMessage(`{"tenant":"acme"}`)})
	var got platform.Task
	require.NoError(t, json.Unmarshal(taskOf(t, l, session.EffectUndo), &got))
	require.True(t, l.now.Equal(got.RetiringAt), "by which its export is named")
	var names []string
	for _, a := range got.Actions {
		names = append(names, a.Name)
	}
	require.Equal(t, []string{
		"retire_tenant_runtime", "invalidate_cache", "cancel_domain_binding", "remove_route", "delete_certificate", "delete_app:tenant-acme-r2", "delete_storage", "delete_database", "delete_instance", "release_slug",
	}, names)
}

// A tenant from before there was anywhere to export to is closed with an export after an upgrade to what it has.
func TestAnUpgradeToTheSameVersionFindsWhereToExport(t *testing.T) {
	t.Parallel()
	l := upgraded(t)
	saved := machines.Input{Command: platform.CommandRetire, Body: json.RawMessage(`{"tenant":"acme","export":true}`)}
	_, _, err := platform.Machine.Step(l.e, saved)
	require.Error(t, err)
	l.step(machines.Input{Command: platform.CommandUpgrade, Body: json.RawMessage(`{"version":"2"}`)})
	l.step(machinetest.Report(t, "planned", l.e.Effects["plan"].ID, platform.Plan{Version: "2", Export: true}))
	require.Equal(t, platform.Ready, l.e.State)
	l.step(saved)
	require.Equal(t, platform.Retiring, l.e.State)
}

// What a release gets of the configuration is of when it is deployed: another one of the same version gets it anew, and downgrade leads where it led.
func TestTheSameVersionIsDeployedAnewWhereThatIsAskedFor(t *testing.T) {
	t.Parallel()
	l := upgraded(t)
	before := l.data().Previous
	for body, channel := range map[string]string{
		`{"version":"2","redeploy":true,"weights":[100]}`:    "1",
		`{"redeploy":true,"weights":[100]}`:                  "1", // which is where the channel of the request stands still
		`{"channel":"next","redeploy":true,"weights":[100]}`: "2",
	} {
		l.step(machines.Input{Command: platform.CommandUpgrade, Body: json.RawMessage(body)})
		planned := platform.Plan{Version: cmp.Or(l.data().Upgrade.To, channel)} // as the provider has it
		for _, g := range []session.Stage{{Effect: "plan", Done: "planned", Body: planned}, {Effect: "migrate", Done: "migrated"}, {Effect: "deploy", Done: "deployed"}, {Effect: "shift", Done: "shifted"}, {Effect: "retire", Done: "retired"}} {
			require.Contains(t, l.e.Effects, g.Effect, body)
			l.step(machinetest.Report(t, g.Done, l.e.Effects[g.Effect].ID, g.Body))
		}
		require.Equal(t, platform.Ready, l.e.State)
		require.Equal(t, "2", l.data().Version)
		require.Equal(t, before, l.data().Previous)
	}
	require.Equal(t, 5, l.data().Release)
	l.step(machines.Input{Command: platform.CommandUpgrade, Body: json.RawMessage(`{}`)})
	require.Empty(t, l.data().Upgrade.To, "that of the channel")
}

// A tenant is upgraded for years, and its session is one value: what it has had and has no more is in its events.
func TestTheLedgerDoesNotGrowWithUpgrades(t *testing.T) {
	t.Parallel()
	l := upgraded(t)
	has := len(l.data().Ledger)
	for range 20 {
		l.step(machines.Input{Command: platform.CommandUpgrade, Body: json.RawMessage(`{"redeploy":true,"weights":[100]}`)})
		for _, g := range [][2]string{{"plan", "planned"}, {"migrate", "migrated"}, {"deploy", "deployed"}} {
			l.step(machinetest.Report(t, g[1], l.e.Effects[g[0]].ID, nil))
		}
		if l.data().Releases%2 == 0 {
			l.step(machines.Input{Command: session.CommandCancel})
			l.step(machinetest.Report(t, "withdrawn", l.e.Effects[platform.EffectWithdraw].ID, nil))
		} else {
			l.step(machinetest.Report(t, "shifted", l.e.Effects["shift"].ID, nil))
			l.step(machinetest.Report(t, "retired", l.e.Effects["retire"].ID, nil))
		}
		require.Equal(t, platform.Ready, l.e.State)
		require.True(t, slices.ContainsFunc(l.out.Messages, func(m machines.Message) bool {
			return m.Name == session.EventResourceChanged && strings.Contains(string(m.Body), `"action":"deleted"`)
		}), "it is told")
		require.Len(t, l.data().Ledger, has)
		require.Equal(t, []string{fmt.Sprintf("tenant-acme-r%d", l.data().Release)}, platform.Releases(l.data().Ledger))
	}
}

// Whoever says that the tenant is ready again has not said that nothing of the new release is left.
func TestAReleaseThatCouldNotBeWithdrawnStaysInTheLedger(t *testing.T) {
	t.Parallel()
	l := reach(t, "switch", moved)
	l.step(machinetest.Report(t, "switched", l.e.Effects["switch"].ID, nil))
	l.step(machines.Input{Command: platform.CommandUpgrade, Body: json.RawMessage(`{"version":"2"}`)})
	for _, g := range [][2]string{{"plan", "planned"}, {"migrate", "migrated"}} {
		l.step(machinetest.Report(t, g[1], l.e.Effects[g[0]].ID, nil))
	}
	l.step(machines.Input{Command: session.CommandCancel})
	failed := machines.EffectFailed{Effect: platform.EffectWithdraw, Attempt: l.e.Effects[platform.EffectWithdraw].ID, Failure: machines.Failure{Code: "invalid", Message: "x"}}
	l.step(machines.Input{Command: machines.CommandFailed, Body: machinetest.JSON(t, failed)})
	l.step(machines.Input{Command: session.CommandResolve, Body: json.RawMessage(`{"outcome":"ready"}`)})
	require.Equal(t, platform.Ready, l.e.State)
	last := l.data().Ledger[len(l.data().Ledger)-1]
	require.Equal(t, session.Entry{Kind: platform.KindApp, Name: "tenant-acme-r2", State: session.Created, At: l.now}, last)
}

// taskOf is the data of the task of an effect that the last step has begun.
func taskOf(t *testing.T, l *life, effect string) json.RawMessage {
	for _, m := range l.out.Messages {
		if m.Kind == machines.KindEffect && m.Name == effect {
			var task machines.Task
			require.NoError(t, json.Unmarshal(m.Body, &task))
			return task.Data
		}
	}
	require.Fail(t, "no task")
	return nil
}

func TestStoredValuesKeepTheirForm(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("testdata/stored-1.jsonl")
	require.NoError(t, err)
	states := map[string]bool{}
	for line := range strings.Lines(string(raw)) {
		e, err := platform.Machine.Decode([]byte(line))
		require.NoError(t, err)
		again, err := e.AppendJSON(nil)
		require.NoError(t, err)
		require.Equal(t, strings.TrimSpace(line), string(again))
		states[e.State] = true
	}
	require.Len(t, states, len(platform.Machine.States), "a value of each state")
}

// law is the table again, written by hand.
func law() machinetest.Law {
	l := machinetest.Law{
		"":            {"request": {"requested"}},
		"rolled_back": {"request": {"requested"}}, "cancelled": {"request": {"requested"}}, "deprovisioned": {"request": {"requested"}},
		"failed": {
			"rollback": {"failed"}, "resolve": {"ready", "failed"}, "undone": {"rolled_back", "ready", "failed"}, "undo-failed": {"failed"},
			"retry": {"requested", "allocating_instance", "allocating_db", "allocating_storage", "deploying_app", "running_migrations", "migrating_data", "configuring_domain", "issuing_cert", "verifying"},
		},
		"ready":          {"upgrade": {"upgrading"}, "downgrade": {"upgrading"}, "prune": {"upgrading"}, "deprovision": {"deprovisioning"}, "renewed": {"ready"}, "not-renewed": {"ready"}},
		"deprovisioning": {"rollback": {"deprovisioning"}, "undone": {"deprovisioned", "deprovisioning"}, "undo-failed": {"deprovisioning"}},
		"withdrawing":    {"withdrawn": {"ready"}, "withdraw-failed": {"withdrawing"}, "rollback": {"withdrawing"}, "resolve": {"ready"}, "renewed": {"withdrawing"}, "not-renewed": {"withdrawing"}},
		"upgrading": {
			"planned": {"ready", "upgrading"}, "migrated": {"upgrading"}, "deployed": {"upgrading"}, "shifted": {"upgrading"}, "retired": {"ready"},
			"plan-failed": {"upgrading", "withdrawing"}, "migrate-failed": {"upgrading", "withdrawing"}, "deploy-failed": {"upgrading", "withdrawing"}, "shift-failed": {"upgrading", "withdrawing"}, "retire-failed": {"upgrading", "ready"},
			"timed-out": {"upgrading", "ready", "withdrawing"}, "pause": {"upgrading"}, "resume": {"upgrading"}, "halted": {"upgrading"}, "halt-failed": {"upgrading"}, "rolling": {"upgrading"},
			"rollback": {"withdrawing"}, "cancel": {"withdrawing"}, "approve": {"upgrading"}, "renewed": {"upgrading"}, "not-renewed": {"upgrading"},
		},
	}
	for _, s := range [][4]string{
		{"requested", "planned", "plan-failed", "allocating_instance"},
		{"allocating_instance", "provisioned", "provision-failed", "allocating_db"},
		{"allocating_db", "allocated", "allocate-failed", "allocating_storage"},
		{"allocating_storage", "stored", "store-failed", "deploying_app"},
		{"deploying_app", "deployed", "deploy-failed", "running_migrations"},
		{"running_migrations", "migrated", "migrate-failed", "migrating_data"},
		{"migrating_data", "copied", "copy-failed", "configuring_domain"},
		{"configuring_domain", "routed", "route-failed", "issuing_cert"},
		{"issuing_cert", "certified", "certify-failed", "verifying"},
		{"verifying", "proven", "probe-failed", "verifying"},
	} {
		l[s[0]] = map[string][]string{
			s[1]: {s[3]}, s[2]: {s[0], "failed"}, "timed-out": {s[0], "failed"}, "pause": {s[0]}, "resume": {s[0]}, "cancel": {s[0]}, "rollback": {s[0]},
			"halted": {s[0]}, "halt-failed": {s[0]}, "undone": {"cancelled", s[0]}, "undo-failed": {s[0]},
		}
	}
	l["requested"]["planned"] = []string{"allocating_instance", "requested", "cancelled"}
	for _, failed := range []string{"plan-failed", "timed-out"} { // of a dry run
		l["requested"][failed] = append(l["requested"][failed], "cancelled")
	}
	l["requested"]["approve"] = []string{"allocating_instance"}
	l["running_migrations"]["migrated"] = []string{"migrating_data", "configuring_domain"}
	l["deploying_app"]["rolling"] = []string{"deploying_app"}
	l["migrating_data"]["progressed"] = []string{"migrating_data"}
	v := l["verifying"]
	v["verified"], v["verify-failed"], v["switched"], v["switch-failed"] = []string{"verifying"}, []string{"verifying", "failed"}, []string{"ready"}, []string{"failed"}
	return l
}

func TestTheTableIsTheSpecification(t *testing.T) {
	t.Parallel()
	law().Table(t, platform.Machine)
}

func TestAnySequenceOfInputsKeepsThePromises(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := &machinetest.Run{T: t, Machine: platform.Machine, Law: law(), E: platform.Machine.New("default", "acme", "own"), Now: machinetest.Begun}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			r.Pause(20 * time.Minute)
			r.Step(input(r), func(_ machines.Input, next machines.Entity, _ machines.Output) { keeps(r, next) })
		}
	})
}

func input(r *machinetest.Run) machines.Input {
	t := r.T
	switch rapid.SampledFrom([]string{"command", "success", "success", "success", "success", "success", "failure", "timer"}).Draw(t, "kind") {
	case "command":
		name := rapid.SampledFrom([]string{"request", "request", "approve", "pause", "resume", "cancel", "retry", "rollback", "resolve", "upgrade", "upgrade", "downgrade", "deprovision"}).Draw(t, "command")
		body := map[string]string{
			"request": rapid.SampledFrom([]string{`{}`, `{"data":"shared","onFailure":"rollback"}`, `{"approval":true}`, `{"preferredSlug":"x","idleSeconds":60}`}).Draw(t, "body"),
			"resolve": `{"outcome":"ready"}`, "deprovision": `{"tenant":"acme"}`, "upgrade": rapid.SampledFrom([]string{`{}`, `{"redeploy":true}`, `{"version":"2","weights":[50,100]}`, `{"version":"2","approval":true}`}).Draw(t, "upgrade"),
		}[name]
		return machines.Input{Command: name, Body: json.RawMessage(body)}
	case "timer":
		return r.Elapsed("deadline")
	case "failure":
		for name, a := range r.E.Effects {
			code := rapid.SampledFrom([]string{"x", platform.CodeSlug}).Draw(t, "code")
			return machines.Input{Command: machines.CommandFailed, Body: machinetest.JSON(t, machines.EffectFailed{Effect: name, Attempt: a.ID, Failure: machines.Failure{Code: code, Message: "y", Retryable: rapid.Bool().Draw(t, "retryable")}})}
		}
	}
	for name, a := range r.E.Effects {
		info, _ := r.Machine.Effect(name)
		return machinetest.Report(t, info.Done, a.ID, nil)
	}
	return machines.Input{Command: "request", Body: json.RawMessage(`{}`)}
}

// keeps: what holds of every session, whatever happened to it.
func keeps(r *machinetest.Run, e machines.Entity) {
	t, d := r.T, e.Data.(*platform.Data)
	_, armed := e.Timers["deadline"]
	require.Equal(t, d.Phase == session.Executing || d.Phase == session.RetryWait, armed, "a clock runs in %s %s", e.State, d.Phase)
	require.Equal(t, d.Phase == session.RetryWait, !d.NextTry.IsZero(), "the next time is shown")
	if d.Phase == session.Paused {
		_, _, err := r.Machine.Step(e, machines.Input{Command: session.CommandResume, Seq: e.Version + 1000, ID: "resume", Time: r.Now})
		require.NoError(t, err, "a pause has an end in %s %s", e.State, d.Step)
	}
	require.Equal(t, e.State == platform.Upgrading || e.State == platform.Withdrawing, d.Upgrade != nil, "an upgrade is under way in %s", e.State)
	switch e.State {
	case platform.Failed:
		require.NotNil(t, e.LastError)
		require.NotEmpty(t, d.FailedFrom)
		if d.Phase == session.Held && e.LastError.Code == platform.CodeSlug { // of a stage, and not of an undo
			require.Empty(t, d.Ledger, "what is another tenant's is not undone")
		}
	case platform.Ready, platform.RolledBack, platform.Cancelled, platform.Retired:
		require.Empty(t, e.Effects)
		require.Empty(t, d.Phase)
		require.False(t, d.CompletedAt.IsZero())
	}
	names := map[string]bool{}
	for _, entry := range d.Ledger {
		require.False(t, names[entry.Kind+entry.Name], "%s %s is in the ledger twice", entry.Kind, entry.Name)
		names[entry.Kind+entry.Name] = true
		if e.State == platform.RolledBack || e.State == platform.Cancelled {
			require.Equal(t, session.Undone, entry.State)
		}
	}
}

// An undo after a switch compares all rows, and copies them back: it has at least the time of a comparison, and that of an instance has more, as it is not all of it.
func TestAnUndoHasTheTimeOfAComparison(t *testing.T) {
	t.Parallel()
	of := func(m *machines.Machine, name string) time.Duration {
		fx, ok := m.Effect(name)
		require.True(t, ok)
		return fx.Timeout
	}
	own := of(database.Machine, "undo")
	require.Greater(t, own, of(database.Machine, "verify"))
	require.Greater(t, of(platform.Machine, "undo"), own)
}
