package auth

// Sessions of browsers, which cannot send a header with every request that they make: Keyring.Seal makes the value of a cookie from a token, and Identify
// takes a request with that cookie for one with the token. Nothing is stored: the value is the token with the end of the session, sealed under a key
// that follows from the hashes of all tokens. So a session outlives a restart, is good on every node that has the same tokens, and ends when
// they change. Who takes a cookie has the session for as long as it lasts; who has the hashes of the configuration, too, can open it and has the token.

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"net/http"
	"slices"
	"time"
)

// SessionCookie is the name of the cookie of a session.
const SessionCookie = "instar_session"

// SessionFor is how long a session lasts.
const SessionFor = 12 * time.Hour

// Session reports whether who asks came with the cookie of a session.
func (id Identity) Session() bool { return !id.Until.IsZero() }

// Role is what the token allows.
func (id Identity) Role() Role { return id.role }

// sealer derives the key of sessions from the hashes of tokens, in whatever order they are configured.
func (k *Keyring) sealer() (cipher.AEAD, error) {
	var sums [][]byte
	for sum := range k.ids {
		sums = append(sums, sum[:])
	}
	slices.SortFunc(sums, slices.Compare)
	mac := hmac.New(sha256.New, slices.Concat(sums...))
	mac.Write([]byte("instar session v1"))
	block, err := aes.NewCipher(mac.Sum(nil))
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

// Seal is the value of the cookie of a session that a token opens, until a time. It is empty for a token that is not known.
func (k *Keyring) Seal(token string, until time.Time) (id Identity, value string) {
	id, known := k.ids[sha256.Sum256([]byte(token))]
	if !known {
		return Identity{}, ""
	}
	nonce := make([]byte, k.seal.NonceSize(), k.seal.NonceSize()+8+len(token)+k.seal.Overhead())
	rand.Read(nonce)
	plain := append(binary.BigEndian.AppendUint64(nil, uint64(until.Unix())), token...)
	return id, base64.RawURLEncoding.EncodeToString(k.seal.Seal(nonce, nonce, plain, []byte(SessionCookie)))
}

// Session is who has the session of a request; false has none that holds.
func (k *Keyring) Session(r *http.Request) (id Identity, ok bool) {
	cookie, err := r.Cookie(SessionCookie)
	if err != nil {
		return Identity{}, false
	}
	raw, err := base64.RawURLEncoding.DecodeString(cookie.Value)
	n := k.seal.NonceSize()
	if err != nil || len(raw) < n {
		return Identity{}, false
	}
	plain, err := k.seal.Open(nil, raw[:n], raw[n:], []byte(SessionCookie))
	if err != nil || len(plain) < 8 {
		return Identity{}, false
	}
	until := time.Unix(int64(binary.BigEndian.Uint64(plain)), 0)
	if !time.Now().Before(until) {
		return Identity{}, false
	}
	if id, ok = k.ids[sha256.Sum256(plain[8:])]; ok {
		id.Until = until
	}
	return id, ok
}
