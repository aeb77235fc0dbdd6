package process

import (
	"context"
	"errors"
	"fmt"
	"maps"
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
	"github.com/bcc94042/instar/providers/process"
)

// Release is a version of a tenant's application that is to run.
type Release struct {
	Namespace string
	Tenant    string // DNS label, the same for all its releases
	Name      string // DNS label, unlike that of any other release of the namespace, and the same at each attempt
	Owner     string // whose it is: the key of an entity
	Fence     uint64 // version of that entity
	Attempt   string
	Version   string
	Env       map[string]string
	Secrets   map[string]string // by the name of the variable that, with _FILE, has the path

	// Replace is asked by Deploy before it removes a release of this name that has other values, or was never healthy: an error keeps that. Nil keeps none.
	Replace func(ctx context.Context) error
}

// UnhealthyError says that a release does not become healthy.
type UnhealthyError struct{ Release, Reason string }

func (e *UnhealthyError) Error() string {
	return fmt.Sprintf("the release %s does not become healthy: %s", e.Release, e.Reason)
}

// Rollout is how far a release is.
type Rollout struct {
	Status  string // starting, ready, or what is wrong
	Ready   bool
	Address string // host:port, where it was healthy once
}

// secretDir is where the secrets of a release are, in its directory.
const secretDir = ".secrets"

// secretName is that of a variable.
var secretName = regexp.MustCompile(`^[A-Z][A-Z0-9_]{0,62}$`)

func (r *Release) request() providers.Request {
	return providers.Request{Namespace: r.Namespace, Name: r.Name, UID: r.Owner, Attempt: r.Attempt, Fence: r.Fence}
}

// Ensure makes the directory of a tenant, with the mark of its owner beside it. One with another mark is not taken over; one without any, of an earlier server, gets it.
func (a *Apps) Ensure(namespace, tenant, owner string) error {
	dir, err := a.tenant(namespace, tenant)
	if err != nil {
		return err
	}
	a.homes.Lock()
	defer a.homes.Unlock()
	switch has, err := ownerOf(dir); {
	case err != nil:
		return err
	case has != "" && has != owner:
		return providers.Errorf(providers.Invalid, "the directory %s is not of %s but of %s: move it away, or take another name", tenant, owner, has)
	}
	err = ownfile.Replace(markOf(dir), []byte(owner)) // before the directory, which would be nobody's after a crash
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if err != nil {
		return providers.Errorf(providers.Internal, "cannot make the directory of %s: %v", tenant, err)
	}
	return nil
}

// Forget removes the directory of a tenant with everything in it. That there is none, or only another owner's, is fine.
func (a *Apps) Forget(namespace, tenant, owner string) error {
	dir, err := a.tenant(namespace, tenant)
	if err != nil {
		return err
	}
	a.homes.Lock()
	defer a.homes.Unlock()
	has, err := ownerOf(dir)
	if err != nil || has != "" && has != owner {
		return err
	}
	if err := removed(dir); err != nil {
		return providers.Errorf(providers.Internal, "cannot remove the directory of %s: %v", tenant, err)
	}
	return nil
}

// removed removes a directory, and then the mark of its owner, without which what is left would be anybody's.
func removed(dir string) error {
	if err := ownfile.RemoveAll(dir); err != nil {
		return err
	}
	return os.RemoveAll(markOf(dir))
}

// markOf is the file with the owner of a directory. It is beside it, where the tenant's processes do not look.
func markOf(dir string) string { return dir + ".owner" }

// ownerOf is whose a directory is; empty where there is none, or it has no mark.
func ownerOf(dir string) (string, error) {
	_, err := os.Stat(dir)
	var raw []byte
	if err == nil {
		raw, err = os.ReadFile(markOf(dir))
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", providers.Errorf(providers.Internal, "cannot see whose the directory %s is: %v", filepath.Base(dir), err)
	}
	return string(raw), nil
}

func (a *Apps) tenant(namespace, tenant string) (string, error) {
	if !machines.IsLabel(namespace) || !machines.IsLabel(tenant) {
		return "", providers.Errorf(providers.Invalid, "namespace %q or tenant %q is no DNS label", namespace, tenant)
	}
	return filepath.Join(a.config.Dir, "tenants", namespace+"."+tenant), nil
}

// Deploy runs a release, and returns its address when it is healthy. It waits for as long as ctx, or until the release has had its time.
func (a *Apps) Deploy(ctx context.Context, r Release) (address string, err error) {
	spec, err := a.spec(&r)
	if err != nil {
		return "", err
	}
	req := providers.ApplyRequest{Request: r.request(), Spec: spec}
	req.Hash = spec.Hash()
	before, err := a.gateway.Observe(ctx, providers.ObserveRequest{Request: req.Request})
	switch {
	case providers.IsNotFound(err):
	case err != nil:
		return "", err
	case before.SpecHash != req.Hash || before.Reason == service.ReasonRevisionFailed: // it has had its time, or is of an attempt with other values
		if r.Replace != nil {
			err = r.Replace(ctx)
		}
		if err == nil {
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
func (a *Apps) begin(ctx context.Context, r *Release, req providers.ApplyRequest) error {
	a.homes.Lock()
	defer a.homes.Unlock()
	err := a.keepSecrets(r)
	if err == nil {
		_, err = a.gateway.Apply(ctx, req)
	}
	if err != nil {
		return errors.Join(err, a.clear(r))
	}
	return nil
}

// clear removes the directory of a release that is not there. The lock of the directories is held.
func (a *Apps) clear(r *Release) error {
	// Not under the caller's context: what is left has secrets.
	if _, err := a.gateway.Observe(context.Background(), providers.ObserveRequest{Request: r.request()}); !providers.IsNotFound(err) {
		return nil
	}
	if err := ownfile.RemoveAll(a.gateway.Home(r.Namespace, r.Name)); err != nil {
		return providers.Errorf(providers.Internal, "cannot remove the directory of %s: %v", r.Name, err)
	}
	return nil
}

// spec is the release as the gateway knows it.
func (a *Apps) spec(r *Release) (service.Spec, error) {
	dir, err := a.tenant(r.Namespace, r.Tenant)
	if err != nil {
		return service.Spec{}, err
	}
	if !a.Has(r.Version) {
		return service.Spec{}, providers.Errorf(providers.Invalid, "version %q of the application is not configured", r.Version)
	}
	env := maps.Clone(r.Env)
	if env == nil {
		env = map[string]string{}
	}
	env["TENANT_DIR"] = dir
	for name := range r.Secrets {
		if !secretName.MatchString(name) {
			return service.Spec{}, providers.Errorf(providers.Invalid, "%q is no name of a secret", name)
		}
		env[name+"_FILE"] = a.secretPath(r, name)
	}
	return service.Spec{Image: r.Version, Env: env, Probe: service.Probe{Path: a.config.Health, StartupSeconds: int(a.config.Startup.Seconds())}}, nil
}

func (a *Apps) secretPath(r *Release, name string) string {
	return filepath.Join(a.gateway.Home(r.Namespace, r.Name), secretDir, strings.ToLower(name))
}

func (a *Apps) keepSecrets(r *Release) error {
	for name, value := range r.Secrets {
		if err := ownfile.Replace(a.secretPath(r, name), []byte(value)); err != nil {
			return providers.Errorf(providers.Internal, "cannot write the secret %s of %s: %v", name, r.Name, err)
		}
	}
	return nil
}

// poll is the time between two looks at what is waited for.
const poll = 50 * time.Millisecond

func (a *Apps) await(ctx context.Context, r *Release) (string, error) {
	for {
		now, err := a.gateway.Observe(ctx, providers.ObserveRequest{Request: r.request()})
		switch {
		case err != nil:
			return "", err
		case now.Ready == machines.True && now.Route == machines.True:
			return strings.TrimPrefix(now.URL, "http://"), nil
		case now.Reason == service.ReasonRevisionFailed:
			return "", &UnhealthyError{Release: r.Name, Reason: a.hide(r.Namespace, r.Name, now.Message)}
		}
		if err := wait.Pause(ctx, poll); err != nil {
			return "", err
		}
	}
}

// Look tells how far a release is. One that is not there is NotFound.
func (a *Apps) Look(ctx context.Context, namespace, name string) (Rollout, error) {
	o, err := a.gateway.Observe(ctx, providers.ObserveRequest{Request: providers.Request{Namespace: namespace, Name: name}})
	if err != nil {
		return Rollout{}, err
	}
	at := Rollout{Status: "starting", Ready: o.Ready == machines.True, Address: strings.TrimPrefix(o.URL, "http://")}
	switch {
	case at.Ready:
		at.Status = "ready"
	case o.Ready == machines.False:
		at.Status = strings.TrimSuffix(o.Reason+": "+a.hide(namespace, name, o.Message), ": ")
	}
	return at, nil
}

// Remove ends a release, and returns when nothing of it is left, or what is left cannot be removed: then it is Unavailable. That there is none is fine; an attempt before this one cannot make it any more.
func (a *Apps) Remove(ctx context.Context, r Release) error {
	if err := a.gateway.Delete(ctx, providers.DeleteRequest{Request: r.request()}); err != nil {
		return err
	}
	for {
		now, err := a.gateway.Observe(ctx, providers.ObserveRequest{Request: r.request()})
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
