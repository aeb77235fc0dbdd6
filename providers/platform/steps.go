package platform

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/bcc94042/instar/internal/wait"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/database"
	domains "github.com/bcc94042/instar/machines/domain"
	machine "github.com/bcc94042/instar/machines/platform"
	"github.com/bcc94042/instar/machines/session"
	"github.com/bcc94042/instar/providers"
	"github.com/bcc94042/instar/providers/domain"
	"github.com/bcc94042/instar/providers/platform/app"
	"github.com/bcc94042/instar/providers/platform/storage"
)

// plan reads which version there will be, and whether it may be had. It creates nothing.
func (j *job) plan(ctx context.Context) (any, error) {
	version, err := j.version()
	if err == nil && j.body.Upgrade != nil {
		err = j.before(ctx)
	}
	if err != nil {
		return nil, err
	}
	p := machine.Plan{Version: version, Domain: j.Domain, Approval: j.Approval != nil && j.Approval(j.task), Export: j.Export != nil}
	if b, ok := j.Apps.(app.Bounding); ok {
		if p.Notes, err = b.Bounds(j.Sizes[j.spec()].Limits); err != nil {
			return nil, err
		}
	}
	if p.Export {
		if err := j.canExport(); err != nil {
			p.Export, p.Notes = false, append(p.Notes, fmt.Sprintf("the tenant cannot be closed with export until it is planned anew, as by an upgrade: %v", err))
		}
	}
	if j.body.Upgrade != nil { // which uses up nothing more
		return p, nil
	}
	if p.Quota, err = j.within(ctx); err != nil {
		return nil, err
	}
	if _, ok := j.Sizes[j.spec()]; !ok {
		return nil, providers.Errorf(providers.Invalid, "instanceSpec %q is none of %s", j.spec(), strings.Join(slices.Sorted(maps.Keys(j.Sizes)), ", "))
	}
	if j.body.Platform.StorageBytes > 0 && !j.Storage.Quotas() {
		return nil, providers.Errorf(providers.Invalid, "storageBytes: the store of this server keeps no quotas, so none can be promised: leave it out")
	}
	if err := j.named(ctx); err != nil {
		return nil, err
	}
	if j.Place != nil {
		var f *machines.Failure
		if p.Server, f = j.Place(ctx, &j.body.Request); f != nil {
			return nil, &providers.CodedError{Failure: *f}
		}
	}
	for _, g := range machine.Stages[1:] {
		if n := len(p.Steps); n == 0 || p.Steps[n-1] != g.State {
			p.Steps = append(p.Steps, g.State)
		}
	}
	if j.body.Platform.Data != machine.DataShared {
		return p, nil
	}
	if err := j.counted(ctx, &p); err != nil {
		return nil, err
	}
	return p, nil
}

// named fails where the names that were asked for cannot be had, as far as that is known before anything is made.
func (j *job) named(ctx context.Context) error {
	if slug := j.body.Platform.Slug; slug != "" {
		host := slug + "." + j.Domain
		r, err := j.Table.Row(ctx, host)
		if err != nil {
			return unavailable(err)
		}
		if j.anothers(r) {
			return providers.Coded(machine.CodeSlug, "%s is taken", host)
		}
	}
	host := j.body.Platform.CustomDomain
	switch {
	case host == "":
		return nil
	case j.Domains == nil:
		return providers.Errorf(providers.Invalid, "customDomain: this server binds no domains")
	}
	if j.Refuses != nil {
		if why := j.Refuses(host); why != "" {
			return providers.Errorf(providers.Invalid, "customDomain: %s", why)
		}
	}
	return j.Domains.Check(ctx, j.binding())
}

// within fails where a quota is used up without this session.
func (j *job) within(ctx context.Context) (quotas []machine.Quota, err error) {
	if j.Quota == nil {
		return nil, nil
	}
	if quotas, err = j.Quota(ctx, j.task); err != nil {
		return nil, err
	}
	for _, q := range quotas {
		if q.Used > q.Limit {
			return nil, providers.Coded(machine.CodeQuota, "%s: %d with this one, of at most %d", q.Name, q.Used, q.Limit)
		}
	}
	return quotas, nil
}

// enter reserves the slug, within the quota: of two sessions for the last place one gets it. Who has a place keeps it.
func (j *job) enter(ctx context.Context) error {
	j.entry.Lock()
	defer j.entry.Unlock()
	r, err := j.Table.Row(ctx, j.body.PrimaryDomain)
	if err != nil {
		return unavailable(err)
	}
	if r.Owner != j.owner {
		if _, err := j.within(ctx); err != nil {
			return err
		}
	}
	return j.hold(ctx, nil)
}

// counted adds what the databases' plan says of the rows that are moved.
func (j *job) counted(ctx context.Context, p *machine.Plan) error {
	data, err := j.database(ctx)
	if err != nil {
		return err
	}
	var moved database.Plan
	if err := into(data, &moved); err != nil {
		return err
	}
	p.Rows, p.Total, p.Seconds, p.Notes = moved.Rows, moved.Total, moved.Seconds, append(p.Notes, moved.Notes...)
	return nil
}

// into reads the result of another worker, which may be of this process or of another one.
func into(data, to any) error {
	raw, err := json.Marshal(data)
	if err == nil {
		err = json.Unmarshal(raw, to)
	}
	if err != nil {
		return providers.Errorf(providers.Internal, "cannot read a result of the workers of databases: %v", err)
	}
	return nil
}

// version is the one that was asked for, or that of the channel.
func (j *job) version() (string, error) {
	version, channel := j.body.Platform.Version, j.body.Platform.Channel
	if u := j.body.Upgrade; u != nil {
		version, channel = u.To, u.Channel
	}
	channel = cmp.Or(channel, "stable")
	if version == "" {
		version = j.Channels[channel]
	}
	switch {
	case version == "":
		return "", providers.Errorf(providers.Invalid, "the release channel %q is none of %s", channel, strings.Join(slices.Sorted(maps.Keys(j.Channels)), ", "))
	case !j.Apps.Has(version):
		return "", providers.Errorf(providers.Invalid, "version %q of the application is not configured", version)
	}
	return version, nil
}

func (j *job) spec() string { return cmp.Or(j.body.Platform.Spec, "small") }

// provision reserves the slug, and makes the directory of the tenant.
func (j *job) provision(ctx context.Context) (any, error) {
	if err := j.enter(ctx); err != nil {
		return nil, err
	}
	if err := j.Apps.Ensure(ctx, j.tenant()); err != nil {
		return nil, err
	}
	i := machine.Instance{ID: j.Apps.Kind() + "/" + j.body.Name, Host: j.Apps.Host()}
	return i, j.made(ctx, true, func(ctx context.Context) error { return j.Apps.Forget(ctx, j.tenant()) })
}

func (j *job) tenant() app.Tenant {
	return app.Tenant{Namespace: j.task.Namespace, Name: j.body.Name, Owner: j.owner}
}

// store makes the bucket.
func (j *job) store(ctx context.Context) (any, error) {
	if err := j.hold(ctx, nil); err != nil {
		return nil, err
	}
	b, err := j.Storage.Ensure(ctx, storage.Spec{
		Name: j.body.Name, Owner: j.owner, Quota: cmp.Or(j.body.Platform.StorageBytes, j.Sizes[j.spec()].StorageBytes),
	})
	if err != nil {
		return nil, err
	}
	s := machine.Storage{ID: b.ID, Bucket: b.Name, Prefix: b.Prefix, Endpoint: b.Endpoint}
	return s, j.made(ctx, false, func(ctx context.Context) error { return j.Storage.Delete(ctx, j.body.Name, j.owner) })
}

// deploy returns when the release is alive. Releases are fenced by themselves; what remembers less than it should is taken back here.
func (j *job) deploy(ctx context.Context) (any, error) {
	if j.body.Release == nil {
		return nil, providers.Errorf(providers.Invalid, "the task %s has no release", j.task.Attempt)
	}
	if err := j.hold(ctx, nil); err != nil {
		return nil, err
	}
	if err := j.before(ctx); err != nil {
		return nil, err
	}
	r := j.release(j.body.Release)
	r.Replace, r.Limits = j.replace, j.Sizes[j.spec()].Limits
	r.Env = maps.Clone(j.Env)
	if r.Env == nil {
		r.Env = map[string]string{}
	}
	r.Env["TENANT_ID"], r.Env["PRIMARY_DOMAIN"] = j.body.Request.EnterpriseID, j.body.PrimaryDomain
	if i := j.body.Instance; i != nil {
		r.Env["INSTANCE_ID"] = i.ID
	}
	if d := j.body.Database; d != nil {
		r.Env["DATABASE_HOST"], r.Env["DATABASE_NAME"] = d.Host, d.Name
	}
	if s := j.body.Storage; s != nil {
		r.Env["STORAGE_BUCKET"] = s.Bucket
		for name, value := range map[string]string{"STORAGE_PREFIX": s.Prefix, "STORAGE_ENDPOINT": s.Endpoint} {
			if value != "" {
				r.Env[name] = value
			}
		}
	}
	if j.Secrets != nil {
		var err error
		if r.Secrets, err = j.Secrets(j.body.Request.EnterpriseID, j.body.Database); err != nil {
			return nil, err
		}
	}
	if err := j.keyed(ctx, &r); err != nil {
		return nil, err
	}
	address, err := j.Apps.Deploy(ctx, r)
	if err == nil {
		err = j.made(ctx, true, func(ctx context.Context) error { return j.remove(ctx, r) })
	}
	return machine.App{Name: r.Name, Version: r.Version, Address: address}, err
}

// replace refuses to have a release removed for one with other values while a domain leads to it.
func (j *job) replace(ctx context.Context) error {
	host, err := j.leading(ctx, j.body.Release.Name)
	if err != nil || host == "" {
		return err
	}
	return providers.Errorf(providers.Invalid, "%s leads to the release %s, which is there with other values: the session is older than what the tenant has", host, j.body.Release.Name)
}

func (j *job) release(a *machine.App) app.Release {
	return app.Release{
		Namespace: j.task.Namespace, Tenant: j.body.Name, Name: a.Name, Version: a.Version, Owner: j.owner, Fence: j.task.Fence, Attempt: j.task.Attempt,
	}
}

// target is one that a route leads to.
type target struct {
	app    *machine.App
	weight int
}

// lead makes the primary domain, and a custom one that was asked for, lead to releases, and returns the key of the custom one. That is bound by the effect route alone: what somebody has
// removed since does not come back with an upgrade.
func (j *job) lead(ctx context.Context, targets ...target) (key string, err error) {
	route := domains.Route{Health: j.Health}
	_, virtual := j.Apps.(app.Virtual)
	for _, t := range targets {
		if t.app == nil || t.app.Address == "" {
			return "", providers.Errorf(providers.Invalid, "the task %s has a release without an address", j.task.Attempt)
		}
		route.Targets = append(route.Targets, domains.Target{Address: t.app.Address, Weight: t.weight, OwnHost: virtual})
	}
	if err := j.hold(ctx, func(r *domain.Row) { r.Route = &route }); err != nil || j.body.Platform.CustomDomain == "" {
		return "", err
	}
	b := j.binding()
	b.Route, b.Anew = route, j.task.Effect == effectRoute
	return j.Domains.Point(ctx, b)
}

func (j *job) binding() Binding {
	b := Binding{Namespace: j.task.Namespace, Tenant: j.task.Parent, Session: j.task.ID, Life: j.body.Generation, Host: j.body.Platform.CustomDomain}
	for _, e := range j.body.Ledger {
		if e.Kind == machine.KindDomain && e.Name == b.Host && e.State == session.Created {
			b.Made = e.At
		}
	}
	return b
}

func (j *job) route(ctx context.Context) (any, error) {
	if err := j.before(ctx); err != nil {
		return nil, err
	}
	key, err := j.lead(ctx, target{j.body.App, 1})
	if err == nil && key != "" {
		err = j.made(ctx, false, func(ctx context.Context) error { return j.Domains.Remove(ctx, j.binding()) })
	}
	return machine.Route{ID: j.body.PrimaryDomain, Domain: key}, err
}

// certify returns when the primary domain has a certificate.
func (j *job) certify(ctx context.Context) (any, error) {
	host := j.body.PrimaryDomain
	if err := j.hold(ctx, nil); err != nil {
		return nil, err
	}
	c, err := j.Issuer.Obtain(ctx, host)
	if err != nil {
		return nil, err
	}
	return machine.Certificate{Issuer: c.Issuer, Serial: c.Serial, NotAfter: c.NotAfter}, j.made(ctx, true, func(ctx context.Context) error { return j.Issuer.Forget(ctx, host) })
}

// probe asks through the domain until the application is ready.
func (j *job) probe(ctx context.Context) (any, error) {
	url := "https://" + j.body.PrimaryDomain + cmp.Or(j.Readiness, "/")
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(j.Wait, 2*time.Minute))
	defer cancel()
	var last error
	for {
		begun := time.Now()
		status, err := get(ctx, j.Client, url)
		if err == nil && status < http.StatusBadRequest {
			return machine.Proven{URL: url, Status: status, Millis: float64(time.Since(begun).Microseconds()) / 1000}, nil
		}
		if err == nil {
			err = fmt.Errorf("it answers %d", status)
		}
		if ctx.Err() == nil || last == nil {
			last = err
		}
		if wait.Pause(ctx, 250*time.Millisecond) != nil {
			return nil, providers.Errorf(providers.Unavailable, "%s is not ready: %v", url, last)
		}
	}
}

func get(ctx context.Context, client *http.Client, url string) (status int, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	req.Header.Set("User-Agent", "instar-probe")
	resp, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	_, _ = io.CopyN(io.Discard, resp.Body, 64<<10) // so that the connection is used again
	return resp.StatusCode, resp.Body.Close()
}

// halt keeps earlier attempts from doing more.
func (j *job) halt(ctx context.Context) (any, error) {
	if err := j.close(ctx, false); err != nil {
		return nil, err
	}
	if j.body.Database == nil {
		return nil, nil
	}
	return j.database(ctx)
}
