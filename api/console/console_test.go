package console_test

import (
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/bcc94042/instar/api/auth"
	"github.com/bcc94042/instar/api/console"
	"github.com/bcc94042/instar/api/rest"
)

var tokens = []auth.Token{
	{Name: "reader", Hash: auth.HashToken("read-token"), Role: auth.Read, Namespace: "*"},
	{Name: "boss", Hash: auth.HashToken("admin-token"), Role: auth.Admin, Namespace: "acme"},
}

// door is a server with the console and two operations: one that reads, one that changes something.
type door struct {
	t   *testing.T
	web *httptest.Server
}

func setup(t *testing.T, readOnly bool, tokens ...auth.Token) *door {
	t.Helper()
	t.Parallel()
	return open(t, readOnly, tokens...)
}

func open(t *testing.T, readOnly bool, tokens ...auth.Token) *door {
	t.Helper()
	return start(t, console.Options{Version: "v1 <b>", Program: "./bin/<b>", ReadOnly: readOnly}, tokens...)
}

func start(t *testing.T, o console.Options, tokens ...auth.Token) *door {
	t.Helper()
	s, err := rest.New(rest.Options{
		Tokens: tokens, Open: len(tokens) == 0, ReadOnly: o.ReadOnly, Registry: prometheus.NewRegistry(), Tracer: noop.NewTracerProvider().Tracer(""), Log: slog.New(slog.DiscardHandler), TurnWithin: time.Minute,
	})
	require.NoError(t, err)
	r := s.NewRouter()
	actor := func(q *rest.Request) error { return q.JSON(http.StatusOK, q.Who.Name) }
	for _, rt := range append(console.New(s, o).Routes(r),
		&rest.Route{Role: auth.Read, Serve: actor, Op: huma.Operation{Method: http.MethodGet, Path: "/v1/look"}},
		&rest.Route{Role: auth.Read, Op: huma.Operation{Method: http.MethodGet, Path: "/v1/until"}, Serve: func(q *rest.Request) error {
			_, bounded := q.Context().Deadline()
			<-q.Context().Done()
			return q.JSON(http.StatusOK, bounded)
		}},
		&rest.Route{Role: auth.Operate, Serve: actor, Op: huma.Operation{Method: http.MethodPost, Path: "/v1/change"}},
	) {
		require.NoError(t, r.Register(rt))
	}
	s.Use(r)
	d := &door{t, httptest.NewServer(s.Handler())}
	t.Cleanup(d.web.Close)
	return d
}

// ask sends a request with header lines "Name: value".
func (d *door) ask(method, path, body string, lines ...string) (*http.Response, string) {
	d.t.Helper()
	req, err := http.NewRequestWithContext(d.t.Context(), method, d.web.URL+path, strings.NewReader(body))
	require.NoError(d.t, err)
	req.Header.Set("Accept-Encoding", "identity")
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ": ")
		req.Header.Set(name, value)
	}
	res, err := d.web.Client().Transport.RoundTrip(req) // redirects are answers
	require.NoError(d.t, err)
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	require.NoError(d.t, err)
	return res, string(raw)
}

// signIn is the cookie of a session.
func (d *door) signIn(token string) *http.Cookie {
	d.t.Helper()
	res, body := d.ask(http.MethodPost, "/v1/session", fmt.Sprintf(`{"token":%q}`, token), "Sec-Fetch-Site: same-origin")
	require.Equal(d.t, 200, res.StatusCode, body)
	require.Len(d.t, res.Cookies(), 1)
	return res.Cookies()[0]
}

func TestThePage(t *testing.T) {
	d := setup(t, false, tokens...)
	for _, path := range []string{"/ui/", "/ui/machines/service?state=READY&nobody=knows", "/ui/entities/service/hello", "/ui/no/such/page"} {
		res, page := d.ask(http.MethodGet, path, "")
		require.Equal(t, 200, res.StatusCode, path)
		require.Equal(t, console.Policy, res.Header.Get("Content-Security-Policy"))
		require.Equal(t, "no-cache", res.Header.Get("Cache-Control"))
		require.Contains(t, page, `<div id="app">`)
		require.Contains(t, page, "v1 &lt;b&gt;")
		require.Contains(t, page, `content="./bin/&lt;b&gt;"`)
		require.NotContains(t, page, "{{")
	}
	res, _ := d.ask(http.MethodGet, "/ui", "")
	require.Equal(t, "/ui/", res.Header.Get("Location"))
	first, page := d.ask(http.MethodGet, "/ui/", "")
	again, _ := d.ask(http.MethodGet, "/ui/", "", "If-None-Match: "+first.Header.Get("ETag"))
	require.Equal(t, 304, again.StatusCode)

	files := regexp.MustCompile(`(?:src|href)="([^"]+)"`).FindAllStringSubmatch(page, -1)
	require.Greater(t, len(files), 10)
	for _, f := range files {
		if f[1] == "/v1/session" || f[1] == "/v1/counts" { // who looks, and where what changes begins, is asked beside the files
			continue
		}
		require.Regexp(t, `^/ui/assets/[0-9a-f]{16}/`, f[1], "a request leaves the origin")
		res, _ := d.ask(http.MethodGet, f[1], "")
		require.Equal(t, 200, res.StatusCode, f[1])
		require.Equal(t, "public, max-age=31536000, immutable", res.Header.Get("Cache-Control"))
	}
	for _, path := range []string{"/ui/assets/0000000000000000/app/main.js", "/ui/assets/x", regexp.MustCompile(`/app/.*`).ReplaceAllString(files[1][1], "/vendor/VENDOR.md")} {
		res, _ := d.ask(http.MethodGet, path, "")
		require.Equal(t, 404, res.StatusCode, path)
		require.NotContains(t, res.Header.Get("Cache-Control"), "immutable", path)
	}
}

// Nothing that the page loads names another origin, runs text as a program, or makes markup of text; all of it together is small.
func TestWhatThePageLoads(t *testing.T) {
	d := setup(t, false)
	small := 0
	all := console.Files(t)
	for name, text := range all {
		if !strings.HasSuffix(name, ".js") && !strings.HasSuffix(name, ".css") && !strings.HasSuffix(name, ".html") && !strings.HasSuffix(name, ".svg") {
			continue
		}
		_, page := d.ask(http.MethodGet, "/ui/", "")
		base := regexp.MustCompile(`/ui/assets/[0-9a-f]{16}`).FindString(page)
		if name != "index.html" {
			res, body := d.ask(http.MethodGet, base+"/"+name, "", "Accept-Encoding: gzip")
			require.Equal(t, "gzip", res.Header.Get("Content-Encoding"), name)
			small += len(body)
			z, err := gzip.NewReader(strings.NewReader(body))
			require.NoError(t, err)
			whole, err := io.ReadAll(z)
			require.NoError(t, err)
			sent, lines := strings.Split(string(whole), "\n"), strings.Split(text, "\n")
			require.Len(t, sent, len(lines), name)
			for i, line := range lines {
				if sent[i] != line {
					require.Empty(t, sent[i], name)
					require.Regexp(t, `^(//|/\*\*| \*)`, line, "%s: only comments are left out", name)
				}
			}
		}
		if strings.HasPrefix(name, "vendor/") {
			continue
		}
		for _, wrong := range []string{"dangerouslySetInnerHTML", "innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", " style=\""} {
			require.NotContains(t, text, wrong, name)
		}
		for _, url := range regexp.MustCompile(`https?://[a-z0-9.-]+\.[a-z]{2,}`).FindAllString(text, -1) {
			require.Equal(t, "http://www.w3.org", url, "%s names another origin", name)
		}
		if strings.HasSuffix(name, ".js") {
			require.LessOrEqual(t, strings.Count(text, "\n"), 400, name)
		}
	}
	require.Less(t, small, 120<<10, "bytes, compressed")
}

// What others wrote is what VENDOR.md says, file by file.
func TestVendoredFilesAreWhatWasTaken(t *testing.T) {
	t.Parallel()
	files := console.Files(t)
	listed := regexp.MustCompile(`(?m)^\| (\w+\.js) \| ([0-9a-f]{64}) \|$`).FindAllStringSubmatch(files["vendor/VENDOR.md"], -1)
	var vendored, names []string
	for name := range files {
		if strings.HasPrefix(name, "vendor/") && strings.HasSuffix(name, ".js") {
			vendored = append(vendored, strings.TrimPrefix(name, "vendor/"))
		}
	}
	for _, l := range listed {
		names = append(names, l[1])
		require.Equal(t, l[2], fmt.Sprintf("%x", sha256.Sum256([]byte(files["vendor/"+l[1]]))), l[1])
	}
	require.ElementsMatch(t, vendored, names)
}

func TestSessions(t *testing.T) {
	d := setup(t, false, tokens...)
	res, body := d.ask(http.MethodGet, "/v1/session", "")
	require.Equal(t, 200, res.StatusCode)
	require.JSONEq(t, `{"open":false,"signedIn":false}`, body)

	cookie := d.signIn("admin-token")
	require.True(t, cookie.HttpOnly)
	require.Equal(t, http.SameSiteStrictMode, cookie.SameSite)
	require.Equal(t, int(auth.SessionFor.Seconds()), cookie.MaxAge)
	require.NotContains(t, cookie.Value, "admin-token")
	with := "Cookie: " + cookie.Name + "=" + cookie.Value
	_, body = d.ask(http.MethodGet, "/v1/session", "", with)
	require.Contains(t, body, `"signedIn":true,"name":"boss","role":"admin","namespace":"acme","until":`)
	res, body = d.ask(http.MethodPost, "/v1/change", "", with, "Sec-Fetch-Site: same-origin")
	require.Equal(t, 200, res.StatusCode, body)
	require.Equal(t, "\"boss\"\n", body)

	require.False(t, cookie.Secure)
	res, _ = d.ask(http.MethodPost, "/v1/session", `{"token":"admin-token"}`, "Origin: https"+strings.TrimPrefix(d.web.URL, "http"))
	require.Equal(t, 200, res.StatusCode)
	require.True(t, res.Cookies()[0].Secure, "TLS may end at a proxy")

	for _, from := range []string{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Site: same-site", "Origin: https://evil.example"} {
		res, _ = d.ask(http.MethodPost, "/v1/change", "", with, from)
		require.Equal(t, 403, res.StatusCode, from)
		res, _ = d.ask(http.MethodPost, "/v1/session", `{"token":"admin-token"}`, from)
		require.Equal(t, 403, res.StatusCode, from)
		res, _ = d.ask(http.MethodDelete, "/v1/session", "", with, from)
		require.Equal(t, 403, res.StatusCode, from)
		require.Empty(t, res.Cookies())
		res, _ = d.ask(http.MethodPost, "/v1/change", "", "Authorization: Bearer admin-token", from)
		require.Equal(t, 200, res.StatusCode, "no browser sends a token by itself")
	}

	reader := d.signIn("read-token")
	res, _ = d.ask(http.MethodPost, "/v1/change", "", "Cookie: "+reader.Name+"="+reader.Value)
	require.Equal(t, 403, res.StatusCode, "a session may do what its token may")

	for _, value := range []string{"", "x", cookie.Value[:len(cookie.Value)-2] + "AA", cookie.Value[4:]} {
		res, _ = d.ask(http.MethodGet, "/v1/look", "", "Cookie: "+cookie.Name+"="+value)
		require.Equal(t, 401, res.StatusCode, value)
	}
	res, body = d.ask(http.MethodGet, "/v1/look", "", with+"; "+cookie.Name+"="+cookie.Value)
	require.Equal(t, 401, res.StatusCode)
	require.Contains(t, body, "more than once", "another host of the domain may have set one of them")
	res, _ = d.ask(http.MethodPost, "/v1/session", `{"token":"wrong"}`)
	require.Equal(t, 401, res.StatusCode)
	require.Empty(t, res.Cookies())
	res, _ = d.ask(http.MethodDelete, "/v1/session", "", with, "Sec-Fetch-Site: same-origin")
	require.Equal(t, 200, res.StatusCode)
	require.Negative(t, res.Cookies()[0].MaxAge)

	other := open(t, false, tokens[:1]...)
	res, _ = other.ask(http.MethodGet, "/v1/look", "", "Cookie: "+reader.Name+"="+reader.Value)
	require.Equal(t, 401, res.StatusCode, "the tokens have changed")
}

func TestWhereThePageLeads(t *testing.T) {
	t.Parallel()
	links := console.Links{Trace: "https://traces.example/{trace}", Grafana: "https://grafana.example/d/instar"}
	d := start(t, console.Options{Links: links}, tokens...)
	_, body := d.ask(http.MethodGet, "/v1/session", "")
	require.NotContains(t, body, "example", "only who may look is told")
	cookie := d.signIn("read-token")
	_, body = d.ask(http.MethodGet, "/v1/session", "", "Cookie: "+cookie.Name+"="+cookie.Value)
	require.Contains(t, body, `"traceUrl":"https://traces.example/{trace}","grafanaUrl":"https://grafana.example/d/instar"`)
	d = start(t, console.Options{Links: links})
	for _, method := range []string{http.MethodGet, http.MethodDelete} {
		_, body = d.ask(method, "/v1/session", "")
		require.Contains(t, body, `"traceUrl":`)
	}
}

func TestSessionsEnd(t *testing.T) {
	t.Parallel()
	keys, err := auth.NewKeyring(tokens, false)
	require.NoError(t, err)
	for until, good := range map[time.Time]bool{time.Now().Add(time.Minute): true, time.Now().Add(-time.Second): false} {
		_, value := keys.Seal("read-token", until)
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.AddCookie(&http.Cookie{Name: auth.SessionCookie, Value: value})
		_, ok := keys.Session(r)
		require.Equal(t, good, ok)
	}
}

// What a session asks for ends with it, but not by a deadline: reads of storage have one of their own, which they leave out where there is another one.
func TestWhatIsAskedEndsWithTheSession(t *testing.T) {
	d := setup(t, false, tokens...)
	keys, err := auth.NewKeyring(tokens, false) // its sessions are those of the server
	require.NoError(t, err)
	for within := 2 * time.Second; ; within *= 2 {
		until := time.Now().Add(within)
		_, value := keys.Seal("read-token", until)
		res, bounded := d.ask(http.MethodGet, "/v1/until", "", "Cookie: "+auth.SessionCookie+"="+value)
		if res.StatusCode == 401 && within < time.Minute { // on a slow machine it was over before it was asked
			continue
		}
		require.Equal(t, 200, res.StatusCode)
		require.Equal(t, "false\n", bounded)
		require.GreaterOrEqual(t, time.Now().Unix(), until.Unix())
		return
	}
}

func TestReadOnly(t *testing.T) {
	d := setup(t, true, tokens...)
	cookie := d.signIn("admin-token")
	with := "Cookie: " + cookie.Name + "=" + cookie.Value
	_, body := d.ask(http.MethodGet, "/v1/session", "", with)
	require.Contains(t, body, `"readOnly":true`)
	res, _ := d.ask(http.MethodGet, "/v1/look", "", with)
	require.Equal(t, 200, res.StatusCode)
	res, body = d.ask(http.MethodPost, "/v1/change", "", with, "Sec-Fetch-Site: same-origin")
	require.Equal(t, 403, res.StatusCode)
	require.Contains(t, body, "ui.readonly")
	res, _ = d.ask(http.MethodPost, "/v1/change", "", "Authorization: Bearer admin-token")
	require.Equal(t, 200, res.StatusCode, "programs with a token are not concerned")
}

func TestReadOnlyWithoutTokens(t *testing.T) {
	d := setup(t, true)
	res, _ := d.ask(http.MethodPost, "/v1/change", "", "Sec-Fetch-Site: same-origin")
	require.Equal(t, 403, res.StatusCode)
	res, _ = d.ask(http.MethodPost, "/v1/change", "", "Origin: "+d.web.URL)
	require.Equal(t, 403, res.StatusCode, "without TLS, and not on this machine, a browser says no more")
	res, _ = d.ask(http.MethodPost, "/v1/change", "")
	require.Equal(t, 200, res.StatusCode, "the command line is no browser")
}

// The page asks at once for all modules that its address needs to be drawn, and for no others.
func TestModulesOfAnAddressAreAskedForAtOnce(t *testing.T) {
	d := setup(t, false)
	files := console.Files(t)
	link := regexp.MustCompile(`rel="modulepreload" href="/ui/assets/[0-9a-f]+/([^"]+)"`)
	asked := func(address string) (names []string) {
		res, page := d.ask(http.MethodGet, "/ui/"+address, "")
		require.Equal(t, 200, res.StatusCode, page)
		for _, found := range link.FindAllStringSubmatch(page, -1) {
			require.Contains(t, files, found[1], address)
			names = append(names, found[1])
		}
		return names
	}
	every := asked("no/such/page")
	require.Subset(t, every, []string{"app/main.js", "vendor/preact.js", "vendor/hooks.js", "vendor/htm.js", "app/base.js", "app/live.js"})
	require.NotContains(t, every, "app/form.js")
	require.Subset(t, asked(""), append([]string{"pages/home.js", "pages/machines.js"}, every...))
	require.Subset(t, asked("entities/service/hello"), []string{"pages/entity.js", "pages/timeline.js", "app/diagram.js", "app/layout.js", "app/form.js"})
	require.NotContains(t, asked("entities/service/hello"), "pages/home.js")
	require.Contains(t, asked("entities/task/shop/lint"), "pages/entity.js")
	routes := regexp.MustCompile(`\['/ui[^']*', \(\) => import\('../pages/[a-z]+.js'\)\]`).FindAllString(files["app/pages.js"], -1)
	require.Len(t, routes, strings.Count(files["app/pages.js"], "import('"), "each route is written as the server reads it")
}
