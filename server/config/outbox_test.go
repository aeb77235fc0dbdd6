package config

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/streams/outbox"
)

func TestOutboxSourcesOfTheFile(t *testing.T) {
	t.Parallel()
	secret := writeFile(t, "dsn", "postgres://relay:s3cret@db/orders\n")
	path := writeFile(t, "instar.yaml", "outbox:\n  dsn: postgres://u:pw@h/main\n  sources:\n    - {name: orders, dsnFile: "+secret+", mode: claim, shards: 2, poll: 5s, types: [order.>], cloudEvents: structured}\n")
	c, err := Load(Serve, flagSet(t, Serve, "--config", path), nil)
	require.NoError(t, err)
	all := c.Outbox.All(Serve)
	require.Len(t, all, 2)
	got, err := all[0].Relayed()
	require.NoError(t, err)
	require.Equal(t, "postgres://relay:s3cret@db/orders", got.DSN)
	require.EqualValues(t, "claim", got.Mode)
	require.Equal(t, &outbox.Types{Names: []string{"order.>"}, Unknown: outbox.ParkUnknown}, got.Types)
	require.True(t, got.Structured)
	got, err = all[1].Relayed()
	require.NoError(t, err)
	require.Equal(t, "main", got.Name)
	require.EqualValues(t, "log", got.Mode, "the default")
	require.NotContains(t, c.String(), "pw@")
	require.Contains(t, c.String(), "@h/main")
}

func TestWrongOutboxSourcesAreRefused(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"{name: a_b, dsn: x}":                               `outbox.sources[0].name: "a_b" is not a DNS label`,
		"{name: a}":                                         "outbox.sources[0].dsn: needs either dsn or dsnFile",
		"{name: a, dsn: x, dsnFile: y}":                     "outbox.sources[0].dsn: needs either",
		"{name: a, dsn: x, mode: push}":                     "neither claim nor log",
		"{name: a, dsn: x, schema: 'x\"; drop'}":            "is not a plain lower-case name",
		"{name: a, dsn: x, shards: 65}":                     "not between 1 and 64",
		"{name: a, dsn: x, lease: -3s}":                     "lease: -3s is not between",
		"{name: a, dsnFile: /nowhere/at/all}":               "dsnFile: open /nowhere/at/all",
		"{name: a, dsn: x}, {name: a, dsn: y}":              `outbox.sources[1].name: "a" is there twice`,
		"{name: a, dsn: x, colour: red}":                    `unknown key "outbox.sources[0].colour"`,
		"{name: a, dsn: x, stream: 'has a blank'}":          "is not a name of a stream",
		"{name: a, dsn: x, prefix: 'a.b'}":                  "is not one lower-case token",
		"{name: a, dsn: x, retention: -1h}":                 "retention: -1h0m0s is less than 1m",
		"{name: a, dsn: x, publication: events}":            "outbox.sources[0].publication: there is no such setting any more: no mode needs a replication slot",
		"{name: a, dsn: x, cloudEvents: json}":              "none of binary, structured",
		"{name: a, dsn: x, types: [a.b], unknownTypes: no}": "none of publish, park",
		"{name: a, dsn: x, unknownTypes: park}":             "needs types",
		"{name: a, dsn: x, types: ['a..b']}":                "an event type is dotted",
		"{name: a, dsn: x, batch: 5000}":                    "not between 1 and 1000",
		"{name: a, dsn: x, slot: instar_outbox_a}":          "outbox.sources[0].slot: there is no such setting any more: no mode",
	} {
		_, err := Load(Serve, flagSet(t, Serve, "--config", writeFile(t, "instar.yaml", "outbox: {sources: ["+text+"]}\n")), nil)
		require.ErrorContains(t, err, want, text)
	}
	_, err := Load(Serve, flagSet(t, Serve, "--postgres", "yes"), nil)
	require.ErrorContains(t, err, "none of auto, off")
	_, err = Load(Serve, flagSet(t, Serve, "--outbox-dsn", "x", "--config", writeFile(t, "i.yaml", "outbox: {sources: [{name: main, dsn: y}]}\n")), nil)
	require.ErrorContains(t, err, "outbox.dsn")
}

func TestNoFormOfADSNShowsItsPassword(t *testing.T) {
	t.Parallel()
	for dsn, want := range map[string]string{
		"": "", "postgres://u:pw@h:5432/d?sslpassword=pw": "postgres://***@h:5432/d", "host=h password=pw": "***", "postgres://u:p%zz@h": "***", "postgresql://h/d": "postgresql://***@h/d",
	} {
		require.Equal(t, want, RedactDSN(dsn))
	}
}
