package process

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/bcc94042/instar/internal/ownfile"
	"github.com/bcc94042/instar/internal/wait"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/service"
	"github.com/bcc94042/instar/providers"
	"github.com/bcc94042/instar/providers/platform/app"
	"github.com/bcc94042/instar/providers/process"
)

// Ensure makes the directory of a tenant.
func (a *Apps) Ensure(_ context.Context, t app.Tenant) error { return a.tenants.Ensure(t) }

// Forget ends what still runs under the user of a tenant, where it has one, and removes its directory, and the log that was kept of its last release.
func (a *Apps) Forget(ctx context.Context, t app.Tenant) error {
	err := a.tenants.Forget(ctx, t)
	if err != nil {
		return err
	}
	dir, err := a.tenants.Path(t)
	if err != nil {
		return err
	}
	if _, err := os.Stat(dir); err == nil { // it is another owner's
		return nil
	}
	if err := ownfile.RemoveAll(logsOf(a.config.Dir, t.Namespace, t.Name)); err != nil {
		return providers.Errorf(providers.Unavailable, "cannot remove the log of %s: %v", t.Name, err)
	}
	return nil
}

// logsOf is where the log of the release that ended last is kept until its tenant is forgotten: it may say why it ended.
func logsOf(dir, namespace, tenant string) string {
	return filepath.Join(dir, "logs", namespace+"."+tenant)
}

// number is what the name of a release has behind that of its tenant.
var number = regexp.MustCompile(`-r[0-9]+$`)

func tenantOf(release string) string { return number.ReplaceAllString(release, "") }

// Deploy runs a release, and returns its address when it is healthy. It waits for as long as ctx, or until the release has had its time.
func (a *Apps) Deploy(ctx context.Context, r app.Release) (address string, err error) {
	spec, err := a.spec(&r)
	if err != nil {
		return "", err
	}
	req := providers.ApplyRequest{Request: r.Request(), Spec: spec}
	req.Hash = spec.Hash()
	before, err := a.gateway.Observe(ctx, providers.ObserveRequest{Request: req.Request})
	switch {
	case providers.IsNotFound(err):
	case err != nil:
		return "", err
	case before.SpecHash != req.Hash || before.Reason == service.ReasonRevisionFailed: // it has had its time, or is of an attempt with other values
		if err = r.MayReplace(ctx); err == nil {
			err = a.Remove(ctx, r)
		}
		if err != nil {
			return "", err
		}
	}
	if err := a.begin(ctx, &r, req); err != nil {
		return "", err
	}
	return a.await(ctx, &r)
}

// begin writes the secrets and starts the process. Where that is refused, nothing of a release that is not there stays.
func (a *Apps) begin(ctx context.Context, r *app.Release, req providers.ApplyRequest) error {
	a.homes.Lock()
	defer a.homes.Unlock()
	err := a.prepare(r)
	if err == nil {
		_, err = a.gateway.Apply(ctx, req)
	}
	if err != nil {
		return errors.Join(err, a.clear(r))
	}
	return nil
}

// clear removes the directory of a release that is not there. The lock of the directories is held.
func (a *Apps) clear(r *app.Release) error {
	// Not under the caller's context: what is left has secrets.
	if _, err := a.gateway.Observe(context.Background(), providers.ObserveRequest{Request: r.Request()}); !providers.IsNotFound(err) {
		return nil
	}
	if err := errors.Join(a.kernel.Remove(a.group(r)), ownfile.RemoveAll(a.home(r)), ownfile.RemoveAll(filepath.Join(filepath.Dir(a.home(r)), limitsName))); err != nil {
		return providers.Errorf(providers.Internal, "cannot remove the directory of %s: %v", r.Name, err)
	}
	return nil
}

// spec is the release as the gateway knows it.
func (a *Apps) spec(r *app.Release) (service.Spec, error) {
	dir, err := a.tenants.Path(r.Of())
	if err != nil {
		return service.Spec{}, err
	}
	if !a.Has(r.Version) {
		return service.Spec{}, providers.Errorf(providers.Invalid, "version %q of the application is not configured", r.Version)
	}
	env, err := app.Variables(r, a.home(r), dir)
	if err != nil {
		return service.Spec{}, err
	}
	return service.Spec{Image: r.Version, Env: env, Probe: service.Probe{Path: a.config.Health, StartupSeconds: int(a.config.Startup.Seconds())}}, nil
}

func (a *Apps) home(r *app.Release) string { return a.gateway.Home(r.Namespace, r.Name) }

// hide is a message of a release without its secrets, and without values of the configuration.
func (a *Apps) hide(home, message string) string { return app.Hide(home, message, a.values) }

// lastBytes bound what is told of the log of a release that has failed.
const lastBytes = 4096

// poll is the time between two looks at what is waited for.
const poll = 50 * time.Millisecond

// why is what the gateway says of a release that has failed, without the revision: there is one of each release, of which nobody else speaks.
func why(o *service.Observation) string {
	return strings.TrimPrefix(o.Message, "revision "+o.LatestCreated+" failed: ")
}

// nobody says what is wrong with most programs that listen, and never answer.
const nobody = "; it took no connection from its socket, file 3 (a program that listens on PORT needs socket: port)"

func (a *Apps) await(ctx context.Context, r *app.Release) (string, error) {
	for {
		now, err := a.gateway.Observe(ctx, providers.ObserveRequest{Request: r.Request()})
		switch {
		case err != nil:
			return "", err
		case now.Ready == machines.True && now.Route == machines.True:
			return strings.TrimPrefix(now.URL, "http://"), nil
		case now.Reason == service.ReasonRevisionFailed:
			reason := a.hide(a.home(r), why(&now))
			if a.gateway.Unaccepted(r.Namespace, r.Name) {
				reason += nobody
			}
			return "", &app.UnhealthyError{Release: r.Name, Reason: reason, Log: a.hide(a.home(r), a.gateway.LastLines(r.Namespace, r.Name, lastBytes))}
		}
		if err := wait.Pause(ctx, poll); err != nil {
			return "", err
		}
	}
}

// Look tells how far a release is. One that is not there is NotFound.
func (a *Apps) Look(ctx context.Context, namespace, name string) (app.Rollout, error) {
	o, err := a.gateway.Observe(ctx, providers.ObserveRequest{Request: providers.Request{Namespace: namespace, Name: name}})
	if err != nil {
		return app.Rollout{}, err
	}
	at := app.Rollout{Status: "starting", Ready: o.Ready == machines.True, Address: strings.TrimPrefix(o.URL, "http://")}
	switch {
	case at.Ready:
		at.Status = "ready"
	case o.Reason == service.ReasonRevisionFailed:
		at.Status = "failed: " + a.hide(a.gateway.Home(namespace, name), why(&o))
	case o.Ready == machines.False:
		at.Status = strings.TrimSuffix(o.Reason+": "+a.hide(a.gateway.Home(namespace, name), o.Message), ": ")
	}
	return at, nil
}

// Remove ends a release, and returns when nothing of it is left, or what is left cannot be removed: then it is Unavailable. That there is none is fine; an attempt before this one cannot make it any more.
func (a *Apps) Remove(ctx context.Context, r app.Release) error {
	if err := a.gateway.Delete(ctx, providers.DeleteRequest{Request: r.Request()}); err != nil {
		return err
	}
	for {
		now, err := a.gateway.Observe(ctx, providers.ObserveRequest{Request: r.Request()})
		if providers.IsNotFound(err) {
			break
		}
		if err != nil {
			return err
		}
		if now.Reason == process.ReasonNotRemoved {
			return providers.Errorf(providers.Unavailable, "the processes of %s have ended, and something of it cannot be removed: %s", r.Name, now.Message)
		}
		if err := wait.Pause(ctx, poll); err != nil {
			return err
		}
	}
	a.homes.Lock()
	defer a.homes.Unlock()
	return a.clear(&r)
}
