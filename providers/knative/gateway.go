package knative

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/bcc94042/instar/providers"
)

// Gateway runs services in a cluster. [Open] makes one; it needs no closing.
type Gateway struct {
	config Config
	host   string
	client dynamic.Interface

	mu    sync.Mutex
	names map[string]*name
}

// name is what this process remembers of a service: one writer at a time, and the newest fence.
type name struct {
	turn  chan struct{} // holds one token while somebody writes
	fence uint64
}

var (
	_ providers.Gateway  = (*Gateway)(nil)
	_ providers.Notifier = (*Gateway)(nil)
)

// soon is when a request should come again that waits for something to end.
const soon = 500 * time.Millisecond

// tries is how often a writer that was overtaken reads again. Knative's controller writes the status a few times after
// each change.
const tries = 8

// errOvertaken: the object is no longer the one that was read.
var errOvertaken = errors.New("overtaken")

// Capabilities tells what this gateway can do.
func (g *Gateway) Capabilities() providers.Capabilities {
	return providers.Capabilities{Gateway: "knative", Watch: true, Revisions: true, Scale: true, Defaults: true, Images: g.config.Images}
}

// space is the namespace of the cluster that a service lives in.
func (g *Gateway) space(r *providers.Request) string {
	if g.config.Namespace != "" {
		return g.config.Namespace
	}
	return r.Namespace
}

// write runs f for a request that is not outdated, one at a time per service, until f is not overtaken.
func (g *Gateway) write(ctx context.Context, r *providers.Request, f func(c *call, live *object) error) error {
	if err := r.Check(ctx); err != nil {
		return err
	}
	c, end := g.call(ctx, r)
	defer end()
	n := g.name(r.Key())
	select {
	case n.turn <- struct{}{}:
		defer func() { <-n.turn }()
	case <-c.ctx.Done():
		return c.late()
	}
	return c.again(func() error {
		live, err := find[object](c)
		if err != nil {
			return err
		}
		if err := n.pass(r, live, g.config.Owner); err != nil {
			return err
		}
		return f(c, live)
	})
}

// again runs f until it is not overtaken.
func (c *call) again(f func() error) error {
	for range tries {
		if err := f(); !errors.Is(err, errOvertaken) {
			return err
		}
	}
	return providers.Later(soon, "the %s %s/%s is being changed by others all the time", c.kind.word, c.space, c.name)
}

// find is the object of a call, or nil where there is none.
func find[T any](c *call) (*T, error) {
	live, err := get[T](c)
	if providers.IsNotFound(err) {
		return nil, nil
	}
	return live, err
}

// pass refuses a request that is older than one seen here, or than the one that the object tells of.
func (n *name) pass(r *providers.Request, live *object, owner string) error {
	if live != nil && live.ours(owner) {
		n.fence = max(n.fence, live.number(markFence))
	}
	if r.Fence < n.fence {
		return providers.Older(r.Fence, n.fence)
	}
	n.fence = r.Fence
	return nil
}

func (g *Gateway) name(key string) *name {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := g.names[key]
	if n == nil {
		n = &name{turn: make(chan struct{}, 1)}
		g.names[key] = n
	}
	return n
}

// ours: the object belongs to this installation.
func (o *object) ours(owner string) bool { return o.Metadata.ours(owner) }

func (m *metadata) ours(owner string) bool { return m.Labels[labelOwner] == owner }

// number is an annotation of ours that is one; 0 when there is none.
func (o *object) number(mark string) uint64 {
	v, _ := strconv.ParseUint(o.Metadata.Annotations[mark], 10, 64)
	return v
}

func (o *object) life() string { return o.Metadata.Annotations[markLife] }

// call is one call of the gateway: its deadline, and where its object is.
type call struct {
	gateway *Gateway
	parent  context.Context
	ctx     context.Context
	wait    *time.Duration // what the API server asked for
	kind    kind
	space   string
	name    string
}

// kind is what an object is.
type kind struct {
	resource schema.GroupVersionResource
	word     string // for people
	role     string // manifest with it
	ask      string // where an API server knows nothing of the kind
}

var (
	kindService = kind{resource, "Knative service", "knative-rbac.yaml", "is Knative Serving installed?"}
	kindSecret  = kind{secrets, "Secret", "knative-tenants-rbac.yaml", "is it one of Kubernetes?"}
)

// secret is the same call, of a Secret with that name.
func (c *call) secret(name string) *call {
	s := *c
	s.kind, s.name = kindSecret, name
	return &s
}

// call begins a call; end releases its deadline.
func (g *Gateway) call(parent context.Context, r *providers.Request) (c *call, end context.CancelFunc) {
	ctx, end := context.WithTimeout(parent, g.config.Timeout)
	c = &call{gateway: g, parent: parent, wait: new(time.Duration), kind: kindService, space: g.space(r), name: r.Name}
	c.ctx = context.WithValue(ctx, waitKey{}, c.wait)
	return c, end
}

func (c *call) objects() dynamic.ResourceInterface {
	return c.gateway.client.Resource(c.kind.resource).Namespace(c.space)
}

// get is the Knative Service as it is now; it fails with NotFound, and is nil then.
func (c *call) get() (*object, error) { return get[object](c) }

// get is the object of a call as it is now; it fails with NotFound, and is nil then.
func get[T any](c *call) (*T, error) {
	u, err := c.objects().Get(c.ctx, c.name, metav1.GetOptions{})
	if err != nil {
		return nil, c.failed("get", err)
	}
	return read[T](c, u)
}

func read[T any](c *call, u *unstructured.Unstructured) (*T, error) {
	o := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, o); err != nil {
		return nil, providers.Errorf(providers.Internal, "the %s %s/%s has an unknown form: %v", c.kind.word, c.space, c.name, err)
	}
	return o, nil
}
