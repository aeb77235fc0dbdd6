package platform

import (
	"context"
	"errors"
	"slices"

	machine "github.com/bcc94042/instar/machines/platform"
	"github.com/bcc94042/instar/providers"
	"github.com/bcc94042/instar/providers/domain"
)

// hold makes this task the last one of its session, and claims the slug if nobody has it: its row may have been lost. It fails where another session has it, and where a
// newer task has spoken. set changes the row further.
func (j *job) hold(ctx context.Context, set func(*domain.Row)) error {
	host := j.body.PrimaryDomain
	if host == "" {
		return providers.Errorf(providers.Invalid, "the task %s has no primary domain", j.task.Attempt)
	}
	return unavailable(j.Table.Change(ctx, host, func(r domain.Row) (domain.Row, error) {
		if err := j.admit(r); err != nil {
			return r, err
		}
		r.Owner, r.Fence = j.owner, j.task.Fence
		if set != nil {
			set(&r)
		}
		return r, nil
	}))
}

func (j *job) admit(r domain.Row) error {
	if j.anothers(r) {
		return providers.Coded(machine.CodeSlug, "%s is taken", j.body.PrimaryDomain)
	}
	if r.Owner == j.owner && r.Fence > j.task.Fence {
		return providers.Older(j.task.Fence, r.Fence)
	}
	for _, past := range r.Past {
		if past.Owner == j.owner && past.Fence > j.task.Fence {
			return providers.Older(j.task.Fence, past.Fence)
		}
	}
	return nil
}

func (j *job) anothers(r domain.Row) bool { return r.Owner != "" && r.Owner != j.owner }

// overtaken reports whether an undo has spoken that is newer than this task.
func (j *job) overtaken(r domain.Row) bool {
	return slices.ContainsFunc(r.Past, func(p domain.Past) bool { return p.Owner == j.owner && p.Fence > j.task.Fence })
}

// close makes this task the last one without claiming anything. Before the plan there is no row. What an undo
// has closed is noted among the past, so that an attempt that it has overtaken takes back what it makes afterwards.
func (j *job) close(ctx context.Context, undo bool) error {
	if j.body.PrimaryDomain == "" {
		return nil
	}
	return unavailable(j.Table.Change(ctx, j.body.PrimaryDomain, func(r domain.Row) (domain.Row, error) {
		if r.Owner != j.owner {
			return r.Free(j.owner, j.task.Fence), nil
		}
		if err := j.admit(r); err != nil {
			return r, err
		}
		if r.Fence = j.task.Fence; undo {
			r.Past = r.Free(j.owner, j.task.Fence).Past
		}
		return r, nil
	}))
}

// made is called with what this task has made. Where an undo has spoken meanwhile, which may have found nothing, it is taken back; what is named by the slug alone is the
// other session's where that has the slug now.
func (j *job) made(ctx context.Context, bySlug bool, takeBack func(context.Context) error) error {
	r, err := j.Table.Row(ctx, j.body.PrimaryDomain)
	if err != nil {
		return unavailable(err) // the next attempt finds it
	}
	err = j.admit(r)
	if err == nil || !j.overtaken(r) && !j.anothers(r) || bySlug && j.anothers(r) {
		return err
	}
	return errors.Join(err, takeBack(context.WithoutCancel(ctx)))
}

// unavailable gives errors of the table a code.
func unavailable(err error) error {
	var f *providers.CodedError
	var e *providers.Error
	if err == nil || errors.As(err, &f) || errors.As(err, &e) {
		return err
	}
	return providers.Errorf(providers.Unavailable, "%v", err)
}
