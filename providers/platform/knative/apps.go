package knative

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bcc94042/instar/internal/wait"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/service"
	"github.com/bcc94042/instar/providers"
	"github.com/bcc94042/instar/providers/knative"
	"github.com/bcc94042/instar/providers/platform/app"
	"github.com/bcc94042/instar/providers/process/environ"
)

// Apps are releases that a cluster runs. Its fields are set before its first use.
type Apps struct {
	Gateway  *knative.Gateway // whose owner no gateway for services has
	Versions map[string]app.Program
	Env      map[string]string // that Deploy gets for every release: like those of versions, its values are in no message that is told
	Health   string            // path that a live release answers with a status below 400; / when empty
	Startup  time.Duration     // until a release has to be ready, with the time in which its image is got; 60 s when 0
	Grace    time.Duration     // for which a release that was never ready may have failed; 30 s when 0
}

var _ app.Virtual = (*Apps)(nil)

// Check fails for versions that cannot be run.
func (a *Apps) Check() error {
	for _, name := range slices.Sorted(maps.Keys(a.Versions)) {
		if err := a.check(a.Versions[name]); err != nil {
			return fmt.Errorf("version %s: %w", name, err)
		}
	}
	return nil
}

func (a *Apps) check(p app.Program) error {
	if p.Image == "" {
		return providers.Errorf(providers.Invalid, "the kind knative runs images, and it has none")
	}
	if err := a.Gateway.CheckImage(p.Image); err != nil {
		return err
	}
	for _, v := range reserved {
		if _, ok := p.Env[v]; ok {
			return providers.Errorf(providers.Invalid, "env: %s is what Knative sets: leave it out", v)
		}
	}
	return nil
}

// reserved are variables that Knative sets, and refuses to have set.
var reserved = []string{"PORT", "K_SERVICE", "K_CONFIGURATION", "K_REVISION"}

// Kind is knative.
func (a *Apps) Kind() string { return "knative" }

// Host is empty: each release says where it is.
func (a *Apps) Host() string { return "" }

// Virtual says that releases are told apart by the host of a request.
func (a *Apps) Virtual() {}

// Has reports whether a version can be run.
func (a *Apps) Has(version string) bool {
	_, ok := a.Versions[version]
	return ok
}

// Ensure marks the name of a tenant as its own.
func (a *Apps) Ensure(ctx context.Context, t app.Tenant) error {
	if err := t.Check(); err != nil {
		return err
	}
	return a.Gateway.Mark(ctx, providers.Request{Namespace: t.Namespace, Name: t.Name, UID: t.Owner})
}

// Forget takes that back.
func (a *Apps) Forget(ctx context.Context, t app.Tenant) error {
	if err := t.Check(); err != nil {
		return err
	}
	return a.Gateway.Unmark(ctx, providers.Request{Namespace: t.Namespace, Name: t.Name, UID: t.Owner})
}

// Deploy has a release run, and returns its address when it is ready. It waits for as long as ctx, or until the release has had its time.
func (a *Apps) Deploy(ctx context.Context, r app.Release) (string, error) {
	address, err := a.deploy(ctx, &r)
	return address, app.RedactError(err, r.Secrets, app.Configured(a.Env, a.Versions))
}

func (a *Apps) deploy(ctx context.Context, r *app.Release) (string, error) {
	want, pod, err := a.wanted(ctx, r)
	if err != nil {
		return "", err
	}
	has, err := a.Gateway.Observe(ctx, providers.ObserveRequest{Request: want.Request})
	switch {
	case providers.IsNotFound(err):
	case err != nil:
		return "", err
	case has.SpecHash != want.Hash || failed(&has):
		if err := r.MayReplace(ctx); err != nil {
			return "", err
		}
		fallthrough
	case has.Reason == knative.Terminating:
		if err := a.Remove(ctx, *r); err != nil {
			return "", err
		}
	}
	if err := a.Gateway.ApplyPod(ctx, want, pod); err != nil {
		return "", err
	}
	if pod.Address, err = a.await(ctx, r); err != nil {
		return "", err
	}
	// The object keeps it before anything leads there: the URL of a release may become another one.
	return pod.Address, a.Gateway.ApplyPod(ctx, want, pod)
}

// filesAt is where a release has its secrets.
const filesAt = "/run/instar"

// wanted is the release as the gateway is asked for it.
func (a *Apps) wanted(ctx context.Context, r *app.Release) (want providers.ApplyRequest, pod *knative.Pod, err error) {
	want.Request, want.Generation = r.Request(), r.Fence
	of := r.Of()
	p, ok := a.Versions[r.Version]
	if err = cmp.Or(want.Check(ctx), of.Check(), environ.Check(r.Env)); err != nil {
		return want, nil, err
	}
	switch {
	case !ok:
		return want, nil, providers.Errorf(providers.Invalid, "version %q of the application is not configured", r.Version)
	case r.Limits.Files > 0 || r.Limits.Processes > 0:
		return want, nil, providers.Errorf(providers.Invalid, "the kind knative limits memory and cpu, and neither files nor processes")
	}
	env, err := app.Variables(r, filesAt, "")
	if err != nil {
		return want, nil, err
	}
	delete(env, "TENANT_DIR")
	pod = &knative.Pod{Args: p.Command, Memory: r.Limits.Memory, CPU: r.Limits.CPU, Files: map[string]string{}}
	for name, secret := range r.Secrets {
		at := env[name+"_FILE"]
		pod.FilesAt, pod.Files[path.Base(at)] = path.Dir(at), secret
	}
	want.Spec = service.Spec{Image: p.Image, Env: map[string]string{}, Probe: service.Probe{Path: a.Health, StartupSeconds: int(a.startup() / time.Second)}}
	maps.Copy(want.Spec.Env, p.Env)
	maps.Copy(want.Spec.Env, env)
	// The secrets are not part of it: it can be read in the cluster. One that changes is changed in the file.
	want.Hash, err = machines.Hash(struct {
		Owner, Tenant string
		Spec          service.Spec
		Args          []string
		Limits        app.Limits
	}{r.Owner, r.Tenant, want.Spec, pod.Args, r.Limits})
	if err != nil {
		return want, nil, providers.Errorf(providers.Internal, "cannot describe %s: %v", r.Name, err)
	}
	return want, pod, nil
}

func (a *Apps) startup() time.Duration { return cmp.Or(a.Startup, time.Minute) }

// settled reports whether what was observed is of the last Apply.
func settled(o *service.Observation) bool { return o.ObservedGeneration == o.Generation }

// failed reports whether a release has failed that never was ready.
func failed(o *service.Observation) bool {
	return settled(o) && o.Ready == machines.False && o.LatestReady == ""
}

const (
	poll = 500 * time.Millisecond // between two looks at what is waited for
	late = 30 * time.Second       // that the cluster may take to say that a release has had its time
)

func (a *Apps) await(ctx context.Context, r *app.Release) (string, error) {
	begun, well := time.Now(), time.Now() // when it had not failed
	for {
		pause := poll
		now, err := a.Gateway.Observe(ctx, providers.ObserveRequest{Request: r.Request()})
		again := providers.IsUnavailable(err) || providers.CodeOf(err) == providers.Timeout
		switch {
		case again && ctx.Err() == nil && time.Since(begun) <= a.startup()+late: // the release goes on starting without the API server
			pause = min(max(poll, providers.Failure(err).RetryAfter), late)
		case providers.IsNotFound(err), err == nil && now.Reason == knative.Terminating:
			return "", providers.Errorf(providers.Unavailable, "the release %s was removed while it started", r.Name)
		case err != nil:
			return "", err
		case settled(&now) && now.Ready == machines.True:
			return addressOf(now.URL)
		case now.LatestReady != "" && time.Since(begun) > a.startup():
			return "", providers.Errorf(providers.Unavailable, "the release %s was ready once, and is not now: %s", r.Name, said(&now))
		case failed(&now) && time.Since(well) > cmp.Or(a.Grace, late), time.Since(begun) > a.startup()+late:
			return "", &app.UnhealthyError{Release: r.Name, Reason: cmp.Or(said(&now), "it is not ready in time")}
		case !failed(&now):
			well = time.Now()
		}
		if err := wait.Pause(ctx, pause); err != nil {
			return "", err
		}
	}
}

// said is what the cluster says of a release that is not ready.
func said(o *service.Observation) string {
	message := o.Message
	// What a program wrote last comes with what it wrote before, of which the first line is cut anywhere, also within a secret, which nobody would find there.
	if head, wrote, ok := strings.Cut(message, failedWith); ok {
		cut := len(wrote) >= mostWritten
		wrote = strings.TrimSpace(wrote)
		if i := strings.LastIndexByte(wrote, '\n'); i >= 0 {
			message = head + failedWith + ": " + wrote[i+1:]
		} else if cut {
			message = head + failedWith + " a line of more than " + strconv.Itoa(mostWritten) + " bytes, which is in its log"
		}
	}
	if o.Reason == "" || message == "" {
		return o.Reason + message
	}
	return o.Reason + ": " + message
}

// failedWith is what Knative says before what a program wrote.
const failedWith = "failed with"

// mostWritten is how much of what a program wrote Kubernetes keeps where it takes that from its log, in bytes.
const mostWritten = 2048

// addressOf is the host:port of a URL.
func addressOf(text string) (string, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" || u.Hostname() == "" {
		return "", providers.Errorf(providers.Invalid, "Knative says that the release is at %q, and the proxy leads to http alone: set external-domain-tls of its config-network to Disabled", text)
	}
	return net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "80")), nil
}

// Look tells how far a release is, in the words of the cluster, without the secrets of the release, and the address that Deploy returned, also when its URL is another one by now.
// One that is not there is NotFound.
func (a *Apps) Look(ctx context.Context, namespace, name string) (app.Rollout, error) {
	req := providers.Request{Namespace: namespace, Name: name}
	now, told, err := a.Gateway.ObservePod(ctx, req)
	if err != nil {
		return app.Rollout{}, err
	}
	to, at := app.Rollout{Status: "starting"}, told
	if now.LatestReady != "" && now.URL != "" {
		at, err = addressOf(now.URL)
		to.Address = cmp.Or(told, at)
	}
	switch why := said(&now); {
	case err != nil: // what asks does so to remove it
		to.Status = err.Error()
	case told != "" && told != at:
		to.Status = fmt.Sprintf("Knative says that the release is at %s, and requests go to %s", at, told)
	case settled(&now) && now.Ready == machines.True:
		to.Status, to.Ready = "ready", true
	case why != "":
		to.Status = a.hide(ctx, req, why)
	}
	return to, nil
}

// hide is a message without the secrets of a release, and without values of the configuration. Where these cannot be read, it is only said that there is one.
func (a *Apps) hide(ctx context.Context, req providers.Request, message string) string {
	files, err := a.Gateway.Files(ctx, req)
	if err != nil {
		return fmt.Sprintf("its message is in the cluster, and not told: %v", err)
	}
	return app.Redact(message, append(app.Words(files...), app.Configured(a.Env, a.Versions)...))
}

// Remove ends a release, and returns when nothing of it is left. That there is none, or only somebody else's, is fine.
func (a *Apps) Remove(ctx context.Context, r app.Release) error {
	req := r.Request()
	if err := a.Gateway.Delete(ctx, providers.DeleteRequest{Request: req}); err != nil {
		return err
	}
	for {
		if _, err := a.Gateway.Observe(ctx, providers.ObserveRequest{Request: req}); err != nil {
			if providers.IsNotFound(err) {
				return nil
			}
			return err
		}
		if err := wait.Pause(ctx, poll); err != nil {
			return err
		}
	}
}
