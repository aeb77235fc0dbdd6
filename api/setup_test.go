package api_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/bcc94042/instar/api"
	"github.com/bcc94042/instar/api/admin"
	"github.com/bcc94042/instar/api/auth"
	"github.com/bcc94042/instar/internal/lockedbuffer"
	"github.com/bcc94042/instar/kv/index"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/registry"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/embedded"
	"github.com/bcc94042/instar/streams/publish"
	"github.com/bcc94042/instar/streams/streamstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The tokens of the tests.
var tokens = []auth.Token{
	{Name: "reader", Hash: auth.HashToken("read-token"), Role: auth.Read, Namespace: "*"},
	{Name: "operator", Hash: auth.HashToken("operate-token"), Role: auth.Operate, Namespace: "*"},
	{Name: "boss", Hash: auth.HashToken("admin-token"), Role: auth.Admin, Namespace: "*"},
	{Name: "tenant", Hash: auth.HashToken("tenant-token"), Role: auth.Admin, Namespace: "acme"},
	{Name: "unknown", Hash: auth.HashToken("unknown-token"), Role: auth.Admin, Namespace: "unknown"},
}

// bundle is a door with an engine behind it.
type bundle struct {
	t       testing.TB
	nc      *nats.Conn
	js      jetstream.JetStream
	app     *publish.Appender
	engine  *engine
	server  *api.Server
	web     *httptest.Server
	client  *http.Client
	indexes *index.Map
	letters *letters
	log     *lockedbuffer.Buffer
	stop    context.CancelFunc // ends the indexes
	token   string
}

func registryOf(t testing.TB, ms ...*machines.Machine) *registry.Registry {
	t.Helper()
	r, err := registry.New(ms...)
	require.NoError(t, err)
	return r
}

func setup(t *testing.T, change ...func(*api.Options)) *bundle {
	t.Helper()
	t.Parallel()
	b := &bundle{t: t, token: "admin-token", log: &lockedbuffer.Buffer{}, letters: &letters{}}
	names := streams.Names{}
	e := streamstest.Start(t, embedded.Options{Profile: embedded.OS}).Ensure(streams.Plan{Names: names, States: []string{"gadgets", "parts"}, Views: []string{"gadgets_sizes"}})
	b.nc, b.js = e.NC, e.JS
	var err error
	b.app, err = publish.NewAppender(b.nc, publish.AppenderOptions{})
	require.NoError(t, err)
	t.Cleanup(b.app.Close)
	commands, err := publish.NewCommands(b.app)
	require.NoError(t, err)
	t.Cleanup(commands.Close)
	b.engine = startEngine(t, b.js, names)
	b.startIndexes(t)

	o := api.Options{
		Machines: registryOf(t, gadget, part), Commands: commands, NC: b.nc, JS: b.js, Names: names, Indexes: b.indexes, DeadLetters: b.letters,
		Tokens: tokens, Version: admin.Version{Version: "1.2.3", Commit: "abc"}, Profile: "os", Log: slog.New(slog.NewTextHandler(b.log, nil)),
	}
	for _, f := range change {
		f(&o)
	}
	b.serve(o)
	b.client = &http.Client{Transport: b.validating(http.DefaultTransport.(*http.Transport).Clone(), o.Machines.All()), CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	t.Cleanup(func() {
		require.NoError(t, b.server.Close())
		b.web.CloseClientConnections()
		b.web.Close()
		b.client.CloseIdleConnections()
	})
	return b
}

// anotherNode goes on with a server that knows nothing of what the one before has let through.
func (b *bundle) anotherNode(o api.Options) {
	b.t.Helper()
	require.NoError(b.t, b.server.Close())
	b.web.Close()
	b.serve(o)
}

func (b *bundle) serve(o api.Options) {
	b.t.Helper()
	var err error
	b.server, err = api.New(o)
	require.NoError(b.t, err)
	b.web = httptest.NewUnstartedServer(nil)
	b.web.Config, b.web.Listener = b.server.HTTPServer("", (*tls.Config)(nil)), b.server.Listen(b.web.Listener)
	b.web.Start()
}

func (b *bundle) startIndexes(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	b.stop = cancel
	b.indexes = &index.Map{}
	for _, m := range []*machines.Machine{gadget, part} {
		ix := index.New(b.js, m.Plural, func(_ string, value []byte) (index.Meta, error) { return index.DescribeJSON(value) }, index.Options{})
		running.Go(func() { _ = ix.Run(ctx) })
		b.indexes.Set(m.Name, ix)
	}
	<-b.indexes.Get(gadget.Name).Ready()
	<-b.indexes.Get(part.Name).Ready()
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
}

// letters are dead letters in memory.
type letters struct {
	mu       sync.Mutex
	all      []admin.DeadLetter
	redriven []uint64
	err      error
}

func (l *letters) List(_ context.Context, after uint64, limit int) ([]admin.DeadLetter, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var page []admin.DeadLetter
	for _, one := range l.all {
		if one.Seq > after && len(page) < limit {
			page = append(page, one)
		}
	}
	return page, l.err
}

func (l *letters) Get(_ context.Context, seq uint64) (admin.DeadLetter, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, one := range l.all {
		if one.Seq == seq {
			return one, l.err
		}
	}
	return admin.DeadLetter{}, fmt.Errorf("%w: %d", admin.ErrNoLetter, seq)
}

func (l *letters) Redrive(ctx context.Context, seq uint64) error {
	if _, err := l.Get(ctx, seq); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.redriven = append(l.redriven, seq)
	return l.err
}

func (l *letters) Drop(ctx context.Context, seq uint64, at time.Time) error {
	if one, err := l.Get(ctx, seq); err != nil || !one.Time.Equal(at) {
		return cmp.Or(err, admin.ErrNoLetter)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = slices.DeleteFunc(l.all, func(one admin.DeadLetter) bool { return one.Seq == seq })
	return l.err
}

// answer is what came back.
type answer struct {
	*http.Response
	body []byte
}

func (a answer) json(t testing.TB) map[string]any {
	t.Helper()
	var v map[string]any
	require.NoError(t, json.Unmarshal(a.body, &v), string(a.body))
	return v
}

// problem requires that the answer is one of that status and code.
func (a answer) problem(t testing.TB, status int, code string) map[string]any {
	t.Helper()
	require.Equal(t, status, a.StatusCode, string(a.body))
	require.Equal(t, "application/problem+json", a.Header.Get("Content-Type"))
	p := a.json(t)
	require.Equal(t, code, p["code"])
	require.Equal(t, "/docs#problem-"+code, p["type"])
	require.EqualValues(t, status, p["status"])
	require.Equal(t, a.Header.Get("X-Request-Id"), p["requestId"])
	return p
}

// do makes a request with the bundle's token; headers come in pairs.
func (b *bundle) do(method, path, body string, headers ...string) answer {
	b.t.Helper()
	var r io.Reader
	if body != "" {
		r = bytes.NewBufferString(body)
	}
	req, err := http.NewRequestWithContext(b.t.Context(), method, b.web.URL+path, r)
	require.NoError(b.t, err)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	if b.token != "" {
		req.Header.Set("Authorization", "Bearer "+b.token)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
		if headers[i+1] == "" {
			req.Header.Del(headers[i])
		}
		if headers[i] == "Host" {
			req.Host = headers[i+1]
		}
	}
	res, err := b.client.Do(req)
	require.NoError(b.t, err)
	defer func() { _ = res.Body.Close() }()
	raw, err := io.ReadAll(res.Body)
	require.NoError(b.t, err)
	return answer{res, raw}
}

func (b *bundle) get(path string, headers ...string) answer { return b.do("GET", path, "", headers...) }

func (b *bundle) post(path, body string, headers ...string) answer {
	return b.do("POST", path, body, headers...)
}

// ready creates a gadget and waits until it is READY.
func (b *bundle) ready(id string) answer {
	b.t.Helper()
	a := b.post("/v1/gadgets/"+id+"/create?settle=10s", `{"spec":{"name":"lamp","size":3},"labels":{"team":"web"}}`)
	if a.StatusCode == http.StatusAccepted { // a test that has answers awaited for an instant only
		require.Eventually(b.t, func() bool {
			a = b.get("/v1/gadgets/" + id)
			return a.StatusCode == 200 && a.json(b.t)["state"] == "READY"
		}, time.Minute, 10*time.Millisecond)
	}
	require.Equal(b.t, 200, a.StatusCode, string(a.body))
	require.Equal(b.t, "READY", a.json(b.t)["state"])
	return a
}

// stored is how many messages the streams of commands ever took.
func (b *bundle) stored() uint64 {
	b.t.Helper()
	s, err := b.js.Stream(b.t.Context(), streams.CommandStream)
	require.NoError(b.t, err)
	return s.CachedInfo().State.LastSeq
}

const soon = 5 * time.Second

// newCall is a request that goes to the handler without a client in between.
func newCall(method, path, body string) (*http.Request, *httptest.ResponseRecorder) {
	r := httptest.NewRequest(method, path, bytes.NewBufferString(body))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer admin-token")
	return r, httptest.NewRecorder()
}

func letter(seq uint64, key, body string) admin.DeadLetter {
	return admin.DeadLetter{Seq: seq, Time: time.Unix(int64(seq), 0), Consumer: "engine", Machine: "gadget", Key: key, Subject: streams.Names{}.Stored("gadget", key, "create"), Reason: "it panicked", Tries: 10, Actor: "ann", RedriveID: fmt.Sprintf("redrive-%d", seq), Body: []byte(body)}
}
