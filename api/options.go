package api

// What the API is made of and bounded by. Package server fills Options in from its configuration, and each machine adds its doors (Admit, Place) and routes (More); New reads them once.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/bcc94042/instar/api/admin"
	"github.com/bcc94042/instar/api/auth"
	"github.com/bcc94042/instar/api/commands"
	"github.com/bcc94042/instar/api/discovery"
	"github.com/bcc94042/instar/api/entities"
	"github.com/bcc94042/instar/api/limits"
	"github.com/bcc94042/instar/api/rest"
	"github.com/bcc94042/instar/api/signin"
	"github.com/bcc94042/instar/kv/index"
	"github.com/bcc94042/instar/machines/registry"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/publish"
)

// Options are what a [Server] works with. Machines, Commands, NC, JS and an index for every machine are needed.
type Options struct {
	Machines *registry.Registry
	Commands *publish.Commands
	NC       *nats.Conn
	JS       jetstream.JetStream
	Names    streams.Names
	Indexes  *index.Map // of the machines

	DeadLetters admin.DeadLetters       // nil offers none
	Nodes       admin.Nodes             // nil offers none
	NodeLeads   func() *admin.NodeLeads // of the embedded NATS server; nil, or what it returns, tells none
	Discovery   *discovery.Catalog      // nil offers none; it needs the machine of the instances
	Outbox      admin.Outbox            // nil offers none

	// More are operations besides those of the tables: each is called once, with the parts of the server that is made, and what it returns whenever routes are built.
	More []func(Parts) func(*rest.Router) []*rest.Route

	// Backup copies everything that is stored to a writer; nil offers none.
	Backup func(context.Context, io.Writer) error

	Tokens []auth.Token
	Users  []rest.User // of NATS that have a rate of their own
	Open   bool        // requests without a token are of "anonymous", who may do everything
	Hosts  []string    // names besides those of loopback, and addresses, under which an open server may be asked; nil takes all

	// SignIn lets people in by a provider of OpenID Connect; nil lets in who has a token.
	SignIn *signin.Options

	// ReadOnlyUI lets the console look, and refuses what a browser sends to change something.
	ReadOnlyUI bool
	// Program is how the command line is called where people try what the console shows; "instar" if it is empty.
	Program string
	// TraceURL, with {trace} in the place of an id, and GrafanaURL are addresses that the console links to; empty has none.
	TraceURL, GrafanaURL string

	RequireIfMatch []string          // the machines whose commands are refused without If-Match, unless they begin a life
	Absent         map[string]string // by words of paths that there would be with it, a section of the configuration

	// Admit, when set, says why what a command asks for can never be done, although its schema holds, or not now. Its error is the answer:
	// 422, with the text, or the [*problem.Problem] that it is. It is asked at every door, before the command is stored; the key is empty for all entities of a batch.
	Admit func(publish.Command) error

	// Place, when set, gives a command what it needs until it is decided, such as a place in a queue, just before it is stored; or it says why there is none, as Admit does. What it
	// returns, if that is not nil, is told what has become of the command: its answer, or why there is none, or neither where it was only asked about.
	Place func(publish.Command) (commands.Left, error)

	// Withdraw, when set, takes back what Admit has set aside for a command, such as a session of a tenant. It is called for one that was only asked about.
	Withdraw func(publish.Command)

	AnswerWithin time.Duration // until a command that the engine has not answered gets 202; 0 is 10 s

	KeysFor time.Duration // how long the answer to a key is kept; 0 is [streams.IdempotencyWindow]

	Ready  func() bool                             // nil is always ready; false makes /readyz 503, whatever the checks say
	Checks func(ctx context.Context) []admin.Check // nil has none

	Limits   Limits         // the zero value has none
	Buffers  []admin.Buffer // what /readyz?verbose tells of what may wait in the program
	Timeouts rest.Timeouts  // what is 0 is as in [DefaultTimeouts]
	Pools    []*limits.Pool // of other doors, which /metrics shows beside those of Limits

	Version  admin.Version
	Profile  string               // durability, as /readyz?verbose shows it
	Registry *prometheus.Registry // nil makes one
	Tracer   trace.Tracer         // nil traces nothing, but passes traceparent on
	Log      *slog.Logger         // nil discards
}

// Parts are what operations are made of: how requests are read and answered, what is stored, and how commands are sent.
type Parts struct {
	Rest   *rest.Server
	Store  *entities.Store
	Sender *commands.Sender
	JS     jetstream.JetStream
}

func (o *Options) check() error {
	switch {
	case o.Machines == nil || len(o.Machines.All()) == 0:
		return errors.New("api: there are no machines")
	case o.Commands == nil || o.NC == nil || o.JS == nil:
		return errors.New("api: commands, connection and JetStream are needed")
	case !o.Open && len(o.Tokens) == 0:
		return errors.New("api: nobody could call it: it has no tokens and is not open")
	case o.Open && o.SignIn != nil:
		return errors.New("api: whoever reaches it may do everything, so there is nothing to sign in for: it needs tokens, too")
	}
	if o.Discovery != nil && o.Machines.Get(discovery.Machine) == nil {
		return fmt.Errorf("api: discovery needs the machine %s", discovery.Machine)
	}
	return nil
}

func (o *Options) orDefault() {
	o.KeysFor = cmp.Or(o.KeysFor, streams.IdempotencyWindow)
	o.AnswerWithin = cmp.Or(o.AnswerWithin, 10*time.Second)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Registry == nil {
		o.Registry = prometheus.NewRegistry()
	}
	if o.Tracer == nil {
		o.Tracer = noop.NewTracerProvider().Tracer("")
	}
}

// behind is for how long this node may have heard nothing of the others, as far as discovery tells.
func (o *Options) behind() func() time.Duration {
	catalog := o.Discovery
	if catalog == nil {
		return nil
	}
	return func() time.Duration {
		select {
		case <-catalog.Ready():
			return catalog.Stale()
		default:
			return 0
		}
	}
}
