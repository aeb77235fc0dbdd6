package api_test

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/api"
	"github.com/bcc94042/instar/internal/rebind"
)

// A page of another site, whose name leads to that site first and here then, is of one origin with this server for a
// browser. It is told nothing, as a server that listens beyond loopback is configured without a word about its names.
func TestRebinding(t *testing.T) {
	b := setup(t, func(o *api.Options) { o.Tokens, o.Open, o.Hosts = nil, true, []string{"0.0.0.0", "box"} })
	b.token = ""
	b.ready("x")
	_, port, err := net.SplitHostPort(b.web.Listener.Addr().String())
	require.NoError(t, err)
	at, err := net.Listen("tcp", "127.0.0.2:"+port) // the same origin has the same port
	if err != nil {
		t.Skip("this machine has one loopback address only")
	}
	site := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "a page") }))
	require.NoError(t, site.Listener.Close())
	site.Listener = at
	site.Start()
	defer site.Close()
	browser := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: (&net.Dialer{Resolver: rebind.Resolver(t, "127.0.0.2", "127.0.0.1")}).DialContext}}
	visit := func(path, method string) (int, string) {
		req, err := http.NewRequestWithContext(t.Context(), method, "http://evil.example:"+port+path, nil)
		require.NoError(t, err)
		req.Header.Set("Origin", "http://evil.example:"+port)
		req.Header.Set("Sec-Fetch-Site", "same-origin") // so it is, for the browser
		res, err := browser.Do(req)
		require.NoError(t, err)
		defer func() { _ = res.Body.Close() }()
		body, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		return res.StatusCode, string(body)
	}
	status, page := visit("/", http.MethodGet)
	require.Equal(t, "a page", page, status)
	for path, method := range map[string]string{
		"/v1/gadgets": http.MethodGet, "/v1/gadgets/x/touch": http.MethodPost, "/v1/watch": http.MethodGet, "/metrics": http.MethodGet, "/openapi.json": http.MethodGet, "/livez": http.MethodGet,
	} {
		before := b.stored()
		status, said := visit(path, method)
		require.Equal(t, http.StatusForbidden, status, path)
		require.Contains(t, said, `"code":"forbidden"`)
		require.Contains(t, said, "http.hosts", "whoever is meant to come learns what to do")
		require.NotContains(t, said, "evil.example")
		require.Equal(t, before, b.stored())
	}
}
