package platform

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/nats-io/nats.go"

	cluster "github.com/bcc94042/instar/providers/knative"
	"github.com/bcc94042/instar/providers/platform/app"
	"github.com/bcc94042/instar/providers/platform/external"
	"github.com/bcc94042/instar/providers/platform/hosted"
	"github.com/bcc94042/instar/providers/platform/knative"
	"github.com/bcc94042/instar/providers/platform/process"
	gateway "github.com/bcc94042/instar/providers/process"
	"github.com/bcc94042/instar/server"
	"github.com/bcc94042/instar/server/config"
)

// openApps takes up what runs, by the kind that is configured, for the installation with this id.
func openApps(h *server.Host, nc *nats.Conn, id string) (app.Provider, error) {
	c := h.Config.Platform
	versions := map[string]app.Program{}
	for name, v := range c.Versions {
		versions[name] = app.Program{Command: v.Command, Image: v.Image, Env: v.Env, Port: v.Socket == gateway.SocketPort}
	}
	switch c.Instances.Kind {
	case config.KindKnative:
		return openKnative(h, versions, id)
	case config.KindExternal:
		return &external.Apps{NC: nc, Names: h.Deps.Names, Versions: versions, Env: c.Env, Health: c.Health, Startup: c.Startup}, nil
	}
	dir := c.Dir
	if dir == "" {
		dir = filepath.Join(h.Config.Data, "platform")
	}
	first, last := c.Range()
	var apps interface {
		app.Provider
		Close(stop bool) error
	}
	var err error
	switch c.Instances.Kind {
	case config.KindDocker, config.KindSystemd:
		var engine hosted.Engine = &hosted.Systemd{}
		if c.Instances.Kind == config.KindDocker {
			engine = hosted.NewDocker(c.Instances.Socket)
		}
		apps, err = hosted.Open(hosted.Config{
			Dir: dir, Engine: engine, Installation: id, Host: c.Host, First: first, Last: last, Versions: versions, Env: c.Env, Health: c.Health, Startup: c.Startup, Log: h.Log,
		})
	default:
		from, to := c.UserRange()
		apps, err = process.Open(process.Config{
			FirstUser: from, LastUser: to, Env: c.Env,
			Dir: dir, Host: c.Host, Ports: gateway.Ports{First: first, Last: last}, Versions: versions, Health: c.Health, Startup: c.Startup, Log: h.Log,
		})
	}
	if err != nil {
		return nil, fmt.Errorf("platform: %w", err)
	}
	h.OnStop("the instances", func(context.Context) error { return apps.Close(h.Config.StopServices) })
	return apps, nil
}

// openKnative takes up what runs in the cluster of gateways.knative. Its objects are those of the installation: services of users have another owner.
func openKnative(h *server.Host, versions map[string]app.Program, id string) (app.Provider, error) {
	k, c := h.Config.Gateways.Knative, h.Config.Platform
	cluster.LogClient(h.Log)
	gateway, err := cluster.Open(cluster.Config{Kubeconfig: k.Kubeconfig, Context: k.Context, Namespace: k.Namespace, Owner: "instar-" + id, Images: k.Images, Log: h.Log})
	if err != nil {
		return nil, fmt.Errorf("platform: %w", err)
	}
	apps := &knative.Apps{Gateway: gateway, Versions: versions, Env: c.Env, Health: c.Health, Startup: c.Startup}
	if err := apps.Check(); err != nil {
		return nil, fmt.Errorf("platform: %w", err)
	}
	return apps, nil
}
