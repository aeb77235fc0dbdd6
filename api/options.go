package api

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/bcc94042/instar/api/discovery"
	"github.com/bcc94042/instar/api/limits"
	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
)

// Options are what a [Server] works with. Machines, Commands, NC, JS and an index for every machine are needed.
type Options struct {
	Machines []*machines.Machine
	Commands *streams.Commands
	NC       *nats.Conn
	JS       jetstream.JetStream
	Names    streams.Names
	Indexes  map[string]*kv.Index // by name of machine

	DeadLetters DeadLetters        // nil offers none
	Nodes       Nodes              // nil offers none
	NodeLeads   func() *NodeLeads  // of the embedded NATS server; nil, or what it returns, tells none
	Discovery   *discovery.Catalog // nil offers none; it needs the machine of the instances
	Outbox      Outbox             // nil offers none

	// Backup copies everything that is stored to a writer; nil offers none.
	Backup func(context.Context, io.Writer) error

	Tokens []Token
	Users  []User   // of NATS that have a rate of their own
	Open   bool     // requests without a token are of "anonymous", who may do everything
	Hosts  []string // names besides those of loopback, and addresses, under which an open server may be asked; nil takes all

	// RequireIfMatch names the machines whose commands are refused without If-Match, unless they begin a life.
	RequireIfMatch []string

	// Admit, when set, says why what a command asks for can never be done, although its schema holds. Its error is the answer:
	// 422, with the text. It is asked at every door, before the command is stored; the key is empty for all entities of a batch.
	Admit func(streams.Command) error

	AnswerWithin time.Duration // until a command that the engine has not answered gets 202; 0 is 10 s

	KeysFor time.Duration // how long the answer to a key is kept; 0 is [streams.IdempotencyWindow]

	Ready  func() bool                       // nil is always ready; false makes /readyz 503, whatever the checks say
	Checks func(ctx context.Context) []Check // nil has none

	Limits   Limits         // the zero value has none
	Timeouts Timeouts       // what is 0 is as in [DefaultTimeouts]
	Pools    []*limits.Pool // of other doors, which /metrics shows beside those of Limits

	Version  Version
	Profile  string               // durability, as /readyz?verbose shows it
	Registry *prometheus.Registry // nil makes one
	Tracer   trace.Tracer         // nil traces nothing, but passes traceparent on
	Log      *slog.Logger         // nil discards
}

// Version is what /readyz?verbose, the documents and instar_build_info say about the build.
type Version struct {
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"`
	Built   string `json:"built,omitempty"`
}

// Check is one thing that must hold for the process to be ready.
type Check struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Warn   bool   `json:"warn,omitempty"` // it is ready, but somebody should look
	Detail string `json:"detail,omitempty"`
}

// DeadLetters are the messages that no code could handle.
type DeadLetters interface {
	// List returns up to limit letters after a sequence, oldest first.
	List(ctx context.Context, after uint64, limit int) ([]DeadLetter, error)
	// Get returns one letter, or an error that is [ErrNoLetter].
	Get(ctx context.Context, seq uint64) (DeadLetter, error)
	// Redrive puts a letter back where it came from and removes it, or returns an error that is [ErrNoLetter].
	Redrive(ctx context.Context, seq uint64) error
}

// ErrNoLetter says that there is no dead letter of that sequence; [streams.ErrNoLetter] is it as well.
var ErrNoLetter = streams.ErrNoLetter

// DeadLetter is one of them.
type DeadLetter struct {
	Seq      uint64
	Time     time.Time
	Consumer string // who gave it up
	Machine  string
	Key      string
	Subject  string // where it would be put back
	Reason   string
	Tries    int
	Body     []byte
}

// Role says what a token may do; each one includes those before it.
type Role string

// The roles.
const (
	Read    Role = "read"    // look
	Operate Role = "operate" // send commands
	Admin   Role = "admin"   // send commands that are for admins only, redrive dead letters
)

func (r Role) rank() int {
	switch r {
	case Read:
		return 1
	case Operate:
		return 2
	case Admin:
		return 3
	}
	return 0
}

// Token lets its bearer in. The token itself is not kept.
type Token struct {
	Name      string // the actor of what is done with it
	Hash      string // "sha256:" and the hash of the token in hex
	Role      Role
	Namespace string // the only one that it is good for, or "*"

	Rate, Burst int // as in [Limits]; a rate of 0 is that of all
}

// User is a user of NATS as its server tells of it: see [Limits].
type User struct {
	Account, Name string
	Rate, Burst   int
}

// HashToken is the Hash of a token.
func HashToken(token string) string {
	h := sha256.Sum256([]byte(token))
	return "sha256:" + hex.EncodeToString(h[:])
}

func (t Token) check() ([sha256.Size]byte, error) {
	var sum [sha256.Size]byte
	text, ok := strings.CutPrefix(t.Hash, "sha256:")
	raw, err := hex.DecodeString(text)
	switch {
	case t.Name == "" || len(t.Name) > 128 || !printable(t.Name):
		return sum, errors.New("api: a token has no printable name of up to 128 characters")
	case !ok || err != nil || len(raw) != sha256.Size:
		return sum, fmt.Errorf("api: hash of token %q is not sha256: and 64 hex digits", t.Name)
	case t.Role.rank() == 0:
		return sum, fmt.Errorf("api: role %q of token %q is none of read, operate, admin", t.Role, t.Name)
	case t.Namespace != anyNamespace && streams.CheckLabel(t.Namespace) != nil:
		return sum, fmt.Errorf("api: namespace %q of token %q is neither a name nor *", t.Namespace, t.Name)
	}
	copy(sum[:], raw)
	return sum, nil
}

func (o *Options) check() error {
	switch {
	case len(o.Machines) == 0:
		return errors.New("api: there are no machines")
	case o.Commands == nil || o.NC == nil || o.JS == nil:
		return errors.New("api: commands, connection and JetStream are needed")
	case !o.Open && len(o.Tokens) == 0:
		return errors.New("api: nobody could call it: it has no tokens and is not open")
	}
	if o.Discovery != nil && !slices.ContainsFunc(o.Machines, func(m *machines.Machine) bool { return m.Name == discovery.Machine }) {
		return fmt.Errorf("api: discovery needs the machine %s", discovery.Machine)
	}
	for _, m := range o.Machines {
		if o.Indexes[m.Name] == nil {
			return fmt.Errorf("api: machine %s has no index", m.Name)
		}
	}
	return nil
}
