package signin_test

import (
	"bytes"
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/bcc94042/instar/api/auth"
	"github.com/bcc94042/instar/api/rest"
	"github.com/bcc94042/instar/api/signin"
)

const (
	clientID     = "instar"
	clientSecret = "the-secret-of-the-client"
)

var rules = []signin.Rule{
	{Value: "admins", Role: auth.Admin},
	{Claim: "realm_access.roles", Value: "looker", Role: auth.Read, Namespace: "acme"},
	{Claim: "email", Value: "ops@example.com", Role: auth.Operate},
}

// bench is a server with a provider, and a browser.
type bench struct {
	t   *testing.T
	idp *idp
	web *httptest.Server
	log *lockedBuffer
	jar map[string]*http.Cookie // of the server
	url string                  // of the server, as browsers have it, where it is another
}

// lockedBuffer is what a log is written to.
type lockedBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

func (b *lockedBuffer) text() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.String()
}

func setup(t *testing.T) *bench {
	t.Helper()
	t.Parallel()
	b := &bench{t: t, idp: newIDP(t), log: &lockedBuffer{}, jar: map[string]*http.Cookie{}}
	b.serve(rules)
	return b
}

// serve starts the server anew; the browser keeps its cookies.
func (b *bench) serve(rules []signin.Rule) {
	b.t.Helper()
	b.web = httptest.NewUnstartedServer(nil)
	file := filepath.Join(b.t.TempDir(), "secret")
	require.NoError(b.t, os.WriteFile(file, []byte(clientSecret+"\n"), 0o600))
	s, err := rest.New(rest.Options{
		Tokens: []auth.Token{{Name: "boss", Hash: auth.HashToken("admin-token"), Role: auth.Admin, Namespace: "*"}}, Registry: prometheus.NewRegistry(),
		Tracer: noop.NewTracerProvider().Tracer(""), Log: slog.New(slog.NewTextHandler(b.log, nil)), TurnWithin: time.Minute,
	})
	require.NoError(b.t, err)
	at := cmp.Or(b.url, "http://"+b.web.Listener.Addr().String())
	people, err := signin.New(s, signin.Options{Issuer: b.idp.web.URL, ClientID: clientID, SecretFile: file, URL: at, Scopes: []string{"openid"}, Rules: rules})
	require.NoError(b.t, err)
	r := s.NewRouter()
	who := func(q *rest.Request) error {
		return q.JSON(http.StatusOK, strings.Join([]string{q.Who.Name, string(q.Who.Role()), q.Who.Namespace}, " "))
	}
	for _, rt := range append(people.Routes(),
		&rest.Route{Role: auth.Read, Serve: who, Op: huma.Operation{Method: http.MethodGet, Path: "/v1/look"}},
		&rest.Route{Role: auth.Operate, Serve: who, Op: huma.Operation{Method: http.MethodPost, Path: "/v1/change"}},
	) {
		require.NoError(b.t, r.Register(rt))
	}
	s.Use(r)
	b.web.Config.Handler = s.Handler()
	b.web.Start()
	b.t.Cleanup(b.web.Close)
}

// ask sends what a browser would; redirects are answers.
func (b *bench) ask(method, at string, lines ...string) (*http.Response, string) {
	b.t.Helper()
	if strings.HasPrefix(at, "/") {
		at = b.web.URL + at
	}
	req, err := http.NewRequestWithContext(b.t.Context(), method, at, nil)
	require.NoError(b.t, err)
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ": ")
		req.Header.Set(name, value)
	}
	ours := strings.HasPrefix(at, b.web.URL)
	for _, c := range b.jar {
		if ours && strings.HasPrefix(req.URL.Path+"/", strings.TrimSuffix(c.Path, "/")+"/") {
			req.AddCookie(&http.Cookie{Name: c.Name, Value: c.Value})
		}
	}
	res, err := b.web.Client().Transport.RoundTrip(req)
	require.NoError(b.t, err)
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	require.NoError(b.t, err)
	for _, c := range res.Cookies() {
		if b.jar[c.Name] = c; c.MaxAge < 0 {
			delete(b.jar, c.Name)
		}
	}
	return res, string(raw)
}

// begin is where the provider sends the browser back to.
func (b *bench) begin(to string) string {
	b.t.Helper()
	res, _ := b.ask(http.MethodGet, signin.Path+"?to="+url.QueryEscape(to))
	require.Equal(b.t, http.StatusSeeOther, res.StatusCode)
	require.True(b.t, strings.HasPrefix(res.Header.Get("Location"), b.idp.web.URL+"/auth?"), res.Header.Get("Location"))
	res, body := b.ask(http.MethodGet, res.Header.Get("Location"))
	require.Equal(b.t, http.StatusFound, res.StatusCode, body)
	return res.Header.Get("Location")
}

// signIn is where a browser is at last.
func (b *bench) signIn(to string) string {
	b.t.Helper()
	res, _ := b.ask(http.MethodGet, b.begin(to))
	require.Equal(b.t, http.StatusSeeOther, res.StatusCode)
	at, ok := strings.CutPrefix(res.Header.Get("Location"), b.web.URL)
	require.True(b.t, ok, "a browser stays on this server: %s", res.Header.Get("Location"))
	return at
}

func (b *bench) session() *http.Cookie { return b.jar[auth.SessionCookie] }

func TestSomebodySignsIn(t *testing.T) {
	b := setup(t)
	b.idp.claims = map[string]any{"groups": []string{"staff", "admins"}, "email": "ann@example.com", "email_verified": true}
	require.Equal(t, "/ui/machines/service?state=READY", b.signIn("/ui/machines/service?state=READY"))
	c := b.session()
	require.True(t, c.HttpOnly)
	require.Equal(t, http.SameSiteStrictMode, c.SameSite)
	require.Equal(t, "/", c.Path)
	require.Equal(t, int(auth.SessionFor.Seconds()), c.MaxAge)
	require.NotContains(t, b.jar, signin.Cookie, "a sign-in that is over")
	res, who := b.ask(http.MethodGet, "/v1/look")
	require.Equal(t, 200, res.StatusCode)
	require.Equal(t, "\"oidc:ann@example.com admin *\"\n", who)
	res, _ = b.ask(http.MethodPost, "/v1/change", "Sec-Fetch-Site: same-origin")
	require.Equal(t, 200, res.StatusCode)
	res, _ = b.ask(http.MethodPost, "/v1/change", "Sec-Fetch-Site: cross-site")
	require.Equal(t, 403, res.StatusCode)
	for _, secret := range []string{clientSecret, "an-access-token", "eyJ", c.Value} {
		require.NotContains(t, b.log.text(), secret)
	}
	require.Contains(t, b.log.text(), "oidc:ann@example.com")

	old := c.Value
	b.serve(rules)
	res, _ = b.ask(http.MethodGet, "/v1/look")
	require.Equal(t, 200, res.StatusCode, "it outlives a restart")
	b.serve(rules[:2])
	res, _ = b.ask(http.MethodGet, "/v1/look", "Cookie: "+auth.SessionCookie+"="+old)
	require.Equal(t, 401, res.StatusCode, "it ends when others may do something")
}

func TestWhatSomebodyMay(t *testing.T) {
	b := setup(t)
	for _, c := range []struct {
		claims map[string]any
		want   string // who, or why not
	}{
		{map[string]any{"groups": "admins"}, "oidc:4711 admin *"},
		{map[string]any{"groups": []any{7, "admin"}}, "unknown"},
		{map[string]any{"realm_access": map[string]any{"roles": []string{"looker"}}, "email": "a@b", "email_verified": false}, "oidc:4711 read acme"},
		{map[string]any{"realm_access.roles": "looker"}, "oidc:4711 read acme"},
		{map[string]any{"groups": []string{"admins"}, "realm_access": map[string]any{"roles": []string{"looker"}}}, "oidc:4711 admin *"},
		{map[string]any{"email": "ops@example.com", "email_verified": true}, "oidc:ops@example.com operate *"},
		{map[string]any{"email": "ops@example.com"}, "unknown"},
		{map[string]any{"email": "ops@example.com", "email_verified": "true"}, "unknown"},
		{map[string]any{}, "unknown"},
		{map[string]any{"groups": "admins", "email": "a\nb", "email_verified": true}, "unknown"},
	} {
		b.idp.claims = c.claims
		delete(b.jar, auth.SessionCookie)
		at := b.signIn("/ui/")
		if !strings.HasPrefix(c.want, "oidc:") {
			require.Equal(t, "/ui/?signin="+c.want, at, "%v", c.claims)
			require.Nil(t, b.session())
			continue
		}
		_, who := b.ask(http.MethodGet, "/v1/look")
		require.Equal(t, `"`+c.want+"\"\n", who, "%v", c.claims)
	}
	require.Contains(t, b.log.text(), "no row of auth.oidc.roles is for")
}

// What the provider, or somebody in its place, sends that does not hold lets nobody in.
func TestWhatLetsNobodyIn(t *testing.T) {
	b := setup(t)
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	in := func(d time.Duration) int64 { return time.Now().Add(d).Unix() }
	for name, claims := range map[string]map[string]any{
		"another issuer": {"iss": "https://evil.example"}, "another audience": {"aud": "another"}, "no audience": {"aud": nil}, "another party": {"aud": []string{clientID, "another"}, "azp": "another"},
		"expired": {"exp": in(-2 * time.Minute)}, "not yet": {"nbf": in(10 * time.Minute)}, "another sign-in": {"nonce": "another"}, "no nonce": {"nonce": nil},
	} {
		claims["groups"] = "admins"
		b.idp.claims = claims
		require.Equal(t, "/ui/?signin=invalid", b.signIn("/ui/"), name)
		require.Nil(t, b.session(), name)
	}
	b.idp.claims = map[string]any{"groups": "admins", "exp": in(-30 * time.Second), "nbf": in(30 * time.Second)}
	require.Equal(t, "/ui/", b.signIn("/ui/"), "clocks differ a little")
	delete(b.jar, auth.SessionCookie)

	b.idp.signed = other
	require.Equal(t, "/ui/?signin=invalid", b.signIn("/ui/"), "another key")
	b.idp.signed = b.idp.key
	b.idp.refuse = "access_denied"
	require.Equal(t, "/ui/machines?q=x&signin=denied", b.signIn("/ui/machines?q=x"))
	require.NotContains(t, b.log.text(), "not\nyou", "one line")
	require.NotContains(t, b.log.text(), clientSecret, "what the provider answers is not told")
	require.Nil(t, b.session())
}

func TestACodeIsGoodOnceAndForItsBrowser(t *testing.T) {
	b := setup(t)
	b.idp.claims = map[string]any{"groups": "admins"}
	end := func(at string) string {
		res, _ := b.ask(http.MethodGet, at)
		return strings.TrimPrefix(res.Header.Get("Location"), b.web.URL)
	}
	change := func(at, name, value string) string {
		u, err := url.Parse(at)
		require.NoError(t, err)
		q := u.Query()
		q.Set(name, value)
		u.RawQuery = q.Encode()
		return u.String()
	}
	at := b.begin("/ui/")
	require.True(t, b.jar[signin.Cookie].HttpOnly)
	require.Equal(t, http.SameSiteLaxMode, b.jar[signin.Cookie].SameSite)
	require.Equal(t, signin.Path, b.jar[signin.Cookie].Path)
	state := *b.jar[signin.Cookie]
	delete(b.jar, signin.Cookie)
	require.Equal(t, "/ui/?signin=expired", end(at), "another browser")
	b.jar[signin.Cookie] = &state
	require.Equal(t, "/ui/?signin=expired", end(change(at, "state", "another")))
	require.Contains(t, b.jar, signin.Cookie, "what is none of this browser's ends no sign-in of it")
	require.Equal(t, "/ui/?signin=invalid", end(change(at, "iss", "https://evil.example")))
	b.jar[signin.Cookie] = &state
	require.Equal(t, "/ui/?signin=invalid", end(change(at, "code", "another")))
	require.Nil(t, b.session())
	b.jar[signin.Cookie] = &state
	require.Equal(t, "/ui/", end(at))
	require.NotNil(t, b.session())
	require.Equal(t, "/ui/?signin=expired", end(at), "twice")
	b.jar[signin.Cookie] = &state
	require.Equal(t, "/ui/?signin=invalid", end(at), "the provider, too, takes a code once")

	b.jar[auth.SessionCookie] = &http.Cookie{Name: auth.SessionCookie, Value: "p." + state.Value, Path: "/"}
	res, _ := b.ask(http.MethodGet, "/v1/look")
	require.Equal(t, 401, res.StatusCode, "what is sealed for a sign-in is no session")
}

// Another host of the same domain can set a cookie of its own sign-in beside this one, or in its place.
func TestASignInOfAnotherHost(t *testing.T) {
	b := setup(t)
	b.idp.claims = map[string]any{"groups": "admins"}
	at := b.begin("/ui/")
	res, _ := b.ask(http.MethodGet, at, "Cookie: "+signin.Cookie+"=another")
	require.Equal(t, b.web.URL+"/ui/?signin=expired", res.Header.Get("Location"))
	require.Contains(t, b.log.text(), "more than once")

	b.url = "https://instar.example"
	b.serve(rules)
	res, _ = b.ask(http.MethodGet, signin.Path)
	c := res.Cookies()[0]
	require.Equal(t, []any{"__Host-" + signin.Cookie, "/", true}, []any{c.Name, c.Path, c.Secure})
	clear(b.jar)
	res, _ = b.ask(http.MethodGet, signin.Callback, "Cookie: "+signin.Cookie+"="+c.Value)
	require.Equal(t, b.url+"/ui/?signin=expired", res.Header.Get("Location"))
	require.Contains(t, b.log.text(), "named cookie not present")
}

func TestABrowserStaysHere(t *testing.T) {
	b := setup(t)
	b.idp.claims = map[string]any{"groups": "admins"}
	for _, to := range []string{"", "https://evil.example/ui/", "//evil.example/ui/", `/\evil.example`, "/ui/../v1/session", "/v1/session", "/uix", "javascript:alert(1)", "/ui/\n", `/ui/\..\x`, "/ui/%2e%2e/v1/session", "ui/", "http:/ui/"} {
		require.Equal(t, "/ui/", b.signIn(to), to)
	}
	require.Equal(t, "/ui/machines", b.signIn("/ui/machines?signin=denied"))
	require.Equal(t, "/ui", b.signIn("/ui"))
}

// An address begins sign-ins at a pace of its own, also where limits.rate is none.
func TestSignInsHaveAPace(t *testing.T) {
	b := setup(t)
	for began := time.Now(); ; {
		res, _ := b.ask(http.MethodGet, signin.Path)
		if res.StatusCode == http.StatusTooManyRequests {
			require.NotEmpty(t, res.Header.Get("Retry-After"))
			return
		}
		require.Equal(t, http.StatusSeeOther, res.StatusCode)
		require.Less(t, time.Since(began), time.Minute)
	}
}

// So many codes are exchanged at once; another one is refused, and can be sent again.
func TestSoManyCodesAtOnce(t *testing.T) {
	b := setup(t)
	b.idp.claims = map[string]any{"groups": "admins"}
	at := b.begin("/ui/")
	b.idp.slow, b.idp.waiting = make(chan struct{}), make(chan struct{}, 64)
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() { b.get(at) })
		<-b.idp.waiting
	}
	require.Equal(t, http.StatusServiceUnavailable, b.get(at))
	close(b.idp.slow)
	all.Wait()
}

// get asks with the cookies that there are, and keeps none.
func (b *bench) get(at string) int {
	req, err := http.NewRequestWithContext(b.t.Context(), http.MethodGet, at, nil)
	if err != nil {
		return 0
	}
	for _, c := range b.jar {
		req.AddCookie(&http.Cookie{Name: c.Name, Value: c.Value})
	}
	res, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		return 0
	}
	defer res.Body.Close()
	return res.StatusCode
}

func TestAProviderIsAway(t *testing.T) {
	b := setup(t)
	b.idp.claims = map[string]any{"groups": "admins"}
	b.idp.broken = true
	require.Equal(t, "/ui/?signin=unreachable", b.signIn("/ui/"))
	b.serve(rules) // which has not asked yet
	clear(b.jar)
	at := b.idp.web.URL
	b.idp.web.Close()
	res, _ := b.ask(http.MethodGet, signin.Path)
	require.Equal(t, b.web.URL+"/ui/?signin=unreachable", res.Header.Get("Location"))
	require.Empty(t, res.Cookies())
	require.Contains(t, b.log.text(), at)
}
