package domains_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/internal/authority"
	"github.com/bcc94042/instar/machines"
	machine "github.com/bcc94042/instar/machines/domain"
	"github.com/bcc94042/instar/server"
	"github.com/bcc94042/instar/server/config"
	"github.com/bcc94042/instar/server/domains"
	"github.com/bcc94042/instar/server/servertest"
)

// zone is a name server for everything.
type zone struct {
	mu      sync.Mutex
	texts   map[string]string // by name
	addr    string
	updates int // that it has taken
}

// The key that updates of the zone are signed with.
const (
	keyName = "updates.example.net."
	secret  = "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0"
)

func startZone(t *testing.T) *zone {
	t.Helper()
	z := &zone{texts: map[string]string{}}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	pc, err := net.ListenPacket("udp", l.Addr().String())
	require.NoError(t, err)
	z.addr = l.Addr().String()
	takes := func(dns.Header) dns.MsgAcceptAction { return dns.MsgAccept } // updates as well
	for _, s := range []*dns.Server{{Listener: l}, {PacketConn: pc}} {
		s.Handler, s.MsgAcceptFunc, s.TsigSecret = z, takes, map[string]string{keyName: secret}
		go func() { _ = s.ActivateAndServe() }()
		t.Cleanup(func() { _ = s.Shutdown() })
	}
	return z
}

// ServeDNS leads every name to this host, and knows the texts that it was told.
func (z *zone) ServeDNS(w dns.ResponseWriter, r *dns.Msg) {
	z.mu.Lock()
	defer z.mu.Unlock()
	m := new(dns.Msg).SetReply(r)
	m.Authoritative = true
	if r.Opcode == dns.OpcodeUpdate {
		z.update(w, r, m)
		return
	}
	for _, q := range r.Question {
		name := strings.ToLower(q.Name)
		head := dns.RR_Header{Name: q.Name, Rrtype: q.Qtype, Class: dns.ClassINET}
		switch text, ok := z.texts[name]; {
		case q.Qtype == dns.TypeTXT && ok:
			m.Answer = append(m.Answer, &dns.TXT{Hdr: head, Txt: []string{text}})
		case q.Qtype == dns.TypeSOA && name == "hosted.example.":
			m.Answer = append(m.Answer, &dns.SOA{Hdr: head, Ns: "ns.hosted.example.", Mbox: "ops.hosted.example.", Serial: 1, Refresh: 60, Retry: 60, Expire: 60, Minttl: 1})
		case q.Qtype == dns.TypeNS && name == "hosted.example.":
			m.Answer = append(m.Answer, &dns.NS{Hdr: head, Ns: "ns.hosted.example."})
		case q.Qtype == dns.TypeA && !strings.HasPrefix(name, "_"):
			m.Answer = append(m.Answer, &dns.A{Hdr: head, A: net.IPv4(127, 0, 0, 1)})
		}
	}
	_ = w.WriteMsg(m)
}

// update takes what is signed.
func (z *zone) update(w dns.ResponseWriter, r, m *dns.Msg) {
	if r.IsTsig() == nil || w.TsigStatus() != nil {
		m.Rcode = dns.RcodeNotAuth
	} else {
		for _, rr := range r.Ns {
			if t, ok := rr.(*dns.TXT); ok && rr.Header().Class == dns.ClassINET {
				z.texts[strings.ToLower(rr.Header().Name)] = strings.Join(t.Txt, "")
				z.updates++
			} else {
				delete(z.texts, strings.ToLower(rr.Header().Name))
			}
		}
		m.SetTsig(keyName, dns.HmacSHA256, 300, time.Now().Unix())
	}
	_ = w.WriteMsg(m)
}

func (z *zone) set(r machine.Record) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.texts[strings.ToLower(r.Name)+"."] = r.Value
}

// ca is a certificate authority that can be away, and limit orders.
type ca struct {
	*authority.Authority
	file  string // its own certificate
	down  atomic.Bool
	limit atomic.Bool
}

// startAuthority issues certificates that are good for so long, and validates on these ports.
func startAuthority(t *testing.T, z *zone, good time.Duration, httpPort, tlsPort int) *ca {
	t.Helper()
	a := &ca{file: filepath.Join(t.TempDir(), "ca.pem")}
	front := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch {
			case a.down.Load():
				http.Error(w, "away", http.StatusBadGateway)
			case a.limit.Load() && strings.Contains(r.URL.Path, "order"):
				w.Header().Set("Content-Type", "application/problem+json")
				w.Header().Set("Retry-After", "7200")
				w.WriteHeader(http.StatusTooManyRequests)
				_, _ = io.WriteString(w, `{"type":"urn:ietf:params:acme:error:rateLimited","detail":"too many certificates already issued"}`)
			default:
				next.ServeHTTP(w, r)
			}
		})
	}
	var err error
	a.Authority, err = authority.Start(authority.Options{Names: z.addr, HTTPPort: httpPort, TLSPort: tlsPort, Good: good, Front: front}, a.file)
	require.NoError(t, err)
	t.Cleanup(a.Close)
	return a
}

// world is a server with a proxy, name servers and a certificate authority.
type world struct {
	t           *testing.T
	zone        *zone
	ca          *ca
	cfg         config.Config
	url         string
	https, http string
	stop        func()
}

// setup starts all of it. Without http there is no listener for challenges.
func setup(t *testing.T, good time.Duration, plain bool, change ...func(*world)) *world {
	t.Helper()
	w := prepared(t, good, plain, change...)
	w.start()
	return w
}

// prepared is all of it but the server.
func prepared(t *testing.T, good time.Duration, plain bool, change ...func(*world)) *world {
	t.Helper()
	w := &world{t: t, zone: startZone(t)}
	tlsPort, httpPort := servertest.Port(t), servertest.Port(t)
	w.https, w.http = fmt.Sprint("127.0.0.1:", tlsPort), fmt.Sprint("127.0.0.1:", httpPort)
	validated := tlsPort
	if plain {
		validated = servertest.Port(t) // where nobody answers, so that only the challenge over HTTP is left
	}
	w.ca = startAuthority(t, w.zone, good, httpPort, validated)
	w.cfg = config.Defaults(config.Dev)
	w.cfg.Data, w.cfg.HTTP.Listen, w.cfg.NATS.Listen, w.cfg.Log.Level = t.TempDir(), "127.0.0.1:0", "", "error"
	w.cfg.Domains = config.Domains{HTTPS: w.https, ACME: w.ca.URL, CA: w.ca.file, Keys: filepath.Join(t.TempDir(), "keys.json"), Resolvers: w.zone.addr, Points: "127.0.0.1", Reserved: "apps.example.net"}
	if plain {
		w.cfg.Domains.HTTP = w.http
	}
	for _, c := range change {
		c(w)
	}
	return w
}

// start runs the server until it is stopped.
func (w *world) start() {
	w.t.Helper()
	provider := domains.Provider()
	open := provider.Open
	provider.Open = func(ctx context.Context, h *server.Host) (server.Work, error) {
		work, err := open(ctx, h)
		work.Every = 100 * time.Millisecond
		return work, err
	}
	serving := make(chan struct{})
	o := server.Options{Machines: []*machines.Machine{machine.Machine}, Providers: map[string]server.Provider{machine.Machine.Name: provider}}
	o.Open = func(_ context.Context, h *server.Host) error {
		h.Serving(func(_ context.Context, url string) error { w.url = url; close(serving); return nil })
		return nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx, w.cfg, o) }()
	w.stop = sync.OnceFunc(func() { cancel(); require.NoError(w.t, <-ended) })
	w.t.Cleanup(w.stop)
	select {
	case <-serving:
	case err := <-ended:
		ended <- nil
		require.NoError(w.t, err)
	}
}

func (w *world) do(method, path, body string) (int, map[string]any) {
	w.t.Helper()
	return servertest.Ask(w.t, method, w.url+path, body)
}

func (w *world) bind(id, host, target string) (int, map[string]any) {
	return w.do("POST", "/v1/tenants/acme/domains/"+id+"/bind", fmt.Sprintf(`{"host":%q,"route":{"targets":[{"address":%q}]}}`, host, target))
}

// get is the domain as it is.
func (w *world) get(id string) (d machine.Data, state string) {
	w.t.Helper()
	_, v := w.do("GET", "/v1/tenants/acme/domains/"+id, "")
	raw, err := json.Marshal(v["data"])
	require.NoError(w.t, err)
	require.NoError(w.t, json.Unmarshal(raw, &d))
	state, _ = v["state"].(string)
	return d, state
}

func (w *world) becomes(id, state string) (d machine.Data) {
	w.t.Helper()
	var have string
	require.Eventually(w.t, func() bool { d, have = w.get(id); return have == state }, time.Minute, 50*time.Millisecond, "%s is to become %s", id, state)
	return d
}

// serves binds a name, makes its records, and waits until it is served.
func (w *world) serves(id, host, target string) machine.Data {
	w.t.Helper()
	status, v := w.bind(id, host, target)
	require.Less(w.t, status, 300, "%v", v)
	for _, r := range w.becomes(id, machine.PendingDNS).Records {
		w.zone.set(r)
	}
	return w.becomes(id, machine.Active)
}

// browser asks the proxy for a name, and trusts the certificate authority.
func (w *world) browser(host string) *http.Client {
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: w.ca.Roots, ServerName: host}, ForceAttemptHTTP2: true, DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, w.https)
		},
	}
	w.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 10 * time.Second}
}

func (w *world) fetch(host string) (status int, text string, serial string, err error) {
	resp, err := w.browser(host).Get("https://" + host + "/")
	if err != nil {
		return 0, "", "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body), fmt.Sprintf("%x", resp.TLS.PeerCertificates[0].SerialNumber), err
}

// app is a tenant's application, which says its name.
func app(t *testing.T, name string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, name) }))
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}
