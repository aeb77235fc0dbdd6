package server

import (
	"context"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/server/disk"
	"github.com/bcc94042/instar/streams"
)

// startDisk watches the store.
func (a *app) startDisk(ctx context.Context) error {
	nc, js, err := a.connect("probe")
	if err != nil {
		return err
	}
	a.disk = &disk.Watch{
		Server: a.server, At: streams.WithoutSecrets(a.natsURL()), Room: func(ctx context.Context) (streams.Room, error) { return a.room(ctx, js) },
		Member: a.cfg.Cluster.On(), NC: nc, Subject: a.deps.Names.Probe(), Every: 2 * time.Second, Log: a.log,
		Stuck: a.stuck,
	}
	if a.server != nil && a.basis.Store == 0 {
		a.disk.Share = func(ctx context.Context, room int64) error {
			plan := a.basis
			plan.Store = room
			return a.tellDiffs(streams.Rebound(ctx, js, plan))
		}
	}
	a.disk.Begin(ctx)
	a.goes(ctx, "the disk probe", a.disk.Run)
	return nil
}

// stuck ends the process, whose stream store no restart of the embedded server brings back.
func (a *app) stuck(err error) {
	a.dog.cut("the process ends, so that the next one can store again", "error", err)
}

// room is what the store has. The account of a server that is attached may have to hold other streams, too: it has no shares.
func (a *app) room(ctx context.Context, js jetstream.JetStream) (streams.Room, error) {
	if a.server != nil {
		return a.server.Store()
	}
	return streams.AccountRoom(ctx, js, a.cfg.NATS.Replicas)
}
