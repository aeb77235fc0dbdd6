package platform

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/bcc94042/instar/machines/database"
	machine "github.com/bcc94042/instar/machines/platform"
	"github.com/bcc94042/instar/machines/session"
	"github.com/bcc94042/instar/providers"
	"github.com/bcc94042/instar/providers/domain"
)

// undoing are the actions that are not for the workers of databases, by their names up to a colon; what follows that is the argument.
var undoing = map[string]func(j *job, ctx context.Context, argument string) error{
	"cancel_domain_binding": (*job).unbind, "export_data": (*job).export,
	"delete_app": (*job).removeApp, "delete_certificate": (*job).forget, "remove_route": (*job).unroute,
	"delete_storage": (*job).removeBucket, "delete_instance": (*job).removeInstance, "release_slug": (*job).releaseSlug,
}

// bySlug are the kinds that are another session's where that has the slug.
var bySlug = []string{machine.KindSlug, machine.KindInstance, machine.KindApp, machine.KindRoute, machine.KindCert}

// undo performs the actions in order, and says of each what became of it.
func (j *job) undo(ctx context.Context) (any, error) {
	anothers, err := j.close(ctx, true)
	if err != nil {
		return nil, err
	}
	var out session.Results
	stopped := false
	for rest := j.body.Actions; len(rest) > 0; {
		n := 1 // the workers of databases get those together that follow each other
		if own(rest[0]) == nil {
			for n < len(rest) && own(rest[n]) == nil {
				n++
			}
		}
		results, err := j.some(ctx, rest[:n], anothers, stopped)
		if err != nil {
			return nil, err
		}
		for i, r := range results {
			stopped = stopped || !r.Done && rest[i].Stop
		}
		out.Actions, rest = append(out.Actions, results...), rest[n:]
	}
	return out, nil
}

func own(a session.Action) func(*job, context.Context, string) error {
	name, _, _ := strings.Cut(a.Name, ":")
	return undoing[name]
}

// some performs actions that are all for the workers of databases, or one that is not.
func (j *job) some(ctx context.Context, actions []session.Action, anothers, stopped bool) ([]session.ActionResult, error) {
	a, do := actions[0], own(actions[0])
	var err error
	switch {
	case stopped:
		err = providers.Errorf(providers.Invalid, "not tried: an action before it failed")
	case do == nil:
		var results []session.ActionResult
		if results, err = j.databases(ctx, actions); err == nil {
			return results, nil
		}
	case anothers && slices.Contains(bySlug, a.Kind):
	default:
		_, argument, _ := strings.Cut(a.Name, ":")
		err = do(j, ctx, argument)
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil && failure(err).Fence > 0 { // somebody newer is at it
		return nil, err
	}
	results := make([]session.ActionResult, len(actions))
	for i, a := range actions {
		if results[i] = (session.ActionResult{Action: a.Name, Done: err == nil}); err != nil {
			results[i].Error = failure(err).Message
		}
	}
	return results, nil
}

// databases has actions performed by the workers of databases, by a task that has these alone.
func (j *job) databases(ctx context.Context, actions []session.Action) ([]session.ActionResult, error) {
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
		return nil, providers.Errorf(providers.Internal, "cannot write the task of the databases: %v", err)
	}
	r := j.Databases.Perform(ctx, t)
	if r.Failure != nil {
		return nil, &failed{*r.Failure}
	}
	var out database.Undone
	if err := into(r.Data, &out); err != nil {
		return nil, err
	}
	if len(out.Actions) != len(actions) {
		return nil, providers.Errorf(providers.Internal, "of %d actions the workers of databases report %d", len(actions), len(out.Actions))
	}
	return out.Actions, nil
}

func (j *job) unbind(ctx context.Context, _ string) error {
	if j.Domains == nil {
		return nil // and none was bound
	}
	return j.Domains.Remove(ctx, j.binding())
}

func (j *job) export(ctx context.Context, _ string) error {
	if j.Export == nil {
		return providers.Errorf(providers.Invalid, "this server has nowhere to export to: deprovision without export, or skip export_data")
	}
	return j.Export(ctx, j.task, &j.body)
}

func (j *job) removeApp(ctx context.Context, name string) error {
	return j.Apps.Remove(ctx, j.release(&machine.App{Name: name}))
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

func (j *job) removeBucket(ctx context.Context, _ string) error {
	return j.Storage.Delete(ctx, j.body.Name, j.owner)
}

func (j *job) removeInstance(_ context.Context, _ string) error {
	return j.Apps.Forget(j.task.Namespace, j.body.Name)
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
