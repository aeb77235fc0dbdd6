package config

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPlatform(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	around := `domains: {https: 127.0.0.1:8443, keys: ` + dir + `/d.json}
tenants: {source: {dsn: "postgres://a@b/c"}, servers: [{name: own, dsn: "postgres://a@b/c"}], keys: ` + dir + `/t.json, migrations: ../../providers/database/databasetest/migrations}
`
	c, err := Load(Dev, flagSet(t, Dev, "--config", writeFile(t, "good.yaml", around+`platform:
  domain: apps.example.net
  versions: {"1.0": {command: [/opt/shop, serve], env: {A: secret}}, "1.1": {command: [/opt/shop], socket: port}}
  channels: {stable: "1.0"}
  env: {B: secret}
`)), nil)
	require.NoError(t, err)
	require.True(t, c.Platform.On())
	require.Equal(t, []string{"/opt/shop", "serve"}, c.Platform.Versions["1.0"].Command)
	require.Equal(t, map[string]int64{DefaultSize: 256 << 20}, c.Platform.Quotas())
	require.NotContains(t, c.String(), "secret")
	open := c
	open.Platform.Storage.Listen = "0.0.0.0:8333"
	require.ErrorContains(t, open.exposed(), "platform.storage.listen: 0.0.0.0:8333 can be reached from other machines: set http.tls")
	open.Platform.Storage.Kind = StorageS3
	require.NoError(t, open.exposed())
	for host, refused := range map[string]bool{"apps.example.net": true, "a.apps.example.net": true, "myapps.example.net": false} {
		require.Equal(t, refused, c.Platform.Refuses(host) != "", host)
	}
	_, err = Load(Dev, flagSet(t, Dev, "--config", writeFile(t, "bad.yaml", `platform:
  domain: Apps
  instances: {kind: vm}
  users: 1-2
  limits: {big: {memory: x, files: 1, processes: -1, cpu: 0.001}}
  storage: {kind: disk, endpoint: "s3", credentials: x, bucket: y, listen: "8333"}
  versions: {"A": {}}
  channels: {stable: "2"}
  sizes: {small: big}
  host: localhost
  ports: 30-20
  health: x
  readiness: y
  startup: 2h
  drain: 1h
cluster: {name: c}
`)), nil)
	for _, want := range []string{
		"platform.domain: \"Apps\"", "platform.users: \"1-2\"", "limits.big: platform.sizes has no", "limits.big.memory", "limits.big.files", "limits.big.processes", "limits.big.cpu", "platform.storage.kind: \"disk\"", "platform.storage.endpoint: \"s3\"", "platform.storage.credentials: \"x\"", "platform.storage.listen: \"8333\" is not host:port", "platform.storage: a shared bucket", "platform.instances.kind: \"vm\" is none of process, docker, systemd, knative, external", "needs the section tenants", "needs domains.https", "member of a cluster", "platform.versions: \"A\"", "versions.A.command", "channels.stable", "sizes.small", "platform.host", "platform.ports", "platform.health", "platform.readiness", "platform.startup", "platform.drain",
	} {
		require.ErrorContains(t, err, want)
	}
	for kind, want := range map[string]string{"docker, socket: x": "instances.socket", "docker": "versions.1.image", "knative": "versions.1.image: needs an image, which the kind knative runs", "systemd": "versions.1.command", "external": "needs a command or an image"} {
		_, err = Load(Dev, flagSet(t, Dev, "--config", writeFile(t, "kind.yaml", around+`platform: {domain: apps.example.net, instances: {kind: `+kind+`}, versions: {"1": {}}}`)), nil)
		require.ErrorContains(t, err, want, kind)
	}
	for more, want := range map[string]string{`versions: {"1": {command: [x], socket: tcp}}`: `versions.1.socket: "tcp" is none of fd and port`, `instances: {kind: systemd}, versions: {"1": {command: [x], socket: port}}`: "versions.1.socket"} {
		_, err = Load(Dev, flagSet(t, Dev, "--config", writeFile(t, "socket.yaml", around+`platform: {domain: apps.example.net, `+more+`}`)), nil)
		require.ErrorContains(t, err, want)
	}
	for more, want := range map[string]string{"": "limits.small.processes: without platform.users", "users: 2000-2010, ": "", "instances: {kind: systemd}, ": ""} {
		_, err = Load(Dev, flagSet(t, Dev, "--config", writeFile(t, "processes.yaml", around+`platform: {domain: apps.example.net, `+more+`limits: {small: {processes: 9}}, versions: {"1": {command: [x]}}}`)), nil)
		if want == "" {
			require.NoError(t, err, more)
		} else {
			require.ErrorContains(t, err, want)
		}
	}
	_, err = Load(Dev, flagSet(t, Dev, "--config", writeFile(t, "nowhere.yaml", around+`platform: {domain: apps.example.net, instances: {kind: knative}, versions: {"1": {image: registry.test/shop}}}`)), nil)
	require.ErrorContains(t, err, "platform.instances.kind: the kind knative needs gateways.knative.namespace")
	for limits, want := range map[string]string{"{memory: 64MiB, cpu: 0.5}": "", "{cpu: 0.5}": "", "{files: 64}": "limits.small: the kind knative limits memory and cpu", "{processes: 9}": "limits.small: the kind knative", "{cpu: -1}": "limits.small.cpu"} {
		c, err = Load(Dev, flagSet(t, Dev, "--config", writeFile(t, "knative.yaml", around+`gateways: {knative: {namespace: apps}}
platform: {domain: apps.example.net, instances: {kind: knative}, limits: {small: `+limits+`}, versions: {"1": {image: registry.test/shop}}}`)), nil)
		if want == "" {
			require.NoError(t, err, limits)
			require.Equal(t, 500, c.Platform.Limits["small"].Millis())
		} else {
			require.ErrorContains(t, err, want)
		}
	}
	_, err = Load(Dev, flagSet(t, Dev, "--config", writeFile(t, "cpu.yaml", around+`platform: {domain: apps.example.net, limits: {small: {cpu: 1}}, versions: {"1": {command: [x]}}}`)), nil)
	require.NoError(t, err)
	_, err = Load(Dev, flagSet(t, Dev, "--config", writeFile(t, "image.yaml", around+`platform: {domain: apps.example.net, versions: {"1": {command: [x], image: y}}}`)), nil)
	require.ErrorContains(t, err, "the kind process runs no images")
	_, err = Load(Dev, flagSet(t, Dev, "--config", writeFile(t, "half.yaml", `platform: {channels: {stable: "1"}}`)), nil)
	require.ErrorContains(t, err, "platform: needs a domain")
}
