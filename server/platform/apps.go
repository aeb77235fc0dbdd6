package platform

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/nats-io/nats.go"

	"github.com/bcc94042/instar/providers/platform/app"
	"github.com/bcc94042/instar/providers/platform/external"
	"github.com/bcc94042/instar/providers/platform/hosted"
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
		versions[name] = app.Program{Command: v.Command, Image: v.Image, Env: v.Env}
	}
	if c.Instances.Kind == config.KindExternal {
		return &external.Apps{NC: nc, Names: h.Deps.Names, Versions: versions, Health: c.Health, Startup: c.Startup}, nil
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
			Dir: dir, Engine: engine, Installation: id, Host: c.Host, First: first, Last: last, Versions: versions, Health: c.Health, Startup: c.Startup, Log: h.Log,
		})
	default:
		from, to := c.UserRange()
		apps, err = process.Open(process.Config{
			FirstUser: from, LastUser: to,
			Dir: dir, Host: c.Host, Ports: gateway.Ports{First: first, Last: last}, Versions: versions, Health: c.Health, Startup: c.Startup, Log: h.Log,
		})
	}
	if err != nil {
		return nil, fmt.Errorf("platform: %w", err)
	}
	h.OnStop("the instances", func(context.Context) error { return apps.Close(h.Config.StopServices) })
	return apps, nil
}
