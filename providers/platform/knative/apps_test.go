//go:build linux

package knative_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/providers"
	gateway "github.com/bcc94042/instar/providers/knative"
	"github.com/bcc94042/instar/providers/knative/knativetest"
	"github.com/bcc94042/instar/providers/platform/app"
	"github.com/bcc94042/instar/providers/platform/app/apptest"
	"github.com/bcc94042/instar/providers/platform/knative"
	"github.com/bcc94042/instar/providers/platform/knative/clustertest"
)

// The test binary is also the application of the tenants.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "application" {
		os.Exit(apptest.Application(os.Args[2]))
	}
	os.Exit(m.Run())
}

// open is a server that starts with a cluster.
func open(t *testing.T, c *clustertest.Cluster) *knative.Apps {
	g, err := gateway.Open(gateway.Config{Kubeconfig: c.Kubeconfig, Owner: "instar-abcdefgh23", Images: []string{"registry.test"}})
	require.NoError(t, err)
	self, err := os.Executable()
	require.NoError(t, err)
	a := &knative.Apps{Gateway: g, Versions: map[string]app.Program{}, Env: apptest.Env, Health: "/health", Startup: 40 * time.Second, Grace: 2 * time.Second}
	for _, v := range apptest.Versions {
		a.Versions[v] = app.Program{Command: []string{self, "application", v}, Image: "registry.test/app:" + v}
	}
	require.NoError(t, a.Check())
	return a
}

func TestKnativeKeepsTheContract(t *testing.T) {
	t.Parallel()
	apptest.Run(t, apptest.Suite{Ephemeral: true, World: func(t *testing.T) apptest.World {
		c := clustertest.Start(t)
		return apptest.World{
			Open: func(t *testing.T) (app.Provider, func()) { return open(t, c), func() {} },
			Left: func(*testing.T) []string { return c.Left() },
		}
	}})
}

// What keeps a release to itself is asked of the cluster, and its secrets are in one object alone.
func TestWhatAClusterIsAskedFor(t *testing.T) {
	t.Parallel()
	c := clustertest.Start(t)
	r := apptest.Release(1, "1.0")
	r.Limits = app.Limits{Memory: 1 << 30, CPU: 500}
	address, err := open(t, c).Deploy(t.Context(), r)
	require.NoError(t, err)
	o := c.API.Get("default", r.Name)
	require.Equal(t, "http://"+address, clustertest.Dig(o, "status", "url"))
	require.Equal(t, knativetest.Object{"app.kubernetes.io/managed-by": "instar", "instar/owner": "instar-abcdefgh23", "instar/namespace": "default"}, clustertest.Dig(o, "metadata", "labels"))
	require.Equal(t, false, clustertest.Dig(o, "spec", "template", "spec", "automountServiceAccountToken"))
	require.Equal(t, "registry.test/app:1.0", clustertest.Dig(clustertest.Container(o), "image"))
	require.Equal(t, knativetest.Object{"limits": knativetest.Object{"memory": "1073741824", "cpu": "500m"}}, clustertest.Dig(clustertest.Container(o), "resources"))
	require.Equal(t, knativetest.Object{"allowPrivilegeEscalation": false, "capabilities": knativetest.Object{"drop": []any{"ALL"}}}, clustertest.Dig(clustertest.Container(o), "securityContext"))
	require.Equal(t, "/health", clustertest.Dig(clustertest.Container(o), "readinessProbe", "httpGet", "path"))
	require.Equal(t, "40s", clustertest.Dig(o, "spec", "template", "metadata", "annotations", "serving.knative.dev/progress-deadline"))
	require.NotContains(t, fmt.Sprint(o), "secret@")
	secret := c.API.Secrets().Get("default", r.Name+".files")
	require.Equal(t, clustertest.Dig(o, "spec", "template", "spec", "volumes", 0, "secret", "secretName"), clustertest.Dig(secret, "metadata", "name"))
	require.Equal(t, base64.StdEncoding.EncodeToString([]byte(r.Secrets["DATABASE_URL"])), clustertest.Dig(secret, "data", "database_url"))
	require.Equal(t, clustertest.Dig(o, "metadata", "uid"), clustertest.Dig(secret, "metadata", "ownerReferences", 0, "uid"))
}

// A server that ended after it had made the object makes the Secret that its pod waits for, and a secret that has changed is changed.
func TestTheSecretIsMadeAgain(t *testing.T) {
	t.Parallel()
	c := clustertest.Start(t)
	a, r := open(t, c), apptest.Release(1, "1.0")
	first, err := a.Deploy(t.Context(), r)
	require.NoError(t, err)
	c.API.Secrets().Remove("default", r.Name+".files")
	r.Secrets["DATABASE_URL"] = "postgres://acme:another@db/acme"
	again, err := a.Deploy(t.Context(), r)
	require.NoError(t, err)
	require.Equal(t, first, again)
	require.Equal(t, base64.StdEncoding.EncodeToString([]byte(r.Secrets["DATABASE_URL"])), clustertest.Dig(c.API.Secrets().Get("default", r.Name+".files"), "data", "database_url"))
}

func TestWhatIsAnothersIsLeftAlone(t *testing.T) {
	t.Parallel()
	c := clustertest.Start(t)
	a, r := open(t, c), apptest.Release(1, "1.0")
	for _, labels := range []knativetest.Object{{}, {"instar/owner": "instar"}} {
		c.API.Put("default", r.Name, knativetest.Object{"metadata": knativetest.Object{"labels": labels}})
		for _, name := range []string{r.Tenant, r.Name + ".files"} {
			c.API.Secrets().Put("default", name, knativetest.Object{"kind": "Secret", "metadata": knativetest.Object{"labels": labels}})
		}
		_, err := a.Deploy(t.Context(), r)
		require.True(t, providers.IsInvalid(err), "%v", err)
		require.ErrorContains(t, err, "not of this instar")
		_, err = a.Look(t.Context(), "default", r.Name)
		require.True(t, providers.IsNotFound(err), "%v", err)
		require.NoError(t, a.Remove(t.Context(), r))
		require.True(t, providers.IsInvalid(a.Ensure(t.Context(), r.Of())))
		require.NoError(t, a.Forget(t.Context(), r.Of()))
		other := apptest.Release(2, "1.0")
		c.API.Secrets().Put("default", other.Name+".files", knativetest.Object{"kind": "Secret", "metadata": knativetest.Object{"labels": labels}})
		_, err = a.Deploy(t.Context(), other)
		require.ErrorContains(t, err, "Secret default/tenant-acme-r2.files that is not of this instar")
		require.NoError(t, a.Remove(t.Context(), other))
		require.Equal(t, []string{"default/tenant-acme-r1"}, c.API.Names())
		require.Equal(t, []string{"default/tenant-acme", "default/tenant-acme-r1.files", "default/tenant-acme-r2.files"}, c.API.Secrets().Names())
	}
	require.Empty(t, c.Pods.Names())
}

// A cluster may give releases URLs that the proxy does not lead to: that is told, and what is there can be removed.
func TestAURLOfHTTPSIsRefused(t *testing.T) {
	t.Parallel()
	c := clustertest.Start(t)
	c.TLS.Store(true)
	a, r := open(t, c), apptest.Release(1, "1.0")
	_, err := a.Deploy(t.Context(), r)
	require.True(t, providers.IsInvalid(err), "%v", err)
	require.ErrorContains(t, err, "external-domain-tls")
	at, err := a.Look(t.Context(), "default", r.Name)
	require.NoError(t, err)
	require.Contains(t, at.Status, "external-domain-tls")
	require.False(t, at.Ready)
	require.NoError(t, a.Remove(t.Context(), r))
	require.Empty(t, c.Left())
}

// What serves is found by the address that leads there, also when the cluster gives it another URL later.
func TestAReleaseKeepsItsAddressWhenItsURLChanges(t *testing.T) {
	t.Parallel()
	c := clustertest.Start(t)
	a, r := open(t, c), apptest.Release(1, "1.0")
	address, err := a.Deploy(t.Context(), r)
	require.NoError(t, err)
	c.TLS.Store(true)
	var at app.Rollout
	require.Eventually(t, func() bool {
		at, err = a.Look(t.Context(), "default", r.Name)
		return err != nil || !at.Ready
	}, time.Minute, 10*time.Millisecond)
	require.NoError(t, err)
	require.Equal(t, address, at.Address)
	require.Contains(t, at.Status, "external-domain-tls")
	_, err = a.Deploy(t.Context(), r)
	require.True(t, providers.IsInvalid(err), "%v", err)
	at, err = a.Look(t.Context(), "default", r.Name)
	require.NoError(t, err)
	require.Equal(t, address, at.Address, "another attempt does not forget it")
	require.NoError(t, a.Remove(t.Context(), r))
}

// A release goes on starting while the API server is away for a moment.
func TestAnAPIServerThatIsAwayFailsNoRelease(t *testing.T) {
	t.Parallel()
	c := clustertest.Start(t)
	r := apptest.Release(1, "1.0")
	var applied, failed atomic.Int32
	c.API.Fail(func(req *http.Request) *knativetest.Failure {
		switch {
		case req.Method == http.MethodPatch:
			applied.Add(1)
		case applied.Load() > 0 && strings.HasSuffix(req.URL.Path, "/services/"+r.Name) && failed.Add(1) <= 2:
			return &knativetest.Failure{Code: http.StatusServiceUnavailable, Message: "away"}
		}
		return nil
	})
	_, err := open(t, c).Deploy(t.Context(), r)
	require.NoError(t, err)
	require.Greater(t, failed.Load(), int32(2))
}

// The fence of a release is in its object, where every server finds it.
func TestAnOlderAttemptOfAnotherServerIsFenced(t *testing.T) {
	t.Parallel()
	c := clustertest.Start(t)
	r := apptest.Release(2, "1.0")
	_, err := open(t, c).Deploy(t.Context(), r)
	require.NoError(t, err)
	r.Fence--
	_, err = open(t, c).Deploy(t.Context(), r)
	require.True(t, providers.IsFenced(err), "%v", err)
	r.Version = "1.1"
	_, err = open(t, c).Deploy(t.Context(), r)
	require.True(t, providers.IsFenced(err), "%v", err)
	require.True(t, providers.IsFenced(open(t, c).Remove(t.Context(), r)))
}

func TestWhatCannotBeThereIsRefused(t *testing.T) {
	t.Parallel()
	c := clustertest.Start(t)
	for image, want := range map[string]string{"": "runs images", "elsewhere.test/app:1": "is none of registry.test"} {
		a := open(t, c)
		a.Versions["1.0"] = app.Program{Image: image, Command: []string{"/opt/shop"}}
		require.ErrorContains(t, a.Check(), want)
	}
	a := open(t, c)
	a.Versions["1.0"] = app.Program{Image: "registry.test/app:1", Env: map[string]string{"K_SERVICE": "shop"}}
	require.ErrorContains(t, a.Check(), "version 1.0: invalid: env: K_SERVICE is what Knative sets")
	r := apptest.Release(1, "1.0")
	r.Limits.Files = 100
	_, err := open(t, c).Deploy(t.Context(), r)
	require.True(t, providers.IsInvalid(err), "%v", err)
	require.Empty(t, c.API.Names())
}
