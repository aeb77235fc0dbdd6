package providers

import (
	"context"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/service"
)

// Gateway runs services somewhere. See the package's contract for what every implementation guarantees.
type Gateway interface {
	// Apply makes the object of the service want the specification, creating it when there is none.
	Apply(ctx context.Context, req ApplyRequest) (service.Applied, error)
	// Observe tells what is there, or fails with NotFound. It changes nothing and is never fenced.
	Observe(ctx context.Context, req ObserveRequest) (service.Observation, error)
	// Delete starts the end of the object, also of one that an earlier life has left: the fence refuses what a later life
	// has. That there is none, or only somebody else's, is fine.
	Delete(ctx context.Context, req DeleteRequest) error
	// Capabilities tells what this gateway can do. It never blocks.
	Capabilities() Capabilities
}

// Notifier is implemented by gateways that notice changes by themselves, so that nobody has to wait for a poll.
type Notifier interface {
	// Watch calls notify with the key of each service about which something changed, until ctx ends, and returns
	// ctx's error then. Changes before the call are not told. notify must not block for long.
	Watch(ctx context.Context, notify func(key string)) error
}

// Request is what every call carries.
type Request struct {
	Namespace string
	Name      string
	UID       string // of this life of the service: a new one with the same name has another
	Hash      string // of the specification that is wanted
	Attempt   string // the same for every delivery of the same try
	Fence     uint64 // version of the entity at which the attempt began: never falls, over all lives of the name, but where everything that told of versions was lost
}

// Key is the key of the service.
func (r *Request) Key() string { return machines.Key(r.Namespace, "", r.Name) }

// Check refuses what is over already, and names that would reach other things than those of the service.
func (r *Request) Check(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if !machines.IsLabel(r.Namespace) || !machines.IsLabel(r.Name) {
		return Errorf(Invalid, "namespace %q or name %q is no DNS label", r.Namespace, r.Name)
	}
	return nil
}

// ApplyRequest asks for a specification to be wanted.
type ApplyRequest struct {
	Request
	Generation uint64 // of the entity, for reading only
	Spec       service.Spec
}

// ObserveRequest asks what is there.
type ObserveRequest struct{ Request }

// DeleteRequest asks for the end of the object.
type DeleteRequest struct {
	Request
	Force bool // without grace: what does not end by itself is killed at once
}

// Capabilities tells what a gateway can do.
type Capabilities struct {
	Gateway   string   `json:"gateway"`            // its name in the configuration
	Watch     bool     `json:"watch"`              // it is a Notifier
	Revisions bool     `json:"revisions"`          // the old revision serves until the new one is healthy
	Scale     bool     `json:"scale"`              // spec.scale.min is honoured
	Route     bool     `json:"route"`              // it probes through the public address
	Images    []string `json:"images,omitempty"`   // the only images it takes; empty means any
	Defaults  bool     `json:"defaults,omitempty"` // spec.port 0 is chosen by the gateway
}
