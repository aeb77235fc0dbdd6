package api_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/api"
	"github.com/bcc94042/instar/api/admin"
	"github.com/bcc94042/instar/machines"
)

// outboxes is an [api.Outbox] of one source; it keeps what it was asked.
type outboxes struct {
	err   error
	asked []string
	last  admin.OutboxFilter
}

func (o *outboxes) Sources(context.Context) ([]admin.OutboxSource, error) {
	return []admin.OutboxSource{{Name: "orders", State: "running", Status: &admin.OutboxStatus{
		Mode: "log", Rows: map[string]int64{"NEW": 2}, Lag: 2, Shards: []admin.OutboxShard{{Number: 0, Owner: "n1", Position: "7"}}, At: time.Unix(1, 0).UTC(),
	}}}, o.err
}

func (o *outboxes) Redrive(_ context.Context, source string, f admin.OutboxFilter, actor string) (int64, error) {
	return o.take("redrive", source, f, actor)
}

func (o *outboxes) Discard(_ context.Context, source string, f admin.OutboxFilter, actor string) (int64, error) {
	return o.take("discard", source, f, actor)
}

func (o *outboxes) take(what, source string, f admin.OutboxFilter, actor string) (int64, error) {
	if source != "orders" {
		return 0, admin.ErrNoSource
	}
	o.asked, o.last = append(o.asked, what+" by "+actor), f
	return 3, o.err
}

func TestOutbox(t *testing.T) {
	o := &outboxes{}
	b := setup(t, func(opts *api.Options) { opts.Outbox = o })
	list := b.get("/v1/outbox").json(t)["items"].([]any)
	require.Len(t, list, 1)
	require.EqualValues(t, 2, list[0].(map[string]any)["status"].(map[string]any)["lag"])
	require.Empty(t, b.get("/v1/outbox", "Authorization", "Bearer tenant-token").json(t)["items"], "relays live in the default namespace")

	require.EqualValues(t, 3, b.post("/v1/outbox/orders/redrive", `{"all":true}`).json(t)["rows"])
	require.EqualValues(t, 3, b.post("/v1/outbox/orders/discard", `{"aggregateType":"order","aggregateId":"7"}`).json(t)["rows"])
	require.Equal(t, []string{"redrive by boss", "discard by boss"}, o.asked)
	require.Equal(t, admin.OutboxFilter{AggregateType: "order", AggregateID: "7"}, o.last)

	b.post("/v1/outbox/orders/redrive", `{"all":true}`, "Authorization", "Bearer operate-token").problem(t, 403, "forbidden")
	b.post("/v1/outbox/orders/redrive", `{"all":true}`, "Authorization", "Bearer tenant-token").problem(t, 404, machines.CodeNotFound)
	b.post("/v1/outbox/invoices/redrive", `{"all":true}`).problem(t, 404, machines.CodeNotFound)
	for _, body := range []string{``, `{}`, `{"aggregateId":"7"}`, `{"all":true,"ids":["a"]}`, `{"all":"yes"}`, `{"some":1}`, `{"ids":["7"]}`} {
		b.post("/v1/outbox/orders/discard", body).problem(t, 422, machines.CodeValidation)
	}
	require.Len(t, o.asked, 2)
}

func TestOutboxThatIsNotThereSaysWhy(t *testing.T) {
	o := &outboxes{err: &admin.OutboxUnavailable{Reason: "there is no Postgres: set --outbox-dsn"}}
	b := setup(t, func(opts *api.Options) { opts.Outbox = o })
	require.Equal(t, "there is no Postgres: set --outbox-dsn", b.get("/v1/outbox").problem(t, 503, "unavailable")["detail"])
	b.post("/v1/outbox/orders/redrive", `{"all":true}`).problem(t, 503, "unavailable")
	o.err = errors.New("password authentication failed for user postgres")
	require.NotContains(t, string(b.get("/v1/outbox").body), "postgres")
}
