package config

import (
	"fmt"
	"math"
	"net"
	"net/url"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/structs"
	"github.com/knadh/koanf/v2"

	"github.com/bcc94042/instar/api/auth"
	"github.com/bcc94042/instar/api/rest"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/embedded"
)

// Config is everything that a server can be told. [Load] fills and checks it, [Defaults] fills it alone. What each field means,
// and what it means when it is empty, is in the row of its option (options.go) and in docs/operations.md.
type Config struct {
	Mode         string    `koanf:"-"` // [Dev] or [Serve]; no setting, but which program runs
	Data         string    `koanf:"data"`
	Durability   string    `koanf:"durability"`
	Store        Store     `koanf:"store"`
	HTTP         HTTP      `koanf:"http"`
	UI           UI        `koanf:"ui"`
	Node         string    `koanf:"node"`
	Cluster      Cluster   `koanf:"cluster"`
	NATS         NATS      `koanf:"nats"`
	Auth         Auth      `koanf:"auth"`
	Gateway      string    `koanf:"gateway"`
	Gateways     Gateways  `koanf:"gateways"`
	Observe      Observe   `koanf:"observe"`
	Effects      Effects   `koanf:"effects"`
	Tasks        Tasks     `koanf:"tasks"`
	Index        Index     `koanf:"index"`
	Ended        Ended     `koanf:"ended"`
	Outbox       Outbox    `koanf:"outbox"`
	Tenants      Tenants   `koanf:"tenants"`
	Domains      Domains   `koanf:"domains"`
	Platform     Platform  `koanf:"platform"`
	Discovery    Discovery `koanf:"discovery"`
	Limits       Limits    `koanf:"limits"`
	Log          Log       `koanf:"log"`
	Insecure     bool      `koanf:"insecure"`
	StopServices bool      `koanf:"stopServices"`

	// IdempotencyWindow is how long the answer to a command is kept under the key of its sender.
	IdempotencyWindow time.Duration `koanf:"idempotencyWindow"`
}

// Store is how much may be stored; sizes as 10GiB, empty for what the rows of options say.
type Store struct {
	Max         string `koanf:"max"`
	Events      string `koanf:"events"`
	DeadLetters string `koanf:"deadLetters"`
}

// Sizes are the bytes of all three; 0 is what was not said.
func (s Store) Sizes() (most, events, dead int64) {
	return size(s.Max), size(s.Events), size(s.DeadLetters)
}

// size is a number of bytes; 0 of what is none.
func size(text string) int64 {
	n, err := humanize.ParseBytes(text)
	if err != nil || n > math.MaxInt64 {
		return 0
	}
	return int64(n)
}

// HTTP is the listener of the API and its page of documents.
type HTTP struct {
	Listen string  `koanf:"listen"`
	Hosts  string  `koanf:"hosts"` // more names under which a server without tokens is asked, with commas between them; * is any
	TLS    KeyPair `koanf:"tls"`

	RequireIfMatch string `koanf:"requireIfMatch"` // machines whose commands need If-Match, with commas between them

	HeaderTimeout time.Duration `koanf:"headerTimeout"` // until the headers of a request are there
	BodyTimeout   time.Duration `koanf:"bodyTimeout"`   // until the rest of it is
	WriteTimeout  time.Duration `koanf:"writeTimeout"`  // until the client has taken up to 64 KiB of an answer
	IdleTimeout   time.Duration `koanf:"idleTimeout"`   // between two requests of a connection
}

// UI is the console.
type UI struct {
	ReadOnly bool   `koanf:"readonly"`   // it shows, and what it would change is refused
	Trace    string `koanf:"traceUrl"`   // where traces are shown: an address with {trace} in it
	Grafana  string `koanf:"grafanaUrl"` // where the dashboard is
}

// RequiringIfMatch are the names, or plurals, of the machines in RequireIfMatch.
func (h HTTP) RequiringIfMatch() []string { return parts(h.RequireIfMatch) }

// parts splits a list with commas.
func parts(text string) []string {
	var list []string
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part != "" {
			list = append(list, part)
		}
	}
	return list
}

// AllowedHosts are the names, besides those of loopback, that a server takes which asks for no tokens; nil is any. One that can
// be reached from elsewhere is known there by the name of its machine, and by that which it listens on; others, such as that
// of a service in a compose file, must be said.
func (h HTTP) AllowedHosts() []string {
	list := parts(h.Hosts)
	if slices.Contains(list, "*") {
		return nil
	}
	if list == nil {
		list = []string{}
	}
	if Loopback(h.Listen) {
		return list
	}
	if host, _, _ := net.SplitHostPort(h.Listen); host != "" {
		list = append(list, host)
	}
	if name, err := os.Hostname(); err == nil { // else those that were said
		list = append(list, name)
	}
	return list
}

// NATS is the embedded server, or with URL the one to attach to. TLS is the certificate of the embedded listener, or
// what the client needs to attach.
type NATS struct {
	Listen   string          `koanf:"listen"`
	URL      string          `koanf:"url"`
	Context  string          `koanf:"context"`      // of the nats CLI: instead of URL, and of all that it takes to connect to it
	Write    string          `koanf:"writeContext"` // name of a context of the nats CLI that leads to the embedded server
	Creds    string          `koanf:"creds"`
	TLS      TLS             `koanf:"tls"`
	Prefix   string          `koanf:"prefix"`
	Replicas int             `koanf:"replicas"`
	Users    []embedded.User `koanf:"users"`
}

var natsContextName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// Attached reports whether the program uses a NATS server that is not its own.
func (n NATS) Attached() bool { return n.URL != "" || n.Context != "" }

// AdmitsAllNATS reports whether everybody who reaches the embedded listener may do everything: in dev, where nothing else is protected
// either, and where that is said. Else only users may connect, and the program itself.
func (c Config) AdmitsAllNATS() bool {
	return len(c.NATS.Users) == 0 && (c.Insecure || c.Mode == Dev && len(c.Auth.Tokens) == 0)
}

// APIUsers are the users of the embedded listener that have a rate of their own.
func (n NATS) APIUsers() []rest.User {
	var users []rest.User
	for _, u := range n.Users {
		if u.Rate > 0 {
			users = append(users, rest.User{Account: u.Account(), Name: u.Name, Rate: u.Rate, Burst: u.Burst})
		}
	}
	return users
}

// KeyPair names the files of a certificate.
type KeyPair struct {
	Cert string `koanf:"cert"`
	Key  string `koanf:"key"`
}

// TLS names the files of a certificate and of the authority that the other side is checked against.
type TLS struct {
	CA   string `koanf:"ca"`
	Cert string `koanf:"cert"`
	Key  string `koanf:"key"`
}

// Auth says who may use the HTTP API. Without tokens everybody may.
type Auth struct {
	Tokens []Token `koanf:"tokens"`
	OIDC   OIDC    `koanf:"oidc"`
}

// Token is one bearer token, of which only the hash is kept.
type Token struct {
	Name      string `koanf:"name"`
	Hash      string `koanf:"hash"` // "sha256:" and 64 hex digits
	Role      string `koanf:"role"`
	Namespace string `koanf:"namespace"` // the only one that it is good for; * for all, which [Load] also makes of none
	Rate      int    `koanf:"rate"`      // requests a second, instead of [Limits].Rate; 0 is that one
	Burst     int    `koanf:"burst"`     // of these, at once after a silence; 0 is as many as in a second
}

// APITokens are the tokens as the API takes them.
func (a Auth) APITokens() []auth.Token {
	tokens := make([]auth.Token, len(a.Tokens))
	for i, t := range a.Tokens {
		tokens[i] = auth.Token{Name: t.Name, Hash: t.Hash, Role: auth.Role(t.Role), Namespace: t.Namespace, Rate: t.Rate, Burst: t.Burst}
	}
	return tokens
}

// The roles of a [Token]; each may do what the one before may.
const (
	RoleRead    = "read"
	RoleOperate = "operate"
	RoleAdmin   = "admin"
)

// The gateways.
const (
	GatewayProcess   = "process"
	GatewaySimulated = "simulated"
	GatewayExternal  = "external" // workers elsewhere take the tasks
)

// Gateways hold the settings of each kind of gateway.
type Gateways struct {
	Process Process `koanf:"process"`
	Knative Knative `koanf:"knative"`
}

// Process is the gateway that runs services as local processes.
type Process struct {
	Host      string              `koanf:"host"`
	Templates map[string]Template `koanf:"templates"`
}

// Template is a program that services may run, under the name that a specification has as its image.
type Template struct {
	Command []string          `koanf:"command"`
	Env     map[string]string `koanf:"env"`
	Dir     string            `koanf:"dir"`
	Socket  string            `koanf:"socket"` // shared, fd or port
}

// Observe is how often the world is looked at.
type Observe struct {
	Every      time.Duration `koanf:"every"`
	ReadyStale time.Duration `koanf:"readyStale"`
}

// Index is what the indexes of the entities keep in memory.
type Index struct {
	EndedFor time.Duration `koanf:"endedFor"` // what has ended, and was not written since; 0 is for ever
}

// Effects limits the work in the world.
type Effects struct {
	Concurrency int `koanf:"concurrency"`
}

// Log is what is written to standard error.
type Log struct {
	Level  string `koanf:"level"`
	Format string `koanf:"format"`
}

// The two ways to run a server.
const (
	Dev   = "dev"
	Serve = "serve"
)

// Program is how the command line is called where people try what is shown to them: in dev as this program was, beside which they sit.
func (c Config) Program() string {
	if c.Mode == Dev {
		return os.Args[0]
	}
	return "instar"
}

// Defaults are what holds when nothing else is said.
func Defaults(mode string) Config {
	c := Config{
		Mode:              mode,
		Data:              "./data",
		Durability:        string(embedded.Fsync),
		HTTP:              defaultTimeouts(HTTP{Listen: "127.0.0.1:8080"}),
		IdempotencyWindow: streams.IdempotencyWindow,

		NATS:      NATS{Listen: "127.0.0.1:4222", Prefix: streams.DefaultPrefix, Replicas: 1},
		Cluster:   Cluster{Replicas: 3},
		Gateway:   GatewayProcess,
		Gateways:  Gateways{Process: Process{Host: "127.0.0.1"}, Knative: Knative{Owner: "instar"}},
		Observe:   Observe{Every: time.Minute, ReadyStale: 15 * time.Minute},
		Effects:   Effects{Concurrency: 16},
		Tasks:     defaultTasks(mode),
		Index:     Index{EndedFor: 24 * time.Hour},
		Ended:     Ended{DropAfter: 7 * 24 * time.Hour},
		Outbox:    Outbox{Postgres: PostgresOff},
		Domains:   Domains{ACME: LetsEncrypt},
		Platform:  defaultPlatform(),
		Discovery: Discovery{DNSDomain: "instar"},
		Limits:    defaultLimits(),
		Log:       Log{Level: "info", Format: "text"},
	}
	if mode == Dev {
		c.Gateway = DefaultGateway()
		c.Durability = string(embedded.Interval)
		c.Outbox.Postgres = PostgresAuto
	}
	return c
}

// hidden stands where a secret was.
const hidden = "***"

// Redacted is the configuration with *** in place of passwords, hashes and values that may hold secrets.
func (c Config) Redacted() Config {
	if u, err := url.Parse(c.NATS.URL); err == nil && u.User != nil {
		u.User = url.User(hidden)
		c.NATS.URL = u.String()
	} else if err != nil {
		c.NATS.URL = hidden
	}
	c.Cluster = c.Cluster.redacted()
	c.NATS.Users = slices.Clone(c.NATS.Users)
	for i := range c.NATS.Users {
		c.NATS.Users[i].Password = hidden
	}
	c.Auth.Tokens = slices.Clone(c.Auth.Tokens)
	for i := range c.Auth.Tokens {
		c.Auth.Tokens[i].Hash = hidden
	}
	templates := map[string]Template{}
	for name, t := range c.Gateways.Process.Templates {
		env := map[string]string{}
		for k := range t.Env {
			env[k] = hidden
		}
		t.Env = env
		templates[name] = t
	}
	c.Gateways.Process.Templates = templates
	c.Outbox = c.Outbox.redacted()
	c.Tasks = c.Tasks.redacted()
	c.Tenants = c.Tenants.redacted()
	c.Platform = c.Platform.redacted()
	return c
}

// String is the redacted configuration as YAML.
func (c Config) String() string {
	k := koanf.New(delim)
	if err := k.Load(structs.Provider(c.Redacted(), "koanf"), nil); err != nil {
		return fmt.Sprintf("cannot print the configuration: %v", err)
	}
	text, err := k.Marshal(yaml.Parser())
	if err != nil {
		return fmt.Sprintf("cannot print the configuration: %v", err)
	}
	return string(text)
}

// DefaultGateway is what runs services in dev where nothing else is said: the gateway process is there on Linux only. A server
// that is no trial refuses to start without it rather than to do as if.
func DefaultGateway() string {
	if runtime.GOOS == "linux" {
		return GatewayProcess
	}
	return GatewaySimulated
}
