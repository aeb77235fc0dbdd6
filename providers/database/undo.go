package database

import (
	"context"
	"errors"
	"slices"

	machine "github.com/bcc94042/instar/machines/database"
	"github.com/bcc94042/instar/providers/database/cutover"
	"github.com/bcc94042/instar/providers/database/pg"
)

// Deprovisioned is the status of a tenant that was closed.
const Deprovisioned = "deprovisioned"

// undo performs actions in order and says of each what became of it.
func (j *job) undo(ctx context.Context) (any, error) {
	var out machine.Undone
	// First nothing of an earlier attempt may go on. A source in which nothing was set up has none, nor has a target that is not there. Where another session has the tenant, this one
	// never had it: the routing, the fence and a database of that name are the other's, and all that may be here is what it began to create.
	var held *pg.HeldError
	if err := j.source.Take(ctx); err != nil && !errors.As(err, &held) && !pg.NotSetUp(err) {
		return nil, err
	}
	if held == nil && len(j.body.Actions) > 0 { // without actions, the target may have gone: somebody has seen to it
		if err := j.reach(ctx); err != nil {
			return nil, err
		}
	}
	stopped := false
	for _, a := range j.body.Actions {
		r := machine.ActionResult{Action: a.Name}
		if stopped {
			r.Error = "not tried: an action before it failed"
		} else if held != nil && a.Name == machine.ActionAdmit {
			r.Error = held.Error() // the tenant is that one's to let in
		} else if held != nil && a.Kind != machine.KindDatabase {
			r.Done = true
		} else if err := j.guarded(ctx, a, held != nil); err != nil && j.unsettled(ctx, err) {
			return nil, err
		} else if err != nil {
			r.Error, stopped = pg.Discreet(err.Error()), a.Stop
		} else {
			r.Done, r.Epoch, r.Skipped = true, j.entered, j.stays && a.Name == machine.ActionLift
			if a.Name == machine.ActionSettle {
				r.LeftBehind = j.behind
			}
		}
		out.Actions = append(out.Actions, r)
	}
	for _, r := range out.Actions {
		if !r.Done {
			return out, nil
		}
	}
	if slices.ContainsFunc(j.body.Actions, func(a machine.Action) bool { return a.Name == machine.ActionAdmit }) { // the session goes on
		return out, nil
	}
	return out, j.source.End(ctx)
}

// reach takes the target, if it can be taken: one that has gone, or is closed because an undo was interrupted, has nothing to be stopped. One that does not answer
// keeps back only what is about it, so that the tenant is let in where it was, and somebody may see to the rest.
func (j *job) reach(ctx context.Context) error {
	err := j.mover.Take(ctx)
	if err == nil || pg.State(err) == pg.NoDatabase || pg.State(err) == pg.Closed || pg.NotSetUp(err) {
		return nil
	}
	if j.unsettled(ctx, err) {
		return err
	}
	j.unreached = err
	return nil
}

// unsettled reports whether an error ends this try of the undo: a newer attempt is at it, or a later try may do better, or the tenant is kept out of its database, which is
// to be seen. What is left after the last try is told action by action.
func (j *job) unsettled(ctx context.Context, err error) bool {
	var obsolete *pg.ObsoleteError
	fx, _ := machine.Machine.Effect(machine.EffectUndo)
	again, _ := pg.Transient(err)
	return errors.As(err, &obsolete) || errors.Is(err, errShut) || again && j.task.Try < fx.Retry.Attempts || ctx.Err() != nil
}

// guarded performs one action. The fence and the database of a tenant that is in it stay: the actions before these led it elsewhere, or the session is older than its switch.
func (j *job) guarded(ctx context.Context, a machine.Action, anothers bool) error {
	if !anothers && (a.Name == machine.ActionLift || a.Name == "delete_database") {
		if err := j.inside(ctx); err != nil {
			return err
		}
	}
	return j.act(ctx, a)
}

// lift lets the tenant's writers in again, unless the tenant is in a database of its own by now, whoever has led it there, or was closed before this session: its rows in the shared database are old then, and stay closed, whoever has raised the fence last.
func (j *job) lift(ctx context.Context) error {
	now, err := j.source.Read(ctx)
	if err != nil && !pg.NotSetUp(err) {
		return err
	}
	if j.stays = err == nil && (now.DatabaseName != "" || now.IsolationMode == cutover.Dedicated && now.Status == Deprovisioned); j.stays {
		return nil
	}
	return j.source.Lift(ctx)
}

// act performs one action.
func (j *job) act(ctx context.Context, a machine.Action) error {
	switch a.Name {
	case "restore_tenant_runtime":
		return j.source.RestoreKept(ctx, j.name)
	case "invalidate_cache":
		_, err := j.announce(ctx)
		return err
	case "retire_tenant_runtime":
		_, err := j.source.Switch(ctx, cutover.Runtime{IsolationMode: cutover.Dedicated, Status: Deprovisioned}, j.name)
		return err
	case machine.ActionCheck:
		return j.inside(ctx)
	case machine.ActionAdmit:
		return j.letIn(ctx)
	case machine.ActionSettle:
		return j.settle(ctx)
	case machine.ActionLift:
		return j.lift(ctx)
	case "remove_replication":
		if j.unreached != nil { // what the shared database has of it keeps its log
			return errors.Join(j.unreached, j.link.Unslot(ctx, 0), j.link.Unpublish(ctx))
		}
		return j.link.Remove(ctx)
	case "delete_database":
		if j.unreached != nil {
			return j.unreached
		}
		if err := j.Server.Setup(ctx); err != nil { // the register keeps an attempt that is under way from creating it afterwards
			return err
		}
		return j.Server.Quarantine(ctx, j.spec, j.grace())
	}
	return pg.Refuse("no action %q is known", a.Name)
}
