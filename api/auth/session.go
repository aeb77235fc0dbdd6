package auth

// Sessions of browsers, which cannot send a header with every request that they make: Keyring.Seal makes the value of a cookie from a token, and Identify
// takes a request with that cookie for one with the token. Nothing is stored: the value is the token with the end of the session, sealed under a key
// that follows from the hashes of all tokens. So a session outlives a restart, is good on every node that has the same tokens, and ends when
// they change. Who takes a cookie has the session for as long as it lasts; who has the hashes of the configuration, too, can open it and has the token.
// People whom a provider has identified have no token (package signin): their session says who they are, sealed under a key that a secret is part of (Trust).

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"
)

// SessionCookie is the name of the cookie of a session; see [SetCookie].
const SessionCookie = "instar_session"

// SessionFor is how long a session lasts.
const SessionFor = 12 * time.Hour

// ofPerson begins the value of a session without a token; no value in base64 has a dot.
const ofPerson = "p."

// Box seals what a browser is to keep and give back. What was sealed for one purpose opens for no other.
type Box struct{ aead cipher.AEAD }

// newBox makes a key of a secret.
func newBox(secret []byte) (*Box, error) {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte("instar session v1"))
	block, err := aes.NewCipher(mac.Sum(nil))
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCM(block)
	return &Box{aead}, err
}

// Seal makes a text of plain that [Box.Open] opens until a time.
func (b *Box) Seal(purpose string, plain []byte, until time.Time) string {
	nonce := make([]byte, b.aead.NonceSize(), b.aead.NonceSize()+8+len(plain)+b.aead.Overhead())
	rand.Read(nonce)
	plain = append(binary.BigEndian.AppendUint64(nil, uint64(until.Unix())), plain...)
	return base64.RawURLEncoding.EncodeToString(b.aead.Seal(nonce, nonce, plain, []byte(purpose)))
}

// Open is what was sealed, and until when it holds; false is another's, changed, or over.
func (b *Box) Open(purpose, value string) (plain []byte, until time.Time, ok bool) {
	raw, err := base64.RawURLEncoding.DecodeString(value)
	n := b.aead.NonceSize()
	if err != nil || len(raw) < n {
		return nil, until, false
	}
	plain, err = b.aead.Open(nil, raw[:n], raw[n:], []byte(purpose))
	if err != nil || len(plain) < 8 {
		return nil, until, false
	}
	until = time.Unix(int64(binary.BigEndian.Uint64(plain)), 0)
	return plain[8:], until, time.Now().Before(until)
}

// Session reports whether who asks came with the cookie of a session.
func (id Identity) Session() bool { return !id.Until.IsZero() }

// Role is what the token allows.
func (id Identity) Role() Role { return id.role }

// sums are the hashes of all tokens, in whatever order they are configured.
func (k *Keyring) sums() []byte {
	var sums [][]byte
	for sum := range k.ids {
		sums = append(sums, sum[:])
	}
	slices.SortFunc(sums, slices.Compare)
	return slices.Concat(sums...)
}

// Person is one who has no token, and whom somebody else has identified.
type Person struct {
	Name      string `json:"name"`
	Role      Role   `json:"role"`
	Namespace string `json:"namespace"` // or "*"
}

// Trust lets in who has a session of a [Person], sealed under a key that follows from a secret and the hashes of all tokens. What it returns seals other things
// under that key. It is to be called before the first request.
func (k *Keyring) Trust(secret []byte) (*Box, error) {
	if len(secret) == 0 {
		return nil, errors.New("api: sessions of people cannot be sealed without a secret")
	}
	var err error
	k.people, err = newBox(slices.Concat(k.sums(), secret))
	return k.people, err
}

// Seal is the value of the cookie of a session that a token opens, until a time. It is empty for a token that is not known.
func (k *Keyring) Seal(token string, until time.Time) (id Identity, value string) {
	id, known := k.ids[sha256.Sum256([]byte(token))]
	if !known {
		return Identity{}, ""
	}
	return id, k.box.Seal(SessionCookie, []byte(token), until)
}

// SealPerson is the value of the cookie of a session of a person, until a time. It is empty before [Keyring.Trust].
func (k *Keyring) SealPerson(p Person, until time.Time) string {
	plain, err := json.Marshal(p)
	if k.people == nil || err != nil {
		return ""
	}
	return ofPerson + k.people.Seal(SessionCookie, plain, until)
}

// Session is who has the session of a request; false has none that holds.
func (k *Keyring) Session(r *http.Request) (id Identity, ok bool) {
	value, err := Cookie(r, SessionCookie, false)
	if err != nil {
		return Identity{}, false
	}
	if value, person := strings.CutPrefix(value, ofPerson); person {
		return k.person(value)
	}
	token, until, ok := k.box.Open(SessionCookie, value)
	if !ok {
		return Identity{}, false
	}
	if id, ok = k.ids[sha256.Sum256(token)]; ok {
		id.Until = until
	}
	return id, ok
}

func (k *Keyring) person(value string) (id Identity, ok bool) {
	if k.people == nil {
		return Identity{}, false
	}
	plain, until, ok := k.people.Open(SessionCookie, value)
	var p Person
	if !ok || json.Unmarshal(plain, &p) != nil || p.Role.Rank() == 0 || p.Name == "" || p.Namespace == "" {
		return Identity{}, false
	}
	return Identity{Name: p.Name, role: p.Role, Namespace: p.Namespace, Until: until}, true
}
