package probe

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/bcc94042/instar/machines/instance"
)

// check probes with half a second of patience.
// check has the time that an answer may take on a machine that is busy.
func check(t *testing.T, p *Prober, address string, c instance.Check) instance.Result {
	t.Helper()
	return checkWithin(t, 10*time.Second, p, address, c)
}

// briefly is for what is not answered in time.
func briefly(t *testing.T, p *Prober, address string, c instance.Check) instance.Result {
	t.Helper()
	return checkWithin(t, 500*time.Millisecond, p, address, c)
}

func checkWithin(t *testing.T, most time.Duration, p *Prober, address string, c instance.Check) instance.Result {
	t.Helper()
	start := time.Now()
	r := p.Check(context.Background(), instance.Target{Key: "default.web.a", Address: address, Check: c, Timeout: most})
	require.Less(t, time.Since(start), most+15*time.Second) // on a machine that is busy
	require.LessOrEqual(t, len(r.Output), MaxOutput)
	require.True(t, utf8.ValidString(r.Output))
	require.Equal(t, r.OK, r.Class == "")
	return r
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// raw is a server that writes what it likes, until the test ends.
func raw(t *testing.T, serve func(net.Conn, <-chan struct{})) string {
	t.Helper()
	l, end := listen(t), make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serve(c, end)
			_ = c.Close()
		}
	}()
	t.Cleanup(func() { close(end); _ = l.Close(); <-done })
	return l.Addr().String()
}

func web(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

func nobody(t *testing.T) string {
	l := listen(t)
	require.NoError(t, l.Close())
	return l.Addr().String()
}

func TestHTTP(t *testing.T) {
	t.Parallel()
	p := &Prober{Options: Options{AnyRequest: true, Match: true}}
	at := web(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		switch r.URL.Path {
		case "/echo":
			fmt.Fprintf(w, "%s %s %s %s %q", r.Method, r.Host, r.Header.Get("X-Key"), r.URL.RawQuery, body)
		case "/broken":
			http.Error(w, "no \x1b[31mdatabase\n", http.StatusServiceUnavailable)
		case "/teapot":
			w.WriteHeader(http.StatusTeapot)
		case "/big":
			_, _ = io.CopyN(w, zeros{}, 8<<20)
		case "/late":
			_, _ = w.Write(append([]byte(strings.Repeat("x", maxBody)), "needle"...))
		}
	})
	http1 := func(c instance.Check) instance.Result { c.Type = instance.CheckHTTP; return check(t, p, at, c) }

	r := http1(instance.Check{})
	require.Equal(t, instance.Result{OK: true, Status: 200, Output: "200 OK", Latency: r.Latency}, r)
	require.Positive(t, r.Latency)
	r = http1(instance.Check{Path: "/echo?a=b", Method: "POST", Body: "hello", Headers: map[string]string{"host": "shop.example", "X-Key": "k"}, Match: `^POST shop\.example k a=b "hello"$`})
	require.True(t, r.OK, r.Output)
	require.Equal(t, instance.FailedMatch, http1(instance.Check{Path: "/echo", Match: "^POST"}).Class)
	r = http1(instance.Check{Path: "/broken"})
	require.Equal(t, []any{instance.FailedStatus, 503, "503 Service Unavailable"}, []any{r.Class, r.Status, r.Output})
	require.True(t, http1(instance.Check{Path: "/teapot", Status: []int{204, 418}}).OK)
	require.Equal(t, instance.FailedStatus, http1(instance.Check{Status: []int{204, 418}}).Class)
	require.True(t, http1(instance.Check{Method: "HEAD", Path: "/big"}).OK)
	require.True(t, http1(instance.Check{Path: "/big"}).OK)
	require.True(t, http1(instance.Check{Path: "/big", Match: "^\x00+$"}).OK)
	require.Equal(t, instance.FailedMatch, http1(instance.Check{Path: "/late", Match: "needle"}).Class, "beyond what is looked at")
	require.Equal(t, instance.FailedRefused, check(t, p, nobody(t), instance.Check{Type: instance.CheckHTTP}).Class)
	_, port, _ := net.SplitHostPort(at)
	n, _ := strconv.Atoi(port)
	require.True(t, check(t, p, nobody(t), instance.Check{Type: instance.CheckHTTP, Port: n}).OK, "the check has a port of its own")
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

func TestHTTPOfHostileServers(t *testing.T) {
	t.Parallel()
	p := &Prober{Options: Options{Match: true}}
	c := instance.Check{Type: instance.CheckHTTP, Match: "ok"}
	drip := func(first, each string) func(net.Conn, <-chan struct{}) {
		return func(c net.Conn, end <-chan struct{}) {
			_, err := io.WriteString(c, first)
			for tick := time.NewTicker(20 * time.Millisecond); err == nil; {
				select {
				case <-tick.C:
					_, err = io.WriteString(c, each)
				case <-end:
					return
				}
			}
		}
	}
	flood := func(first, each string) func(net.Conn, <-chan struct{}) {
		return func(c net.Conn, _ <-chan struct{}) {
			_, err := io.WriteString(c, first)
			for err == nil {
				_, err = io.WriteString(c, each)
			}
		}
	}
	say := func(s string) func(net.Conn, <-chan struct{}) {
		return func(c net.Conn, end <-chan struct{}) {
			_, _ = c.Read(make([]byte, 4096))
			_, _ = io.WriteString(c, s)
		}
	}
	for _, s := range []struct {
		name, class string
		serve       func(net.Conn, <-chan struct{})
	}{
		{"silent", instance.FailedTimeout, drip("", "")},
		{"slow headers", instance.FailedTimeout, drip("HTTP/1.1 200 OK\r\n", "X-A: b\r\n")},
		{"slow body", instance.FailedMatch, drip("HTTP/1.1 200 OK\r\n\r\n", "x")},
		{"headers without end", instance.FailedProtocol, flood("HTTP/1.1 200 OK\r\n", "X-A: "+strings.Repeat("b", 1000)+"\r\n")},
		{"one header without end", instance.FailedProtocol, flood("HTTP/1.1 200 OK\r\nX-A: ", strings.Repeat("b", 1000))},
		{"body without end", instance.FailedMatch, flood("HTTP/1.1 200 OK\r\n\r\n", strings.Repeat("b", 1000))},
		{"interim answers without end", instance.FailedProtocol, flood("", "HTTP/1.1 103 Early Hints\r\n\r\n")},
		{"no HTTP", instance.FailedProtocol, say("SSH-2.0-OpenSSH_9.2\r\n")},
		{"closed at once", instance.FailedRefused, func(net.Conn, <-chan struct{}) {}},
	} {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			ask := check
			if s.class == instance.FailedTimeout || s.name == "slow body" {
				ask = briefly
			}
			r := ask(t, p, raw(t, s.serve), c)
			if s.name == "slow body" { // what came is looked at when the time is over
				require.Contains(t, []string{instance.FailedMatch, instance.FailedTimeout}, r.Class)
				return
			}
			require.Equal(t, s.class, r.Class, r.Output)
		})
	}
	t.Run("a slow body of a wrong status does not delay the result", func(t *testing.T) {
		t.Parallel()
		r := p.Check(t.Context(), instance.Target{
			Key: "default.web.a", Address: raw(t, drip("HTTP/1.1 500 Oh\r\nContent-Length: 100\r\n\r\n", "x")), Check: c, Timeout: 20 * time.Second,
		})
		require.Equal(t, instance.FailedStatus, r.Class)
		require.Less(t, r.Latency, 10*time.Second)
	})
	t.Run("what follows an interim answer counts", func(t *testing.T) {
		t.Parallel()
		r := check(t, p, raw(t, say("HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")), c)
		require.True(t, r.OK, r.Output)
	})
}

func TestRedirects(t *testing.T) {
	t.Parallel()
	var to string
	secret := make(chan string, 8)
	other := web(t, func(_ http.ResponseWriter, r *http.Request) { secret <- r.Header.Get("Authorization") })
	at := web(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/":
		case "/own":
			http.Redirect(w, r, "/", http.StatusFound)
		case "/loop":
			http.Redirect(w, r, "/loop", http.StatusFound)
		case "/other":
			http.Redirect(w, r, "http://"+other+"/", http.StatusFound)
		case "/file":
			w.Header().Set("Location", "file:///etc/passwd")
			w.WriteHeader(http.StatusFound)
		case "/metadata":
			http.Redirect(w, r, to+"latest/meta-data", http.StatusFound)
		}
	})
	to = "http://169.254.169.254/"
	get := func(path string, status ...int) instance.Result {
		return check(t, &Prober{Options: Options{AnyRequest: true, Match: true}}, at, instance.Check{Type: instance.CheckHTTP, Path: path, Status: status, Headers: map[string]string{"Authorization": "Bearer x"}})
	}
	require.True(t, get("/own").OK)
	require.Equal(t, 302, get("/own", 302).Status, "a redirect that is asked for is not followed")
	require.Equal(t, instance.FailedProtocol, get("/loop").Class)
	require.Equal(t, instance.FailedProtocol, get("/file").Class)
	require.Equal(t, instance.FailedForbidden, get("/metadata").Class)
	require.True(t, get("/other").OK)
	require.Empty(t, <-secret, "another host is told nothing that is for the first")
}

func TestTLS(t *testing.T) {
	t.Parallel()
	s := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(s.Close)
	s.Config.ErrorLog = nil
	at := s.Listener.Addr().String()
	for _, typ := range []string{instance.CheckHTTP, instance.CheckTCP} {
		r := check(t, &Prober{}, at, instance.Check{Type: typ, TLS: true})
		require.Equal(t, instance.FailedTLS, r.Class, r.Output)
		require.True(t, check(t, &Prober{}, at, instance.Check{Type: typ, TLS: true, TLSInsecure: true}).OK)
		r = check(t, &Prober{}, web(t, func(http.ResponseWriter, *http.Request) {}), instance.Check{Type: typ, TLS: true, TLSInsecure: true})
		require.Equal(t, instance.FailedTLS, r.Class, r.Output)
	}
	c := tlsConfig(&instance.Check{ServerName: "web.example", TLSInsecure: true}, "10.0.0.1", true)
	require.Equal(t, "web.example", c.ServerName)
	c = tlsConfig(&instance.Check{ServerName: "web.example", TLSInsecure: true}, "other.example", false)
	require.Equal(t, "other.example", c.ServerName, "what is said of one host does not hold for another")
	require.False(t, c.InsecureSkipVerify)
}

func TestTCP(t *testing.T) {
	t.Parallel()
	at := raw(t, func(net.Conn, <-chan struct{}) {})
	require.True(t, check(t, &Prober{}, at, instance.Check{Type: instance.CheckTCP}).OK)
	require.Equal(t, instance.FailedRefused, check(t, &Prober{}, nobody(t), instance.Check{Type: instance.CheckTCP}).Class)
	silent := raw(t, func(_ net.Conn, end <-chan struct{}) { <-end })
	r := briefly(t, &Prober{}, silent, instance.Check{Type: instance.CheckTCP, TLS: true})
	require.Equal(t, instance.FailedTimeout, r.Class)
	require.Equal(t, "no answer within 500ms", r.Output)
	require.GreaterOrEqual(t, r.Latency, 500*time.Millisecond)
	r = briefly(t, &Prober{}, "no-such-host.invalid:80", instance.Check{Type: instance.CheckTCP})
	require.Contains(t, []string{instance.FailedResolve, instance.FailedTimeout}, r.Class, r.Output)
}

func TestUDP(t *testing.T) {
	t.Parallel()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 100)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			if string(buf[:n]) == "ping" {
				_, _ = conn.WriteTo([]byte("noise"), from)
				_, _ = conn.WriteTo([]byte("pong"), from)
			}
		}
	}()
	t.Cleanup(func() { _ = conn.Close(); <-done })
	at := conn.LocalAddr().String()
	udp := func(at, body, match string) instance.Result {
		ask := check
		if body == "hush" {
			ask = briefly
		}
		return ask(t, &Prober{Options: Options{AnyRequest: true, Match: true}}, at, instance.Check{Type: instance.CheckUDP, Body: body, Match: match})
	}
	require.True(t, udp(at, "ping", "^pong$").OK)
	require.True(t, udp(at, "ping", "").OK)
	require.True(t, udp(at, "hush", "").OK, "no answer is no refusal")
	require.Equal(t, instance.FailedTimeout, udp(at, "hush", "pong").Class)
	require.Equal(t, instance.FailedMatch, udp(at, "ping", "^peng$").Class)
	closed, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, closed.Close())
	require.Equal(t, instance.FailedRefused, udp(closed.LocalAddr().String(), "ping", "").Class)
}

func TestGRPC(t *testing.T) {
	t.Parallel()
	serve := func(opts ...grpc.ServerOption) (string, *health.Server) {
		l, s, h := listen(t), grpc.NewServer(opts...), health.NewServer()
		healthpb.RegisterHealthServer(s, h)
		done := make(chan struct{})
		go func() { defer close(done); _ = s.Serve(l) }()
		t.Cleanup(func() { s.Stop(); <-done })
		return l.Addr().String(), h
	}
	at, h := serve()
	h.SetServingStatus("sick", healthpb.HealthCheckResponse_NOT_SERVING)
	ask := func(at string, c instance.Check) instance.Result {
		c.Type = instance.CheckGRPC
		return check(t, &Prober{}, at, c)
	}
	r := ask(at, instance.Check{})
	require.True(t, r.OK, r.Output)
	r = ask(at, instance.Check{GRPCService: "sick"})
	require.Equal(t, []string{instance.FailedStatus, "NOT_SERVING"}, []string{r.Class, r.Output})
	r = ask(at, instance.Check{GRPCService: "other"})
	require.Equal(t, instance.FailedProtocol, r.Class)
	require.Contains(t, r.Output, "NotFound")
	r = ask(nobody(t), instance.Check{})
	require.Equal(t, instance.FailedRefused, r.Class, r.Output)
	r = ask(raw(t, func(_ net.Conn, end <-chan struct{}) { <-end }), instance.Check{})
	require.Equal(t, instance.FailedTimeout, r.Class, r.Output)
	r = ask("169.254.169.254:50051", instance.Check{})
	require.Equal(t, instance.FailedForbidden, r.Class, r.Output)

	s := httptest.NewTLSServer(nil) // for its certificate
	cert := s.TLS.Certificates[0]
	s.Close()
	secured, _ := serve(grpc.Creds(credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12})))
	require.True(t, ask(secured, instance.Check{TLS: true, TLSInsecure: true}).OK)
	r = ask(secured, instance.Check{TLS: true})
	require.Equal(t, instance.FailedTLS, r.Class, r.Output)
}

func TestScript(t *testing.T) {
	t.Parallel()
	p := &Prober{Options: Options{Scripts: true}}
	run := func(p *Prober, command ...string) instance.Result {
		return check(t, p, "127.0.0.1:80", instance.Check{Type: instance.CheckScript, Command: command})
	}
	require.Equal(t, instance.FailedForbidden, run(&Prober{}, "true").Class)
	r := run(p, "sh", "-c", `echo "$INSTAR_INSTANCE $INSTAR_ADDRESS $HOME"`)
	require.True(t, r.OK, r.Output)
	require.Equal(t, "default.web.a 127.0.0.1:80", r.Output)
	require.Equal(t, "a; echo b", run(p, "echo", "a; echo b").Output, "no shell")
	r = run(p, "sh", "-c", "echo broken >&2; exit 7")
	require.Equal(t, []any{instance.FailedExit, 7, "exit status 7: broken"}, []any{r.Class, r.Status, r.Output})
	require.Equal(t, instance.FailedConfig, run(p, "/no/such/program").Class)
	require.True(t, run(p, "sh", "-c", "head -c 3000000 /dev/zero | tr '\\0' x").OK)

	pids := filepath.Join(t.TempDir(), "pids")
	r = run(p, "sh", "-c", "sleep 60 & echo $! > "+pids+"; sleep 60")
	require.Equal(t, instance.FailedTimeout, r.Class)
	gone(t, pids)
	require.True(t, run(p, "sh", "-c", "sleep 60 & echo $! > "+pids).OK)
	gone(t, pids)
}

// gone waits until the process whose id is in the file has ended.
func gone(t *testing.T, file string) {
	t.Helper()
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err != nil || strings.Contains(string(stat), ") Z ") || syscall.Kill(pid, 0) != nil
	}, 5*time.Second, 10*time.Millisecond)
}

func TestClean(t *testing.T) {
	t.Parallel()
	require.Equal(t, "a b\uFFFDc[0m", clean(" a\nb\xffc\x1b[0m\x00\u202e "))
	long := clean(strings.Repeat("é", 400))
	require.Equal(t, strings.Repeat("é", 256), long)
	require.Equal(t, strings.Repeat("a", 511), clean(strings.Repeat("a", 511)+"é"))
}
