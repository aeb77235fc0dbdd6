package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/cmd/instar/cli/command"
	"github.com/bcc94042/instar/server/config"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/embedded"
)

// A user is told what cannot be reached and what to do: by the command line, by /readyz and in the log; and no password.
func TestANATSServerThatIsNotThere(t *testing.T) {
	t.Parallel()
	nobody, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := nobody.Addr().String()
	require.NoError(t, nobody.Close())
	p := launch(t, "serve", "--data", t.TempDir(), "--http", "127.0.0.1:0", "--nats-url", "nats://me:s3cret@"+address, "--gateway", "simulated", "--postgres", "off", "--log-level", "error")
	select {
	case <-p.ends:
	case <-time.After(30 * time.Second):
		t.Fatal("it does not give up")
	}
	require.Equal(t, command.ExitUnreachable, p.cmd.ProcessState.ExitCode())
	require.Contains(t, p.out.String(), "instar: cannot reach NATS at nats://"+address+": nothing listens there\ntry: start that NATS server, or name another one with --nats-url")
	require.NotContains(t, p.out.String(), "s3cret")

	server, err := embedded.Start(embedded.Options{Dir: t.TempDir(), Listen: "127.0.0.1:0", Open: true, Profile: embedded.OS})
	require.NoError(t, err)
	at := server.ClientURL() // it has none any more when it has ended
	w := startWhole(t, t.TempDir(), func(c *config.Config) {
		c.Gateway, c.NATS.URL, c.NATS.Listen = config.GatewaySimulated, "nats://me:s3cret@"+strings.TrimPrefix(server.ClientURL(), "nats://"), ""
	})
	ask := func(method, path string) string {
		status, body := w.call(method, path, "")
		require.NotEqual(t, http.StatusInternalServerError, status, body)
		return fmt.Sprint(status, body)
	}
	require.Contains(t, ask("GET", "/readyz?verbose"), "200")
	require.NoError(t, server.Shutdown(context.Background()))
	require.Eventually(t, func() bool {
		said := ask("GET", "/readyz")
		return strings.Contains(said, "NATS at "+at+" cannot be reached: commands get 503 until it is back. Start that server, or correct nats.url") &&
			strings.Contains(said, "there is no connection to NATS at "+at+", so nothing can be stored")
	}, time.Minute, 50*time.Millisecond, "%s", ask("GET", "/readyz"))
	require.NotContains(t, ask("GET", "/readyz"), "s3cret")
	require.Contains(t, ask("POST", "/v1/services/web/refresh"), "has lost its connection to NATS")
	code, said := w.cli("service", "refresh", "web")
	require.Equal(t, command.ExitUnreachable, code)
	require.Contains(t, said, "has lost its connection to NATS")
	require.Contains(t, said, "try: instar doctor")
	_, said = w.cli("doctor")
	require.Contains(t, said, "cannot be reached: commands get 503")
}

func TestURLsWithoutSecrets(t *testing.T) {
	t.Parallel()
	for in, out := range map[string]string{
		"nats://a:4222": "nats://a:4222", "nats://u:p@a:4222,tls://tok@b": "nats://a:4222,tls://b", "u:p@a": "a", "": "", "context x": "context x", "nats://u:p@ss@a": "nats://a",
	} {
		require.Equal(t, out, streams.WithoutSecrets(in))
	}
}
