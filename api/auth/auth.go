// Package auth knows who asks: bearer tokens by their hashes, what the role of each allows, and which namespace it is good for.
package auth

// Tokens come from the configuration as hashes with a role and a namespace; NewKeyring checks them. For each request
// package rest calls Keyring.Identify, which looks up the hash of the bearer token, and May for the role of the route.
// A browser has a session instead (session.go). Handlers then ask the Identity which namespace a request means (Resolve) and which keys its token may see (Sees).

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/bcc94042/instar/api/problem"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
)

// AnyNamespace is the namespace of tokens that are good for all, and of lists over all.
const AnyNamespace = "*"

// DefaultNamespace is what a request means that names none.
const DefaultNamespace = "default"

// Identity is who makes a request.
type Identity struct {
	Name      string
	role      Role
	Namespace string
	Until     time.Time // the end of the session; zero came with the token itself
}

// Anonymous is who asks an open server without a token.
var Anonymous = Identity{Name: "anonymous", role: Admin, Namespace: AnyNamespace}

// Keyring finds tokens by their hashes. The time of a lookup reveals something about hashes only, which nobody can choose.
type Keyring struct {
	open   bool
	ids    map[[sha256.Size]byte]Identity
	box    *Box // of sessions that tokens have opened
	people *Box // of sessions of people; nil lets none in
}

// NewKeyring fails for an invalid token: one without a printable name, a hash, a role or a namespace.
func NewKeyring(tokens []Token, open bool) (*Keyring, error) {
	k := &Keyring{open: open, ids: make(map[[sha256.Size]byte]Identity, len(tokens))}
	for _, t := range tokens {
		sum, err := t.check()
		if err != nil {
			return nil, err
		}
		k.ids[sum] = Identity{Name: t.Name, role: t.Role, Namespace: t.Namespace}
	}
	var err error
	k.box, err = newBox(k.sums())
	return k, err
}

// Identify finds the bearer of the token of a request, or who has the session of its cookie. Without either it is [Anonymous] if the server is open.
func (k *Keyring) Identify(r *http.Request) (Identity, *problem.Problem) {
	header := r.Header["Authorization"]
	if len(header) == 0 {
		if id, ok := k.Session(r); ok {
			return id, nil
		}
		if k.open {
			return Anonymous, nil
		}
		if _, err := Cookie(r, SessionCookie, false); errors.Is(err, errTwice) {
			return Identity{}, unauthorized(err.Error())
		}
		return Identity{}, unauthorized("this needs a bearer token")
	}
	scheme, token, _ := strings.Cut(header[0], " ")
	if len(header) > 1 || !strings.EqualFold(scheme, "Bearer") || token == "" {
		return Identity{}, unauthorized("the Authorization header is not one bearer token")
	}
	id, known := k.ids[sha256.Sum256([]byte(strings.TrimSpace(token)))]
	if !known {
		return Identity{}, unauthorized("the bearer token is not known")
	}
	return id, nil
}

func unauthorized(detail string) *problem.Problem {
	return problem.New(problem.CodeUnauthorized, detail).With("WWW-Authenticate", `Bearer realm="instar"`)
}

// May refuses with 403 what needs a higher role.
func (id Identity) May(role Role) *problem.Problem {
	if id.role.Rank() >= role.Rank() {
		return nil
	}
	return problem.New(problem.CodeForbidden, fmt.Sprintf("this needs the role %s; who asks has %s", role, id.role))
}

// Resolve is the namespace that a request means. all allows "*", which is empty if the token is good for all namespaces, and else that of the token. A
// namespace that the token is not good for is not found, like everything in it.
func (id Identity) Resolve(asked string, all bool) (string, *problem.Problem) {
	switch {
	case asked == "" && id.Namespace != AnyNamespace:
		return id.Namespace, nil
	case asked == "":
		return DefaultNamespace, nil
	case asked == AnyNamespace && all:
		if id.Namespace != AnyNamespace {
			return id.Namespace, nil
		}
		return "", nil
	}
	if err := streams.CheckLabel(asked); err != nil {
		return "", problem.Invalid("query.namespace", problem.LabelRule)
	}
	if id.Namespace != AnyNamespace && id.Namespace != asked {
		return "", problem.New(machines.CodeNotFound, "there is no such namespace")
	}
	return asked, nil
}

// Sees reports whether the token may know of a key.
func (id Identity) Sees(key string) bool {
	ns, _, _ := strings.Cut(key, ".")
	return id.Namespace == AnyNamespace || id.Namespace == ns
}

// OfAll refuses what shows or concerns all namespaces at once to a token of one namespace.
func (id Identity) OfAll(what string) *problem.Problem {
	if id.Namespace == AnyNamespace {
		return nil
	}
	return problem.New(problem.CodeForbidden, what+" are of all namespaces; the token is for one")
}

// Role says what a token may do; each one includes those before it.
type Role string

// The roles.
const (
	Read    Role = "read"    // look
	Operate Role = "operate" // send commands
	Admin   Role = "admin"   // send commands that are for admins only, redrive dead letters
)

// Rank orders roles; it is 0 for anything that is not a role.
func (r Role) Rank() int {
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

	Rate, Burst int // requests per second, and how many at once; a rate of 0 is the one that clients have by default
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
	case t.Name == "" || len(t.Name) > 128 || !problem.Printable(t.Name):
		return sum, errors.New("api: a token has no printable name of up to 128 characters")
	case !ok || err != nil || len(raw) != sha256.Size:
		return sum, fmt.Errorf("api: hash of token %q is not sha256: and 64 hex digits", t.Name)
	case t.Role.Rank() == 0:
		return sum, fmt.Errorf("api: role %q of token %q is none of read, operate, admin", t.Role, t.Name)
	case t.Namespace != AnyNamespace && streams.CheckLabel(t.Namespace) != nil:
		return sum, fmt.Errorf("api: namespace %q of token %q is neither a name nor *", t.Namespace, t.Name)
	}
	copy(sum[:], raw)
	return sum, nil
}
