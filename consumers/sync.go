package consumers

import (
	"context"
	"fmt"

	"github.com/bcc94042/instar/streams"
)

// Accepted returns when the commands are on disk that their stream has acknowledged. A command that was delivered may not be yet.
func (d *Deps) Accepted(ctx context.Context) error {
	if !d.Appender.Syncs() {
		return nil
	}
	if err := d.Appender.Sync(ctx, d.Names.Stream(streams.CommandStream)); err != nil {
		return fmt.Errorf("cannot sync the commands that have no commit: %w", err)
	}
	return nil
}

// Synced returns when the values of some machines, or of all, the answers, the events, the effects and the dead letters are on disk that their streams have acknowledged. Who reads what he has not
// written, and answers by it, asks first: the writer may never have been told that it is, as when its sync took longer than it waited.
func (d *Deps) Synced(ctx context.Context, plurals ...string) error {
	if !d.Appender.Syncs() {
		return nil
	}
	list := []string{d.Names.Stream(streams.EventStream), d.Names.Stream(streams.EffectStream), d.Names.Stream(streams.DeadStream), streams.BucketStream(d.Names.Bucket(streams.IdempotencyBucket))}
	if len(plurals) == 0 {
		for _, m := range d.Machines.All() {
			plurals = append(plurals, m.Plural)
		}
	}
	for _, plural := range plurals {
		list = append(list, streams.BucketStream(d.Names.Bucket(plural)))
	}
	if err := d.Appender.Sync(ctx, list...); err != nil {
		return fmt.Errorf("cannot sync what was written before: %w", err)
	}
	return nil
}
