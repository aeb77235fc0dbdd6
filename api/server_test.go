package api_test

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"pgregory.net/rapid"

	"github.com/bcc94042/instar/api"
	"github.com/bcc94042/instar/api/admin"
	"github.com/bcc94042/instar/api/rest"
	"github.com/bcc94042/instar/internal/panics"
)

func TestHealth(t *testing.T) {
	bad := admin.Check{Name: "disk", Detail: "host db.internal is full"}
	ready, checks := true, []admin.Check{{Name: "nats", OK: true, Detail: "connected to n1"}}
	b := setup(t, func(o *api.Options) {
		o.Ready, o.Checks = func() bool { return ready }, func(context.Context) []admin.Check { return checks }
	})
	require.JSONEq(t, `{"status":"ok"}`, string(b.get("/livez", "Authorization", "").body))
	require.JSONEq(t, `{"status":"ok"}`, string(b.get("/readyz", "Authorization", "").body))
	v := b.get("/readyz?verbose").json(t)
	require.Equal(t, "os", v["profile"])
	require.Equal(t, "1.2.3", v["version"].(map[string]any)["version"])
	require.Len(t, v["checks"], 4)
	require.Contains(t, string(b.get("/readyz?verbose").body), "connected to n1")
	require.NotContains(t, string(b.get("/readyz?verbose", "Authorization", "").body), "n1")

	checks = append(checks, bad)
	a := b.get("/readyz", "Authorization", "")
	require.Equal(t, 503, a.StatusCode)
	require.NotContains(t, string(a.body), "db.internal")
	require.Equal(t, "failing", a.json(t)["status"])
	checks, ready = nil, false
	require.Equal(t, 503, b.get("/readyz").StatusCode)
	require.Equal(t, 200, b.get("/livez").StatusCode)
}

func TestHygiene(t *testing.T) {
	b := setup(t)
	srv := b.server.HTTPServer(":0", nil)
	require.EqualValues(t, 5e9, srv.ReadHeaderTimeout)
	require.EqualValues(t, 60e9, srv.IdleTimeout)
	require.Equal(t, 16<<10, srv.MaxHeaderBytes)
	for _, path := range []string{"/v1/gadgets", "/nope", "/docs", "/livez"} {
		h := b.get(path).Header
		require.Equal(t, "nosniff", h.Get("X-Content-Type-Options"))
		require.Equal(t, "DENY", h.Get("X-Frame-Options"))
		require.Contains(t, h.Get("Content-Security-Policy"), "default-src 'none'")
		require.NotContains(t, h.Get("Content-Security-Policy"), "unsafe")
		require.NotEmpty(t, h.Get("X-Request-Id"))
	}
	require.NoError(t, b.server.RegisterPanic())
	a := b.get("/boom")
	a.problem(t, 500, "internal")
	require.NotContains(t, string(a.body), "secret")
	require.Contains(t, b.log.String(), "secret dsn")
	require.Contains(t, b.log.String(), "api.(*Server).RegisterPanic", "with its stack")
	res, err := b.web.Client().Get(b.web.URL + "/late")
	if err == nil { // the header came before the end was seen
		_, err = io.ReadAll(res.Body)
		_ = res.Body.Close()
	}
	require.Error(t, err, "half an answer is not taken for one")
	require.GreaterOrEqual(t, panics.Counts()["http"], uint64(2))
	require.ErrorContains(t, b.server.RegisterWithoutRole(), "declares no role")
	require.ErrorContains(t, b.server.RegisterTwice(), "twice")
}

func TestPage(t *testing.T) {
	b := setup(t)
	a := b.get("/docs", "Authorization", "")
	require.Equal(t, 200, a.StatusCode)
	page := string(a.body)
	require.NotContains(t, page, "http://")
	require.NotContains(t, page, "https://")
	require.NotContains(t, page, "<style")
	require.NotContains(t, page, "style=")
	for _, code := range []string{"transition-not-allowed", "validation", "unavailable", "entity-parked", "not-acceptable", "dead"} {
		require.Contains(t, page, `id="problem-`+code+`"`)
	}
	for _, file := range []string{"/docs/docs.js", "/docs/docs.css", "/docs/machines.json"} {
		require.Contains(t, page+string(b.get("/docs/docs.js").body), strings.TrimPrefix(file, "/docs/"))
		f := b.get(file, "Authorization", "")
		require.Equal(t, 200, f.StatusCode)
		require.Greater(t, len(f.body), 200)
		require.NotContains(t, strings.ReplaceAll(string(f.body), "http://www.w3.org/2000/svg", ""), "://")
	}
	require.NotContains(t, string(b.get("/docs/docs.js").body), "innerHTML")
}

func TestMetrics(t *testing.T) {
	b := setup(t)
	b.ready("x")
	b.post("/v1/gadgets/x/create", `{"spec":{"name":"a"}}`)
	b.get("/v1/gadgets/" + strings.Repeat("y", 20))
	b.do("BREW", "/nope", "")
	text := string(b.get("/metrics").body)
	for _, want := range []string{
		`instar_command_latency_seconds_count{command="create",machine="gadget",outcome="applied"} 1`,
		`instar_command_latency_seconds_count{command="create",machine="gadget",outcome="refused"} 1`,
		`instar_http_requests_total{method="POST",route="/v1/gadgets/{id}/create",status="200"} 1`,
		`instar_http_requests_total{method="other",route="other",status="404"} 1`,
		`instar_entities{machine="gadget",state="READY"} 1`, `instar_entities{machine="part",state="off"} 0`,
		`instar_sse_clients 0`, `instar_build_info{commit="abc"`, `instar_index_lag{machine="gadget"}`, `instar_http_request_seconds_bucket`,
	} {
		require.Contains(t, text, want)
	}
	require.NotContains(t, text, "yyyyy")
	require.NotContains(t, text, `"x"`)
	require.Same(t, b.server.Registry(), b.server.Registry())
}

func TestTrace(t *testing.T) {
	rec := tracetest.NewSpanRecorder()
	b := setup(t, func(o *api.Options) {
		o.Tracer = sdk.NewTracerProvider(sdk.WithSpanProcessor(rec)).Tracer("test")
	})
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	b.post("/v1/gadgets/x/create", `{"spec":{"name":"a","hold":true}}`, "traceparent", parent)
	got := b.engine.header("traceparent")
	require.True(t, strings.HasPrefix(got, "00-0af7651916cd43dd8448eb211c80319c-"), got)
	require.NotEqual(t, parent, got, "the span of the request is between")
	require.Eventually(t, func() bool {
		return slices.ContainsFunc(rec.Ended(), func(s sdk.ReadOnlySpan) bool {
			return s.Name() == "POST /v1/gadgets/{id}/create" && s.Parent().SpanID().String() == "b7ad6b7169203331"
		})
	}, soon, 1e6)
}

// Whatever is asked, the answer is one of the document and never a failure of the program.
func TestFuzz(t *testing.T) {
	b := setup(t)
	b.ready("x")
	ops := slices.DeleteFunc(b.server.Operations(), func(op rest.Operation) bool {
		return strings.HasSuffix(op.Path, "/watch") || strings.Contains(op.Path, "{$}")
	})
	odd := rapid.OneOf(rapid.SampledFrom([]string{"x", "", ".", "..", "a.b", "*", ">", "a b", "%", "%2F", "é", "\x00", "default", strings.Repeat("a", 64), "-", "1", "nope", "{}", "null"}), rapid.String())
	names := []string{"namespace", "limit", "cursor", "after", "state", "label", "type", "minRevision", "format", "settle", "include", "updatedAfter", "verbose", "machine", "zzz"}
	headers := []string{"If-Match", "If-None-Match", "Prefer", "Idempotency-Key", "Instar-Reason", "Content-Type", "Accept", "traceparent", "X-Request-Id"}
	rapid.Check(t, func(r *rapid.T) {
		op := rapid.SampledFrom(ops).Draw(r, "op")
		path := op.Path
		for strings.Contains(path, "{") {
			from, to := strings.Index(path, "{"), strings.Index(path, "}")
			path = path[:from] + url.PathEscape(odd.Draw(r, "part")) + path[to+1:]
		}
		q := url.Values{}
		for range rapid.IntRange(0, 3).Draw(r, "params") {
			q.Add(rapid.SampledFrom(names).Draw(r, "name"), odd.Draw(r, "value"))
		}
		if q.Get("settle") != "" {
			q.Set("settle", "1ms")
		}
		body := rapid.OneOf(rapid.Just(""), rapid.Just(`{"spec":{"name":"a"}}`), rapid.Just(`{"size":3}`), odd, rapid.Map(odd, func(s string) string { return `{"` + s + `":[` + s + `]}` })).Draw(r, "body")
		req, err := http.NewRequestWithContext(t.Context(), op.Method, b.web.URL+path+"?"+q.Encode(), strings.NewReader(body))
		if err != nil {
			return
		}
		req.Header.Set("Authorization", "Bearer admin-token")
		for range rapid.IntRange(0, 2).Draw(r, "headers") {
			v := odd.Draw(r, "header")
			if !strings.ContainsFunc(v, func(c rune) bool { return c < ' ' || c == 0x7f }) {
				req.Header.Set(rapid.SampledFrom(headers).Draw(r, "header name"), v)
			}
		}
		res, err := b.client.Do(req)
		if err != nil {
			r.Fatalf("%s %s: %v", op.Method, req.URL, err)
		}
		defer func() { _ = res.Body.Close() }()
		if res.StatusCode >= 500 || res.Header.Get("X-Request-Id") == "" {
			r.Fatalf("%s %s %q: %d", op.Method, req.URL, body, res.StatusCode)
		}
		if ct := res.Header.Get("Content-Type"); res.StatusCode >= 400 && ct != "application/problem+json" {
			r.Fatalf("%s %s: %d is %s", op.Method, req.URL, res.StatusCode, ct)
		}
	})
	require.NotContains(t, b.log.String(), "level=ERROR")
}
