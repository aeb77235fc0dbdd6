package publish

// Asking for what was acknowledged to be on disk, from within the process of the server (Appender.Sync) and from outside (SyncClient, which ServeSync answers).

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/bcc94042/instar/streams"
)

// syncWithin bounds one request to sync. A disk that takes longer has failed as far as its writers are concerned.
const syncWithin = 10 * time.Second

// unsynced is what a write ends with whose stream took it and did not say that it is on disk.
func unsynced(err error) error {
	return fmt.Errorf("%w: it is stored, and may not be on disk: %w", ErrUnanswered, err)
}

// Syncs reports whether writes are answered when a sync after the ack of the stream has ended.
func (a *Appender) Syncs() bool { return a.sync != nil }

// Sync returns when everything is on disk that the streams had acknowledged before, also to others. They are synced side by side. Else, and after ten seconds, the error is
// [ErrUnanswered]. Where an ack says it already, it does nothing.
func (a *Appender) Sync(ctx context.Context, all ...string) error {
	if a.sync == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, syncWithin)
	defer cancel()
	done := make(chan error, len(all))
	for _, stream := range all {
		a.sync(stream, func(err error) { done <- err })
	}
	for range all {
		select {
		case err := <-done:
			if err != nil {
				return unsynced(err)
			}
		case <-ctx.Done():
			return unsynced(ctx.Err())
		}
	}
	return nil
}

// ServeSync answers who asks with [SyncClient.Sync]: with nothing when what the stream had acknowledged before is on disk, or with why that is not known.
func ServeSync(nc *nats.Conn, names streams.Names, sync func(stream string, done func(error))) (*nats.Subscription, error) {
	sub, err := nc.QueueSubscribe(names.Sync("*"), "sync", func(m *nats.Msg) {
		if streams.Inbox(m.Reply) == "" {
			return
		}
		sync(m.Subject[len(names.Sync("")):], func(err error) {
			answer := []byte(nil)
			if err != nil {
				answer = []byte(err.Error())
			}
			_ = m.Respond(answer) // who does not get it takes nothing for stored
		})
	})
	if err != nil {
		return nil, fmt.Errorf("streams: cannot listen for requests to sync: %w", err)
	}
	return sub, nil
}

// SyncClient is [Appender.Sync] over NATS, for publishers outside of the server's process.
type SyncClient struct {
	NC    *nats.Conn
	Names streams.Names

	answered atomic.Bool
}

// Sync asks the embedded server of a control plane. Of another server, and of one that has never answered, an ack says already what it promises. Without a connection nobody
// can say it. Who may have been connected to another server when it got the ack has to look: see [nats.Conn.ConnectedServerId].
func (c *SyncClient) Sync(ctx context.Context, stream string) error {
	switch c.NC.ConnectedServerName() {
	case streams.EmbeddedName:
	case "":
		return unsynced(errors.New("the connection to NATS is lost"))
	default: // an operator's own may not even allow the question
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, syncWithin)
	defer cancel()
	m, err := c.NC.RequestWithContext(ctx, c.Names.Sync(stream), nil)
	switch {
	case errors.Is(err, nats.ErrNoResponders) && !c.answered.Load():
		return nil
	case err != nil: // also where one that has answered does no longer: it stops
		return unsynced(err)
	case len(m.Data) > 0:
		return unsynced(errors.New(string(m.Data)))
	}
	c.answered.Store(true)
	return nil
}
