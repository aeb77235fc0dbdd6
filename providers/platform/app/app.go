package app

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/providers"
)

// Provider runs releases; see the package's contract.
type Provider interface {
	// Kind is its name in the configuration.
	Kind() string
	// Host is where releases are reached; empty where each says it.
	Host() string
	// Has reports whether a version can be run.
	Has(version string) bool
	// Ensure makes what a tenant keeps over its releases.
	Ensure(ctx context.Context, t Tenant) error
	// Forget removes it with everything in it. That there is none, or only another owner's, is fine.
	Forget(ctx context.Context, t Tenant) error
	Deploy(ctx context.Context, r Release) (address string, err error)
	Look(ctx context.Context, namespace, name string) (Rollout, error)
	Remove(ctx context.Context, r Release) error
}

// Virtual is a [Provider] whose releases share a server in front of them, which tells them apart by the host of their address: requests have to be sent under that.
type Virtual interface {
	Provider
	Virtual()
}

// Bounding is a [Provider] that finds out only here, and not from the configuration, which limits can hold.
type Bounding interface {
	Provider
	// Bounds fails where one of the limits cannot hold at all, and says which ones hold for less than a whole release.
	Bounds(l Limits) (notes []string, err error)
}

// Logging is a [Provider] that can tell what its releases write.
type Logging interface {
	Provider
	// Lines tells what releases write, line by line and without their secrets, until ctx ends. What they have written before may be left out, and so may much at once.
	Lines(ctx context.Context, tell func(Line))
}

// Line is one that a release has written.
type Line struct{ Owner, Release, Text string }

// Tenant is who has releases.
type Tenant struct {
	Namespace string
	Name      string // DNS label, the same for all its releases
	Owner     string // whose it is: the key of an entity
}

// Check refuses names that would reach other things than those of the tenant.
func (t *Tenant) Check() error {
	if !machines.IsLabel(t.Namespace) || !machines.IsLabel(t.Name) {
		return providers.Errorf(providers.Invalid, "namespace %q or tenant %q is no DNS label", t.Namespace, t.Name)
	}
	return nil
}

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
	Limits    Limits
	Secrets   map[string]string // by the name of the variable that, with _FILE, has the path

	// Replace is asked by Deploy before it removes a release of this name that has other values, or was never healthy: an error keeps that. Nil keeps none.
	Replace func(ctx context.Context) error
}

// Request is the release as a request of a gateway. Its Check is that of the names.
func (r *Release) Request() providers.Request {
	return providers.Request{Namespace: r.Namespace, Name: r.Name, UID: r.Owner, Attempt: r.Attempt, Fence: r.Fence}
}

// Of is the tenant that has the release.
func (r *Release) Of() Tenant { return Tenant{Namespace: r.Namespace, Name: r.Tenant, Owner: r.Owner} }

// MayReplace asks whether what is there under the name may be removed.
func (r *Release) MayReplace(ctx context.Context) error {
	if r.Replace == nil {
		return nil
	}
	return r.Replace(ctx)
}

// Limits bound a release. A zero is no limit, or the one that its kind has.
type Limits struct {
	Memory    int64 `json:"memory,omitempty"`    // bytes
	Files     int   `json:"files,omitempty"`     // that are open, of each process
	Processes int   `json:"processes,omitempty"` // and threads
	CPU       int   `json:"cpu,omitempty"`       // thousandths of a processor
}

// UnhealthyError says that a release does not become healthy.
type UnhealthyError struct {
	Release, Reason string
	Log             string // the last lines that it wrote, where the kind has them; without its secrets
}

func (e *UnhealthyError) Error() string {
	return fmt.Sprintf("the release %s does not become healthy: %s", e.Release, e.Reason)
}

// RedactError takes secrets and more words out of what an error of this package or of package providers says.
func RedactError(err error, secrets map[string]string, more []string) error {
	words := append(Words(slices.Collect(maps.Values(secrets))...), more...)
	var unhealthy *UnhealthyError
	var e *providers.Error
	switch {
	case errors.As(err, &unhealthy):
		unhealthy.Reason, unhealthy.Log = Redact(unhealthy.Reason, words), Redact(unhealthy.Log, words)
	case errors.As(err, &e):
		e.Message = Redact(e.Message, words)
	}
	return err
}

// Rollout is how far a release is.
type Rollout struct {
	Status  string // starting, ready, or what is wrong
	Ready   bool
	Address string // host:port, where it was healthy once
}

// Program is how a version of the application is run: a command of this machine, or an image.
type Program struct {
	Command []string
	Image   string
	Env     map[string]string
	Port    bool // of the kind process: it listens on PORT, and not on the socket that it is handed
}
