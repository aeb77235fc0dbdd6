//go:build linux

package platform_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	machine "github.com/bcc94042/instar/machines/platform"
	"github.com/bcc94042/instar/providers/platform/knative/clustertest"
	"github.com/bcc94042/instar/server/config"
)

// A tenant's instance is in a cluster: it is deployed there, gets another version by shares of the traffic, is found by the next server, and leaves nothing there.
func TestATenantsInstanceIsInACluster(t *testing.T) {
	c := clustertest.Start(t)
	w := setup(t, "21100-21199")
	w.Config.Platform.Instances.Kind, w.Config.Gateways.Knative.Kubeconfig = config.KindKnative, c.Kubeconfig
	w.Config.Gateways.Knative.Namespace = "apps"
	w.Config.Platform.Limits = map[string]config.PlatformLimits{config.DefaultSize: {Memory: "1GiB", CPU: 0.5}}
	self, err := os.Executable()
	require.NoError(t, err)
	for v := range w.Config.Platform.Versions {
		w.Config.Platform.Versions[v] = config.Release{Image: "registry.test/shop:" + v, Command: []string{self, "application", v}}
	}
	w.Start()
	w.send("acme", "own", "request", `{}`)
	w.ends("acme", "own", machine.Ready)
	const host = "acme.apps.example.test"
	text, err := w.open(host)
	require.NoError(t, err)
	require.Contains(t, text, "1.0 acme tenant_acme")
	require.Equal(t, []string{"apps/tenant-acme-r1"}, c.API.Names())
	require.Equal(t, map[string]any{"memory": "1073741824", "cpu": "500m"}, clustertest.Dig(clustertest.Container(c.API.Get("apps", "tenant-acme-r1")), "resources", "limits"))

	w.Kill()
	w.Start()
	w.send("acme", "own", "upgrade", `{"channel":"next","weights":[50,100],"holdSeconds":1}`)
	w.becomes("acme", "own", "it has the next version", func(state string, d *machine.Data) bool {
		return state == machine.Ready && d.Version == "1.1"
	})
	text, err = w.open(host)
	require.NoError(t, err)
	require.Contains(t, text, "1.1 acme tenant_acme")
	require.Equal(t, []string{"apps/tenant-acme-r2"}, c.API.Names())
	require.Equal(t, []string{"apps/tenant-acme", "apps/tenant-acme-r2.files"}, c.API.Secrets().Names())

	w.send("acme", "own", "deprovision", `{"tenant":"acme"}`)
	w.ends("acme", "own", machine.Retired)
	require.Empty(t, c.Left())
}
