package main

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/bcc94042/instar/cmd/instar/cli/command"
	"github.com/bcc94042/instar/internal/lockedbuffer"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/server/config"
)

// What somebody meets who is new here.
func TestNewcomers(t *testing.T) {
	t.Parallel()
	w := startWhole(t, t.TempDir(), func(c *config.Config) { c.Gateway = config.GatewaySimulated })
	ask := func(server string, args ...string) (int, string) {
		var out lockedbuffer.Buffer
		code := execute(append(args, "--server", server), strings.NewReader(""), &out, &out)
		return code, out.String()
	}
	t.Run("AServerThatIsNoInstar", func(t *testing.T) {
		other := httptest.NewServer(http.NotFoundHandler())
		t.Cleanup(other.Close)
		code, out := ask(other.URL, "service", "get", "web")
		require.Equal(t, command.ExitUnreachable, code, "not found would be an answer about the service")
		require.Contains(t, out, "is no Instar")
		page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			_, _ = w.Write([]byte("<h1>Welcome</h1>"))
		}))
		t.Cleanup(page.Close)
		code, out = ask(page.URL, "service", "ls")
		require.Equal(t, command.ExitUnreachable, code, out)
		code, out = ask(strings.Replace(w.nats, "nats://", "http://", 1), "service", "ls")
		require.Equal(t, command.ExitUnreachable, code)
		require.Contains(t, out, "NATS server")
		require.NotContains(t, out, "INFO")
	})
	t.Run("TheBannerProposesWhatTheGatewayTakes", func(t *testing.T) {
		require.Contains(t, w.out.String(), "--image sim:ok")
		w.must("service", "wait", "hello", "--for", "state=READY")
		w.must("service", "update", "hello", "--image", "sim:ok", "--env", "GREETING=Again", "--wait")
	})
	t.Run("ListsOfAParent", func(t *testing.T) {
		w.must("instance", "register", "ngx/a", "--node-address", "127.0.0.1:1")
		require.Contains(t, w.must("instance", "ls", "ngx"), "ngx/a")
		require.NotContains(t, w.must("instance", "ls", "other"), "ngx/a")
		code, out := w.cli("service", "ls", "web")
		require.Equal(t, command.ExitUsage, code, out)
	})
	t.Run("WhatIsMissingIsNamedAsItsFlag", func(t *testing.T) {
		code, out := w.cli("service", "create", "zz")
		require.Equal(t, command.ExitUsage, code)
		require.Contains(t, out, "--image is missing")
		code, out = w.cli("instance", "register", "web/zz")
		require.Equal(t, command.ExitUsage, code)
		require.Contains(t, out, "--node-address is missing")
		code, out = w.cli("instance", "get", "zz")
		require.Equal(t, command.ExitUsage, code)
		require.Contains(t, out, "an instance is named")
	})
	t.Run("WhatNeedsASectionOfTheConfigurationNamesIt", func(t *testing.T) {
		for section, lines := range map[string][]string{
			"tenants":  {"audit", "tenant-size ls", "tenant-leftovers", "database_provisioning request acme/move"},
			"domains":  {"domain ls"},
			"platform": {"instance_provisioning request acme/shop"},
		} {
			for _, line := range lines {
				code, out := w.cli(strings.Fields(line)...)
				require.Equal(t, command.ExitNotFound, code, out)
				require.Contains(t, out, "only with the section "+section+" of the configuration", line)
			}
		}
		code, out := w.cli("service", "get", "audit")
		require.Equal(t, command.ExitNotFound, code)
		require.NotContains(t, out, "section")
	})
	t.Run("Completion", func(t *testing.T) {
		for want, args := range map[string][]string{"READY": {"service", "ls", "--state", ""}, "sim:ok": {"service", "create", "x", "--image", ""}, "ngx": {"discover", ""}} {
			line := append([]string{"__complete", args[0], "--server=" + w.url}, args[1:]...)
			require.Eventually(t, func() bool {
				var out lockedbuffer.Buffer
				require.Zero(t, execute(line, strings.NewReader(""), &out, &out))

				return strings.Contains(out.String(), want)
			}, 20*time.Second, 20*time.Millisecond, "%v", args)
		}
	})
	t.Run("AddressesThatAreTaken", func(t *testing.T) {
		taken, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		t.Cleanup(func() { _ = taken.Close() })
		at := taken.Addr().String()
		for flag, set := range map[string]func(*config.Config){
			"http": func(c *config.Config) { c.HTTP.Listen = at }, "nats": func(c *config.Config) { c.NATS.Listen = at }, "dns": func(c *config.Config) { c.Discovery.DNS = at }, "xds": func(c *config.Config) { c.Discovery.XDS = at },
		} {
			cfg := config.Defaults(config.Dev)
			cfg.Data, cfg.HTTP.Listen, cfg.NATS.Listen, cfg.Outbox.Postgres, cfg.Log.Level = t.TempDir(), "127.0.0.1:0", "127.0.0.1:0", config.PostgresOff, "error"
			set(&cfg)
			var out lockedbuffer.Buffer
			require.ErrorContains(t, serve(context.Background(), cfg, &out), "choose another address with --"+flag)
			require.NotContains(t, out.String(), "running", "nothing was started, so nothing stays behind")
		}
	})
}

func TestTheFirstLineOfTheLogIsShort(t *testing.T) {
	t.Parallel()
	cfg := config.Defaults(config.Dev)
	require.Empty(t, cfg.Changes())
	cfg.HTTP.Listen, cfg.Cluster.Password = "127.0.0.1:1", "secret"
	cfg.Auth.Tokens = []config.Token{{Name: "a"}}
	attrs := cfg.Changes()
	require.Contains(t, attrs, "http.listen")
	require.Contains(t, attrs, "auth.tokens")
	require.NotContains(t, attrs, "secret")
}
