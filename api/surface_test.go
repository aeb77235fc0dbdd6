package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/nats-io/nats.go/micro"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/api"
	"github.com/bcc94042/instar/api/auth"
	"github.com/bcc94042/instar/api/rest"
)

// files are what is served and is no operation.
var files = []string{"GET /", "GET /docs", "GET /docs/", "GET /docs/docs.css", "GET /docs/docs.js", "GET /docs/machines.json", "GET /ui", "GET /ui/{path...}"}

// What is served is what the documents have, over HTTP and NATS, and what they have is served (OWASP API9). No other site may read
// any of it, and every answer has the headers that a browser needs to be careful (API8).
func TestTheDocumentsAreTheSurface(t *testing.T) {
	r := discovering(t, func(o *api.Options) { o.Nodes, o.Outbox = &nodes{}, &outboxes{} })
	doc, err := openapi3.NewLoader().LoadFromData(r.server.OpenAPI())
	require.NoError(t, err)
	var documented, served []string
	for path, item := range doc.Paths.Map() {
		for method := range item.Operations() {
			documented = append(documented, method+" "+path)
		}
	}
	for _, op := range r.server.Operations() {
		at := op.Method + " " + strings.TrimSuffix(op.Path, "{$}")
		if slices.Contains(files, at) {
			require.Empty(t, op.ID, at)
		} else {
			served = append(served, at)
		}
		r.closed(op)
	}
	require.ElementsMatch(t, documented, served)
	require.Greater(t, len(served), 60)

	require.NoError(t, r.server.Micro(t.Context()))
	m, err := r.nc.Request("$SRV.INFO.instar", nil, soon)
	require.NoError(t, err)
	var info micro.Info
	require.NoError(t, json.Unmarshal(m.Data, &info))
	require.Greater(t, len(info.Endpoints), 3)
	for _, e := range info.Endpoints {
		require.Contains(t, string(r.server.AsyncAPI()), `"address": "`+strings.TrimRight(e.Subject, "*.>")+".", e.Name)
	}
}

// closed asks an operation as a page of another site would.
func (b *bundle) closed(op rest.Operation) {
	b.t.Helper()
	for _, method := range []string{op.Method, http.MethodOptions} {
		if strings.HasSuffix(op.Path, "/watch") && method == http.MethodGet {
			method = http.MethodHead
		}
		h := b.do(method, fill(op.Path), "", "Origin", "https://evil.example", "Access-Control-Request-Method", op.Method, "Authorization", "Bearer read-token").Header
		for name := range h {
			require.False(b.t, strings.HasPrefix(name, "Access-Control-"), "%s %s: %s", method, op.Path, name)
		}
		require.Equal(b.t, "nosniff", h.Get("X-Content-Type-Options"), op.Path)
		require.Equal(b.t, "DENY", h.Get("X-Frame-Options"), op.Path)
		require.Equal(b.t, "no-referrer", h.Get("Referrer-Policy"), op.Path)
		require.Equal(b.t, "same-origin", h.Get("Cross-Origin-Resource-Policy"), op.Path)
		require.Contains(b.t, h.Get("Content-Security-Policy"), "default-src 'none'", op.Path)
	}
}

// No body of a request sets what the engine keeps of an entity (OWASP API3): every operation that takes one refuses it by its name.
func TestNobodySetsWhatTheEngineKeeps(t *testing.T) {
	r := discovering(t, func(o *api.Options) { o.Nodes, o.Outbox = &nodes{}, &outboxes{} })
	doc, err := openapi3.NewLoader().LoadFromData(r.server.OpenAPI())
	require.NoError(t, err)
	before, asked := r.stored(), 0
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			if op.RequestBody == nil {
				continue
			}
			asked++
			for _, member := range []string{"state", "version", "revision", "mark", "markedAt", "lastEvent", "outbox", "commands", "birth", "actor", "role", "__proto__", "constructor"} {
				body := fmt.Sprintf(`{"serviceName":"web","nodeAddress":"127.0.0.1:1",%q:{}}`, member)
				a := r.do(method, strings.NewReplacer("{instanceId}", "x", "{service}", "web", "{watcher}", "w", "{operation}", "x", "{name}", "one", "{source}", "orders").Replace(fill(path)), body)
				a.problem(t, 422, "validation")
				require.Contains(t, string(a.body), `"body.`+member+`"`, "%s %s", method, path)
			}
		}
	}
	require.Greater(t, asked, 8)
	require.Equal(t, before, r.stored())
}

// Only a token that is known is let in, and only as what it is (OWASP API2).
func TestOnlyATokenIsACredential(t *testing.T) {
	b := setup(t)
	b.token = ""
	const none = "eyJhbGciOiJub25lIn0.eyJzdWIiOiJib3NzIiwicm9sZSI6ImFkbWluIn0."
	for _, header := range []string{"", "Bearer", "Bearer ", "Bearer  ", "admin-token", "Basic Ym9zczphZG1pbi10b2tlbg==", "Bearer " + none, "Bearer " + auth.HashToken("admin-token"), "Bearer admin-tokem", "Bearer admin-token x", "Bearer ADMIN-TOKEN", "Token admin-token", "Bearer boss"} {
		b.get("/v1/gadgets", "Authorization", header).problem(t, 401, "unauthorized")
	}
	for _, query := range []string{"?token=admin-token", "?access_token=admin-token", "?Authorization=Bearer%20admin-token"} {
		b.get("/v1/gadgets"+query).problem(t, 401, "unauthorized")
	}
	b.get("/v1/gadgets", "Cookie", "token=admin-token; Authorization=Bearer admin-token", "X-Forwarded-User", "boss").problem(t, 401, "unauthorized")
	r, w := newCall("GET", "/v1/gadgets", "")
	r.Header["Authorization"] = []string{"Bearer admin-token", "Bearer read-token"}
	b.server.Handler().ServeHTTP(w, r)
	require.Equal(t, 401, w.Code)
	require.Equal(t, 200, b.get("/v1/gadgets", "Authorization", "bearer admin-token").StatusCode, "the name of the scheme has no case")
}
