package relays

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/bcc94042/instar/api/admin"
	"github.com/bcc94042/instar/server/config"
	"github.com/bcc94042/instar/streams/outbox"
	"github.com/bcc94042/instar/streams/outbox/relay"
)

// Change redrives or discards rows in a database.
func Change(ctx context.Context, store *outbox.Store, verb string, f admin.OutboxFilter, actor string) (int64, error) {
	filter := outbox.Filter{AggregateType: f.AggregateType, AggregateID: f.AggregateID, EventType: f.EventType, All: f.All}
	for _, text := range f.IDs {
		id, err := uuid.Parse(text)
		if err != nil {
			return 0, fmt.Errorf("%q is no id of an event", text)
		}
		filter.IDs = append(filter.IDs, id)
	}
	if verb == "discard" {
		return store.Discard(ctx, filter, actor)
	}
	return store.Redrive(ctx, filter, actor)
}

// Redrive makes rows that failed wait for their next try at once.
func (o *outboxes) Redrive(ctx context.Context, source string, f admin.OutboxFilter, actor string) (int64, error) {
	return o.change(ctx, "redrive", source, f, actor)
}

// Discard gives rows that failed up.
func (o *outboxes) Discard(ctx context.Context, source string, f admin.OutboxFilter, actor string) (int64, error) {
	return o.change(ctx, "discard", source, f, actor)
}

func (o *outboxes) change(ctx context.Context, verb, source string, f admin.OutboxFilter, actor string) (int64, error) {
	if reason := o.why(); reason != "" {
		return 0, &admin.OutboxUnavailable{Reason: reason}
	}
	s, ok := o.sources[source]
	if !ok {
		return 0, admin.ErrNoSource
	}
	relayed, err := o.config(s)
	if err != nil {
		return 0, err
	}
	store, err := outbox.Open(ctx, relayed.DSN, relayed.Schema)
	if err != nil {
		return 0, err
	}
	defer store.Pool.Close()
	if err := store.CheckSchema(ctx); errors.Is(err, outbox.ErrSchema) {
		return 0, &admin.OutboxUnavailable{Reason: "the database of " + source + ": " + err.Error()}
	}
	n, err := Change(ctx, store, verb, f, actor)
	if FaultOf(err) != None {
		o.h.Log.Warn("an outbox cannot be changed", "source", source, "error", err)
		return n, &admin.OutboxUnavailable{Reason: "the database of " + source + " does not answer, or has no outbox"}
	}
	o.wake(source)
	return n, err
}

// settingsOf fills in what the database itself says of mode and shards; a configuration that says something else would
// relay nothing, or in another order. Retention and the limit of the lag are for the database to keep: they are written there.
func settingsOf(ctx context.Context, c *outbox.Config, given config.OutboxSource) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	store, err := outbox.Open(ctx, c.DSN, c.Schema)
	if err != nil {
		return err
	}
	defer store.Pool.Close()
	schema := store.CheckSchema(ctx)
	var mode string
	var shards int
	if err := store.Pool.QueryRow(ctx, "select mode, shards from outbox_settings").Scan(&mode, &shards); err != nil {
		if err := outbox.Pooled(err); errors.Is(err, outbox.ErrPooler) {
			return &relay.PermanentError{Err: err}
		}
		return fmt.Errorf("cannot read the settings of the outbox (was it made, by instar outbox init?): %w", err)
	}
	c.Mode, c.Shards = outbox.Mode(mode), shards
	if errors.Is(schema, outbox.ErrSchema) { // its relay is refused, and can be deleted; nothing is written there
		return nil
	}
	if schema != nil {
		return schema
	}
	if given.Mode != "" && given.Mode != mode || given.Shards != 0 && given.Shards != shards {
		return &relay.PermanentError{Err: fmt.Errorf("source %s is configured with mode %s and %d shards, its database has mode %s and %d: change one of them (instar outbox init --mode --shards)",
			c.Name, cmp.Or(given.Mode, mode), cmp.Or(given.Shards, shards), mode, shards)}
	}
	if _, err := store.Pool.Exec(ctx, `update outbox_settings set retention = case when $1::float8 > 0 then make_interval(secs => $1) else retention end,
			max_lag = case when $2::bigint > 0 then $2 else max_lag end,
			inbox_retention = case when $3::float8 > 0 then make_interval(secs => $3) else inbox_retention end, updated_at = now()
		where $1 > 0 and retention <> make_interval(secs => $1) or $2 > 0 and max_lag <> $2 or $3 > 0 and inbox_retention is distinct from make_interval(secs => $3)`,
		given.Retention.Seconds(), given.MaxLag, given.Inbox.Seconds()); err != nil {
		return fmt.Errorf("cannot set retention and maxLag of the outbox: %w", err)
	}
	return nil
}

// Fault is what may be wrong with a database that is asked.
type Fault int

// The faults.
const (
	None     Fault = iota
	Pooler         // a connection pool in between, which does not keep sessions
	Away           // it does not answer
	NoOutbox       // the tables are not there
)

// FaultOf tells apart what an operation on a database has failed by; None also of other errors.
func FaultOf(err error) Fault {
	var refused *pgconn.PgError
	var away *pgconn.ConnectError
	switch err = outbox.Pooled(err); {
	case errors.Is(err, outbox.ErrPooler):
		return Pooler
	case errors.As(err, &away):
		return Away
	case errors.As(err, &refused) && (refused.Code == "42P01" || refused.Code == "3F000"):
		return NoOutbox
	}
	return None
}
