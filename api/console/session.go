package console

// The console as api/server.go makes it (New, Routes), and the three routes under /v1/session. show says who asks (auth.Keyring.Identify), begin has auth.Keyring.Seal turn a
// token into the value of a cookie, end takes the cookie back. From then on package rest finds the session in each request; nothing of it is stored here.

import (
	"encoding/json"
	"io/fs"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/bcc94042/instar/api/auth"
	"github.com/bcc94042/instar/api/problem"
	"github.com/bcc94042/instar/api/rest"
)

// Console is the page, and the sessions of those who look at it.
type Console struct {
	rest *rest.Server
	of   Options
	site func() (*site, error) // nil has none
}

// Options are what a console says of its server.
type Options struct {
	Version  string
	Program  string // how the command line is called where people try what the page shows; "instar" if it is empty
	ReadOnly bool
	Provider *Provider // nil lets in who has a token
	Links    Links
}

// Links are where a browser finds what the server itself does not show.
type Links struct {
	Trace   string `json:"traceUrl,omitempty" doc:"Address of a trace, with {trace} in the place of its id (ui.traceUrl)"`
	Grafana string `json:"grafanaUrl,omitempty" doc:"Address of the dashboard (ui.grafanaUrl)"`
}

// New makes the console of a server.
func New(server *rest.Server, o Options) *Console {
	return newConsole(server, web, o)
}

func newConsole(server *rest.Server, files fs.FS, o Options) *Console {
	c := &Console{rest: server, of: o}
	if files != nil {
		c.site = sync.OnceValues(func() (*site, error) { return load(files, o) })
	}
	return c
}

// Pages is where entities are shown, by machine and key; nil where the binary has no console.
func Pages() func(machine, key string) string {
	if web == nil {
		return nil
	}
	return func(machine, key string) string {
		namespace, id, _ := strings.Cut(key, ".")
		page := "/ui/entities/" + machine + "/" + strings.Replace(id, ".", "/", 1) // names need no escapes
		if namespace != "default" {
			page += "?namespace=" + namespace
		}
		return page
	}
}

// Session says who asks, and what they may do in a browser.
type Session struct {
	Open      bool       `json:"open" doc:"The server asks for no token: whoever reaches it may do everything"`
	SignedIn  bool       `json:"signedIn" doc:"The request came with a session or a token"`
	Name      string     `json:"name,omitempty" doc:"The actor of what is done"`
	Role      auth.Role  `json:"role,omitempty" enum:"read,operate,admin"`
	Namespace string     `json:"namespace,omitempty" doc:"The only one that the token is good for, or *"`
	ReadOnly  bool       `json:"readOnly,omitempty" doc:"What a browser sends to change something is refused (ui.readonly)"`
	Until     *time.Time `json:"until,omitempty" doc:"The end of the session"`
	Provider  *Provider  `json:"provider,omitempty" doc:"Where people sign in who have no token, if they can"`
	Links                // of who may look
}

// Provider is a provider of OpenID Connect (package signin).
type Provider struct {
	Name string `json:"name" doc:"Its host"`
	Href string `json:"href" doc:"The address that a browser begins at; ?to= names the page of the console to show then"`
}

// SignIn is a token that opens a session.
type SignIn struct {
	Token string `json:"token" minLength:"1" maxLength:"1024" doc:"A token of the configuration"`
}

// Routes are those of the page, if there is one, and of sessions.
func (c *Console) Routes(r *rest.Router) []*rest.Route {
	tags := []string{"session"}
	schema := r.Registry().Schema(reflect.TypeFor[SignIn](), true, "")
	content := r.BodyOf(reflect.TypeFor[Session]())
	routes := []*rest.Route{
		{Open: true, Serve: c.show, Op: huma.Operation{
			OperationID: "get-session", Method: http.MethodGet, Path: "/v1/session", Tags: tags, Summary: "Say who asks, and what they may do",
			Responses: map[string]*huma.Response{"200": {Description: "Who asks", Content: content}},
		}},
		{Open: true, Serve: func(q *rest.Request) error { return c.begin(q, schema) }, Op: huma.Operation{
			OperationID: "begin-session", Method: http.MethodPost, Path: "/v1/session", Tags: tags, Summary: "Begin a session of a browser with a token", Errors: []int{401},
			Description: "The answer sets a cookie (HttpOnly, SameSite=Strict, over TLS Secure) that stands for the token for 12 hours. It is refused for pages of other sites. Programs send the token itself instead.",
			RequestBody: &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{"application/json": {Schema: schema}}},
			Responses:   map[string]*huma.Response{"200": {Description: "The session", Content: content, Headers: map[string]*huma.Param{"Set-Cookie": {Schema: rest.Text(4096)}}}},
		}},
		{Open: true, Serve: c.end, Op: huma.Operation{
			OperationID: "end-session", Method: http.MethodDelete, Path: "/v1/session", Tags: tags, Summary: "End the session of a browser",
			Responses: map[string]*huma.Response{"200": {Description: "There is none any more", Content: content, Headers: map[string]*huma.Param{"Set-Cookie": {Schema: rest.Text(4096)}}}},
		}},
	}
	if c.site == nil {
		return routes
	}
	deep := []*huma.Param{{Name: "path...", In: "path", Required: true, Schema: rest.Text(1024)}}
	return append(routes,
		&rest.Route{Open: true, Page: true, Serve: c.serve, Op: huma.Operation{Method: http.MethodGet, Path: "/ui/{path...}", Hidden: true, Parameters: deep}},
		&rest.Route{Open: true, Page: true, Op: huma.Operation{Method: http.MethodGet, Path: "/ui", Hidden: true}, Serve: func(q *rest.Request) error {
			http.Redirect(q.W, q.R, "/ui/", http.StatusTemporaryRedirect)
			return nil
		}})
}

// Has reports whether there is a page.
func (c *Console) Has() bool { return c.site != nil }

func (c *Console) show(q *rest.Request) error {
	q.W.Header().Set("Cache-Control", "no-store")
	s := c.session()
	who, p := c.rest.Keys.Identify(q.R)
	if p == nil {
		c.let(&s, who)
		s.SignedIn = who != auth.Anonymous
	}
	if who.Session() {
		until := who.Until.UTC()
		s.Until = &until
	}
	return q.JSON(http.StatusOK, s)
}

// session is one of nobody yet.
func (c *Console) session() Session {
	return Session{Open: c.rest.Open, ReadOnly: c.of.ReadOnly, Provider: c.of.Provider}
}

// let says in a session who has it.
func (c *Console) let(s *Session, who auth.Identity) {
	s.Name, s.Role, s.Namespace, s.Links = who.Name, who.Role(), who.Namespace, c.of.Links
}

func (c *Console) begin(q *rest.Request, schema *huma.Schema) error {
	if p := c.rest.FromHere(q.R); p != nil {
		return p
	}
	q.Who = auth.Anonymous // so that its address is counted
	if p := c.rest.CheckRate(q.Client()); p != nil {
		return p
	}
	raw, p := q.Body(schema)
	if p != nil {
		return p
	}
	var in SignIn
	if err := json.Unmarshal(raw, &in); err != nil {
		return problem.Invalid("body", "has a value of another type")
	}
	until := time.Now().Add(auth.SessionFor).UTC().Truncate(time.Second)
	who, value := c.rest.Keys.Seal(in.Token, until)
	if value == "" {
		return problem.New(problem.CodeUnauthorized, "the token is not known").With("WWW-Authenticate", `Bearer realm="instar"`)
	}
	c.cookie(q, value, int(auth.SessionFor.Seconds()))
	s := c.session()
	s.SignedIn, s.Until, s.Provider = true, &until, nil
	c.let(&s, who)
	return q.JSON(http.StatusOK, s)
}

func (c *Console) end(q *rest.Request) error {
	if p := c.rest.FromHere(q.R); p != nil {
		return p
	}
	if _, p := q.Body(nil); p != nil {
		return p
	}
	c.cookie(q, "", -1)
	s := c.session()
	if c.rest.Open {
		c.let(&s, auth.Anonymous)
	}
	return q.JSON(http.StatusOK, s)
}

func (c *Console) cookie(q *rest.Request, value string, seconds int) {
	auth.SetSession(q.W, q.R, value, seconds, false)
}
