package knative

import (
	"context"
	"errors"
	"io"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// Watch tells of every change of an object of ours, also of those that a lost watch has missed, once it is back.
func (g *Gateway) Watch(ctx context.Context, notify func(key string)) error {
	informer := cache.NewSharedIndexInformer(g.listWatch(), &unstructured.Unstructured{}, 0, cache.Indexers{})
	var lost atomic.Bool
	changed := func(now any) {
		if lost.CompareAndSwap(true, false) {
			g.config.Log.Info("watching Knative services again", "server", g.host)
		}
		if gone, ok := now.(cache.DeletedFinalStateUnknown); ok {
			now = gone.Obj
		}
		if u, ok := now.(*unstructured.Unstructured); ok {
			if key := (&object{Metadata: metadata{Name: u.GetName(), Labels: u.GetLabels()}}).of(); key != "" {
				notify(key)
			}
		}
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(now any, known bool) {
			if !known {
				changed(now)
			}
		},
		UpdateFunc: func(before, now any) {
			if version(before) != version(now) { // a list that is read again tells of everything
				changed(now)
			}
		},
		DeleteFunc: changed,
	})
	if err == nil {
		err = informer.SetTransform(outline)
	}
	if err == nil {
		err = informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
			ended := errors.Is(err, io.EOF) || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) // as watches do now and then
			if ctx.Err() == nil && !ended && !lost.Swap(true) {
				g.config.Log.Warn("the watch on Knative services was interrupted; polling continues", "server", g.host, "error", err)
			}
		})
	}
	if err != nil {
		return err
	}
	informer.RunWithContext(ctx)
	return ctx.Err()
}

// listWatch is of all objects of this owner.
func (g *Gateway) listWatch() *cache.ListWatch {
	objects := g.client.Resource(resource).Namespace(g.config.Namespace)
	selector := labelOwner + "=" + g.config.Owner
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.LabelSelector = selector
			return objects.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector = selector
			return objects.Watch(ctx, o)
		},
	}
}

// outline keeps of an object what the watch needs: with thousands of services the rest would be most of the memory.
func outline(o any) (any, error) {
	u, ok := o.(*unstructured.Unstructured)
	if !ok {
		return o, nil
	}
	small := &unstructured.Unstructured{Object: map[string]any{}}
	small.SetAPIVersion(u.GetAPIVersion())
	small.SetKind(u.GetKind())
	small.SetName(u.GetName())
	small.SetNamespace(u.GetNamespace())
	small.SetUID(u.GetUID())
	small.SetResourceVersion(u.GetResourceVersion())
	small.SetLabels(u.GetLabels())
	return small, nil
}

func version(o any) string {
	if u, ok := o.(*unstructured.Unstructured); ok {
		return u.GetResourceVersion()
	}
	return ""
}
