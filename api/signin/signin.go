package signin

// Service and its two routes, which package api registers. begin makes state, nonce and verifier, seals them into a cookie, and sends the browser to the provider; end opens
// the cookie, has provider.exchange make claims of the code, Options.person a person of the claims, and auth.Keyring.SealPerson the cookie of a session. failed sends a
// browser to the console with one word, why, and logs the rest.

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"golang.org/x/oauth2"

	"github.com/bcc94042/instar/api/auth"
	"github.com/bcc94042/instar/api/limits"
	"github.com/bcc94042/instar/api/problem"
	"github.com/bcc94042/instar/api/rest"
)

// Where a sign-in begins, and where the provider sends browsers to.
const (
	Path     = "/v1/session/oidc"
	Callback = Path + "/callback"
)

// Cookie has what a sign-in is about while the browser is at the provider.
const Cookie = "instar_signin"

// within is how long somebody may be at the provider.
const within = 10 * time.Minute

// Options are the provider, and what its claims mean. All but Scopes and Name are needed.
type Options struct {
	Issuer     string
	ClientID   string
	SecretFile string // has the secret of the client
	URL        string // of this server, as browsers have it, without a path
	Scopes     []string
	Name       string // the claim that is the actor's name; "email" when empty
	Rules      []Rule
}

// Host is the name of the provider, as people know it.
func (o *Options) Host() string {
	u, err := url.Parse(o.Issuer)
	if err != nil {
		return o.Issuer
	}
	return u.Host
}

// Service signs people in.
type Service struct {
	rest     *rest.Server
	box      *auth.Box
	o        Options
	provider provider

	pace      *limits.Rate // of an address, whatever limits.rate is: each sign-in has the secret of the client sent
	exchanges *limits.Pool
}

// What sign-ins may ask of the provider: so often from one address, and so many codes at once.
var (
	pace      = limits.Pace{PerSecond: 5, Burst: 100}
	exchanges = limits.Bound{All: 16}
)

// New reads the secret, and asks the provider nothing yet: a server starts without it.
func New(server *rest.Server, o Options) (*Service, error) {
	raw, err := os.ReadFile(o.SecretFile)
	if err != nil {
		return nil, fmt.Errorf("auth.oidc: cannot read the secret of the client: %w", err)
	}
	secret := strings.TrimSpace(string(raw))
	if secret == "" {
		return nil, fmt.Errorf("auth.oidc: %s is empty; it has to have the secret of the client", o.SecretFile)
	}
	rules, err := json.Marshal(o.Rules) // sessions end when others may do something
	if err != nil {
		return nil, err
	}
	box, err := server.Keys.Trust([]byte(secret + "\n" + o.Issuer + "\n" + o.ClientID + "\n" + string(rules)))
	if err != nil {
		return nil, err
	}
	s := &Service{rest: server, box: box, o: o, pace: limits.NewRate("sign-ins", pace, nil), exchanges: limits.NewPool("sign-ins", exchanges)}
	s.provider.o, s.provider.secret = &s.o, secret
	return s, nil
}

// Routes are the two of a sign-in. They are for browsers, and not in the document.
func (s *Service) Routes() []*rest.Route {
	return []*rest.Route{
		{Open: true, Page: true, Serve: s.begin, Op: huma.Operation{Method: http.MethodGet, Path: Path, Hidden: true}},
		{Open: true, Page: true, Serve: s.end, Op: huma.Operation{Method: http.MethodGet, Path: Callback, Hidden: true}},
	}
}

// pending is a sign-in, as the browser keeps it, sealed.
type pending struct {
	State    string `json:"state"`
	Nonce    string `json:"nonce"`
	Verifier string `json:"verifier"`
	To       string `json:"to"` // the page to show then
}

// begin sends a browser to the provider.
func (s *Service) begin(q *rest.Request) error {
	if p := s.counted(q); p != nil {
		return p
	}
	to := ownPage(q.R.URL.Query().Get("to"))
	found, err := s.provider.find(q.Context())
	if err != nil {
		return s.failed(q, to, unreachable, err)
	}
	p := pending{State: rand.Text(), Nonce: rand.Text(), Verifier: oauth2.GenerateVerifier(), To: to}
	plain, err := json.Marshal(p)
	if err != nil {
		return err
	}
	s.keep(q, s.box.Seal(Cookie, plain, time.Now().Add(within)), int(within.Seconds()))
	return s.send(q, found.oauth.AuthCodeURL(p.State, oauth2.S256ChallengeOption(p.Verifier), oauth2.SetAuthURLParam("nonce", p.Nonce)))
}

// end takes what the provider sends a browser back with.
func (s *Service) end(q *rest.Request) error {
	if p := s.counted(q); p != nil {
		return p
	}
	query := q.R.URL.Query()
	p, err := s.pending(q.R)
	switch {
	case err != nil:
		return s.failed(q, "", expired, err)
	case subtle.ConstantTimeCompare([]byte(query.Get("state")), []byte(p.State)) != 1:
		return s.failed(q, p.To, expired, errors.New("the state is that of another sign-in"))
	}
	leave, err := s.exchanges.Take(q.Client())
	if err != nil {
		return rest.TooMany(err, time.Second)
	}
	defer leave()
	s.keep(q, "", -1) // a second time with the same state is none of this browser's
	switch {
	case query.Has("iss") && query.Get("iss") != s.o.Issuer: // RFC 9207
		return s.failed(q, p.To, invalid, fmt.Errorf("the answer is of another issuer: %.200q", query.Get("iss")))
	case query.Has("error"):
		return s.failed(q, p.To, denied, fmt.Errorf("the provider says %.100q: %.500q", query.Get("error"), query.Get("error_description")))
	case query.Get("code") == "":
		return s.failed(q, p.To, invalid, errors.New("the answer has no code"))
	}
	ctx, cancel := context.WithTimeout(q.Context(), patience)
	defer cancel()
	all, why, err := s.provider.exchange(ctx, query.Get("code"), p)
	if err != nil {
		return s.failed(q, p.To, why, err)
	}
	who, err := s.o.person(all)
	if err != nil {
		return s.failed(q, p.To, unknown, err)
	}
	value := s.rest.Keys.SealPerson(who, time.Now().Add(auth.SessionFor).Truncate(time.Second))
	auth.SetSession(q.W, q.R, value, int(auth.SessionFor.Seconds()), s.secure())
	s.rest.Log.Info("somebody has signed in", "name", who.Name, "role", who.Role, "namespace", who.Namespace, "request", q.Id)
	return s.send(q, s.o.URL+p.To)
}

// counted bounds how often an address begins or ends a sign-in.
func (s *Service) counted(q *rest.Request) *problem.Problem {
	q.Who = auth.Anonymous
	if wait, ok := s.pace.Allow(q.Client()); !ok {
		return rest.TooOften("this address signs in too often", wait)
	}
	return s.rest.CheckRate(q.Client())
}

func (s *Service) pending(r *http.Request) (p pending, err error) {
	value, err := auth.Cookie(r, Cookie, s.secure())
	if err != nil {
		return p, err
	}
	plain, _, ok := s.box.Open(Cookie, value)
	if !ok || json.Unmarshal(plain, &p) != nil {
		return p, errors.New("the browser has no sign-in that is not over")
	}
	return p, nil
}

// keep gives the browser the cookie of a sign-in. It is lax, since it has to come along when the provider, another site, sends the browser back.
func (s *Service) keep(q *rest.Request, value string, seconds int) {
	auth.SetCookie(q.W, q.R, &http.Cookie{Name: Cookie, Value: value, Path: Path, MaxAge: seconds, SameSite: http.SameSiteLaxMode, Secure: s.secure()})
}

func (s *Service) secure() bool { return strings.HasPrefix(s.o.URL, "https://") }

func (s *Service) send(q *rest.Request, to string) error {
	q.W.Header().Set("Cache-Control", "no-store")
	http.Redirect(q.W, q.R, to, http.StatusSeeOther)
	return nil
}

// Why a sign-in failed, as the page of the console knows it and says what to do.
const (
	denied      = "denied"      // by the provider, or by whoever was to sign in
	expired     = "expired"     // or begun in another browser, or twice
	unknown     = "unknown"     // no rule is for this person
	invalid     = "invalid"     // the answer of the provider does not hold
	unreachable = "unreachable" // the provider does not answer
)

// failed logs why, and has the console say what to do.
func (s *Service) failed(q *rest.Request, to, why string, err error) error {
	s.rest.Log.Warn("a sign-in failed", "why", why, "error", fmt.Sprintf("%.500s", err.Error()), "issuer", s.o.Issuer, "request", q.Id)
	u, parsed := url.Parse(ownPage(to))
	if parsed != nil {
		return parsed
	}
	query := u.Query()
	query.Set("signin", why)
	u.RawQuery = query.Encode()
	return s.send(q, s.o.URL+u.String())
}

// ownPage is a page of the console: an address below /ui/ of this server, or its home for any other.
func ownPage(to string) string {
	u, err := url.Parse(to)
	if err != nil || u.Scheme != "" || u.Host != "" || u.Opaque != "" || u.User != nil || len(to) > 1024 || strings.Contains(u.Path, `\`) {
		return "/ui/"
	}
	if !strings.HasPrefix(path.Clean(u.Path)+"/", "/ui/") {
		return "/ui/"
	}
	query := u.Query()
	query.Del("signin")
	return (&url.URL{Path: u.Path, RawQuery: query.Encode()}).String()
}
