package knative

import (
	"context"
	"fmt"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bcc94042/instar/machines/service"
	"github.com/bcc94042/instar/providers"
)

// Pod is what a release of a tenant has beside what a service can ask for. It gains no privileges, has no capabilities, and no account of the cluster.
type Pod struct {
	Args    []string          // of the image's program; its own when empty
	Memory  int64             // bytes; 0 is no limit
	CPU     int               // thousandths of a processor; 0 is no limit
	Files   map[string]string // that only it has, by name
	FilesAt string            // directory in which they are
	Address string            // that its object keeps for [Gateway.ObservePod]; where empty, what it has stays
}

// ObservePod is [Gateway.Observe] of a release, with the address that it was told by ApplyPod.
func (g *Gateway) ObservePod(ctx context.Context, req providers.Request) (now service.Observation, address string, err error) {
	o, err := g.own(ctx, &req)
	if err != nil {
		return now, "", err
	}
	return o.observation(), o.Metadata.Annotations[markAddress], nil
}

// ApplyPod is [Gateway.Apply] of a release. Its files are a Secret of the cluster that goes with the object, and are what the last ApplyPod says.
func (g *Gateway) ApplyPod(ctx context.Context, req providers.ApplyRequest, p *Pod) error {
	_, err := g.apply(ctx, req, p)
	return err
}

// filesOf is the Secret with the files of a release. No tenant has a mark of that name: they are labels.
func filesOf(name string) string { return name + ".files" }

// into adds the pod to an object that is to take the place of live, which is nil where there is none.
func (p *Pod) into(o, live *object) {
	address := p.Address
	if address == "" && live != nil {
		address = live.Metadata.Annotations[markAddress]
	}
	if address != "" {
		o.Metadata.Annotations[markAddress] = address
	}
	s := &o.Spec.Template.Spec
	s.AutomountToken = new(bool)
	c := &s.Containers[0]
	c.Args, c.Security = p.Args, &security{Capabilities: capabilities{Drop: []string{"ALL"}}}
	limits := map[string]string{}
	if p.Memory > 0 {
		limits["memory"] = strconv.FormatInt(p.Memory, 10)
	}
	if p.CPU > 0 {
		limits["cpu"] = fmt.Sprintf("%dm", p.CPU)
	}
	if len(limits) > 0 {
		c.Resources.Limits = limits
	}
	if len(p.Files) > 0 {
		s.Volumes = []volume{{Name: "files", Secret: fromSecret{filesOf(o.Metadata.Name)}}}
		c.VolumeMounts = []mount{{Name: "files", MountPath: p.FilesAt, ReadOnly: true}}
	}
}

// give writes the files of a release. Its pods wait for them, and they go with its object: nothing is left when this process ends before or after.
func (c *call) give(r *providers.Request, of *object, p *Pod) error {
	if len(p.Files) == 0 {
		return nil
	}
	s := c.secret(filesOf(r.Name))
	live, err := s.held()
	if err != nil {
		return err
	}
	wanted := s.secretOf(r, live)
	wanted.Metadata.OwnerReferences = []ownedBy{{of.APIVersion, of.Kind, of.Metadata.Name, of.Metadata.UID, true}}
	wanted.Data = map[string][]byte{}
	for name, text := range p.Files {
		wanted.Data[name] = []byte(text)
	}
	_, err = patch(s, wanted)
	return err
}

// held is the Secret of a call, or nil where there is none. One that is not ours is Invalid.
func (c *call) held() (*secret, error) {
	live, err := find[secret](c)
	switch {
	case live == nil:
		return nil, err
	case !live.Metadata.ours(c.gateway.config.Owner):
		return nil, providers.Errorf(providers.Invalid, "there is a Secret %s/%s that is not of this instar: delete it, or take another name", c.space, c.name)
	case live.Metadata.DeletionTimestamp != "":
		return nil, providers.Later(soon, "the Secret %s/%s is being deleted", c.space, c.name)
	}
	return live, nil
}

// secretOf is a Secret without data, to take the place of live, which is nil where there is none.
func (c *call) secretOf(r *providers.Request, live *secret) *secret {
	s := &secret{APIVersion: "v1", Kind: "Secret", Metadata: metadata{
		Name: c.name, Namespace: c.space, ResourceVersion: neverWritten, Labels: c.gateway.labels(r), Annotations: map[string]string{markLife: r.UID},
	}}
	if live != nil {
		s.Metadata.UID, s.Metadata.ResourceVersion = live.Metadata.UID, live.Metadata.ResourceVersion
	}
	return s
}

// Files are those of a release, as texts in no order; none where it has none.
func (g *Gateway) Files(ctx context.Context, r providers.Request) ([]string, error) {
	c, end := g.call(ctx, &r)
	defer end()
	live, err := c.secret(filesOf(r.Name)).held()
	if live == nil {
		return nil, err
	}
	var texts []string
	for _, text := range live.Data {
		texts = append(texts, string(text))
	}
	return texts, nil
}

// Mark says by a Secret without data that a name is UID's. It fails with Invalid where it is another's.
func (g *Gateway) Mark(ctx context.Context, r providers.Request) error {
	return g.marked(ctx, &r, func(c *call) error {
		live, err := c.held()
		switch {
		case err != nil:
			return err
		case live == nil:
			_, err := patch(c, c.secretOf(&r, nil))
			return err
		case !live.marks(&r):
			return providers.Errorf(providers.Invalid, "the Secret %s/%s says that the name is not of %s but of %s: take another name", c.space, c.name, r.UID, live.Metadata.Annotations[markLife])
		}
		return nil
	})
}

// Unmark takes that back. That there is no such mark, or only another's, is fine.
func (g *Gateway) Unmark(ctx context.Context, r providers.Request) error {
	return g.marked(ctx, &r, func(c *call) error {
		live, err := find[secret](c)
		if live == nil || !live.Metadata.ours(g.config.Owner) || !live.marks(&r) {
			return err
		}
		return c.delete(&live.Metadata, metav1.DeletePropagationBackground)
	})
}

func (s *secret) marks(r *providers.Request) bool {
	return s.Metadata.Annotations[markLife] == r.UID && s.Metadata.Labels[labelNamespace] == r.Namespace
}

// marked runs f for the mark of a name until f is not overtaken.
func (g *Gateway) marked(ctx context.Context, r *providers.Request, f func(c *call) error) error {
	if err := r.Check(ctx); err != nil {
		return err
	}
	c, end := g.call(ctx, r)
	defer end()
	c = c.secret(r.Name)
	return c.again(func() error { return f(c) })
}
