package probe

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines/instance"
)

// speaking is a server that speaks these versions of HTTP only, and says which one it spoke.
func speaking(t *testing.T, secure bool, set func(*http.Protocols)) string {
	t.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/away":
			http.Redirect(w, r, "/", http.StatusFound)
		case "/ill":
			http.Error(w, "no database", http.StatusServiceUnavailable)
		case "/mute":
			<-r.Context().Done()
		case "/endless":
			for r.Context().Err() == nil {
				if _, err := io.WriteString(w, strings.Repeat("x", 8<<10)); err != nil {
					return
				}
			}
		case "/heads":
			w.Header().Set("X-Long", strings.Repeat("x", 1<<20))
		default:
			_, _ = io.WriteString(w, r.Proto+" "+r.Host+" "+r.Header.Get("X-Key"))
		}
	}))
	s.Config.Protocols = new(http.Protocols)
	set(s.Config.Protocols)
	if s.EnableHTTP2 = s.Config.Protocols.HTTP2(); secure {
		s.StartTLS()
		if !s.Config.Protocols.HTTP1() {
			s.TLS.NextProtos = []string{"h2"}
		}
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

func TestHTTP2(t *testing.T) {
	t.Parallel()
	only2 := func(p *http.Protocols) { p.SetHTTP2(true); p.SetUnencryptedHTTP2(true) }
	both := func(p *http.Protocols) { p.SetHTTP1(true); p.SetHTTP2(true); p.SetUnencryptedHTTP2(true) }
	only1 := func(p *http.Protocols) { p.SetHTTP1(true) }
	p := &Prober{Options: Options{AnyRequest: true, Match: true}}
	for name, c := range map[string]struct {
		secure  bool
		server  func(*http.Protocols)
		version string
		spoken  string // empty: it fails
	}{
		"TLSNegotiatesIt":               {true, only2, "", "HTTP/2.0"},
		"TLSNegotiatesItWhereBothGo":    {true, both, "", "HTTP/2.0"},
		"TLSWithoutIt":                  {true, only1, "", "HTTP/1.1"},
		"TLSThatInsistsOnTheFirst":      {true, both, "1.1", "HTTP/1.1"},
		"TLSThatInsistsOnTheSecond":     {true, both, "2", "HTTP/2.0"},
		"TLSThatInsistsInVain":          {true, only1, "2", ""},
		"PlainIsTheFirst":               {false, both, "", "HTTP/1.1"},
		"PlainWithPriorKnowledge":       {false, only2, "2", "HTTP/2.0"},
		"PlainWithPriorKnowledgeOfBoth": {false, both, "2", "HTTP/2.0"},
		"PlainInVain":                   {false, only1, "2", ""},
		"PlainWithoutKnowledge":         {false, only2, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check2 := instance.Check{
				Type: instance.CheckHTTP, TLS: c.secure, TLSInsecure: true, HTTPVersion: c.version, Path: "/away",
				Headers: map[string]string{"Host": "web.example", "X-Key": "k"}, Match: "^" + c.spoken + " web.example k$",
			}
			r := check(t, p, speaking(t, c.secure, c.server), check2)
			require.Equal(t, c.spoken != "", r.OK, r.Output)
			if !r.OK {
				require.Contains(t, []string{instance.FailedProtocol, instance.FailedTLS, instance.FailedRefused}, r.Class, r.Output)
			}
		})
	}
}

func TestHTTP2OfHostileServers(t *testing.T) {
	t.Parallel()
	p := &Prober{Options: Options{Match: true}}
	at := speaking(t, false, func(p *http.Protocols) { p.SetUnencryptedHTTP2(true) })
	of := func(path, match string) instance.Result {
		return check(t, p, at, instance.Check{Type: instance.CheckHTTP, HTTPVersion: "2", Path: path, Match: match})
	}
	r := of("/ill", "")
	require.Equal(t, []any{instance.FailedStatus, 503}, []any{r.Class, r.Status})
	require.Equal(t, "503 Service Unavailable", r.Output)
	require.Equal(t, instance.FailedTimeout, briefly(t, p, at, instance.Check{Type: instance.CheckHTTP, HTTPVersion: "2", Path: "/mute"}).Class)
	require.True(t, of("/endless", "").OK)
	require.Equal(t, instance.FailedMatch, of("/endless", "^y").Class, "of what is read")
	require.Equal(t, instance.FailedProtocol, of("/heads", "").Class)
	require.Equal(t, instance.FailedForbidden, check(t, &Prober{Options: Options{Deny: prefixes("127.0.0.0/8")}}, at, instance.Check{Type: instance.CheckHTTP, HTTPVersion: "2"}).Class)

	closes := raw(t, func(c net.Conn, _ <-chan struct{}) { _ = c.Close() })
	require.Contains(t, []string{instance.FailedRefused, instance.FailedProtocol}, check(t, p, closes, instance.Check{Type: instance.CheckHTTP, HTTPVersion: "2"}).Class)
	babbles := raw(t, func(c net.Conn, _ <-chan struct{}) { _, _ = io.WriteString(c, strings.Repeat("\x00\xff", 100000)) })
	require.NotEmpty(t, check(t, p, babbles, instance.Check{Type: instance.CheckHTTP, HTTPVersion: "2"}).Class)
}
