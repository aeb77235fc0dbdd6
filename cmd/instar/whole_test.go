package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/cmd/instar/cli"
	"github.com/bcc94042/instar/cmd/instar/cli/command"
	"github.com/bcc94042/instar/internal/lockedbuffer"
	"github.com/bcc94042/instar/internal/selfsigned"
	"github.com/bcc94042/instar/internal/testenv"
	"github.com/bcc94042/instar/server"
	"github.com/bcc94042/instar/server/builtin"
	"github.com/bcc94042/instar/server/config"
	"github.com/bcc94042/instar/streams/embedded"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && slices.Contains([]string{"run-template", "demo", "outbox", "dev", "serve"}, os.Args[1]) { // this program again, started by a test
		os.Exit(execute(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	testenv.Main(m)
}

// whole is a server in this process, as `instar dev` runs it, with the command line against it.
type whole struct {
	t    *testing.T
	url  string
	nats string
	dir  string
	out  *lockedbuffer.Buffer
	stop func() error
}

var (
	httpLine = regexp.MustCompile(`API and docs +(\S+)/docs`)
	natsLine = regexp.MustCompile(`NATS +((?:nats|tls)://\S+|context \S+)`)
)

func startWhole(t *testing.T, dir string, change func(*config.Config)) *whole {
	t.Helper()
	cfg := config.Defaults(config.Dev)
	cfg.Data, cfg.HTTP.Listen, cfg.NATS.Listen, cfg.Log.Level, cfg.StopServices = dir, "127.0.0.1:0", "127.0.0.1:0", "error", true
	cfg.Outbox.Postgres = config.PostgresOff
	if change != nil {
		change(&cfg)
	}
	require.NoError(t, cfg.Validate())
	ctx, cancel := context.WithCancel(context.Background())
	w := &whole{t: t, dir: dir, out: &lockedbuffer.Buffer{}}
	done := make(chan error, 1)
	go func() { done <- serve(ctx, cfg, w.out) }()
	w.stop = sync.OnceValue(func() error { cancel(); return <-done })
	t.Cleanup(func() { require.NoError(t, w.stop()) })
	require.Eventually(t, func() bool { return strings.Contains(w.out.String(), "Stop with") }, 4*time.Minute, 10*time.Millisecond)
	w.url = httpLine.FindStringSubmatch(w.out.String())[1]
	w.nats = natsLine.FindStringSubmatch(w.out.String())[1]
	return w
}

// serve runs the server of this binary.
func serve(ctx context.Context, cfg config.Config, out io.Writer) error {
	options := builtin.Options()
	options.Out = out
	return server.Run(ctx, cfg, options)
}

// execute runs the command line of this binary.
func execute(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return cli.Main(args, stdin, stdout, stderr, builtin.Options())
}

// cli runs a command of the client and returns its exit code and what it said.
func (w *whole) cli(args ...string) (int, string) {
	var out lockedbuffer.Buffer
	code := execute(append(args, "--server", w.url), strings.NewReader(""), &out, &out)
	return code, out.String()
}

func (w *whole) must(args ...string) string {
	w.t.Helper()
	code, out := w.cli(args...)
	require.Zero(w.t, code, out)
	return out
}

// shows waits for a view, which follows the events.
func (w *whole) shows(what string, args ...string) {
	w.t.Helper()
	require.Eventually(w.t, func() bool { _, out := w.cli(args...); return strings.Contains(out, what) }, 60*time.Second, 20*time.Millisecond, what)
}

func (w *whole) page(id string) string {
	w.t.Helper()
	var e struct {
		Data struct {
			Snapshot struct {
				URL string `json:"url"`
			} `json:"snapshot"`
		} `json:"data"`
	}
	require.NoError(w.t, json.Unmarshal([]byte(w.must("service", "get", id, "-o", "json")), &e))
	return e.Data.Snapshot.URL
}

// A new user's first quarter of an hour: a page, an update without a refused request, three ways to watch, something
// that breaks, a restart that finds everything again, an end.
func TestLifeOfAService(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w := startWhole(t, dir, nil)
	w.must("service", "wait", "hello", "--for", "state=READY")
	page := w.page("hello")

	var failed, served atomic.Int64
	hammer, stopHammer := context.WithCancel(context.Background())
	defer stopHammer()
	var hammering sync.WaitGroup
	for range 4 {
		hammering.Go(func() {
			for hammer.Err() == nil {
				if err := fetch(page); err != nil && failed.Add(1) == 1 {
					t.Logf("first failure after %d requests: %v", served.Load(), err)
				}
				served.Add(1)
			}
		})
	}
	events := w.watchSSE("/v1/services/hello/watch")
	keys := w.watchKV("default.hello")
	for i := range 3 {
		w.must("service", "update", "hello", "--image", "hello", "--env", fmt.Sprintf("GREETING=hello %d", i), "--wait")
	}
	require.Contains(t, body(t, page), "hello 2")
	stopHammer()
	hammering.Wait()
	require.Zero(t, failed.Load(), "of %d requests", served.Load())
	require.Positive(t, served.Load())
	require.Contains(t, <-events, `"state":"`)
	require.NotEmpty(t, <-keys)

	code, out := w.cli("service", "update", "hello", "--image", "no-such-template", "--wait")
	require.Equal(t, command.ExitFailed, code, out)
	require.Contains(t, out, "keeps serving")
	require.NoError(t, fetch(page), "the old revision goes on")
	w.must("service", "rollback", "hello", "--wait")
	w.shows("hello-00004", "service", "revisions", "hello")
	w.shows("state: READY", "service", "status", "hello")
	story := w.must("service", "events", "hello", "--limit", "500")
	require.Contains(t, story, "service.creation.requested")
	require.Contains(t, story, "service.failed")

	require.NoError(t, w.stop())
	w = startWhole(t, dir, nil)
	w.must("service", "wait", "hello", "--for", "state=READY")
	require.Equal(t, page, w.page("hello"), "the address stays")
	require.Eventually(t, func() bool { return fetch(page) == nil }, 60*time.Second, 20*time.Millisecond)
	w.must("service", "delete", "hello", "-y", "--wait")
	require.Error(t, fetch(page))
	require.Contains(t, w.must("service", "ls"), "DELETED")
	w.must("doctor")
}

func fetch(url string) error {
	client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get(url)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, resp.Status)
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

func body(t *testing.T, url string) string {
	t.Helper()
	resp, err := http.Get(url)
	require.NoError(t, err)
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return string(raw)
}

func (w *whole) watchSSE(path string) <-chan string {
	lines := make(chan string, 1000)
	ctx, cancel := context.WithCancel(context.Background())
	w.t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.url+path, nil)
	require.NoError(w.t, err)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(w.t, err)
	go func() {
		defer resp.Body.Close()
		for s := bufio.NewScanner(resp.Body); s.Scan(); {
			if data, ok := strings.CutPrefix(s.Text(), "data: "); ok {
				lines <- data
			}
		}
	}()
	return lines
}

func (w *whole) watchKV(key string) <-chan string {
	nc, err := nats.Connect(w.nats)
	require.NoError(w.t, err)
	w.t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	require.NoError(w.t, err)
	bucket, err := js.KeyValue(context.Background(), "services")
	require.NoError(w.t, err)
	watch, err := bucket.Watch(context.Background(), key)
	require.NoError(w.t, err)
	values := make(chan string, 1000)
	go func() {
		for u := range watch.Updates() {
			if u != nil {
				values <- string(u.Value())
			}
		}
	}()
	return values
}

// The server behind tokens and TLS: who may not, cannot.
func TestTokensAndTLS(t *testing.T) {
	t.Parallel()
	cert, key := certificate(t)
	hash := func(token string) string {
		sum := sha256.Sum256([]byte(token))
		return "sha256:" + hex.EncodeToString(sum[:])
	}
	xds := testenv.Address(t)
	w := startWhole(t, t.TempDir(), func(c *config.Config) {
		c.HTTP.TLS = config.KeyPair{Cert: cert, Key: key}
		c.NATS.TLS, c.NATS.Users = config.TLS{Cert: cert, Key: key}, []embedded.User{{Name: "a", Password: "b", Role: embedded.RoleRead}}
		c.Discovery.XDS, c.Discovery.XDSTLS = xds, config.TLS{Cert: cert, Key: key}
		c.Auth.Tokens = []config.Token{
			{Name: "reader", Hash: hash("r"), Role: config.RoleRead, Namespace: "default"},
			{Name: "operator", Hash: hash("o"), Role: config.RoleOperate, Namespace: "team-a"},
		}
	})
	require.True(t, strings.HasPrefix(w.url, "https://"))
	pool := x509.NewCertPool()
	raw, err := os.ReadFile(cert)
	require.NoError(t, err)
	require.True(t, pool.AppendCertsFromPEM(raw))
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
	status := func(method, path, token, body string) int {
		req, err := http.NewRequest(method, w.url+path, strings.NewReader(body))
		require.NoError(t, err)
		req.Header.Set("Content-Type", "application/json")
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		resp, err := client.Do(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		return resp.StatusCode
	}
	const create = `{"spec":{"image":"hello"}}`
	require.Equal(t, 401, status("GET", "/v1/services", "", ""))
	require.Equal(t, 401, status("GET", "/v1/services", "wrong", ""))
	require.Equal(t, 200, status("GET", "/v1/services", "r", ""))
	require.Equal(t, 403, status("POST", "/v1/services/x/create", "r", create))
	require.Equal(t, 200, status("POST", "/v1/services/x/create", "o", create))
	require.Equal(t, 404, status("GET", "/v1/services/x", "r", ""))
	require.Equal(t, 403, status("POST", "/v1/services/x/purge", "o", `{"force":true}`))
	require.Equal(t, 200, status("GET", "/livez", "", ""))
	requireTLS12(t, strings.TrimPrefix(w.url, "https://"), "")
	requireTLS12(t, xds, "")
	requireTLS12(t, w.nats[strings.Index(w.nats, "://")+3:], `"tls_required":true`)
}

func certificate(t *testing.T) (cert, key string) {
	t.Helper()
	cert, key = filepath.Join(t.TempDir(), "cert.pem"), filepath.Join(t.TempDir(), "key.pem")
	require.NoError(t, selfsigned.Write(1, cert, key))
	return cert, key
}

// Two of everything: a second program on the same data directory is told so, and changes nothing.
func TestSecondProgramOnTheSameData(t *testing.T) {
	t.Parallel()
	w := startWhole(t, t.TempDir(), nil)
	cfg := config.Defaults(config.Dev)
	cfg.Data, cfg.HTTP.Listen, cfg.NATS.Listen, cfg.Log.Level = w.dir, "127.0.0.1:0", "127.0.0.1:0", "error"
	err := serve(context.Background(), cfg, io.Discard)
	require.ErrorContains(t, err, "--data")
	w.must("service", "get", "hello")
}
