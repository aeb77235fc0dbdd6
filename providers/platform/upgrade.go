package platform

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/bcc94042/instar/internal/wait"
	domains "github.com/bcc94042/instar/machines/domain"
	machine "github.com/bcc94042/instar/machines/platform"
	"github.com/bcc94042/instar/machines/session"
	"github.com/bcc94042/instar/providers"
)

// What ends an upgrade: so many failed looks in a row, or such a share of failed requests among at least so many.
const (
	mostFails   = 3
	failPercent = 5
	fewRequests = 20
	codeUpgrade = "UPGRADE_UNHEALTHY"
)

// shift gives the new release its share of the traffic, and watches it for as long as the upgrade says.
func (j *job) shift(ctx context.Context) (any, error) {
	u := j.body.Upgrade
	if u == nil || u.App == nil {
		return nil, providers.Errorf(providers.Invalid, "the task %s has no upgrade with a release", j.task.Attempt)
	}
	if err := j.there(ctx, j.body.App); err != nil {
		return nil, err
	}
	if _, err := j.lead(ctx, target{j.body.App, 100 - u.Weight}, target{u.App, u.Weight}); err != nil {
		return nil, err
	}
	s, fails, end := machine.Shifted{Weight: u.Weight}, 0, time.Now().Add(time.Duration(u.Hold)*time.Second)
	requests, errs := j.counts(u.App)
	for {
		switch status, err := j.get(ctx, "http://"+u.App.Address+cmp.Or(j.Health.Path, "/")); {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case err == nil && status < 400:
			fails = 0
		default:
			if fails++; fails >= mostFails {
				return nil, refuse(codeUpgrade, "at %d %% the release %s does not answer its health check: status %d, %v", u.Weight, u.App.Name, status, err)
			}
		}
		now, bad := j.counts(u.App)
		s.Requests, s.Errors = now-requests, bad-errs
		if s.Requests >= fewRequests && s.Errors*100 > s.Requests*failPercent {
			return nil, refuse(codeUpgrade, "at %d %% the release %s failed %d of %d requests", u.Weight, u.App.Name, s.Errors, s.Requests)
		}
		if fails == 0 && !time.Now().Before(end) {
			return s, nil
		}
		if err := wait.Pause(ctx, min(time.Second, max(time.Until(end), 100*time.Millisecond))); err != nil {
			return nil, err
		}
	}
}

func (j *job) counts(a *machine.App) (requests, errs int64) {
	if j.Traffic == nil {
		return 0, 0
	}
	return j.Traffic(j.body.PrimaryDomain, a.Address)
}

// retire gives the new release all traffic, and ends the old one, and those that earlier upgrades have left.
func (j *job) retire(ctx context.Context) (any, error) {
	u := j.body.Upgrade
	if u == nil {
		return nil, providers.Errorf(providers.Invalid, "the task %s has no upgrade", j.task.Attempt)
	}
	goes := []*machine.App{j.body.App}
	if u.App != nil && j.body.App != nil && u.App.Name == j.body.App.Name { // it is a matter of what is left alone
		goes = nil
	}
	for _, e := range j.body.Ledger {
		if e.Kind == machine.KindApp && e.State != session.Undone && u.App != nil && e.Name != u.App.Name && (j.body.App == nil || e.Name != j.body.App.Name) {
			goes = append(goes, &machine.App{Name: e.Name})
		}
	}
	return nil, j.instead(ctx, u.App, goes...)
}

// withdraw gives the old release all traffic, and ends the new one.
func (j *job) withdraw(ctx context.Context) (any, error) {
	return nil, j.instead(ctx, j.body.App, j.body.Release)
}

// instead leads all traffic to one release, and ends others when the proxies have followed. One that cannot be ended keeps no other.
func (j *job) instead(ctx context.Context, stays *machine.App, goes ...*machine.App) error {
	if stays == nil || len(goes) == 0 || slices.ContainsFunc(goes, func(a *machine.App) bool { return a == nil || a.Name == stays.Name }) {
		return providers.Errorf(providers.Invalid, "the task %s does not have two releases, of which one stays", j.task.Attempt)
	}
	if err := j.there(ctx, stays); err != nil {
		return err
	}
	if _, err := j.lead(ctx, target{stays, 1}); err != nil {
		return err
	}
	if err := j.settle(ctx); err != nil {
		return err
	}
	var errs []error
	for _, a := range goes {
		err := j.unused(ctx, a)
		if err == nil {
			err = j.Apps.Remove(ctx, j.release(a))
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// there fails for a release that is to get traffic and is not there: the session is older than the end of its upgrade.
func (j *job) there(ctx context.Context, a *machine.App) error {
	if a == nil {
		return providers.Errorf(providers.Invalid, "the task %s has no release that serves", j.task.Attempt)
	}
	_, err := j.Apps.Look(ctx, j.task.Namespace, a.Name)
	if providers.IsNotFound(err) {
		return providers.Errorf(providers.Invalid, "the release %s is not there: the session is older than the end of its upgrade", a.Name)
	}
	return err
}

// unused fails while a domain of the tenant leads to a release. A custom one follows when its own session does.
func (j *job) unused(ctx context.Context, a *machine.App) error {
	at, err := j.Apps.Look(ctx, j.task.Namespace, a.Name)
	if err != nil && !providers.IsNotFound(err) {
		return err
	}
	for _, host := range []string{j.body.PrimaryDomain, j.body.Platform.CustomDomain} {
		if host == "" || at.Address == "" {
			continue
		}
		r, err := j.Table.Row(ctx, host)
		if err != nil {
			return unavailable(err)
		}
		if r.Route != nil && slices.ContainsFunc(r.Route.Targets, func(t domains.Target) bool { return t.Address == at.Address }) {
			return providers.Errorf(providers.Unavailable, "%s still leads to the release %s, as its domain has not followed: see what that says, mend or remove it, and prune", host, a.Name)
		}
	}
	return nil
}

// settle waits until the proxies have followed a change of the route.
func (j *job) settle(ctx context.Context) error {
	return wait.Pause(ctx, cmp.Or(j.Settle, 2*time.Second))
}
