package main

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoverypb "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	edspb "github.com/envoyproxy/go-control-plane/envoy/service/endpoint/v3"
	"github.com/miekg/dns"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/bcc94042/instar/cmd/instar/cli/command"
	"github.com/bcc94042/instar/internal/testenv"
	"github.com/bcc94042/instar/server/config"
)

// What this program listens on is no target of probes, and its doors are as the configuration has them.
func TestDoorsOfDiscovery(t *testing.T) {
	t.Parallel()
	cert, key := certificate(t)
	eds, names := testenv.Address(t), testenv.Address(t)
	w := startWhole(t, t.TempDir(), func(c *config.Config) {
		c.Gateway = config.GatewaySimulated
		c.Discovery.XDS, c.Discovery.XDSTLS = eds, config.TLS{CA: cert, Cert: cert, Key: key}
		c.Discovery.DNS, c.Discovery.DNSDomain, c.Discovery.DNSTTL = names, "svc.example.com", 7*time.Second
		c.Discovery.Namespaces = "default"
	})
	register := func(id, more string, want int) string {
		resp, err := http.Post(w.url+"/v1/register", "application/json", strings.NewReader(`{"serviceName":"web","instanceId":"`+id+`"`+more+`}`))
		require.NoError(t, err)
		said, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		resp.Body.Close()
		require.Equal(t, want, resp.StatusCode, string(said))
		return string(said)
	}
	register("plain", `,"nodeAddress":"127.0.0.1:9"`, http.StatusAccepted)
	register("hidden", `,"namespace":"secret","nodeAddress":"127.0.0.1:9"`, http.StatusAccepted)

	t.Run("OwnPortsAreNotProbed", func(t *testing.T) {
		for id, addr := range map[string]string{"api": strings.TrimPrefix(w.url, "http://"), "nats": strings.TrimPrefix(w.nats, "nats://"), "xds": eds, "dns": names} {
			said := register(id, `,"nodeAddress":"`+addr+`","check":{"type":"tcp"}`, http.StatusUnprocessableEntity)
			require.Contains(t, said, "it is this program's own")
		}
	})
	t.Run("OnlyLoopbackNamesAreServedWithoutTokens", func(t *testing.T) {
		for host, want := range map[string]int{"evil.example": 403, "localhost": 200, "": 200} {
			req, err := http.NewRequest(http.MethodGet, w.url+"/v1/services", nil)
			require.NoError(t, err)
			req.Host = host
			resp, err := http.DefaultClient.Do(req)
			require.NoError(t, err)
			resp.Body.Close()
			require.Equal(t, want, resp.StatusCode, host)
		}
	})
	t.Run("DryRun", func(t *testing.T) {
		out := w.must("instance", "graceful-shutdown", "web/plain", "--dry-run")
		require.Contains(t, out, "instance/web/plain graceful-shutdown: would be applied, draining")
		require.Contains(t, out, "events instance.draining")
		code, out := w.cli("instance", "cancel-drain", "web/plain", "--dry-run")
		require.Equal(t, command.ExitConflict, code, out)
		require.NotContains(t, w.must("instance", "events", "web/plain"), "draining")
	})
	t.Run("NamesAndTheirLife", func(t *testing.T) {
		var answer *dns.Msg
		require.Eventually(t, func() bool {
			var err error
			answer, _, err = new(dns.Client).Exchange(new(dns.Msg).SetQuestion("web.default.svc.example.com.", dns.TypeA), names)
			return err == nil && len(answer.Answer) == 1
		}, 20*time.Second, 20*time.Millisecond)
		require.Equal(t, uint32(7), answer.Answer[0].Header().Ttl)
		answer, _, err := new(dns.Client).Exchange(new(dns.Msg).SetQuestion("web.default.instar.", dns.TypeA), names)
		require.NoError(t, err)
		require.Equal(t, dns.RcodeRefused, answer.Rcode)
		require.Contains(t, w.must("discover", "web", "-n", "secret"), "hidden")
		for _, name := range []string{"web.secret.svc.example.com.", "secret.svc.example.com.", "hidden.web.secret.svc.example.com."} {
			answer, _, err = new(dns.Client).Exchange(new(dns.Msg).SetQuestion(name, dns.TypeA), names)
			require.NoError(t, err)
			require.Equal(t, dns.RcodeNameError, answer.Rcode, name)
		}
	})
	t.Run("EnvoyProvesWhoItIs", func(t *testing.T) {
		raw, err := os.ReadFile(cert)
		require.NoError(t, err)
		pool := x509.NewCertPool()
		require.True(t, pool.AppendCertsFromPEM(raw))
		pair, err := tls.LoadX509KeyPair(cert, key)
		require.NoError(t, err)
		ask := func(secured *tls.Config, name string) (*discoverypb.DiscoveryResponse, error) {
			conn, err := grpc.NewClient(eds, grpc.WithTransportCredentials(credentials.NewTLS(secured)))
			require.NoError(t, err)
			defer conn.Close()
			st, err := edspb.NewEndpointDiscoveryServiceClient(conn).StreamEndpoints(t.Context())
			if err != nil {
				return nil, err
			}
			_ = st.Send(&discoverypb.DiscoveryRequest{Node: &corepb.Node{Id: "envoy"}, ResourceNames: []string{name}})
			return st.Recv()
		}
		_, err = ask(&tls.Config{RootCAs: pool}, "web.default")
		require.Equal(t, codes.Unavailable, status.Code(err), "%v", err) // there is no connection
		known := &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}}
		r, err := ask(known, "web.default")
		require.NoError(t, err)
		require.Contains(t, r.GetResources()[0].String(), "127.0.0.1")
		r, err = ask(known, "web.secret")
		require.NoError(t, err)
		require.Len(t, r.GetResources(), 1)
		require.NotContains(t, r.GetResources()[0].String(), "127.0.0.1", "a namespace that is not shown has no instances")
	})
}
