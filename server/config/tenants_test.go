package config

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTenants(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	migration := writeFile(t, "00001_a.sql", "-- +goose Up")
	missing := filepath.Join(dir, "keys.json")
	good := `tenants:
  source: {dsn: "postgres://a:secret@h/shared"}
  servers: [{name: t1, dsn: "postgres://a:secret@h/postgres", sizes: [small, large]}]
  keys: ` + missing + `
  migrations: ` + filepath.Dir(migration) + `
  rate: 50MiB
`
	c, err := Load(Dev, flagSet(t, Dev, "--config", writeFile(t, "good.yaml", good)), nil)
	require.NoError(t, err)
	require.True(t, c.Tenants.On())
	require.EqualValues(t, 50<<20, c.Tenants.BytesPerSecond())
	require.NotContains(t, c.String(), "secret")
	_, err = Load(Serve, flagSet(t, Serve, "--config", writeFile(t, "serve.yaml", good)), nil)
	require.ErrorContains(t, err, "tenants.keys", "serve makes no keyset")

	_, err = Load(Dev, flagSet(t, Dev, "--config", writeFile(t, "bad.yaml", `tenants:
  servers: [{name: T 1, region: E U, sizes: [Big]}, {name: t1, dsn: "x"}, {name: t1, dsn: "x"}]
  migrations: `+dir+`
  tables: {log: {kind: drop}}
  rangeRows: -1
  parallel: 65
  rate: fast
  grace: -1s
  audit: {nothing: 48h, state: 1h}
`)), nil)
	for _, want := range []string{
		"tenants.source: needs either", "servers[0].name", "servers[0].region", "servers[0].sizes", "servers[0]: needs either", "there twice", "tenants.keys: needs", "tenants.migrations", "tables.log.kind", "rangeRows", "parallel", "tenants.rate", "tenants.grace", "audit.nothing: is none of", "audit.state: 1h0m0s is less than 24h",
	} {
		require.ErrorContains(t, err, want)
	}
	c, err = Load(Dev, flagSet(t, Dev, "--config", writeFile(t, "none.yaml", "tenants: {}")), nil)
	require.NoError(t, err)
	require.False(t, c.Tenants.On())
}
