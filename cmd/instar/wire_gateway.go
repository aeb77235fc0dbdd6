package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/providers"
	"github.com/bcc94042/instar/providers/process"
	"github.com/bcc94042/instar/providers/simulated"
	"github.com/bcc94042/instar/server/config"
	"github.com/bcc94042/instar/streams"
)

// startGateway opens the gateway that services run in. The process gateway takes up what an earlier instar left
// running.
func (a *app) startGateway(context.Context) error {
	if a.cfg.Gateway == config.GatewayExternal {
		return nil // nothing here performs effects of services, or looks at them
	}
	a.serving = providers.Serving{ReadyStale: a.cfg.Observe.ReadyStale, Log: a.log}
	if a.cfg.Gateway == config.GatewaySimulated {
		a.serving.Gateway = &simulated.Gateway{Observed: 200 * time.Millisecond, Ready: time.Second}
		return nil
	}
	if a.cfg.Gateway == config.GatewayKnative {
		gateway, err := a.openKnative()
		if err != nil {
			return err
		}
		a.serving.Gateway = gateway
		return nil
	}
	templates := map[string]process.Template{}
	for name, t := range a.cfg.Gateways.Process.Templates {
		templates[name] = process.Template{Command: t.Command, Env: t.Env, Dir: t.Dir, Socket: t.Socket}
	}
	gateway, err := process.Open(process.Config{
		Dir: filepath.Join(a.cfg.Data, "process"), Sites: filepath.Join(a.cfg.Data, "sites"), Host: a.cfg.Gateways.Process.Host, Templates: templates, Log: a.log,
	})
	if err != nil {
		return fmt.Errorf("cannot open the process gateway: %w", err)
	}
	a.serving.Gateway = gateway
	a.onStop(func(context.Context) error { return gateway.Close(a.cfg.StopServices) })
	return nil
}

// startDisk watches the store.
func (a *app) startDisk(ctx context.Context) error {
	nc, js, err := a.connect("probe")
	if err != nil {
		return err
	}
	a.disk = &disk{server: a.server, at: streams.WithoutSecrets(a.natsURL()), room: func(ctx context.Context) (streams.Room, error) { return a.room(ctx, js) }, member: a.cfg.Cluster.On(), nc: nc, subject: a.deps.Names.Probe(), every: 2 * time.Second, log: a.log}
	if a.server != nil && a.plan.Store == 0 {
		a.disk.share = func(ctx context.Context, room int64) error {
			plan := a.plan
			plan.Store = room
			return a.tellDiffs(streams.Rebound(ctx, js, plan))
		}
	}
	a.disk.say(a.disk.lacksRoom(ctx)) // before the first command
	if room := a.disk.has.Load(); room != nil && room.Limit >= 0 {
		a.log.Info("the streams", "have", bytesOf(room.Used), "may have", bytesOf(room.Limit))
	}
	a.goes(ctx, "the disk probe", a.disk.Run)
	return nil
}

// room is what the store has. The account of a server that is attached may have to hold other streams, too: it has no shares.
func (a *app) room(ctx context.Context, js jetstream.JetStream) (streams.Room, error) {
	if a.server != nil {
		return a.server.Store()
	}
	return streams.AccountRoom(ctx, js, a.cfg.NATS.Replicas)
}
