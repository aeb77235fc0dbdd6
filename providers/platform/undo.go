package platform

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/database"
	machine "github.com/bcc94042/instar/machines/platform"
	"github.com/bcc94042/instar/machines/session"
	"github.com/bcc94042/instar/providers"
	"github.com/bcc94042/instar/providers/domain"
	"github.com/bcc94042/instar/providers/platform/storage"
)

// exportData is the action that saves what a tenant has.
const exportData = "export_data"

// undoing are the actions that are not for the workers of databases, by their names up to a colon; what follows that is the argument.
var undoing = map[string]func(j *job, ctx context.Context, argument string) error{
	"cancel_domain_binding": (*job).unbind, exportData: (*job).export,
	"delete_app": (*job).removeApp, "delete_certificate": (*job).forget, "remove_route": (*job).unroute,
	"delete_storage": (*job).removeBucket, "delete_instance": (*job).removeInstance, "release_slug": (*job).releaseSlug,
}

// bySlug are the kinds that are another session's where that has the slug.
var bySlug = []string{machine.KindSlug, machine.KindInstance, machine.KindApp, machine.KindRoute, machine.KindCert}

// undo performs the actions in order, and says of each what became of it.
func (j *job) undo(ctx context.Context) (any, error) {
	if err := j.close(ctx, true); err != nil {
		return nil, err
	}
	actions := j.body.Actions
	results := make([]session.ActionResult, len(actions))
	if can, err := j.exportable(ctx, results); err != nil || !can {
		return session.Results{Actions: results}, err
	}
	var open []int // of the databases, and not done
	stopped, routed := false, false
	for i := 0; i < len(actions); {
		if routed = routed || actions[i].Kind == machine.KindRoute; routed && actions[i].Kind == machine.KindApp {
			routed = false
			if err := j.settle(ctx); err != nil {
				return nil, err
			}
		}
		batch, next := []int{i}, i+1
		if own(actions[i]) == nil {
			for ; next < len(actions) && own(actions[next]) == nil; next++ {
				batch = append(batch, next)
			}
			// When everything that they are given is done, their workers give the tenant free. So what is not is given to them again.
			batch, open = append(open, batch...), nil
		}
		if err := j.some(ctx, batch, results, stopped); err != nil {
			return nil, err
		}
		for _, k := range batch {
			if results[k].Done {
				continue
			}
			stopped = stopped || actions[k].Stop
			if own(actions[k]) == nil {
				open = append(open, k)
			}
		}
		i = next
	}
	if err := j.keep(ctx, results); err != nil {
		return nil, err
	}
	if err := j.free(ctx, results); err != nil {
		return nil, err
	}
	return session.Results{Actions: results}, nil
}

// exportable reports whether an export that is among the actions could be made. Where it could not, nothing more is taken away: the tenant would be off the air for want of it. Another try may do better; the last one says so of each action.
func (j *job) exportable(ctx context.Context, results []session.ActionResult) (bool, error) {
	actions := j.body.Actions
	if !slices.ContainsFunc(actions, func(a session.Action) bool { return a.Name == exportData }) {
		return true, nil
	}
	err := j.canExport()
	if err == nil {
		return true, nil
	}
	if j.unsettled(failure(err)) {
		return false, err
	}
	for i, a := range actions {
		if results[i] = (session.ActionResult{Action: a.Name, Error: "not tried: nothing more is taken away where the export could not be made"}); a.Name == exportData {
			results[i].Error = j.failure(ctx, err).Message
		}
	}
	return false, nil
}

// keep leaves a custom domain to the tenant whose undo is whole, and was told to skip it: whatever the session is asked next, also a dry run, would else take it for what is left of its life before.
func (j *job) keep(ctx context.Context, results []session.ActionResult) error {
	if !j.body.Kept || j.Domains == nil || slices.ContainsFunc(results, func(r session.ActionResult) bool { return !r.Done && !r.Skipped }) {
		return nil
	}
	b := j.binding()
	b.Kept = true
	return j.Domains.Remove(ctx, b)
}

// free has the workers of databases give the tenant free where everything is done and nothing of it was theirs, as somebody has done that by hand.
func (j *job) free(ctx context.Context, results []session.ActionResult) error {
	if slices.ContainsFunc(j.body.Actions, func(a session.Action) bool { return own(a) == nil }) ||
		slices.ContainsFunc(results, func(r session.ActionResult) bool { return !r.Done }) ||
		!slices.ContainsFunc(j.body.Ledger, func(e session.Entry) bool { return e.Kind == database.KindDatabase }) {
		return nil
	}
	return j.databases(ctx, nil, results)
}

// theirs reports whether what an action is for is another session's by now: it may have the slug since an earlier delivery of this task gave it free.
func (j *job) theirs(ctx context.Context, a session.Action) (bool, error) {
	if !slices.Contains(bySlug, a.Kind) {
		return false, nil
	}
	return j.passed(ctx)
}

// passed reports whether another session has the slug by now.
func (j *job) passed(ctx context.Context) (bool, error) {
	if j.body.PrimaryDomain == "" {
		return false, nil
	}
	r, err := j.Table.Row(ctx, j.body.PrimaryDomain)
	return j.anothers(r), unavailable(err)
}

// left is the first of these actions after which something is left that is named by the slug; empty when there is none.
func (j *job) left(results []session.ActionResult) string {
	for i, r := range results {
		kind := j.body.Actions[i].Kind
		if !r.Done && (kind == machine.KindStorage || slices.Contains(bySlug, kind)) {
			return r.Action
		}
	}
	return ""
}

func own(a session.Action) func(*job, context.Context, string) error {
	name, _, _ := strings.Cut(a.Name, ":")
	return undoing[name]
}

// some performs a batch of actions: those for the workers of databases, or one that is not. It fails when this try is to do nothing more.
func (j *job) some(ctx context.Context, batch []int, results []session.ActionResult, stopped bool) error {
	a := j.body.Actions[batch[0]]
	do := own(a)
	theirs, err := j.theirs(ctx, a)
	switch {
	case err != nil:
	case stopped:
		err = providers.Errorf(providers.Invalid, "not tried: an action before it failed")
	case do == nil:
		if err = j.databases(ctx, batch, results); err == nil {
			return nil
		}
	case theirs:
	case a.Kind == machine.KindSlug && j.left(results[:batch[0]]) != "":
		err = providers.Errorf(providers.Invalid, "not tried: what %s takes away is still there, and is named by the slug", j.left(results[:batch[0]]))
	default:
		_, argument, _ := strings.Cut(a.Name, ":")
		err = do(j, ctx, argument)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil && j.unsettled(failure(err)) {
		return err
	}
	for _, k := range batch {
		if stopped && results[k].Error != "" { // which says why it was stopped
			continue
		}
		if results[k] = (session.ActionResult{Action: j.body.Actions[k].Name, Done: err == nil}); err != nil {
			results[k].Error = j.failure(ctx, err).Message
		}
	}
	return nil
}

// unsettled reports whether a failure of an action ends this try of the undo: somebody newer is at it, or a later try may do better, or the tenant is kept out of its
// database, which is to be seen. What is left after the last try is told action by action.
func (j *job) unsettled(f *machines.Failure) bool {
	fx, _ := machine.Machine.Effect(machine.EffectUndo)
	return f.Fence > 0 || f.Code == database.CodeShut || f.Retryable && j.task.Try < fx.Retry.Attempts
}

// databases has a batch of actions performed by the workers of databases, by a task that has these alone.
func (j *job) databases(ctx context.Context, batch []int, results []session.ActionResult) error {
	actions := make([]session.Action, len(batch))
	for i, k := range batch {
		actions[i] = j.body.Actions[k]
	}
	var data map[string]json.RawMessage
	err := json.Unmarshal(j.task.Data, &data)
	if err == nil {
		data["actions"], err = json.Marshal(actions)
	}
	t := *j.task
	if err == nil {
		t.Data, err = json.Marshal(data)
	}
	if err != nil {
		return providers.Errorf(providers.Internal, "cannot write the task of the databases: %v", err)
	}
	r := j.Databases.Perform(ctx, t)
	if r.Failure != nil {
		return &providers.CodedError{Failure: *r.Failure}
	}
	var out database.Undone
	if err := into(r.Data, &out); err != nil {
		return err
	}
	if len(out.Actions) != len(actions) {
		return providers.Errorf(providers.Internal, "of %d actions the workers of databases report %d", len(actions), len(out.Actions))
	}
	for i, k := range batch {
		results[k] = out.Actions[i]
	}
	return nil
}

func (j *job) unbind(ctx context.Context, _ string) error {
	if j.Domains == nil {
		return nil // and none was bound
	}
	return j.Domains.Remove(ctx, j.binding())
}

// canExport is asked before anything is taken away that is to be exported.
func (j *job) canExport() error {
	switch {
	case j.Export == nil:
		return providers.Errorf(providers.Invalid, "this server has nowhere to export to: deprovision without export, or skip export_data")
	case j.Exportable == nil:
		return nil
	}
	return j.Exportable(j.task, &j.body)
}

func (j *job) export(ctx context.Context, _ string) error { return j.Export(ctx, j.task, &j.body) }

// removeApp ends a release. The route is gone by then, and what it still answers is let end. A domain that leads there keeps the release, whose address may be another tenant's next.
func (j *job) removeApp(ctx context.Context, name string) error {
	err := j.unlead(ctx, name)
	if err == nil {
		err = j.settle(ctx)
	}
	if err == nil {
		err = j.drained(ctx, name)
	}
	if err == nil {
		err = j.unbound(ctx, name)
	}
	if err != nil {
		return err
	}
	return j.remove(ctx, j.release(&machine.App{Name: name}))
}

// unlead closes the primary domain where that leads to a release still, as remove_route was to be skipped.
func (j *job) unlead(ctx context.Context, name string) error {
	address, err := j.address(ctx, name)
	if err != nil || address == "" || j.body.PrimaryDomain == "" {
		return err
	}
	r, err := j.Table.Row(ctx, j.body.PrimaryDomain)
	if err != nil || r.Owner != j.owner || !domain.Leads(r.Route, address) {
		return unavailable(err)
	}
	return j.unroute(ctx, "")
}

// unbound fails while a domain of the tenant leads to a release. The primary one is the session's own, and goes with it.
func (j *job) unbound(ctx context.Context, name string) error {
	address, err := j.address(ctx, name)
	if err != nil {
		return err
	}
	host, removed, err := j.bound(ctx, address)
	switch {
	case err != nil || host == "":
		return err
	case removed:
		return providers.Errorf(providers.Unavailable, "%s, which is being removed, leads to the release %s until then", host, name)
	}
	return providers.Errorf(providers.Unavailable, "%s leads to the release %s, and is not being removed: remove its domain, or retarget that, and roll back again", host, name)
}

func (j *job) forget(ctx context.Context, _ string) error {
	return j.Issuer.Forget(ctx, j.body.PrimaryDomain)
}

func (j *job) unroute(ctx context.Context, _ string) error {
	return j.change(ctx, func(r domain.Row) domain.Row {
		r.Route = nil
		return r
	})
}

// removeBucket removes the bucket. One that has not this session's mark stays, which is fine where none was made, as it is what was in the way, and where the slug is another session's: that
// was given free when the bucket had gone.
func (j *job) removeBucket(ctx context.Context, _ string) error {
	err := j.Storage.Delete(ctx, j.body.Name, j.owner)
	var another *storage.AnothersError
	if !errors.As(err, &another) {
		return err
	}
	if !slices.ContainsFunc(j.body.Ledger, func(e session.Entry) bool { return e.Kind == machine.KindStorage && e.State == session.Created }) {
		return nil
	}
	if passed, errRow := j.passed(ctx); passed || errRow != nil {
		return errRow
	}
	return err
}

func (j *job) removeInstance(ctx context.Context, _ string) error {
	return j.Apps.Forget(ctx, j.tenant())
}

func (j *job) releaseSlug(ctx context.Context, _ string) error {
	return j.change(ctx, func(r domain.Row) domain.Row { return r.Free(j.owner, j.task.Fence) })
}

// change changes the row while it is this session's, and this task is the last one of it.
func (j *job) change(ctx context.Context, change func(domain.Row) domain.Row) error {
	return unavailable(j.Table.Change(ctx, j.body.PrimaryDomain, func(r domain.Row) (domain.Row, error) {
		if r.Owner != j.owner {
			return r, nil
		}
		if err := j.admit(r); err != nil {
			return r, err
		}
		return change(r), nil
	}))
}
