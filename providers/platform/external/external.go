package external

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/bcc94042/instar/internal/wait"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/providers"
	"github.com/bcc94042/instar/providers/platform/app"
	"github.com/bcc94042/instar/providers/process/environ"
	"github.com/bcc94042/instar/streams"
)

// The verbs of the protocol: the last token of the subject of a request.
const (
	VerbEnsure = "ensure"
	VerbForget = "forget"
	VerbDeploy = "deploy"
	VerbLook   = "look"
	VerbRemove = "remove"
)

// Request is what the program is asked. Look has namespace and name alone, ensure and forget have namespace, tenant and owner.
type Request struct {
	Namespace string            `json:"namespace"`
	Tenant    string            `json:"tenant,omitempty"`
	Owner     string            `json:"owner,omitempty"`
	Name      string            `json:"name,omitempty"`
	Fence     uint64            `json:"fence,omitempty"`
	Attempt   string            `json:"attempt,omitempty"`
	Version   string            `json:"version,omitempty"`
	Image     string            `json:"image,omitempty"`   // of the configuration of the version
	Command   []string          `json:"command,omitempty"` // the same
	Health    string            `json:"health,omitempty"`  // path that a live release answers below 400
	Hash      string            `json:"hash,omitempty"`    // of the values, which look tells again
	Env       map[string]string `json:"env,omitempty"`
	Limits    app.Limits        `json:"limits,omitzero"`
	Secrets   map[string]string `json:"secrets,omitempty"` // to be given as files, named by NAME_FILE
}

// Answer is the program's. All but an error is of look.
type Answer struct {
	Error   *Trouble `json:"error,omitempty"`
	Status  string   `json:"status,omitempty"` // starting, ready, or what is wrong
	Ready   bool     `json:"ready,omitempty"`
	Failed  bool     `json:"failed,omitempty"`  // it does not become healthy: status says why
	Address string   `json:"address,omitempty"` // host:port, where it was healthy once
	Hash    string   `json:"hash,omitempty"`    // of the deploy that it is of
}

// Trouble is why a request was refused.
type Trouble struct {
	Code       providers.Code `json:"code"` // not-found, invalid, unavailable, fenced or internal
	Message    string         `json:"message"`
	Fence      uint64         `json:"fence,omitempty"`      // of fenced: the one that was seen
	RetryAfter float64        `json:"retryAfter,omitempty"` // seconds, of unavailable
}

// Apps are releases that a program elsewhere runs. Its fields are set before its first use.
type Apps struct {
	NC       *nats.Conn
	Names    streams.Names
	Versions map[string]app.Program
	Env      map[string]string // that Deploy gets for every release: like those of versions, its values are in no message that is told
	Health   string
	Startup  time.Duration // until a release has to be ready; 60 s when 0
	Within   time.Duration // for one answer; 10 s when 0

	late sync.Map // releases that were not ready in time, by namespace and name: the program does not say of one that hangs that it has failed
}

var _ app.Provider = (*Apps)(nil)

// Kind is external.
func (a *Apps) Kind() string { return "external" }

// Host is empty: each release says where it is.
func (a *Apps) Host() string { return "" }

// Has reports whether a version can be run.
func (a *Apps) Has(version string) bool {
	_, ok := a.Versions[version]
	return ok
}

// Ensure makes what a tenant keeps over its releases.
func (a *Apps) Ensure(ctx context.Context, t app.Tenant) error { return a.tenant(ctx, VerbEnsure, t) }

// Forget removes it.
func (a *Apps) Forget(ctx context.Context, t app.Tenant) error { return a.tenant(ctx, VerbForget, t) }

func (a *Apps) tenant(ctx context.Context, verb string, t app.Tenant) error {
	if err := t.Check(); err != nil {
		return err
	}
	_, err := a.ask(ctx, verb, &Request{Namespace: t.Namespace, Tenant: t.Name, Owner: t.Owner}, nil)
	return err
}

// Deploy has a release run, and returns its address when it is ready. It waits for as long as ctx, or until the release has had its time.
func (a *Apps) Deploy(ctx context.Context, r app.Release) (string, error) {
	q, err := a.request(ctx, &r)
	if err != nil {
		return "", err
	}
	has, err := a.ask(ctx, VerbLook, &Request{Namespace: r.Namespace, Name: r.Name}, r.Secrets)
	_, late := a.late.Load(nameOf(&r))
	switch {
	case providers.IsNotFound(err):
	case err != nil:
		return "", err
	case has.Failed || has.Hash != q.Hash || late && !has.Ready:
		if err = r.MayReplace(ctx); err == nil {
			err = a.Remove(ctx, r)
		}
		if err != nil {
			return "", err
		}
	}
	if _, err := a.ask(ctx, VerbDeploy, q, r.Secrets); err != nil {
		return "", err
	}
	return a.await(ctx, &r)
}

// request is a release as the program is asked for it.
func (a *Apps) request(ctx context.Context, r *app.Release) (*Request, error) {
	check, of := r.Request(), r.Of()
	if err := check.Check(ctx); err != nil {
		return nil, err
	}
	p, ok := a.Versions[r.Version]
	if !ok {
		return nil, providers.Errorf(providers.Invalid, "version %q of the application is not configured", r.Version)
	}
	_, err := app.Variables(r, "", "") // that the names of secrets are some
	if err = cmp.Or(of.Check(), err, environ.Check(r.Env)); err != nil {
		return nil, err
	}
	q := &Request{Namespace: r.Namespace, Tenant: r.Tenant, Owner: r.Owner, Name: r.Name, Version: r.Version, Image: p.Image, Command: p.Command, Health: a.Health, Env: map[string]string{}, Limits: r.Limits, Secrets: r.Secrets}
	for _, env := range []map[string]string{p.Env, r.Env} {
		for name, value := range env {
			q.Env[name] = value
		}
	}
	hash, err := machines.Hash(q)
	if err != nil {
		return nil, providers.Errorf(providers.Internal, "cannot describe %s: %v", r.Name, err)
	}
	q.Hash, q.Fence, q.Attempt = hash, r.Fence, r.Attempt
	return q, nil
}

func nameOf(r *app.Release) string { return r.Namespace + "." + r.Name }

const poll = 200 * time.Millisecond // between two looks at what is waited for

func (a *Apps) await(ctx context.Context, r *app.Release) (string, error) {
	end := time.Now().Add(cmp.Or(a.Startup, time.Minute))
	for {
		now, err := a.ask(ctx, VerbLook, &Request{Namespace: r.Namespace, Name: r.Name}, r.Secrets)
		switch {
		case providers.IsNotFound(err):
			return "", providers.Errorf(providers.Unavailable, "the release %s was removed while it started", r.Name)
		case err != nil:
			return "", err
		case now.Failed:
			return "", &app.UnhealthyError{Release: r.Name, Reason: now.Status}
		case now.Ready:
			a.late.Delete(nameOf(r))
			return now.Address, nil
		case time.Now().After(end):
			a.late.Store(nameOf(r), nil)
			return "", &app.UnhealthyError{Release: r.Name, Reason: "it is not ready in time, and begins anew with the next attempt; if it only needs longer, raise platform.startup: " + now.Status}
		}
		if err := wait.Pause(ctx, poll); err != nil {
			return "", err
		}
	}
}

// Look tells how far a release is. One that is not there is NotFound.
func (a *Apps) Look(ctx context.Context, namespace, name string) (app.Rollout, error) {
	req := providers.Request{Namespace: namespace, Name: name}
	if err := req.Check(ctx); err != nil {
		return app.Rollout{}, err
	}
	now, err := a.ask(ctx, VerbLook, &Request{Namespace: namespace, Name: name}, nil)
	return app.Rollout{Status: now.Status, Ready: now.Ready, Address: now.Address}, err
}

// Remove ends a release, and returns when nothing of it is left.
func (a *Apps) Remove(ctx context.Context, r app.Release) error {
	req := r.Request()
	if err := req.Check(ctx); err != nil {
		return err
	}
	_, err := a.ask(ctx, VerbRemove, &Request{Namespace: r.Namespace, Tenant: r.Tenant, Owner: r.Owner, Name: r.Name, Fence: r.Fence, Attempt: r.Attempt}, r.Secrets)
	if err == nil {
		a.late.Delete(nameOf(&r))
	}
	return err
}

// ask has one answer to one request. What that says has neither secrets nor values of the configuration.
func (a *Apps) ask(ctx context.Context, verb string, q *Request, secrets map[string]string) (Answer, error) {
	now, err := a.answer(ctx, verb, q)
	words := app.Configured(a.Env, a.Versions)
	now.Status = app.Redact(now.Status, append(app.Words(slices.Collect(maps.Values(secrets))...), words...))
	return now, app.RedactError(err, secrets, words)
}

func (a *Apps) answer(ctx context.Context, verb string, q *Request) (now Answer, err error) {
	if err := ctx.Err(); err != nil {
		return now, err
	}
	raw, err := json.Marshal(q)
	if err != nil {
		return now, providers.Errorf(providers.Internal, "cannot write the request: %v", err)
	}
	subject := a.Names.Provider("instance", verb)
	within, cancel := context.WithTimeout(ctx, cmp.Or(a.Within, 10*time.Second))
	defer cancel()
	m, err := a.NC.RequestWithContext(within, subject, raw)
	switch {
	case ctx.Err() != nil:
		return now, ctx.Err()
	case errors.Is(err, nats.ErrNoResponders):
		return now, providers.Errorf(providers.Unavailable, "no provider of instances answers on %s: start it", subject)
	case err != nil:
		return now, providers.Errorf(providers.Unavailable, "the provider of instances does not answer on %s: %v", subject, err)
	}
	if err := json.Unmarshal(m.Data, &now); err != nil {
		return now, providers.Errorf(providers.Internal, "the provider of instances answers on %s what cannot be read: %v", subject, err)
	}
	if t := now.Error; t != nil {
		return Answer{}, &providers.Error{Code: t.Code, Message: t.Message, Fence: t.Fence, RetryAfter: time.Duration(t.RetryAfter * float64(time.Second))}
	}
	if _, _, err := net.SplitHostPort(now.Address); now.Address != "" && err != nil || now.Ready && now.Address == "" {
		return Answer{}, providers.Errorf(providers.Internal, "the provider of instances says that %s is at %q, which is no host:port", q.Name, now.Address)
	}
	return now, nil
}
