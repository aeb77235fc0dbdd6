package platform

import (
	"cmp"
	"slices"
	"time"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/database"
	"github.com/bcc94042/instar/machines/session"
)

// upgradeStages are the steps to another version. The first three are effects that a session has anyway.
var upgradeStages = []session.Stage{
	{
		State: Upgrading, Step: stepPlan, Effect: "plan", Done: "planned", Failed: "plan-failed", Timeout: 10 * time.Minute, Retries: 3, Code: "PREFLIGHT_FAILED",
		Started: EventPlanning, Ended: []string{EventUpgradePlanned}, Body: Plan{},
	},
	{
		State: Upgrading, Step: stepMigrate, Effect: "migrate", Done: "migrated", Failed: "migrate-failed", Timeout: 30 * time.Minute, Retries: 2, Code: "MIGRATIONS_FAILED",
		Started: EventMigrationsStarted, Ended: []string{EventMigrationsCompleted}, Body: database.Migrated{},
	},
	{
		State: Upgrading, Step: stepDeploy, Effect: "deploy", Done: "deployed", Failed: "deploy-failed", Timeout: 30 * time.Minute, Retries: 2, Code: "DEPLOYMENT_FAILED", Codes: deployCodes,
		Started: EventDeploymentStarted, Ended: []string{EventDeploymentCompleted}, Body: App{},
	},
	{
		State: Upgrading, Step: stepShift, Effect: "shift", Done: "shifted", Failed: "shift-failed", Timeout: 30 * time.Minute, Retries: 2, Code: "UPGRADE_FAILED", Codes: map[string]bool{"UPGRADE_UNHEALTHY": false},
		Started: EventUpgradeShifting, Ended: []string{EventUpgradeShifted}, Body: Shifted{}, Doc: "The new version gets a share of the traffic, and is watched.",
	},
	{
		State: Upgrading, Step: stepPromote, Effect: "retire", Done: "retired", Failed: "retire-failed", Timeout: 10 * time.Minute, Retries: 5, Code: "OLD_RELEASE_LEFT",
		Started: EventUpgradePromoting, Ended: []string{EventUpgradeCompleted}, Doc: "The old version is being drained and removed, with what earlier upgrades have left.", Firm: true,
	},
}

// ownOfUpgrades are the stages whose effects no session has before.
func ownOfUpgrades() []session.Stage { return upgradeStages[3:] }

var (
	canDowngrade = &guard{Name: "had another version", Doc: "it had no other version before, or something is under way", Holds: func(s *step) bool {
		return s.Data.Phase == "" && s.Data.Previous != ""
	}}
	leftover = &guard{Name: "release left", Doc: "no release is left, or something is under way", Holds: func(s *step) bool {
		return s.Data.Phase == "" && len(s.Data.releases(s.Data.Release)) > 0
	}}
	reversible = &guard{Name: "not promoted", Doc: "the new version has all traffic, and the old one is going; downgrade leads back", Holds: func(s *step) bool { return s.Data.Step != stepPromote }}
	stuck      = kind.In(session.RollbackStuck)
	isThere    = session.And(kind.In(session.Executing), "same version", func(s *step) bool {
		return !s.Data.Upgrade.Redeploy && cmp.Or(s.Data.Upgrade.To, machines.Body[Plan](s).Version) == s.Data.Version
	})
	pruning  = session.And(kind.In(session.Executing), "no other version", func(s *step) bool { return s.Data.Upgrade.Release == s.Data.Release })
	more     = session.And(kind.In(session.Executing), "more weights", func(s *step) bool { return s.Data.Upgrade.Weight < 100 })
	asks     = session.And(more, "by approval", func(s *step) bool { return s.Data.Upgrade.Approval })
	awaits   = kind.In(session.WaitingApproval)
	resolved = session.And(stuck, "as ready", func(s *step) bool { return machines.Body[session.ResolveBody](s).Outcome == Ready })
)

// upgrades are the ways to another version, and back.
func upgrades() []edge {
	at, going := only(Upgrading), only(EventUpgradeStarted, session.EventTransitioned, EventPlanning)
	executing, plan, shift, promote := kind.In(session.Executing), kind.Stage(Upgrading, stepPlan), kind.Stage(Upgrading, stepShift), kind.Stage(Upgrading, stepPromote)
	edges := []edge{
		{From: only(Ready), On: CommandUpgrade, If: settled, To: Upgrading, Do: upgrade, Emit: going, Effects: only(plan.Effect)},
		{From: only(Ready), On: CommandDowngrade, If: canDowngrade, To: Upgrading, Do: downgrade, Emit: going, Effects: only(plan.Effect)},
		{From: only(Ready), On: CommandPrune, If: leftover, To: Upgrading, Do: prune, Emit: only(EventPruning, session.EventTransitioned, promote.Started), Effects: only(promote.Effect)},
		{From: at, On: plan.Done, If: isThere, To: Ready, Do: unneeded, Emit: only(EventUpgradeUnneeded, session.EventTransitioned)},
		{From: at, On: shift.Done, If: asks, To: machines.Same, Reenter: true, Do: awaitShare, Emit: append(slices.Clone(shift.Ended), EventUpgradeWaiting)},
		{From: at, On: session.CommandApprove, If: awaits, To: machines.Same, Reenter: true, Do: nextShare, Emit: only(EventUpgradeApproved, shift.Started), Effects: only(shift.Effect)},
		kind.Done(shift, more, Upgrading, shift),
	}
	pruned := *promote
	pruned.Ended = only(EventPruned)
	edges = append(edges, kind.Done(&pruned, pruning, Ready, nil))
	back := only(EventUpgradeWithdrawing, session.EventTransitioned)
	for i := range upgradeStages {
		g := &upgradeStages[i]
		if g.Firm {
			edges = append(edges, kind.Done(g, executing, Ready, nil))
			edges = append(edges, kind.Attempts(g)...)
			edges = append(edges, kind.Pauses(g, false)...) // only between attempts is it paused: nothing is interrupted then
			edges = append(edges, edge{From: at, On: g.Failed, If: executing, To: Ready, Do: left, Emit: only(EventUpgradeLeft, session.EventTransitioned)})
			continue
		}
		edges = append(edges, kind.Done(g, executing, Upgrading, &upgradeStages[i+1]))
		edges = append(edges, kind.Attempts(g)...)
		edges = append(edges, kind.Pauses(g, i == 0)...)
		edges = append(edges, edge{From: at, On: g.Failed, If: executing, To: Withdrawing, Do: withdraw, Emit: back, Effects: only(EffectWithdraw)})
	}
	edges = append(edges, kind.Halts(Upgrading)...)
	return append(edges,
		edge{From: at, On: session.Timeout, If: kind.Within(promote, executing), To: Ready, Do: left, Emit: only(EventUpgradeLeft, session.EventTransitioned)},
		edge{From: at, On: session.Timeout, To: Withdrawing, Do: withdraw, Emit: back, Effects: only(EffectWithdraw)},
		edge{From: at, On: session.CommandRollback, If: reversible, To: Withdrawing, Do: takeBack, Emit: back, Effects: only(EffectWithdraw)},
		edge{From: at, On: session.CommandCancel, If: reversible, To: Withdrawing, Do: takeBack, Emit: back, Effects: only(EffectWithdraw)},
		edge{From: only(Withdrawing), On: ReportWithdrawn, To: Ready, Do: withdrawn, Emit: only(EventUpgradeWithdrawn, session.EventTransitioned)},
		edge{From: only(Withdrawing), On: ReportWithdrawFailed, To: machines.Same, Do: notWithdrawn, Emit: only(EventUpgradeStuck)},
		edge{From: only(Withdrawing), On: session.CommandRollback, If: stuck, To: machines.Same, Reenter: true, Do: again, Emit: only(EventUpgradeWithdrawing), Effects: only(EffectWithdraw)},
		edge{From: only(Withdrawing), On: session.CommandResolve, If: resolved, To: Ready, Do: byHand, Emit: only(EventResolved, session.EventTransitioned)})
}

func start(s *step, u Upgrade, steps Steps) {
	d := s.Data
	s.Fail(nil)
	if len(steps.Weights) == 0 {
		steps.Weights = []int{5, 25, 50, 100}
	}
	d.Releases++
	u.From, u.Release, u.Weights, u.Hold, u.Approval = d.Version, d.Releases, steps.Weights, cmp.Or(steps.Hold, 30), steps.Approval
	d.Upgrade = &u
	d.CompletedAt = time.Time{}
	kind.Tell(s, EventUpgradeStarted, map[string]any{"upgrade": d.Upgrade})
	kind.Transitioned(s)
	kind.Begin(s, &upgradeStages[0], 1)
}

func upgrade(s *step) {
	b := machines.Body[UpgradeBody](s)
	to := b.Version
	if b.Redeploy && to == "" && b.Channel == "" { // the channel of the request may stand elsewhere than the tenant
		to = s.Data.Version
	}
	start(s, Upgrade{To: to, Channel: cmp.Or(b.Channel, s.Data.Request.Channel), Redeploy: b.Redeploy}, b.Steps)
}

func downgrade(s *step) {
	start(s, Upgrade{To: s.Data.Previous}, machines.Body[DowngradeBody](s).Steps)
}

// prune is the last step of an upgrade alone, to the release that is served.
func prune(s *step) {
	d := s.Data
	s.Fail(nil)
	d.Upgrade = &Upgrade{From: d.Version, To: d.Version, Release: d.Release, App: d.App, Weights: []int{100}, Weight: 100}
	d.CompletedAt = time.Time{}
	kind.Tell(s, EventPruning, map[string]any{"left": d.releases(d.Release)})
	kind.Transitioned(s)
	kind.Begin(s, kind.Stage(Upgrading, stepPromote), 1)
}

// awaitShare leaves the new release at the share that it has, and says so, until the next one is approved.
func awaitShare(s *step) {
	has := s.Data.Upgrade
	kind.Succeed(s, kind.Stage(Upgrading, stepShift))
	next := s.Data.Upgrade.Weight
	s.Data.Phase, s.Data.Upgrade = session.WaitingApproval, has
	kind.Tell(s, EventUpgradeWaiting, map[string]any{"weight": has.Weight, "next": next})
}

func nextShare(s *step) {
	s.Data.Upgrade = s.Data.Upgrade.advance(&Shifted{})
	kind.Tell(s, EventUpgradeApproved, map[string]any{"weight": s.Data.Upgrade.Weight})
	kind.Begin(s, kind.Stage(Upgrading, stepShift), 1)
}

// leave ends an upgrade, whatever came of it.
func leave(s *step, event string, more map[string]any) {
	more["upgrade"] = s.Data.Upgrade
	s.Data.Upgrade = nil
	kind.Tell(s, event, more)
	kind.Transitioned(s)
	kind.Rest(s)
}

func unneeded(s *step) {
	s.Data.replan(machines.Body[Plan](s))
	s.Fail(nil) // of an earlier try of the plan
	leave(s, EventUpgradeUnneeded, map[string]any{"reason": "the tenant has this version, and nothing was deployed: with redeploy, another release of it is, with what is configured now"})
}

// replan keeps of the plan of an upgrade what outlasts it: the server may have somewhere to export to by now, or no more.
func (d *Data) replan(of *Plan) {
	if d.Plan != nil {
		p := *d.Plan
		p.Export, p.Notes, d.Plan = of.Export, of.Notes, &p
	}
}

// promote makes the new release the one that is served. The old one is marked by who knows that it has gone.
func promote(d *Data) {
	u := d.Upgrade
	if u.Release == d.Release { // prune
		return
	}
	if u.To != d.Version { // else it is where downgrade leads still
		d.Previous = d.Version
	}
	d.Version, d.App, d.Release = u.To, u.App, u.Release
}

func left(s *step) {
	f := kind.Failure(s)
	promote(s.Data)
	leave(s, EventUpgradeLeft, map[string]any{"error": f})
}

func takeBack(s *step) { begin(s, map[string]any{"reason": "asked for"}) }

func withdraw(s *step) { begin(s, map[string]any{"error": kind.Failure(s)}) }

func begin(s *step, why map[string]any) {
	s.Data.Phase, s.Data.NextTry = session.RollingBack, time.Time{}
	why["upgrade"] = s.Data.Upgrade
	kind.Tell(s, EventUpgradeWithdrawing, why)
	kind.Transitioned(s)
}

func again(s *step) {
	s.Data.Phase = session.RollingBack
	kind.Tell(s, EventUpgradeWithdrawing, map[string]any{"upgrade": s.Data.Upgrade})
}

func notWithdrawn(s *step) {
	s.Data.Phase = session.RollbackStuck
	kind.Tell(s, EventUpgradeStuck, map[string]any{"error": machines.Body[machines.Failure](s)})
}

func withdrawn(s *step) {
	gone(kind, s, s.Data.appName(s.Data.Upgrade.Release))
	leave(s, EventUpgradeWithdrawn, map[string]any{})
}

// byHand: somebody says that the old release serves. The new one may be there, also where it was not begun, as the session may be older than that: it is in the ledger from then on, for
// prune and deprovision to remove.
func byHand(s *step) {
	name := s.Data.appName(s.Data.Upgrade.Release)
	kind.Intend(s, kind.Stage(Upgrading, stepDeploy))
	kind.MarkIf(s, session.Created, func(e *session.Entry) bool { return e.Kind == KindApp && e.Name == name })
	leave(s, EventResolved, map[string]any{"outcome": Ready, "left": s.Data.releases(s.Data.Release)})
}

// Releases are the names of those in a ledger that may be there.
func Releases(ledger []session.Entry) (names []string) {
	for _, e := range ledger {
		if e.Kind == KindApp && e.State != session.Undone {
			names = append(names, e.Name)
		}
	}
	return names
}

// releases are those that may be there, but for one.
func (d *Data) releases(but int) (names []string) {
	for _, name := range Releases(d.Ledger) {
		if name != d.appName(but) {
			names = append(names, name)
		}
	}
	return names
}

// alone notes that all releases are taken back but the one that is served.
func alone(k *session.Kind[Data], s *step) { gone(k, s, s.Data.releases(s.Data.Release)...) }

// gone notes that releases are taken back. They leave the ledger when that is told: a tenant may be upgraded for years, and a session is one value.
func gone(k *session.Kind[Data], s *step, names ...string) {
	k.MarkIf(s, session.Undone, func(e *session.Entry) bool { return e.Kind == KindApp && slices.Contains(names, e.Name) })
	s.Data.Ledger = slices.DeleteFunc(slices.Clone(s.Data.Ledger), func(e session.Entry) bool { return e.Kind == KindApp && e.State == session.Undone })
}

// advance is the upgrade after the result of one of its steps.
func (u Upgrade) advance(result any) *Upgrade {
	switch b := result.(type) {
	case *Plan:
		u.To = cmp.Or(u.To, b.Version)
	case *App:
		u.App, u.Weight = b, u.Weights[0]
	case *Shifted:
		if i := slices.IndexFunc(u.Weights, func(w int) bool { return w > u.Weight }); i >= 0 {
			u.Weight = u.Weights[i]
		}
	}
	return &u
}
