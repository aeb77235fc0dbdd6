package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/internal/lockedbuffer"
	"github.com/bcc94042/instar/server/config"
	"github.com/bcc94042/instar/server/natscli"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/embedded"
)

// A server is attached by a context of the nats CLI, with its credentials. Not parallel: it sets the environment.
func TestNATSContext(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", dir)
	server, err := embedded.Start(embedded.Options{Dir: t.TempDir(), Listen: "127.0.0.1:0", Profile: embedded.OS, Users: []embedded.User{{Name: "instar", Password: "s3cret", Role: embedded.RoleAdmin}}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Shutdown(context.Background())) })
	write := func(name, more string) {
		at := filepath.Join(dir, "nats", "context", name+".json")
		require.NoError(t, os.MkdirAll(filepath.Dir(at), 0o700))
		require.NoError(t, os.WriteFile(at, fmt.Appendf(nil, `{"url":%q,"user":"instar"%s}`, server.ClientURL(), more), 0o600))
	}
	write("ours", `,"password":"s3cret"`)
	write("wrong", `,"password":"guess"`)
	write("leaf", `,"password":"s3cret","jetstream_domain":"leaf"`)
	w := startWhole(t, t.TempDir(), func(c *config.Config) { c.Gateway, c.NATS.Context, c.NATS.Listen = config.GatewaySimulated, "ours", "" })
	status, _ := w.call("GET", "/readyz", "")
	require.Equal(t, 200, status)
	require.Equal(t, "context ours", w.nats)
	for name, says := range map[string]string{"wrong": "Authorization Violation", "leaf": "is not supported", "none": `unknown context "none"`} {
		c := config.Defaults(config.Serve)
		c.Data, c.HTTP.Listen, c.NATS.Context = t.TempDir(), "127.0.0.1:0", name
		require.NoError(t, c.Validate())
		require.ErrorContains(t, serve(t.Context(), c, &lockedbuffer.Buffer{}), says)
	}
	c := config.Defaults(config.Serve)
	c.NATS.Context, c.NATS.URL = "ours", "nats://x"
	require.ErrorContains(t, c.Validate(), "nats.context has all that it takes")
}

// A context that is written here leads to the server, and one of somebody else stays. Not parallel: it sets the environment.
func TestWrittenNATSContext(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", dir)
	start := func(name string) config.Config {
		c := config.Defaults(config.Dev)
		c.Data, c.HTTP.Listen, c.Gateway, c.NATS.Listen, c.NATS.Write = t.TempDir(), "127.0.0.1:0", config.GatewaySimulated, "127.0.0.1:0", name
		require.NoError(t, c.Validate())
		return c
	}
	var first *os.File
	empty := filepath.Join(dir, "nats", "context", "ours.json")
	require.NoError(t, os.MkdirAll(filepath.Dir(empty), 0o700))
	require.NoError(t, os.WriteFile(empty, nil, 0o600)) // what a crash left
	for range 2 {                                       // it is written again by every start
		w := startWhole(t, t.TempDir(), func(c *config.Config) {
			c.Gateway, c.NATS.Write = config.GatewaySimulated, "ours"
			if first != nil { // with tokens NATS is no way around them
				c.Auth.Tokens = []config.Token{{Name: "a", Hash: "sha256:" + strings.Repeat("0", 64), Role: config.RoleRead, Namespace: config.AllNamespaces}}
				c.NATS.Users = []embedded.User{{Name: "ci", Password: "c1", Role: embedded.RoleOperate}}
			}
		})
		_, err := nats.Connect(w.nats)
		require.Equal(t, first != nil, errors.Is(err, nats.ErrAuthorization), "%v", err)
		nc, err := natscli.Connect("ours")(nats.Name("test"))
		require.NoError(t, err)
		t.Cleanup(nc.Close)
		require.Equal(t, w.nats, nc.ConnectedUrl())
		js, err := jetstream.New(nc)
		require.NoError(t, err)
		_, err = js.Stream(t.Context(), streams.EventStream)
		require.NoError(t, err)
		if first == nil {
			first, err = os.Open(filepath.Join(dir, "nats", "context", "ours.json"))
			require.NoError(t, err)
			t.Cleanup(func() { _ = first.Close() })
			continue
		}
		ci, err := nats.Connect(w.nats, nats.UserInfo("ci", "c1"))
		require.NoError(t, err)
		t.Cleanup(ci.Close)
		answer, err := ci.Request("instar.api.cmd.service.default.web.create", []byte(`{"spec":{"image":"hello"}}`), 20*time.Second)
		require.NoError(t, err)
		require.Contains(t, string(answer.Data), `"outcome":"applied"`, "the engine answers into the account of the user")
		had, err := io.ReadAll(first)
		require.NoError(t, err)
		require.NotContains(t, string(had), w.nats, "whoever reads it meanwhile has all of one file")
	}
	at := filepath.Join(dir, "nats", "context", "prod.json")
	require.NoError(t, os.WriteFile(at, []byte(`{"url":"nats://prod"}`), 0o600))
	require.ErrorContains(t, serve(t.Context(), start("prod"), &lockedbuffer.Buffer{}), "choose another name")
	raw, err := os.ReadFile(at)
	require.NoError(t, err)
	require.JSONEq(t, `{"url":"nats://prod"}`, string(raw))
	for _, wrong := range []func(*config.Config){
		func(c *config.Config) { c.NATS.Write = "../x" }, func(c *config.Config) { c.NATS.Listen = "" }, func(c *config.Config) { c.NATS.URL = "nats://x" },
	} {
		c := start("ours")
		wrong(&c)
		require.ErrorContains(t, c.Validate(), "nats.writeContext")
	}
}
