package probe

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/internal/lockedbuffer"
	"github.com/bcc94042/instar/machines/instance"
)

const secret = "token-4711"

// Whoever may register must not read what is served inside the network: whatever it is that goes wrong, nothing of the
// answer is in the result. Whoever has the log of the server finds it there.
func TestWhatIsAnsweredIsToldToNobody(t *testing.T) {
	t.Parallel()
	page := web(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/away":
			w.Header().Set("Location", "secret:"+secret)
			w.WriteHeader(http.StatusFound)
		case "/stream":
			_ = http.NewResponseController(w).Flush()
			_, _ = io.WriteString(w, secret)
		default:
			_, _ = io.WriteString(w, secret)
		}
	})
	says := func(answer string) string {
		return raw(t, func(c net.Conn, _ <-chan struct{}) {
			_, _ = c.Read(make([]byte, 4096))
			_, _ = io.WriteString(c, answer)
		})
	}
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = udp.Close() })
	go func() {
		for buf := make([]byte, 64); ; {
			_, from, err := udp.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = udp.WriteTo([]byte(secret), from)
		}
	}()
	http1 := instance.Check{Type: instance.CheckHTTP}
	for name, s := range map[string]struct {
		at     string
		check  instance.Check
		output string
	}{
		"a status that is not asked for": {page, instance.Check{Type: instance.CheckHTTP, Status: []int{299}}, "200 OK"},
		"one without a length":           {page, instance.Check{Type: instance.CheckHTTP, Path: "/stream", Status: []int{299}}, "200 OK"},
		"over HTTP/2":                    {speaking(t, false, func(p *http.Protocols) { p.SetUnencryptedHTTP2(true) }), instance.Check{Type: instance.CheckHTTP, HTTPVersion: "2", Status: []int{299}, Headers: map[string]string{"Host": secret}}, ""},
		"no match":                       {page, instance.Check{Type: instance.CheckHTTP, Match: "^$"}, `the answer does not match "^$"`},
		"a redirect":                     {page, instance.Check{Type: instance.CheckHTTP, Path: "/away"}, "redirected to what is no URL of http or https"},
		"a phrase":                       {says("HTTP/1.1 500 " + secret + "\r\nContent-Length: 0\r\n\r\n"), http1, "500 Internal Server Error"},
		"a phrase that passes":           {says("HTTP/1.1 200 " + secret + "\r\nContent-Length: 0\r\n\r\n"), http1, "200 OK"},
		"a status of its own":            {says("HTTP/1.1 799 " + secret + "\r\nContent-Length: 0\r\n\r\n"), http1, "799"},
		"another protocol":               {says("-ERR " + secret + "\r\n"), http1, "the answer is no HTTP"},
		"bad chunks":                     {says("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + secret + "\r\n"), instance.Check{Type: instance.CheckHTTP, Match: "x"}, "the answer is no HTTP"},
		"a page for gRPC":                {page, instance.Check{Type: instance.CheckGRPC}, ""},
		"a datagram":                     {udp.LocalAddr().String(), instance.Check{Type: instance.CheckUDP, Match: "^$"}, `the answer does not match "^$"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log lockedbuffer.Buffer
			r := check(t, &Prober{Options: Options{Match: true, Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))}}, s.at, s.check)
			require.NotContains(t, fmt.Sprintf("%+v", r), secret)
			require.NotEmpty(t, r.Output)
			if s.output != "" {
				require.Equal(t, s.output, r.Output)
			}
			if r.Class == instance.FailedMatch || r.Class == instance.FailedStatus {
				require.Contains(t, log.String(), secret)
			}
			quiet := check(t, &Prober{Options: Options{Match: true}}, s.at, s.check)
			require.Equal(t, r.Output, quiet.Output, "with a log and without")
		})
	}
}

// Whoever may register must not write inside the network unless the configuration says so.
func TestRequestsAreHarmless(t *testing.T) {
	t.Parallel()
	at := web(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.Method != http.MethodGet && r.Method != http.MethodHead || len(body) > 0 || r.Header.Get("X-Key") != "" {
			w.WriteHeader(http.StatusTeapot)
		}
	})
	for name, s := range map[string]struct {
		check instance.Check
		fine  bool
	}{
		"GET":     {instance.Check{}, true},
		"HEAD":    {instance.Check{Method: http.MethodHead, Headers: map[string]string{"host": "shop.example"}}, true},
		"POST":    {instance.Check{Method: http.MethodPost}, false},
		"OPTIONS": {instance.Check{Method: http.MethodOptions}, false},
		"body":    {instance.Check{Body: "x"}, false},
		"header":  {instance.Check{Headers: map[string]string{"X-Key": "k", "Host": "h"}}, false},
		"UDP":     {instance.Check{Type: instance.CheckUDP, Body: "x"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if s.check.Type == "" {
				s.check.Type = instance.CheckHTTP
			}
			p := &Prober{}
			r := check(t, p, at, s.check)
			if err := p.Admit(s.check, at); s.fine {
				require.NoError(t, err)
				require.True(t, r.OK, r.Output)
			} else {
				require.ErrorContains(t, err, "discovery.probe.anyRequest")
				require.Equal(t, instance.FailedForbidden, r.Class, "also one that was registered before")
			}
			p.AnyRequest = true
			require.NoError(t, p.Admit(s.check, at))
		})
	}
}

// Whoever may register must not read inside the network unless the configuration says so: of many expressions, those that
// match tell what was answered.
func TestAnswersAreNotSearched(t *testing.T) {
	t.Parallel()
	at := web(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, secret) })
	for _, kind := range []string{instance.CheckHTTP, instance.CheckUDP} {
		for _, expr := range []string{"^t", "^x"} {
			c, p := instance.Check{Type: kind, Match: expr}, &Prober{Options: Options{AnyRequest: true}}
			require.ErrorContains(t, p.Admit(c, at), "discovery.probe.match")
			r := check(t, p, at, c)
			require.Equal(t, instance.FailedForbidden, r.Class, "also one that was registered before")
			p.Match = true
			require.NoError(t, p.Admit(c, at))
			if kind == instance.CheckHTTP {
				require.Equal(t, expr == "^t", check(t, p, at, c).OK)
			}
		}
	}
}
