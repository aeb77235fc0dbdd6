package hosted

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/bcc94042/instar/internal/ownfile"
	"github.com/bcc94042/instar/internal/wait"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/providers"
	"github.com/bcc94042/instar/providers/platform/app"
	"github.com/bcc94042/instar/providers/process/environ"
)

// Engine runs units. What is there under the name of one, and is marked with another installation or none, is left alone, and told as Invalid.
type Engine interface {
	// Kind is its name in the configuration.
	Kind() string
	// Check fails for a program that it cannot run.
	Check(p app.Program) error
	// Prepare gets what a program needs before a unit of it can be made, for as long as that takes, and tells how far that is. What is there stays.
	Prepare(ctx context.Context, p app.Program, tell func(status string)) error
	// Start has a unit run. One that is there stays as it is, and is started if it stands still.
	Start(ctx context.Context, u *Unit) error
	// Look tells of a unit, or fails with NotFound.
	Look(ctx context.Context, u *Unit) (State, error)
	// Remove ends a unit, and returns when nothing of it is left. That there is none is fine.
	Remove(ctx context.Context, u *Unit) error
}

// Config is what [Open] needs. Dir, Engine, Installation and Versions have no default.
type Config struct {
	Dir          string // of all tenants; created, readable by the owner only
	Engine       Engine
	Installation string // id, of which the names and marks of units are: others may use the same engine; 8 letters and digits or more
	Host         string // IP address of the releases; 127.0.0.1 when empty
	First, Last  int    // ports of the releases; the system chooses when they are zero
	Versions     map[string]app.Program
	Env          map[string]string // that Deploy gets for every release: like those of versions, its values are in no message that is told
	Health       string            // path that a live release answers with a status below 400; / when empty
	Startup      time.Duration     // until it has to answer; 60 s when 0
	Log          *slog.Logger
}

// Apps are the releases of all tenants that an engine runs.
type Apps struct {
	config  Config
	tenants app.Homes
	values  []string // of the configuration, that are not told
	client  *http.Client
	stop    context.CancelFunc
	ended   chan struct{}

	mu    sync.Mutex
	live  map[string]bool  // releases that are not gone, or of which that is not known
	locks map[string]*hold // by release, while somebody has or awaits it: of what is begun and ended, and of what is known of it
	ports sync.Mutex       // of which are in use

	getting sync.Map // by release: how far what it needs is on its way
}

var _ app.Provider = (*Apps)(nil)

// Open takes up what an earlier server left. It does not wait for the engine.
func Open(c Config) (*Apps, error) {
	dir, err := filepath.Abs(c.Dir)
	if c.Dir == "" || err != nil {
		return nil, fmt.Errorf("applications of tenants need a directory, not %q: %w", c.Dir, cmp.Or(err, os.ErrInvalid))
	}
	c.Dir, c.Host, c.Health, c.Startup = dir, cmp.Or(c.Host, "127.0.0.1"), cmp.Or(c.Health, "/"), cmp.Or(c.Startup, time.Minute)
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	for _, version := range c.Versions {
		if err := c.Engine.Check(version); err != nil {
			return nil, err
		}
	}
	if len(c.Installation) < idLetters {
		return nil, fmt.Errorf("applications of tenants need the id of the installation, not %q: %w", c.Installation, os.ErrInvalid)
	}
	if err := os.MkdirAll(filepath.Join(dir, "releases"), 0o700); err != nil {
		return nil, fmt.Errorf("cannot keep what is known of releases: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	a := &Apps{
		config: c, tenants: app.Homes{Dir: filepath.Join(dir, "tenants")}, values: app.Configured(c.Env, c.Versions), stop: cancel, ended: make(chan struct{}),
		live: map[string]bool{}, locks: map[string]*hold{},
	}
	a.take()
	a.client = &http.Client{
		Timeout: 2 * time.Second, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{DisableKeepAlives: true},
	}
	go a.watch(ctx)
	return a, nil
}

// Close ends the supervision. With stop, all releases are ended first, and made again by the next Open; else they run on.
func (a *Apps) Close(stop bool) error {
	a.stop()
	<-a.ended
	if !stop {
		return nil
	}
	var errs []error
	for _, r := range a.records() {
		if !r.Gone {
			errs = append(errs, a.config.Engine.Remove(context.Background(), &r.Unit))
		}
	}
	return errors.Join(errs...)
}

// Kind is that of the engine.
func (a *Apps) Kind() string { return a.config.Engine.Kind() }

// Host is where releases listen.
func (a *Apps) Host() string { return a.config.Host }

// Has reports whether a version can be run.
func (a *Apps) Has(version string) bool {
	_, ok := a.config.Versions[version]
	return ok
}

// Ensure makes the directory of a tenant.
func (a *Apps) Ensure(_ context.Context, t app.Tenant) error { return a.tenants.Ensure(t) }

// Forget removes the directory of a tenant. That its releases are gone is known for longer: an attempt to deploy one may still be under way.
func (a *Apps) Forget(ctx context.Context, t app.Tenant) error { return a.tenants.Forget(ctx, t) }

// Deploy runs a release, and returns its address when it is healthy. It waits for as long as ctx, or until the release has had its time.
func (a *Apps) Deploy(ctx context.Context, r app.Release) (address string, err error) {
	want, err := a.wanted(ctx, &r)
	if err == nil {
		err = a.prepare(ctx, want) // before there is anything of the release, and its time begins
	}
	if err != nil {
		return "", err
	}
	at, err := a.begin(ctx, &r, want)
	if err != nil {
		return "", err
	}
	return a.await(ctx, &r, at)
}

// wanted is the release as a record that has no port yet.
func (a *Apps) wanted(ctx context.Context, r *app.Release) (*record, error) {
	req := r.Request()
	if err := req.Check(ctx); err != nil {
		return nil, err
	}
	program, ok := a.config.Versions[r.Version]
	if !ok {
		return nil, providers.Errorf(providers.Invalid, "version %q of the application is not configured", r.Version)
	}
	dir, err := a.tenants.Path(r.Of())
	if err == nil {
		err = environ.Check(r.Env)
	}
	if err != nil {
		return nil, err
	}
	key := req.Key()
	u := a.unit(key)
	u.Program, u.Host, u.Home, u.Tenant, u.Limits = program, a.config.Host, a.home(key), dir, r.Limits
	if u.Env, err = app.Variables(r, u.Home, dir); err != nil {
		return nil, err
	}
	hash, err := machines.Hash(u)
	if err != nil {
		return nil, providers.Errorf(providers.Internal, "cannot describe %s: %v", r.Name, err)
	}
	return &record{Key: key, Fence: r.Fence, Hash: hash, Unit: u}, nil
}

// begin has the unit of a release run, in place of what is there with other values, or has had its time.
func (a *Apps) begin(ctx context.Context, r *app.Release, want *record) (*record, error) {
	defer a.lock(want.Key)()
	has, err := a.read(want.Key)
	if err = cmp.Or(err, ctx.Err()); err != nil { // what was given up makes nothing
		return nil, err
	}
	switch {
	case r.Fence < has.Fence:
		return nil, providers.Older(r.Fence, has.Fence)
	case has.Gone || has.Hash == want.Hash && has.stays():
	default:
		if err := r.MayReplace(ctx); err != nil {
			return nil, err
		}
		if err := a.remove(ctx, has); err != nil {
			return nil, err
		}
	}
	fresh := has.Gone
	if fresh {
		has = want
	}
	has.Fence = r.Fence
	if err = a.give(r, has); err == nil { // before it is known: what is known is started by whoever finds it
		err = a.place(has)
	}
	if err == nil {
		err = a.start(ctx, has)
	}
	if err != nil {
		if fresh { // nothing of it stays
			err = errors.Join(err, a.remove(context.WithoutCancel(ctx), has))
		}
		return nil, err
	}
	return has, nil
}

// give writes what a release is given.
func (a *Apps) give(r *app.Release, at *record) error {
	if err := os.MkdirAll(at.Unit.Tenant, 0o700); err != nil {
		return providers.Errorf(providers.Internal, "cannot make the directory of %s: %v", r.Tenant, err)
	}
	return app.KeepSecrets(r, at.Unit.Home, 0)
}

const (
	poll    = 100 * time.Millisecond // between two looks at what is waited for
	crashes = 3                      // before it was healthy, which make a release unhealthy
)

func (a *Apps) await(ctx context.Context, r *app.Release, at *record) (string, error) {
	address, begun := at.address(), time.Now()
	for {
		now, err := a.config.Engine.Look(ctx, &at.Unit)
		switch {
		case providers.IsNotFound(err):
			return "", providers.Errorf(providers.Unavailable, "the release %s was removed while it started", r.Name)
		case err != nil:
			return "", err
		case now.Running && a.healthy(ctx, address):
			return address, a.note(at, func(has *record) { has.Healthy = true })
		case at.Healthy && time.Since(begun) > a.config.Startup:
			return "", providers.Errorf(providers.Unavailable, "the release %s was healthy once, and does not answer %s now. %s", r.Name, a.config.Health, app.Hide(at.Unit.Home, now.Message, a.values))
		case at.Healthy: // it starts again
		case now.Ends >= crashes:
			return "", a.unhealthy(ctx, r, at, cmp.Or(now.Message, "it has ended"))
		case time.Since(at.Began) > a.config.Startup:
			return "", a.unhealthy(ctx, r, at, fmt.Sprintf("it has not answered %s in %s. %s", a.config.Health, a.config.Startup, now.Message))
		}
		if err := wait.Pause(ctx, poll); err != nil {
			return "", err
		}
	}
}

// unhealthy notes that a release has had its time, and ends its unit.
func (a *Apps) unhealthy(ctx context.Context, r *app.Release, at *record, why string) error {
	why = app.Hide(at.Unit.Home, why, a.values)
	var left error
	err := a.note(at, func(has *record) {
		has.Failed, has.Problem = true, why
		left = a.config.Engine.Remove(ctx, &has.Unit)
	})
	if err = cmp.Or(err, left); err != nil {
		return err
	}
	return &app.UnhealthyError{Release: r.Name, Reason: why}
}

func (a *Apps) healthy(ctx context.Context, address string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+a.config.Health, nil)
	if err != nil {
		return false
	}
	req.Header.Set("User-Agent", "instar-health")
	resp, err := a.client.Do(req)
	if err != nil {
		return false
	}
	return resp.Body.Close() == nil && resp.StatusCode < http.StatusBadRequest
}

// Look tells how far a release is. One that is not there is NotFound.
func (a *Apps) Look(ctx context.Context, namespace, name string) (app.Rollout, error) {
	req := providers.Request{Namespace: namespace, Name: name}
	if err := req.Check(ctx); err != nil {
		return app.Rollout{}, err
	}
	at, err := a.read(req.Key())
	if err != nil {
		return app.Rollout{}, err
	}
	to := app.Rollout{Status: "starting"}
	if status, is := a.getting.Load(req.Key()); is {
		to.Status, _ = status.(string)
		if at.Gone {
			return to, nil
		}
	}
	if at.Gone {
		return app.Rollout{}, providers.Errorf(providers.NotFound, "there is no release %s", name)
	}
	if at.Healthy {
		to.Address = at.address()
	}
	if at.Failed { // whatever the engine has
		to.Status = at.Problem
		return to, nil
	}
	now, err := a.config.Engine.Look(ctx, &at.Unit)
	switch {
	case providers.IsNotFound(err):
	case err != nil:
		return app.Rollout{}, err
	case at.Healthy && now.Running:
		to.Status, to.Ready = "ready", true
	case now.Message != "":
		to.Status = app.Hide(at.Unit.Home, now.Message, a.values)
	}
	return to, nil
}

// Remove ends a release, and returns when nothing of it is left. That there is none is fine; an attempt before this one cannot make it any more.
func (a *Apps) Remove(ctx context.Context, r app.Release) error {
	req := r.Request()
	if err := req.Check(ctx); err != nil {
		return err
	}
	defer a.lock(req.Key())()
	at, err := a.read(req.Key())
	if err != nil {
		return err
	}
	if r.Fence < at.Fence {
		return providers.Older(r.Fence, at.Fence)
	}
	at.Fence = r.Fence
	return a.remove(ctx, at)
}

// remove ends what is there under a record, and notes that. The lock of the release is held.
func (a *Apps) remove(ctx context.Context, at *record) error {
	u := at.Unit
	if u.Name == "" {
		u = a.unit(at.Key)
	}
	if !at.Gone { // so that no server makes it again when this one ends half-way
		at.Leaving = true
		if err := a.write(at); err != nil {
			a.config.Log.Warn("a release is removed, and that cannot be noted before, as on a full disk", "release", at.Key, "error", err)
		}
	}
	if err := a.config.Engine.Remove(ctx, &u); err != nil {
		return err
	}
	if err := ownfile.RemoveAll(a.home(at.Key)); err != nil {
		return providers.Errorf(providers.Unavailable, "the unit of %s has ended, and something of its directory cannot be removed: %v", at.Key, err)
	}
	*at = record{Key: at.Key, Fence: at.Fence, Gone: true}
	return a.write(at)
}

func (r *record) address() string { return net.JoinHostPort(r.Unit.Host, strconv.Itoa(r.Unit.Port)) }
