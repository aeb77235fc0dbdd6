package streams

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// AwaitCluster waits until the servers of a cluster have a leader and enough of them are there for the plan, and makes sure of the streams.
func AwaitCluster(ctx context.Context, nc *nats.Conn, js jetstream.JetStream, p Plan, log *slog.Logger) (diffs []Difference, err error) {
	err = AwaitLeader(ctx, nc, js, log, func(ctx context.Context) (err error) {
		diffs, err = Ensure(ctx, js, p)
		return err
	})
	return diffs, err
}

// AwaitLeader waits until the servers of a cluster have a leader, and enough of them are there for what is to be done with their streams, and has been done
// then. What it waits for it says every few seconds. It fails when ctx ends, with the last reason, and for [ErrOccupied].
func AwaitLeader(ctx context.Context, nc *nats.Conn, js jetstream.JetStream, log *slog.Logger, do func(context.Context) error) error {
	said := time.Now().Add(-8 * time.Second) // a start takes a second or two, which is nothing to tell
	for {
		err := doSoon(ctx, js, do)
		if err == nil || errors.Is(err, ErrOccupied) {
			return err
		}
		if ctx.Err() != nil {
			return fmt.Errorf("streams: the cluster is not there: %w", err)
		}
		if time.Since(said) > 10*time.Second {
			said = time.Now()
			log.Warn("waiting for the cluster: a majority of its servers must be there, and a leader", "servers", len(nc.Servers()), "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(250 * time.Millisecond):
		}
	}
}

func doSoon(ctx context.Context, js jetstream.JetStream, do func(context.Context) error) error {
	ask, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
	defer cancel()
	if _, err := js.AccountInfo(ask); err != nil {
		return fmt.Errorf("there is no leader: %w", err)
	}
	return do(ctx)
}
