package relay

import (
	"context"
	"errors"
	"time"

	"github.com/bcc94042/instar/internal/wait"
	"github.com/bcc94042/instar/streams/outbox"
	"github.com/bcc94042/instar/streams/outbox/relay/log"
)

// maintain does beside the relaying what may take a while: partitions come and go, the inbox forgets, and applications hear
// of the lag. look is called now and then.
func (r *Relay) maintain(ctx context.Context, store *outbox.Store, streamAge time.Duration, look func()) {
	maintained := time.Time{}
	for {
		if time.Since(maintained) > time.Hour {
			maintained = time.Now()
			if _, err := store.Purge(ctx, "relay "+r.Node); err != nil && ctx.Err() == nil {
				r.Log.Warn("cannot delete what has expired", "error", err)
			}
			if n, err := store.PurgeInbox(ctx, streamAge); err != nil && ctx.Err() == nil {
				r.Log.Warn("cannot purge the inbox", "error", err)
			} else if n > 0 {
				r.Log.Info("purged the inbox", "events", n)
			}
			if _, err := store.Maintain(ctx); err != nil && ctx.Err() == nil {
				r.Log.Warn("cannot create future partitions", "error", err)
			}
		}
		if lag, err := r.lag(ctx, store); err == nil {
			r.Meter.Lag(lag)
			if err := store.Publish(ctx, r.Config.Name, r.Node, lag); err != nil && ctx.Err() == nil {
				r.Log.Warn("cannot publish the relay's lag to applications", "error", err)
			}
		}
		if !wait.For(ctx, lagEvery) {
			return
		}
		look()
	}
}

// lagEvery is how often the lag is looked at.
const lagEvery = 2 * time.Second

// lag is how many rows wait; in mode log it is what the sequence says, which counts those that are rolled back, too, until
// the reading has passed them.
func (r *Relay) lag(ctx context.Context, store *outbox.Store) (int64, error) {
	if r.Config.Mode == outbox.Claim {
		st, err := store.Status(ctx)
		return st.Lag, err
	}
	at, open := r.control.Position()
	if !open {
		return 0, errors.New("no shard")
	}
	last, err := log.LastNumber(ctx, store.Pool)
	return max(0, last-at), err
}
