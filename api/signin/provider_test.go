package signin_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/coreos/go-oidc/v3/oidc/oidctest"
	"github.com/stretchr/testify/require"
)

// idp is a provider: it lets everybody in at once, as whom claims says, and checks what a client has to prove.
type idp struct {
	t      *testing.T
	web    *httptest.Server
	key    *ecdsa.PrivateKey
	signed *ecdsa.PrivateKey // with which tokens are signed
	claims map[string]any    // besides iss, aud, sub, exp, iat, nonce, or instead of them
	refuse string            // an error instead of a code
	codes  map[string]url.Values

	slow, waiting chan struct{} // a code that is waiting is looked at when slow is closed
	mu            sync.Mutex    // of codes
	broken        bool          // all codes are answered with 502
}

func newIDP(t *testing.T) *idp {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	p := &idp{t: t, key: key, signed: key, codes: map[string]url.Values{}}
	keys := &oidctest.Server{PublicKeys: []oidctest.PublicKey{{PublicKey: key.Public(), KeyID: "one", Algorithm: oidc.ES256}}, Algorithms: []string{oidc.ES256}}
	mux := http.NewServeMux()
	mux.Handle("/", keys)
	mux.HandleFunc("/auth", p.authorize)
	mux.HandleFunc("/token", p.token)
	p.web = httptest.NewServer(mux)
	t.Cleanup(p.web.Close)
	keys.SetIssuer(p.web.URL)
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, 200, map[string]any{
			"issuer": p.web.URL, "authorization_endpoint": p.web.URL + "/auth", "token_endpoint": p.web.URL + "/token", "jwks_uri": p.web.URL + "/keys",
			"id_token_signing_alg_values_supported": []string{oidc.ES256}, "response_types_supported": []string{"code"}, "subject_types_supported": []string{"public"},
		})
	})
	return p
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

func (p *idp) authorize(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	to, err := url.Parse(q.Get("redirect_uri"))
	if err != nil || q.Get("client_id") != clientID || q.Get("response_type") != "code" || q.Get("code_challenge_method") != "S256" || q.Get("nonce") == "" || q.Get("state") == "" {
		http.Error(w, "no such client, or no PKCE, nonce or state", http.StatusBadRequest)
		return
	}
	back := url.Values{"state": {q.Get("state")}, "iss": {p.web.URL}}
	if p.refuse != "" {
		back.Set("error", p.refuse)
		back.Set("error_description", "not\nyou")
	} else {
		code := rand.Text()
		p.codes[code] = q
		back.Set("code", code)
	}
	to.RawQuery = back.Encode()
	http.Redirect(w, r, to.String(), http.StatusFound)
}

func (p *idp) token(w http.ResponseWriter, r *http.Request) {
	if p.slow != nil {
		p.waiting <- struct{}{}
		<-p.slow
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.broken {
		answer(w, http.StatusBadGateway, map[string]any{})
		return
	}
	id, secret, _ := r.BasicAuth()
	q, known := p.codes[r.PostFormValue("code")]
	delete(p.codes, r.PostFormValue("code"))
	sum := sha256.Sum256([]byte(r.PostFormValue("code_verifier")))
	if id != clientID || secret != clientSecret || !known || q.Get("redirect_uri") != r.PostFormValue("redirect_uri") || q.Get("code_challenge") != base64.RawURLEncoding.EncodeToString(sum[:]) {
		answer(w, http.StatusBadRequest, map[string]any{"error": "invalid_grant", "error_description": "of " + secret})
		return
	}
	all := map[string]any{"iss": p.web.URL, "aud": clientID, "sub": "4711", "exp": time.Now().Add(time.Minute).Unix(), "iat": time.Now().Unix(), "nonce": q.Get("nonce")}
	maps.Copy(all, p.claims)
	text, err := json.Marshal(all)
	require.NoError(p.t, err)
	answer(w, 200, map[string]any{"access_token": "an-access-token", "token_type": "Bearer", "id_token": oidctest.SignIDToken(p.signed, "one", oidc.ES256, string(text))})
}
