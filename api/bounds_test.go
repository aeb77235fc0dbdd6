package api_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/api"
	"github.com/bcc94042/instar/api/auth"
	"github.com/bcc94042/instar/api/limits"
	"github.com/bcc94042/instar/api/rest"
)

// metric requires that the page of metrics has a line, soon.
func (b *bundle) metric(line string) {
	b.t.Helper()
	require.Eventually(b.t, func() bool { return slices.Contains(strings.Split(string(b.get("/metrics").body), "\n"), line) }, 2*soon, 5*time.Millisecond, line)
}

// dial opens a connection from an address of loopback.
func (b *bundle) dial(from string) net.Conn {
	b.t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	c, err := d.Dial("tcp", b.web.Listener.Addr().String())
	if err != nil && from != "127.0.0.1" {
		b.t.Skip("this machine has one loopback address only")
	}
	require.NoError(b.t, err)
	require.NoError(b.t, c.SetDeadline(time.Now().Add(20*time.Second)))
	b.t.Cleanup(func() { _ = c.Close() })
	return c
}

// A client that sends or takes nothing loses its connection; one that waits, or watches, does not.
func TestSlowClients(t *testing.T) {
	const short = 300 * time.Millisecond
	b := setup(t, func(o *api.Options) {
		o.Timeouts = rest.Timeouts{Header: short, Body: short, Write: short, Idle: short}
	})
	w := b.watch("/v1/gadgets/x/watch", "Authorization", "Bearer operate-token")
	require.Equal(t, http.StatusNotFound, w.res.StatusCode)
	b.post("/v1/gadgets/held/create", `{"spec":{"name":"lamp","hold":true}}`)
	w = b.watch("/v1/gadgets/held/watch")
	w.named("snapshot")
	settled := make(chan answer, 1)
	go func() {
		settled <- b.post("/v1/gadgets/slow/create?settle=20s", `{"spec":{"name":"lamp","hold":true}}`)
	}()

	const auth = "Authorization: Bearer admin-token\r\n"
	for what, c := range map[string]struct{ sent, want string }{
		"half of the headers":     {"GET /livez HTTP/1.1\r\nHost:", ""},
		"no body and no token":    {"POST /v1/gadgets/x/create HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n", "401"},
		"no body":                 {"POST /v1/gadgets/x/create HTTP/1.1\r\nHost: x\r\n" + auth + "Content-Length: 1000\r\nContent-Type: application/json\r\n\r\n{", "400"},
		"half of a chunked body":  {"POST /v1/gadgets/x/create HTTP/1.1\r\nHost: x\r\n" + auth + "Transfer-Encoding: chunked\r\nContent-Type: application/json\r\n\r\n5\r\n{", "400"},
		"leave to send a body":    {"POST /v1/gadgets/x/create HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\nExpect: 100-continue\r\n\r\n", "401"},
		"too much":                {"POST /v1/gadgets/x/create HTTP/1.1\r\nHost: x\r\n" + auth + "Content-Length: 1000000\r\n\r\n", "413"},
		"no body for a path":      {"POST /nowhere HTTP/1.1\r\nHost: x\r\nContent-Length: 200000\r\n\r\n", "404"},
		"no second request":       {"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n", "200"},
		"a body that nobody asks": {"GET /livez HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n", "200"},
	} {
		conn := b.dial("127.0.0.1")
		_, err := io.WriteString(conn, c.sent)
		require.NoError(t, err)
		begun := time.Now()
		said, _ := io.ReadAll(conn) // until the server closes it
		require.Less(t, time.Since(begun), soon, what)
		if c.want == "" {
			continue
		}
		require.True(t, strings.HasPrefix(string(said), "HTTP/1.1 "+c.want), "%s: %s", what, said)
	}
	require.Contains(t, string(b.get("/metrics").body), "instar_http_timeouts_total{of=\"body\"} 2\n")

	reader := b.dial("127.0.0.1").(*net.TCPConn) // asks for much and takes nothing
	require.NoError(t, reader.SetReadBuffer(4<<10))
	_, err := io.WriteString(reader, strings.Repeat("GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n", 400))
	require.NoError(t, err)
	b.metric(`instar_http_timeouts_total{of="write"} 1`)

	b.engine.report(gadget, "default.slow", "made")
	a := <-settled
	require.Equal(t, 200, a.StatusCode, string(a.body))
	b.engine.report(gadget, "default.held", "made")
	for state := ""; state != "READY"; { // the watch has outlived all of them; it may have begun before the creation was told
		_, seen := w.named("entity")
		state, _ = seen["state"].(string)
	}
}

func TestConnectionsAreBounded(t *testing.T) {
	b := setup(t, func(o *api.Options) { o.Limits.Connections = limits.Bound{All: 6, Each: 4} })
	ask := func(from, path string) (int, http.Header, string) {
		conn := b.dial(from)
		defer conn.Close()
		_, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", path)
		require.NoError(t, err)
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		require.NoError(t, err)
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		return res.StatusCode, res.Header, string(body)
	}
	b.metric(`instar_limit_held{limit="connections"} 1`) // its own
	b.client.CloseIdleConnections()
	var open []net.Conn
	// hold dials until somebody else is refused: a connection that has just been closed may still have a place, so that one of these gets none.
	hold := func(from, asks string, want int) (header http.Header, body string) {
		t.Helper()
		require.Eventually(t, func() bool {
			open = append(open, b.dial(from))
			var status int
			status, header, body = ask(asks, "/docs")
			return status == want
		}, soon, 5*time.Millisecond)
		return header, body
	}
	header, body := hold("127.0.0.1", "127.0.0.1", 429)
	require.Equal(t, "1", header.Get("Retry-After"))
	require.Contains(t, body, `"code":"rate-limited"`)
	status, _, _ := ask("127.0.0.1", "/livez")
	require.Equal(t, 200, status, "who looks whether the process lives is always told")
	status, _, _ = ask("127.0.0.2", "/docs")
	require.Equal(t, 200, status, "others have their own")
	_, body = hold("127.0.0.3", "127.0.0.4", 503)
	require.Contains(t, body, `"code":"unavailable"`)
	for _, c := range open {
		require.NoError(t, c.Close())
	}
	require.Eventually(t, func() bool { status, _, _ := ask("127.0.0.1", "/docs"); return status == 200 }, soon, 5*time.Millisecond)
}

// A thousand connections that send their headers drop by drop take nothing from others.
func TestSlowloris(t *testing.T) {
	b := setup(t, func(o *api.Options) { o.Limits.Connections = limits.Bound{All: 800, Each: 600} })
	for range 1000 {
		conn := b.dial("127.0.0.2")
		_, _ = io.WriteString(conn, "GET /v1/gadgets HTTP/1.1\r\nHost: x\r\nX-Slow: ") // it may be closed already
	}
	took := make([]time.Duration, 200)
	for i := range took {
		begun := time.Now()
		require.Equal(t, 200, b.get("/v1/gadgets").StatusCode)
		took[i] = time.Since(begun)
	}
	slices.Sort(took)
	require.Less(t, took[len(took)*99/100], time.Second)
	require.Contains(t, string(b.get("/metrics").body), `instar_limit_refused_total{limit="connections",of="client"} `)
}

// A client has a share of the watches and of the waits, and all of them together have no more than there are.
func TestSharesOfClients(t *testing.T) {
	b := setup(t, func(o *api.Options) {
		o.Limits.Watches, o.Limits.Waits = limits.Bound{All: 3, Each: 2}, limits.Bound{All: 2, Each: 1}
	})
	const reader, operator = "Bearer read-token", "Bearer operate-token"
	b.ready("a")
	t.Run("Watches", func(t *testing.T) {
		var open []*sse
		for _, who := range []string{reader, reader, operator} {
			w := b.watch("/v1/gadgets/a/watch", "Authorization", who)
			w.named("snapshot")
			open = append(open, w)
		}
		a := b.get("/v1/watch", "Authorization", reader)
		a.problem(t, 429, "rate-limited")
		require.Equal(t, "5", a.Header.Get("Retry-After"))
		a = b.get("/v1/watch")
		a.problem(t, 503, "unavailable")
		require.Equal(t, "5", a.Header.Get("Retry-After"))
		b.metric(`instar_limit_refused_total{limit="watches",of="client"} 1`)
		b.metric(`instar_limit_refused_total{limit="watches",of="all"} 1`)
		open[2].close()
		b.metric(`instar_limit_held{limit="watches"} 2`)
		b.watch("/v1/gadgets/a/watch").named("snapshot")
	})
	t.Run("Waits", func(t *testing.T) {
		var waiting sync.WaitGroup
		settle := func(id, who string) {
			waiting.Go(func() {
				require.Equal(t, 200, b.post("/v1/gadgets/"+id+"/create?settle=20s", `{"spec":{"name":"x","hold":true}}`, "Authorization", who).StatusCode)
			})
		}
		settle("w1", operator)
		b.metric(`instar_limit_held{limit="waits"} 1`)
		before := b.stored()
		a := b.post("/v1/gadgets/w2/create?settle=1s", `{"spec":{"name":"x"}}`, "Authorization", operator)
		a.problem(t, 429, "rate-limited")
		require.Equal(t, "1", a.Header.Get("Retry-After"))
		b.get("/v1/operations/gadget.default.a.k", "Authorization", operator, "Prefer", "wait=1").problem(t, 429, "rate-limited")
		b.get("/v1/gadgets?minRevision=99999999", "Authorization", operator).problem(t, 429, "rate-limited")
		require.Equal(t, before, b.stored(), "what is refused was not stored")
		require.Equal(t, 200, b.post("/v1/gadgets/a/touch", "", "Authorization", operator).StatusCode, "who does not wait is served")
		settle("w3", "Bearer admin-token")
		b.metric(`instar_limit_held{limit="waits"} 2`)
		b.get("/v1/gadgets?minRevision=99999999", "Authorization", reader).problem(t, 503, "unavailable")
		for _, id := range []string{"w1", "w3"} {
			require.Eventually(t, func() bool { return b.get("/v1/gadgets/"+id).StatusCode == 200 }, soon, 5*time.Millisecond)
			b.engine.report(gadget, "default."+id, "made")
		}
		waiting.Wait()
		b.metric(`instar_limit_held{limit="waits"} 0`)
	})
}

// A storm of commands of one token is stopped at the rest: its rate reaches the stream, and others are served.
func TestRates(t *testing.T) {
	const each = 20
	b := setup(t, func(o *api.Options) {
		o.Limits.Rate, o.Limits.Burst = 1, each
		o.Tokens = append(slices.Clone(tokens), auth.Token{Name: "fleet", Hash: auth.HashToken("fleet-token"), Role: auth.Operate, Namespace: "*", Rate: 1, Burst: 3 * each})
	})
	require.NoError(t, b.server.Micro(t.Context()))
	before, begun := b.stored(), time.Now()
	refused := 0
	for i := range 300 {
		a := b.post(fmt.Sprintf("/v1/gadgets/s%d/create", i), `{"spec":{"name":"x"}}`, "Authorization", "Bearer operate-token", "Prefer", "respond-async")
		if a.StatusCode == 429 {
			a.problem(t, 429, "rate-limited")
			require.Equal(t, "1", a.Header.Get("Retry-After"))
			refused++
		}
	}
	reached := 300 - refused
	require.LessOrEqual(t, reached, each+1+int(time.Since(begun)/time.Second))
	require.LessOrEqual(t, int(b.stored()-before), 2*reached, "with what the engine of the test reports")
	require.Equal(t, 200, b.post("/v1/gadgets/other/create?settle=10s", `{"spec":{"name":"x"}}`).StatusCode, "another token")
	own := 0
	for range 4 * each {
		if b.get("/v1/gadgets/other", "Authorization", "Bearer fleet-token").StatusCode == 200 {
			own++
		}
	}
	require.InDelta(t, 3*each, own, 5, "a rate of its own")
	require.Equal(t, 200, b.get("/livez", "Authorization", "").StatusCode)
	require.Equal(t, 200, b.get("/docs", "Authorization", "").StatusCode)

	sub, err := b.nc.SubscribeSync("_INBOX.flood.*")
	require.NoError(t, err)
	for i := range 2 * each {
		require.NoError(t, b.nc.PublishRequest(map[bool]string{true: "instar.api.get.gadget.default.other", false: "instar.api.cmd.gadget.default.other.touch"}[i%2 == 0], fmt.Sprint("_INBOX.flood.", i), nil))
	}
	codes := map[string]int{}
	for range 2 * each {
		m, err := sub.NextMsg(soon)
		require.NoError(t, err)
		codes[m.Header.Get(micro.ErrorCodeHeader)]++
		if m.Header.Get(micro.ErrorCodeHeader) == "429" {
			require.NotEmpty(t, m.Header.Get("Retry-After"))
		}
	}
	require.InDelta(t, each, codes["429"], 5, codes)
	for _, subject := range []string{"instar.api.cmd.nonsense", "instar.api.cmd.gadget.default.other.nonsense", "instar.api.get.nonsense"} {
		require.NoError(t, b.nc.PublishRequest(subject, "_INBOX.flood.x", nil))
		m, err := sub.NextMsg(soon)
		require.NoError(t, err)
		require.Equal(t, "429", m.Header.Get(micro.ErrorCodeHeader), subject)
	}
	require.Empty(t, b.ask("instar.api.get.gadget.default.other", "").Header.Get(micro.ErrorCodeHeader), "another connection")
}

// Questions that wait for a revision that nobody has written keep no worker from others.
func TestQuestionsThatWaitOverNATS(t *testing.T) {
	r := discovering(t, func(o *api.Options) { o.Limits.Waits = limits.Bound{All: 700, Each: 600} })
	require.NoError(t, r.server.Micro(t.Context()))
	revision := r.healthy("web", "a", "")
	sub, err := r.nc.SubscribeSync("_INBOX.slow.*")
	require.NoError(t, err)
	for i := range 640 {
		require.NoError(t, r.nc.PublishRequest("instar.api.discover.default.web", fmt.Sprint("_INBOX.slow.", i), []byte(`{"minRevision":999999999999}`)))
	}
	for range 40 {
		m, err := sub.NextMsg(soon)
		require.NoError(t, err)
		require.Equal(t, "429", m.Header.Get(micro.ErrorCodeHeader), "more than a client's share")
		require.Equal(t, "1", m.Header.Get("Retry-After"))
	}
	begun := time.Now()
	for _, subject := range []string{"instar.api.get.instance.default.web.a", "instar.api.list.instance", "instar.api.discover.default.web"} {
		require.Empty(t, r.ask(subject, "").Header.Get(micro.ErrorCodeHeader))
	}
	require.Empty(t, r.ask("instar.api.discover.default.web", fmt.Sprintf(`{"minRevision":%d}`, revision)).Header.Get(micro.ErrorCodeHeader))
	require.Less(t, time.Since(begun), 2*time.Second)
	r.metric(`instar_limit_held{limit="waits"} 600`)
}

// Who a request over NATS is counted with.
func TestClientsOverNATS(t *testing.T) {
	t.Parallel()
	info := nats.Header{"Nats-Request-Info": {`{"acc":"READERS","user":"ann","rtt":1}`}}
	for _, c := range []struct {
		reply  string
		header nats.Header
		want   string
	}{
		{"_INBOX.abc.1", nil, "inbox _INBOX.abc"},
		{"_INBOX_ann.abc.2", nil, "inbox _INBOX_ann.abc"},
		{"_INBOX.once", nil, "inbox"},
		{"", nil, "inbox"},
		{"_R_.abc.def", info, "account READERS ann"},
		{"_R_.abc.def", nil, "account"},
		{"_INBOX.abc.1", info, "inbox _INBOX.abc"},
	} {
		require.Equal(t, c.want, api.NATSClient(c.reply, c.header), c.reply)
	}
}
