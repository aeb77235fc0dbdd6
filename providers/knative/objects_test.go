package knative_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines/service"
	"github.com/bcc94042/instar/providers"
	"github.com/bcc94042/instar/providers/knative"
	"github.com/bcc94042/instar/providers/knative/knativetest"
)

type object = knativetest.Object

// The whole object, as it stands in the cluster.
func TestWhatIsApplied(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *knative.Config) { c.Namespace, c.Owner = "apps", "blue" })
	req := asking(1, service.Spec{
		Image: "ghcr.io/acme/web:1.2@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", Env: map[string]string{"B": "2", "A": "1"}, Port: 9000,
		Scale: service.Scale{Min: 0, Max: 5},
		Probe: service.Probe{Path: "/healthz", PeriodMillis: 1500, TimeoutMillis: 200, Failures: 4, StartupSeconds: 90},
	})
	applied := b.applied(t, req)
	o := b.cluster.Get("apps", "web")
	meta := o["metadata"].(object)
	require.Equal(t, service.Applied{UID: "uid-1", Generation: 1, ResourceVersion: meta["resourceVersion"].(string), Hash: req.Hash}, applied)
	require.Equal(t, object{"app.kubernetes.io/managed-by": "instar", "instar/owner": "blue", "instar/namespace": "default"}, meta["labels"])
	marks := meta["annotations"].(object)
	require.JSONEq(t, `{"image": "ghcr.io/acme/web:1.2@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", "env.A": "6b86b273ff34fce1", "env.B": "d4735e3a265e16ee",
		"port": "9000", "scale.min": "0", "scale.max": "5", "probe.http": "/healthz", "probe.timing": "every 2s, timeout 1s, failures 4", "probe.startup": "1m30s", "revision": "1"}`,
		marks["instar/applied"].(string))
	delete(marks, "instar/applied")
	require.Equal(t, object{"instar/spec-hash": req.Hash, "instar/life": "life-1", "instar/attempt": "apply-1-1", "instar/fence": "1", "instar/generation": "1"}, marks)
	require.Equal(t, object{"template": object{
		"metadata": object{"annotations": object{
			"instar/spec-hash": req.Hash, "instar/generation": "1", "serving.knative.dev/progress-deadline": "1m30s",
			"autoscaling.knative.dev/min-scale": "0", "autoscaling.knative.dev/max-scale": "5",
		}},
		"spec": object{"containers": []any{object{
			"image": req.Spec.Image, "ports": []any{object{"containerPort": 9000.0}},
			"env":            []any{object{"name": "A", "value": "1"}, object{"name": "B", "value": "2"}},
			"readinessProbe": object{"httpGet": object{"path": "/healthz"}, "periodSeconds": 2.0, "timeoutSeconds": 1.0, "failureThreshold": 4.0},
		}}},
	}}, o["spec"])

	req = asking(2, service.Spec{Image: "web", Probe: service.Probe{Type: "tcp"}})
	b.applied(t, req)
	template := b.cluster.Get("apps", "web")["spec"].(object)["template"].(object)
	require.Equal(t, object{
		"instar/spec-hash": req.Hash, "instar/generation": "2", "autoscaling.knative.dev/min-scale": "1", "autoscaling.knative.dev/max-scale": "1",
	}, template["metadata"].(object)["annotations"], "what is no longer wanted has gone")
	require.Equal(t, []any{object{
		"image": "web", "readinessProbe": object{"tcpSocket": object{}, "periodSeconds": 1.0, "timeoutSeconds": 1.0, "failureThreshold": 3.0},
	}}, template["spec"].(object)["containers"])
}

// A type of probe is one that Kubernetes is told, or the specification is refused.
func TestEveryTypeOfProbeIsApplied(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	for i, kind := range service.ProbeTypes {
		b.applied(t, asking(uint64(i+1), service.Spec{Image: "web", Probe: service.Probe{Type: kind}}))
	}
	_, err := b.Apply(t.Context(), asking(9, service.Spec{Image: "web", Probe: service.Probe{Type: "grpc"}}))
	require.True(t, providers.IsInvalid(err), "%v", err)
}

// foreign are objects that this instar did not make, or not for this service.
func TestForeignObjectsAreLeftAlone(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ labels, says string }{
		"OfNobody":                {"", "not of this instar: choose another name, delete it, or hand it over with the label instar/owner=instar"},
		"OfAnotherInstallation":   {"green", "not of this instar"},
		"OfAnotherInstarsService": {"instar", "is that of the service prod.web: choose another name"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, func(c *knative.Config) { c.Namespace = "apps" })
			theirs := object{"metadata": object{}, "spec": object{"mine": "yes"}}
			if c.labels != "" {
				theirs["metadata"] = object{"labels": object{"instar/owner": c.labels, "instar/namespace": "prod"}}
			}
			b.cluster.Put("apps", "web", theirs)
			before := b.cluster.Get("apps", "web")
			req := asking(1, service.Spec{Image: "web", ForceReplace: true})
			_, err := b.Apply(t.Context(), req)
			require.True(t, providers.IsInvalid(err), "%v", err)
			require.ErrorContains(t, err, c.says)
			_, err = b.Observe(t.Context(), providers.ObserveRequest{Request: req.Request})
			require.True(t, providers.IsNotFound(err), "%v", err)
			require.NoError(t, b.Delete(t.Context(), providers.DeleteRequest{Request: req.Request, Force: true}))
			require.Equal(t, before, b.cluster.Get("apps", "web"))
		})
	}
}

func TestAnObjectIsHandedOverByItsLabel(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	b.cluster.Put("default", "web", object{"metadata": object{"labels": object{"instar/owner": "instar", "team": "a"}}, "spec": object{"traffic": []any{}}})
	applied := b.applied(t, asking(1, image("web:1")))
	require.Equal(t, int64(2), applied.Generation)
	o := b.cluster.Get("default", "web")
	require.Equal(t, "a", o["metadata"].(object)["labels"].(object)["team"])
	require.Contains(t, o["spec"], "traffic", "what instar does not want stays")
	require.NoError(t, b.Delete(t.Context(), providers.DeleteRequest{Request: asking(2, image("web:1")).Request}))
	b.cluster.Step()
	require.Nil(t, b.cluster.Get("default", "web"))
}

// A service that is deleted before it was applied comes to its end, and what was handed over for it stays.
func TestWhatWasHandedOverIsNotThereBeforeItIsApplied(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	b.cluster.Put("default", "web", object{"metadata": object{"labels": object{"instar/owner": "instar"}}, "spec": object{}})
	req := asking(2, image("web:1")).Request
	require.NoError(t, b.Delete(t.Context(), providers.DeleteRequest{Request: req}))
	_, err := b.Observe(t.Context(), providers.ObserveRequest{Request: req})
	require.True(t, providers.IsNotFound(err), "%v", err)
	require.NotNil(t, b.cluster.Get("default", "web"))
}

// Who removes the mark of a life keeps nobody from deleting the service.
func TestADeletionNeedsNoMarkOfALife(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	b.applied(t, asking(1, image("web:1")))
	b.cluster.Edit("default", "web", func(o object) { delete(o["metadata"].(object)["annotations"].(object), "instar/life") })
	require.NoError(t, b.Delete(t.Context(), providers.DeleteRequest{Request: asking(2, image("web:1")).Request}))
	b.cluster.Step()
	require.Nil(t, b.cluster.Get("default", "web"))
}

// What somebody changes by hand is told field by field, and never the value of a variable; the next apply mends it.
func TestDrift(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	req := asking(1, service.Spec{Image: "web:1", Env: map[string]string{"TOKEN": "secret", "KEPT": "1"}, Port: 9000})
	b.applied(t, req)
	require.Empty(t, b.observed(t).Fields)
	b.cluster.Edit("default", "web", func(o object) {
		template := o["spec"].(object)["template"].(object)
		template["metadata"].(object)["annotations"].(object)["autoscaling.knative.dev/max-scale"] = "9"
		template["spec"].(object)["timeoutSeconds"] = 60 // a default that Knative fills in is no drift
		template["spec"].(object)["containers"] = []any{object{
			"image": "web:evil", "ports": []any{object{"containerPort": 9000, "protocol": "TCP"}}, "resources": object{},
			"env": []any{object{"name": "TOKEN", "value": "other"}, object{"name": "KEPT", "value": "1"}, object{"name": "MORE", "value": "x"}},
		}}
	})
	o := b.observed(t)
	require.Equal(t, req.Hash, o.SpecHash, "the hash alone would not show it")
	require.Equal(t, map[string]service.FieldDiff{
		"image": {Want: "web:1", Got: "web:evil"}, "scale.max": {Want: "1", Got: "9"},
		"probe.http": {Want: "/"}, "probe.timing": {Want: "every 1s, timeout 1s, failures 3"},
		"env.TOKEN": {Want: "(a value with the hash 2bb80d537b1da3e3)", Got: "(a value with the hash d9298a10d1b07358)"},
		"env.MORE":  {Got: "(a value with the hash 2d711642b726b044)"},
	}, o.Fields)
	require.Equal(t, int64(3), b.applied(t, req).Generation)
	require.Empty(t, b.observed(t).Fields)
}

func TestAnObjectDeletedByHandIsMadeAnew(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	first := b.applied(t, asking(1, image("web:1")))
	b.cluster.Remove("default", "web")
	require.False(t, b.observed(t).Exists)
	second := b.applied(t, asking(1, image("web:1")))
	require.NotEqual(t, first.UID, second.UID)
	require.Equal(t, int64(1), second.Generation)
}

// The fence and the life stand on the object: another process, or this one after a restart, knows them.
func TestAnotherProcessIsFenced(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	b.applied(t, asking(5, image("web:1")))
	other, err := knative.Open(knative.Config{Kubeconfig: kubeconfig(t, knativetest.Kubeconfig(b.http.URL))})
	require.NoError(t, err)
	_, err = other.Apply(t.Context(), asking(4, image("web:2")))
	require.True(t, providers.IsFenced(err), "%v", err)
	require.True(t, providers.IsFenced(other.Delete(t.Context(), providers.DeleteRequest{Request: asking(4, image("web:2")).Request})))
	_, err = other.Apply(t.Context(), asking(6, image("web:2")))
	require.NoError(t, err)
	_, err = b.Apply(t.Context(), asking(5, image("web:1")))
	require.True(t, providers.IsFenced(err), "%v", err)
}

func TestAnEarlierLifeEndsFirst(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	first := b.applied(t, asking(1, image("web:1")))
	next := asking(2, image("web:1"))
	next.UID = "life-2"
	for range 2 { // it begins the end of the old one, and then waits for it
		_, err := b.Apply(t.Context(), next)
		require.True(t, providers.IsUnavailable(err), "%v", err)
	}
	require.Equal(t, "Terminating", b.observed(t).Reason)
	b.cluster.Step()
	require.NotEqual(t, first.UID, b.applied(t, next).UID)
}
