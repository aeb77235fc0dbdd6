package main

import (
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/client/tenantdb"
)

// resolves has an application follow where tenants are: over package tenantdb it learns of one that was closed, and says so.
func (d *doors) resolves() {
	t := d.t
	tell := func(tenant string) {
		_, err := d.js.Publish(t.Context(), "$KV.tenant_runtime."+tenant, []byte(`{"status":"deprovisioned","epoch":1}`))
		require.NoError(t, err)
		require.NoError(t, d.own.Publish("instar.moved."+tenant, nil))
	}
	tell("acme")
	seen := make(chan string, 100)
	_, err := d.own.Subscribe("instar.seen.>", func(m *nats.Msg) { seen <- string(m.Data); _ = m.Respond(nil) })
	require.NoError(t, err)
	require.NoError(t, d.own.Flush())
	js, err := jetstream.NewWithAPIPrefix(d.connect("app"), "$JS.INSTAR.API")
	require.NoError(t, err)
	nowhere, err := pgxpool.ParseConfig("postgres://127.0.0.1:1/none")
	require.NoError(t, err)
	db, err := tenantdb.Open(t.Context(), tenantdb.Options{JetStream: js, Shared: nowhere})
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	_, err = db.Acquire(t.Context(), "acme")
	require.ErrorIs(t, err, tenantdb.ErrClosed)
	_, err = db.Acquire(t.Context(), "late")
	require.ErrorContains(t, err, "cannot connect")
	require.Equal(t, "0", <-seen)
	tell("late")
	for epoch := "0"; epoch != "1"; epoch = <-seen { // what was seen before is said again and again
		require.Equal(t, "0", epoch)
	}
	_, err = db.Acquire(t.Context(), "late")
	require.ErrorIs(t, err, tenantdb.ErrClosed)
}
