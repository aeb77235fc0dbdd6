package api

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"strings"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
)

// anyNamespace is the namespace of tokens that are good for all, and of lists over all.
const anyNamespace = "*"

// defaultNamespace is what a request means that names none.
const defaultNamespace = "default"

// identity is who makes a request.
type identity struct {
	name      string
	role      Role
	namespace string
}

var anonymous = identity{name: "anonymous", role: Admin, namespace: anyNamespace}

// keyring knows tokens by their hashes. How long it takes to find one tells of hashes only, which nobody can choose.
type keyring struct {
	open bool
	ids  map[[sha256.Size]byte]identity
}

func newKeyring(tokens []Token, open bool) (*keyring, error) {
	k := &keyring{open: open, ids: make(map[[sha256.Size]byte]identity, len(tokens))}
	for _, t := range tokens {
		sum, err := t.check()
		if err != nil {
			return nil, err
		}
		k.ids[sum] = identity{t.Name, t.Role, t.Namespace}
	}
	return k, nil
}

// who finds the bearer.
func (k *keyring) who(r *http.Request) (identity, *Problem) {
	header := r.Header["Authorization"]
	if len(header) == 0 {
		if k.open {
			return anonymous, nil
		}
		return identity{}, unauthorized("this needs a bearer token")
	}
	scheme, token, _ := strings.Cut(header[0], " ")
	if len(header) > 1 || !strings.EqualFold(scheme, "Bearer") || token == "" {
		return identity{}, unauthorized("the Authorization header is not one bearer token")
	}
	id, known := k.ids[sha256.Sum256([]byte(strings.TrimSpace(token)))]
	if !known {
		return identity{}, unauthorized("the bearer token is not known")
	}
	return id, nil
}

func unauthorized(detail string) *Problem {
	return problem(codeUnauthorized, detail).with("WWW-Authenticate", `Bearer realm="instar"`)
}

func (id identity) may(role Role) *Problem {
	if id.role.rank() >= role.rank() {
		return nil
	}
	return problem(codeForbidden, fmt.Sprintf("this needs the role %s; the token has %s", role, id.role))
}

// in resolves the namespace that a request means. all allows "*". A namespace that the token is not good for is not
// found, like everything in it.
func (id identity) in(asked string, all bool) (string, *Problem) {
	switch {
	case asked == "" && id.namespace != anyNamespace:
		return id.namespace, nil
	case asked == "":
		return defaultNamespace, nil
	case asked == anyNamespace && all:
		if id.namespace != anyNamespace {
			return id.namespace, nil
		}
		return anyNamespace, nil
	}
	if err := streams.CheckLabel(asked); err != nil {
		return "", invalid("query.namespace", labelRule)
	}
	if id.namespace != anyNamespace && id.namespace != asked {
		return "", problem(machines.CodeNotFound, "there is no such namespace")
	}
	return asked, nil
}

// sees reports whether the token may know of a key.
func (id identity) sees(key string) bool {
	ns, _, _ := strings.Cut(key, ".")
	return id.namespace == anyNamespace || id.namespace == ns
}

// ofAll refuses what tells of all namespaces at once, or concerns all of them, to a token of one.
func (id identity) ofAll(what string) *Problem {
	if id.namespace == anyNamespace {
		return nil
	}
	return problem(codeForbidden, what+" are of all namespaces; the token is for one")
}

const labelRule = "must be 1 to 63 of a-z, 0-9 and inner hyphens"
