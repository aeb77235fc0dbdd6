package realserver

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/bcc94042/instar/machines/service"
	"github.com/bcc94042/instar/providers"
	"github.com/bcc94042/instar/providers/knative/knativetest"
	"github.com/bcc94042/instar/providers/providertest"
)

func contract(t *testing.T, c *cluster) {
	providertest.Run(t, providertest.Suite{
		New: func(t *testing.T) providers.Gateway {
			s := c.space(t)
			s.play()
			return s.Gateway
		},
		OK:      service.Spec{Image: "registry.test/web:1"},
		Fails:   service.Spec{Image: "registry.test/fail:1"},
		Pending: service.Spec{Image: "registry.test/pending:1"},
		Pass:    func() { <-time.After(tick / 2) },
	})
}

func situations(t *testing.T, c *cluster) {
	s := c.space(t)
	knativetest.Replay(t, s.Gateway, func(status object) {
		u := s.get()
		u.Object["status"] = status
		_, err := s.objects.UpdateStatus(t.Context(), u, metav1.UpdateOptions{})
		require.NoError(t, err)
	}, func() { require.NoError(t, s.collect(t.Context(), s.get())) })
}

// asking is the request for a generation of the service default/web.
func asking(generation uint64, spec service.Spec) providers.ApplyRequest {
	return providers.ApplyRequest{
		Request: providers.Request{
			Namespace: "default", Name: "web", UID: "life-1", Fence: generation, Hash: spec.Hash(), Attempt: fmt.Sprintf("apply-%d-1", generation),
		},
		Generation: generation, Spec: spec,
	}
}

func (s *space) applied(req providers.ApplyRequest) service.Applied {
	s.t.Helper()
	applied, err := s.Apply(s.t.Context(), req)
	require.NoError(s.t, err)
	return applied
}

func (s *space) observed() service.Observation {
	s.t.Helper()
	o, err := s.Observe(s.t.Context(), providers.ObserveRequest{Request: asking(1, service.Spec{}).Request})
	require.NoError(s.t, err)
	return o
}

func container(o object) object {
	list := template(o)["spec"].(object)["containers"].([]any)
	return list[0].(object)
}

func template(o object) object { return o["spec"].(object)["template"].(object) }

// The gateway says that there must be none by a resource version that no object has: what the API server makes of that
// is nowhere promised, so it is asked.
func meanwhile(t *testing.T, c *cluster) {
	s := c.space(t)
	theirs := &unstructured.Unstructured{Object: object{
		"apiVersion": "serving.knative.dev/v1", "kind": "Service", "metadata": object{"name": "web"},
		"spec": object{"template": object{"spec": object{"containers": []any{object{"image": "theirs"}}}}},
	}}
	raw := `{"apiVersion": "serving.knative.dev/v1", "kind": "Service", "metadata": {"name": "web", "resourceVersion": "1"}, "spec": {"template": {"spec": {"containers": [{"image": "ours"}]}}}}`
	force := true
	patch := func() (*unstructured.Unstructured, error) {
		return s.objects.Patch(t.Context(), "web", "application/apply-patch+yaml", []byte(raw), metav1.PatchOptions{FieldManager: "instar", Force: &force})
	}
	_, err := s.objects.Create(t.Context(), theirs, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = patch()
	require.ErrorContains(t, err, "the object has been modified")
	require.NoError(t, s.objects.Delete(t.Context(), "web", metav1.DeleteOptions{}))
	made, err := patch()
	require.NoError(t, err)
	require.Equal(t, int64(1), made.GetGeneration())
	_, err = patch()
	require.ErrorContains(t, err, "the object has been modified")

	_, err = s.Apply(t.Context(), asking(1, service.Spec{Image: "registry.test/web:1", ForceReplace: true}))
	require.True(t, providers.IsInvalid(err), "%v", err)
	require.Equal(t, "ours", container(s.get().Object)["image"])
	require.NoError(t, s.Delete(t.Context(), providers.DeleteRequest{Request: asking(2, service.Spec{}).Request}))
	require.Nil(t, s.get().GetDeletionTimestamp(), "it has no label of this instar")
}

// What somebody writes by hand becomes theirs; the next apply takes it back by force.
func changedByHand(t *testing.T, c *cluster) {
	s := c.space(t)
	req := asking(1, service.Spec{Image: "registry.test/web:1", Env: map[string]string{"A": "1"}, Port: 9000})
	s.applied(req)
	s.edit(func(o object) {
		container(o)["image"] = "registry.test/evil"
		container(o)["env"] = []any{object{"name": "A", "value": "1"}, object{"name": "B", "value": "2"}}
	})
	o := s.observed()
	require.Equal(t, service.FieldDiff{Want: "registry.test/web:1", Got: "registry.test/evil"}, o.Fields["image"])
	require.Contains(t, o.Fields, "env.B")
	require.Len(t, o.Fields, 2)
	require.Equal(t, int64(3), s.applied(req).Generation)
	require.Empty(t, s.observed().Fields)
	require.Equal(t, []any{object{"name": "A", "value": "1"}}, container(s.get().Object)["env"])
	require.Equal(t, int64(3), s.applied(req).Generation, "nothing is left to change")
}

// What instar does not want belongs to others: labels, annotations, and fields beside its own.
func fieldsOfOthers(t *testing.T, c *cluster) {
	s := c.space(t)
	s.applied(asking(1, service.Spec{Image: "registry.test/web:1"}))
	s.edit(func(o object) {
		o["metadata"].(object)["labels"].(object)["team"] = "a"
		template(o)["spec"].(object)["timeoutSeconds"] = int64(60)
		o["spec"].(object)["traffic"] = []any{object{"latestRevision": true, "percent": int64(100)}}
	})
	require.Empty(t, s.observed().Fields)
	s.applied(asking(2, service.Spec{Image: "registry.test/web:2"}))
	u := s.get()
	require.Equal(t, "a", u.GetLabels()["team"])
	require.Equal(t, int64(60), template(u.Object)["spec"].(object)["timeoutSeconds"])
	require.Contains(t, u.Object["spec"], "traffic")
	require.Equal(t, "registry.test/web:2", container(u.Object)["image"])
	for _, f := range u.GetManagedFields() {
		if f.Manager == "instar" {
			require.Equal(t, metav1.ManagedFieldsOperationApply, f.Operation)
		}
	}
}

func withdrawn(t *testing.T, c *cluster) {
	s := c.space(t)
	s.applied(asking(1, service.Spec{Image: "registry.test/web:1", Env: map[string]string{"A": "1"}, Port: 9000, Probe: service.Probe{StartupSeconds: 9, Path: "/a"}}))
	s.applied(asking(2, service.Spec{Image: "registry.test/web:1", Probe: service.Probe{Type: "tcp"}}))
	u := s.get()
	require.NotContains(t, container(u.Object), "env")
	require.NotContains(t, container(u.Object), "ports")
	require.NotContains(t, container(u.Object)["readinessProbe"], "httpGet")
	require.NotContains(t, template(u.Object)["metadata"].(object)["annotations"], "serving.knative.dev/progress-deadline")
	require.Empty(t, s.observed().Fields)
}

func watchTells(t *testing.T, c *cluster) {
	s := c.space(t)
	s.applied(asking(1, service.Spec{Image: "registry.test/web:1"}))
	keys, ended := make(chan string, 1024), make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { ended <- s.Watch(ctx, func(key string) { keys <- key }) }()
	told := func(what string, change func()) {
		t.Helper()
		require.Eventually(t, func() bool { // the first change may come before the watch does
			change()
			select {
			case key := <-keys:
				require.Equal(t, "default.web", key)
				return true
			case <-time.After(200 * time.Millisecond):
				return false
			}
		}, awhile, tick, what)
		for len(keys) > 0 {
			<-keys
		}
	}
	n := 0
	told("a change", func() { n++; s.edit(func(o object) { o["metadata"].(object)["labels"].(object)["n"] = fmt.Sprint(n) }) })
	done := false
	once := func(f func()) func() {
		done = false
		return func() {
			if !done {
				done = true
				f()
			}
		}
	}
	controller := &knativetest.Controller{}
	told("the status", once(func() { s.step(controller) }))
	told("a deletion", once(func() { require.NoError(t, s.objects.Delete(t.Context(), "web", metav1.DeleteOptions{})) }))
	told("a creation", once(func() { s.applied(asking(2, service.Spec{Image: "registry.test/web:1"})) }))
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
}

func refused(t *testing.T, c *cluster) {
	s := c.space(t)
	_, err := s.Apply(t.Context(), asking(1, service.Spec{Image: "registry.test/web:1", Port: 70000}))
	require.True(t, providers.IsInvalid(err), "%v", err)
	require.ErrorContains(t, err, "spec.template.spec.containers[0].ports[0].containerPort")
	require.ErrorContains(t, err, "(422)")
	_, err = s.Observe(t.Context(), providers.ObserveRequest{Request: asking(1, service.Spec{}).Request})
	require.True(t, providers.IsNotFound(err), "%v", err)
}
