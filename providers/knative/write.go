package knative

import (
	"context"
	"encoding/json"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/service"
	"github.com/bcc94042/instar/providers"
)

// neverWritten is a resource version that no object has: etcd is at revision 1 before its first write. An apply on
// that condition creates the object, or fails because there is one.
const neverWritten = "1"

// Apply wants the specification. An object of an earlier life is deleted first.
func (g *Gateway) Apply(ctx context.Context, req providers.ApplyRequest) (service.Applied, error) {
	return g.apply(ctx, req, nil)
}

func (g *Gateway) apply(ctx context.Context, req providers.ApplyRequest, pod *Pod) (applied service.Applied, err error) {
	if err := ctx.Err(); err != nil {
		return applied, err
	}
	if err := g.config.checkImage(req.Spec.Image); err != nil {
		return applied, err
	}
	err = g.write(ctx, &req.Request, func(c *call, live *object) error {
		if err := c.mayApply(&req, live); err != nil {
			return err
		}
		wanted, err := g.wanted(&req, live)
		if err != nil {
			return err
		}
		if pod != nil {
			pod.into(wanted, live)
		}
		now, err := patch(c, wanted)
		if err != nil {
			return err
		}
		if pod != nil {
			err = c.give(&req.Request, now, pod)
		}
		applied = now.applied()
		return err
	})
	return applied, err
}

// mayApply refuses what is not ours, and lets what ends come to its end.
func (c *call) mayApply(req *providers.ApplyRequest, live *object) error {
	switch owner := c.gateway.config.Owner; {
	case live == nil:
		return nil
	case !live.ours(owner):
		return providers.Errorf(providers.Invalid, "there is a Knative service %s/%s that is not of this instar: choose another name, "+
			"delete it, or hand it over with the label %s=%s", c.space, c.name, labelOwner, owner)
	case live.of() != "" && live.of() != req.Key():
		return providers.Errorf(providers.Invalid, "the Knative service %s/%s is that of the service %s: choose another name", c.space, c.name, live.of())
	case live.Metadata.DeletionTimestamp != "":
		return providers.Later(soon, "the Knative service %s/%s is being deleted", c.space, c.name)
	case live.life() != "" && live.life() != req.UID:
		if err := c.delete(&live.Metadata, metav1.DeletePropagationForeground); err != nil {
			return err
		}
		return providers.Later(soon, "the Knative service %s/%s is of an earlier life and has to end first", c.space, c.name)
	}
	return nil
}

// of is the key of the service that an object of ours was made for; empty when it was handed over.
func (o *object) of() string {
	if ns := o.Metadata.Labels[labelNamespace]; ns != "" {
		return machines.Key(ns, "", o.Metadata.Name)
	}
	return ""
}

func (o *object) applied() service.Applied {
	return service.Applied{
		UID: o.Metadata.UID, Generation: o.Metadata.Generation, ResourceVersion: o.Metadata.ResourceVersion, Hash: o.Metadata.Annotations[markHash],
	}
}

// patch applies the object on the condition that it carries, and returns it as it is then.
func patch[T any](c *call, wanted *T) (*T, error) {
	raw, err := json.Marshal(wanted)
	if err != nil {
		return nil, providers.Errorf(providers.Internal, "cannot write the %s: %v", c.kind.word, err)
	}
	force := true
	u, err := c.objects().Patch(c.ctx, c.name, types.ApplyPatchType, raw, metav1.PatchOptions{FieldManager: manager, Force: &force})
	if err != nil {
		return nil, c.failed("apply", err)
	}
	return read[T](c, u)
}

// Delete begins the end of the object, of this life or an earlier one; it has gone when all that belongs to it has. With force the object
// goes at once and what belongs to it afterwards. Finalizers of others are respected in either case.
func (g *Gateway) Delete(ctx context.Context, req providers.DeleteRequest) error {
	return g.write(ctx, &req.Request, func(c *call, live *object) error {
		switch {
		case live == nil || !live.ours(g.config.Owner) || live.of() != req.Key():
			return nil
		case req.Force:
			return c.delete(&live.Metadata, metav1.DeletePropagationBackground)
		case live.Metadata.DeletionTimestamp != "":
			return nil
		}
		return c.delete(&live.Metadata, metav1.DeletePropagationForeground)
	})
}

// delete ends the object if it is still the one that was read.
func (c *call) delete(live *metadata, how metav1.DeletionPropagation) error {
	uid := types.UID(live.UID)
	err := c.objects().Delete(c.ctx, c.name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &live.ResourceVersion}, PropagationPolicy: &how,
	})
	if err == nil || apierrors.IsNotFound(err) && !noSuchResource(err) {
		return nil
	}
	return c.failed("delete", err)
}
