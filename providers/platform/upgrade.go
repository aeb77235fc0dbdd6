package platform

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/bcc94042/instar/internal/wait"
	domains "github.com/bcc94042/instar/machines/domain"
	machine "github.com/bcc94042/instar/machines/platform"
	"github.com/bcc94042/instar/providers"
	"github.com/bcc94042/instar/providers/domain"
)

// What ends an upgrade: so many failed looks in a row, or such a share of failed requests among at least so many.
const (
	mostFails   = 3
	failPercent = 5
	fewRequests = 20
	codeUpgrade = "UPGRADE_UNHEALTHY"
)

// shift gives the new release its share of the traffic, or all of it where the old one was lost, and watches it for as long as the upgrade says.
func (j *job) shift(ctx context.Context) (any, error) {
	u := j.body.Upgrade
	if u == nil || u.App == nil {
		return nil, providers.Errorf(providers.Invalid, "the task %s has no upgrade with a release", j.task.Attempt)
	}
	there, err := j.serves(ctx)
	if err != nil {
		return nil, err
	}
	weight, targets := u.Weight, []target{{j.body.App, 100 - u.Weight}, {u.App, u.Weight}}
	if !there { // the rest would go nowhere
		weight, targets = 100, []target{{u.App, 100}}
	}
	if _, err := j.lead(ctx, targets...); err != nil {
		return nil, err
	}
	s, fails, end := machine.Shifted{Weight: weight}, 0, time.Now().Add(time.Duration(u.Hold)*time.Second)
	before, beforeOld := j.counts(u.App), j.counts(j.body.App)
	for {
		switch status, err := get(ctx, j.Direct, "http://"+u.App.Address+cmp.Or(j.Health.Path, "/")); {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case err == nil && status < 400:
			fails = 0
		default:
			if fails++; fails >= mostFails {
				return nil, providers.Coded(codeUpgrade, "at %d %% the release %s does not answer its health check: status %d, %v", weight, u.App.Name, status, err)
			}
		}
		n, old := j.counts(u.App).since(before), j.counts(j.body.App)
		s.Requests, s.Errors, s.HealthOnly = n.Requests, n.Errors, n.Requests < fewRequests
		switch {
		case n.Requests < fewRequests:
		case n.Errors*100 > n.Requests*failPercent:
			return nil, providers.Coded(codeUpgrade, "at %d %% the release %s failed %d of %d requests", weight, u.App.Name, n.Errors, n.Requests)
		case n.hangsMore(old.since(beforeOld), old):
			return nil, providers.Coded(codeUpgrade, "at %d %% the release %s left %d of %d requests without an answer for too long, and its predecessor does not", weight, u.App.Name, n.Hung, n.Requests)
		}
		if fails == 0 && !time.Now().Before(end) {
			return s, nil
		}
		if err := wait.Pause(ctx, min(time.Second, max(time.Until(end), 100*time.Millisecond))); err != nil {
			return nil, err
		}
	}
}

// since is what was counted after before was.
func (n Traffic) since(before Traffic) Traffic {
	return Traffic{n.Requests - before.Requests, n.Errors - before.Errors, n.Hung - before.Hung}
}

// hangsMore reports whether more requests were late than of the release before in the same time, by so much that it is not chance: an application may hold requests back, as for long polls,
// and a client may ask for many of these at once, of which both get their share. Where the other has had too few in that time to compare with, all have to be late, and not so of what it
// had ever.
func (n Traffic) hangsMore(before, ever Traffic) bool {
	switch {
	case before.Requests >= fewRequests:
		return n.lateMore(before)
	case ever.Requests >= fewRequests:
		return n.Hung >= n.Requests && n.lateMore(ever)
	}
	return n.Hung >= n.Requests
}

// lateMore compares shares of two counts of at least one request each. What they may differ by is failPercent and three standard deviations of the difference between two samples of the same.
func (n Traffic) lateMore(of Traffic) bool {
	a, b := float64(n.Requests), float64(of.Requests)
	both := float64(n.Hung+of.Hung) / (a + b)
	chance := 3 * math.Sqrt(max(0, both*(1-both)*(1/a+1/b)))
	return float64(n.Hung)/a-float64(of.Hung)/b > failPercent/100.+chance
}

// counts is what a release was asked under the tenant's names.
func (j *job) counts(a *machine.App) (all Traffic) {
	for _, host := range []string{j.body.PrimaryDomain, j.body.Platform.CustomDomain} {
		if j.Traffic != nil && host != "" && a != nil {
			n := j.Traffic(host, a.Address)
			all = Traffic{all.Requests + n.Requests, all.Errors + n.Errors, all.Hung + n.Hung}
		}
	}
	return all
}

// retire gives the new release all traffic, and ends the old one, and those that earlier upgrades have left.
func (j *job) retire(ctx context.Context) (any, error) {
	u := j.body.Upgrade
	if u == nil {
		return nil, providers.Errorf(providers.Invalid, "the task %s has no upgrade", j.task.Attempt)
	}
	var goes []*machine.App
	if a := j.body.App; a == nil || u.App == nil || a.Name != u.App.Name { // else it is a matter of what is left alone
		goes = append(goes, a)
	}
	for _, name := range machine.Releases(j.body.Ledger) {
		if !slices.ContainsFunc(append(goes, u.App), func(a *machine.App) bool { return a != nil && a.Name == name }) {
			goes = append(goes, &machine.App{Name: name})
		}
	}
	if err := j.two(u.App, goes...); err != nil {
		return nil, err
	}
	return nil, j.instead(ctx, u.App, goes...)
}

// withdraw gives the old release all traffic, and ends the new one. Where the old one was lost, there is nothing to lead to.
func (j *job) withdraw(ctx context.Context) (any, error) {
	if err := j.two(j.body.App, j.body.Release); err != nil {
		return nil, err
	}
	there, err := j.serves(ctx)
	switch {
	case err != nil:
		return nil, err
	case !there:
		return nil, j.end(ctx, j.body.Release)
	}
	return nil, j.instead(ctx, j.body.App, j.body.Release)
}

// two fails unless there is a release that stays, and others that go.
func (j *job) two(stays *machine.App, goes ...*machine.App) error {
	if stays == nil || len(goes) == 0 || slices.ContainsFunc(goes, func(a *machine.App) bool { return a == nil || a.Name == stays.Name }) {
		return providers.Errorf(providers.Invalid, "the task %s does not have two releases, of which one stays", j.task.Attempt)
	}
	return nil
}

// instead leads all traffic to one release, and ends others when the proxies have followed.
func (j *job) instead(ctx context.Context, stays *machine.App, goes ...*machine.App) error {
	_, err := j.Apps.Look(ctx, j.task.Namespace, stays.Name)
	if providers.IsNotFound(err) {
		return providers.Errorf(providers.Invalid, "the release %s is not there, and no traffic is led to it", stays.Name)
	}
	if err != nil {
		return err
	}
	if _, err := j.lead(ctx, target{stays, 1}); err != nil {
		return err
	}
	if err := j.settle(ctx); err != nil {
		return err
	}
	return j.end(ctx, goes...)
}

// end ends releases that nothing leads to, when they have answered what they were asked. One that cannot be ended keeps no other.
func (j *job) end(ctx context.Context, goes ...*machine.App) error {
	var errs []error
	for _, a := range goes {
		err := j.unused(ctx, a)
		if err == nil {
			err = j.drained(ctx, a.Name)
		}
		if err == nil {
			err = j.unused(ctx, a) // a domain may lead there again by now
		}
		if err == nil {
			err = j.remove(ctx, j.release(a))
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// drained waits until no request of the proxy to a release is left, for Drain at most with all others of the task.
func (j *job) drained(ctx context.Context, name string) error {
	at, err := j.Apps.Look(ctx, j.task.Namespace, name)
	if providers.IsNotFound(err) || err == nil && at.Address == "" || j.InFlight == nil {
		return nil
	}
	if j.drainBy.IsZero() {
		j.drainBy = time.Now().Add(cmp.Or(j.Drain, 30*time.Second))
	}
	for err == nil && j.InFlight(at.Address) > 0 && time.Now().Before(j.drainBy) {
		err = wait.Pause(ctx, 50*time.Millisecond)
	}
	return err
}

// serves reports whether the release is there that serves, as the session says. One that is not was lost, with its directory, if the primary domain leads to it, to nothing, or to another
// release of this session. It fails where that leads elsewhere: then the session is older than an upgrade, as after a restore, and the release that this one would make may be the one that serves.
func (j *job) serves(ctx context.Context) (there bool, err error) {
	a, u := j.body.App, j.body.Upgrade
	if a == nil {
		return false, providers.Errorf(providers.Invalid, "the task %s has no release that serves", j.task.Attempt)
	}
	if _, err := j.Apps.Look(ctx, j.task.Namespace, a.Name); !providers.IsNotFound(err) {
		return err == nil, err
	}
	r, err := j.Table.Row(ctx, j.body.PrimaryDomain)
	if err != nil || r.Route == nil {
		return false, unavailable(err)
	}
	own := []string{a.Address}
	if u != nil && u.App != nil {
		own = append(own, u.App.Address)
	}
	for _, name := range machine.Releases(j.body.Ledger) {
		if j.body.Release != nil && name == j.body.Release.Name { // which is intended, and may be there of a time that the session has forgotten
			continue
		}
		at, err := j.Apps.Look(ctx, j.task.Namespace, name)
		if err != nil && !providers.IsNotFound(err) {
			return false, err
		}
		own = append(own, at.Address)
	}
	if slices.ContainsFunc(r.Route.Targets, func(t domains.Target) bool { return !slices.Contains(own, t.Address) }) {
		return false, providers.Errorf(providers.Invalid, "the release %s is not there, and %s leads to another one: the session is older than an upgrade; resolve it as ready, and upgrade again", a.Name, j.body.PrimaryDomain)
	}
	return false, nil
}

// unused fails while a name leads to a release. A custom one follows when its own session does. The primary one was led away before, unless there is nothing to lead it to: then no domain can be mended,
// and no other try does better.
func (j *job) unused(ctx context.Context, a *machine.App) error {
	host, err := j.leading(ctx, a.Name)
	if err != nil || host == "" {
		return err
	}
	if host == j.body.PrimaryDomain && j.task.Effect == machine.EffectWithdraw {
		return providers.Errorf(providers.Invalid, "%s leads to the release %s, and the one before was lost: resolve it as ready, and upgrade again", host, a.Name)
	}
	then := "prune"
	if j.task.Effect == machine.EffectWithdraw { // after which prune is not taken, as the tenant is not ready
		then = "roll back again"
	}
	return providers.Errorf(providers.Unavailable, "%s still leads to the release %s, as its domain has not followed: see what that says, mend, retarget or remove it, and %s", host, a.Name, then)
}

// leading is a name that leads to a release, or is to; empty when none does.
func (j *job) leading(ctx context.Context, name string) (host string, err error) {
	address, err := j.address(ctx, name)
	if err != nil || address == "" {
		return "", err
	}
	if host = j.body.PrimaryDomain; host != "" {
		r, err := j.Table.Row(ctx, host)
		if err != nil || domain.Leads(r.Route, address) {
			return host, unavailable(err)
		}
	}
	host, _, err = j.bound(ctx, address)
	return host, err
}

// address is that of a release, or empty: nothing leads there.
func (j *job) address(ctx context.Context, name string) (string, error) {
	at, err := j.Apps.Look(ctx, j.task.Namespace, name)
	if providers.IsNotFound(err) {
		err = nil
	}
	return at.Address, err
}

// bound is a name of the tenant's domains that leads to an address, or is to, and whether it is being removed.
func (j *job) bound(ctx context.Context, address string) (host string, removed bool, err error) {
	if address == "" || j.Domains == nil {
		return "", false, nil
	}
	return j.Domains.Leading(ctx, j.task.Namespace, j.task.Parent, address)
}

// settle waits until the proxies have followed a change of the route.
func (j *job) settle(ctx context.Context) error {
	return wait.Pause(ctx, cmp.Or(j.Settle, 2*time.Second))
}
