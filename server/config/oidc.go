package config

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"slices"

	"github.com/bcc94042/instar/api/auth"
	"github.com/bcc94042/instar/api/signin"
)

// OIDC is the provider by which people sign in to the console; without an issuer there is none.
type OIDC struct {
	Issuer     string     `koanf:"issuer"`
	ClientID   string     `koanf:"clientId"`
	SecretFile string     `koanf:"clientSecretFile"` // has the secret of the client; read at the start
	URL        string     `koanf:"url"`              // of this server, as browsers have it
	Scopes     []string   `koanf:"scopes"`           // openid, profile and email when empty
	Name       string     `koanf:"name"`             // the claim that is the actor's name; email when empty
	Roles      []OIDCRole `koanf:"roles"`            // the first that holds counts; who has none is refused
}

// OIDCRole says what people may do who have a value in a claim.
type OIDCRole struct {
	Claim     string `koanf:"claim"` // groups when empty
	Value     string `koanf:"value"`
	Role      string `koanf:"role"`
	Namespace string `koanf:"namespace"` // all when empty
}

// API is the provider as the API takes it; nil is none.
func (o OIDC) API() *signin.Options {
	if o.Issuer == "" {
		return nil
	}
	rules := make([]signin.Rule, len(o.Roles))
	for i, r := range o.Roles {
		rules[i] = signin.Rule{Claim: r.Claim, Value: r.Value, Role: auth.Role(r.Role), Namespace: r.Namespace}
	}
	scopes := o.Scopes
	if len(scopes) == 0 {
		scopes = []string{"openid", "profile", "email"}
	}
	return &signin.Options{Issuer: o.Issuer, ClientID: o.ClientID, SecretFile: o.SecretFile, URL: o.URL, Scopes: scopes, Name: o.Name, Rules: rules}
}

func (o OIDC) validate(tokens bool) error {
	if o.Issuer == "" {
		if o.ClientID != "" || o.SecretFile != "" || o.URL != "" {
			return errors.New("auth.oidc.issuer: is needed for clientId, clientSecretFile and url")
		}
		return nil
	}
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("auth.oidc."+format, args...))
		}
	}
	check(tokens, "issuer: needs auth.tokens, too: programs have no browser, and a token lets you in while the provider is away")
	check(signin.Safe(o.Issuer), "issuer: needs an address with https, or on this machine")
	check(o.ClientID != "", "clientId: is needed; the provider gives it to whoever registers a client")
	check(o.SecretFile != "", "clientSecretFile: is needed; it has the secret of the client")
	u, err := url.Parse(o.URL)
	check(err == nil && signin.Safe(o.URL) && u.Path == "" && u.RawQuery == "" && u.Fragment == "", "url: needs the address of this server as browsers have it, with https or on this machine, and nothing behind host and port, such as https://instar.example.com")
	check(len(o.Scopes) == 0 || slices.Contains(o.Scopes, "openid"), "scopes: need openid among them")
	check(len(o.Roles) > 0, "roles: need a row; without one nobody could sign in")
	for i, r := range o.Roles {
		check(r.Value != "", "roles[%d].value: is needed", i)
		errs = append(errs, access(fmt.Sprintf("auth.oidc.roles[%d]", i), r.Role, cmp.Or(r.Namespace, AllNamespaces)))
	}
	return errors.Join(append(errs, readable("auth.oidc.clientSecretFile", o.SecretFile))...)
}
