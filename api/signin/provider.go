package signin

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
	"golang.org/x/sync/singleflight"
)

const (
	patience  = 10 * time.Second // with the provider
	skew      = time.Minute      // by which clocks may differ
	maxAnswer = 1 << 20          // bytes of an answer of the provider
)

// provider is what is known of the provider. It is asked at the first sign-in, and again until it has answered.
type provider struct {
	o      *Options
	secret string
	asking singleflight.Group
	found  atomic.Pointer[found]
}

// found is what the provider has said of itself.
type found struct {
	oauth    oauth2.Config
	verifier *oidc.IDTokenVerifier
}

// client speaks with the provider, which has to answer soon and where it was asked.
var client = &http.Client{
	Timeout: patience, Transport: bounded{http.DefaultTransport},
	CheckRedirect: func(*http.Request, []*http.Request) error {
		return errors.New("the provider answers with a redirect; configure the address it leads to as auth.oidc.issuer")
	},
}

// bounded takes no more of an answer than any provider has to say.
type bounded struct{ http.RoundTripper }

func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := b.RoundTripper.RoundTrip(r)
	if err == nil {
		res.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(res.Body, maxAnswer), res.Body}
	}
	return res, err
}

// find asks the provider where it does what. Those who ask meanwhile wait for the same answer.
func (p *provider) find(ctx context.Context) (*found, error) {
	if f := p.found.Load(); f != nil {
		return f, nil
	}
	select {
	case r := <-p.asking.DoChan("", func() (any, error) { return p.discover() }):
		f, _ := r.Val.(*found)
		return f, r.Err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p *provider) discover() (*found, error) {
	ctx := oidc.ClientContext(context.Background(), client) // which bounds the time; the keys are asked for later
	at, err := oidc.NewProvider(ctx, p.o.Issuer)
	if err != nil {
		return nil, err
	}
	var said struct {
		Keys string `json:"jwks_uri"`
	}
	if err := at.Claims(&said); err != nil {
		return nil, err
	}
	for _, u := range []string{at.Endpoint().AuthURL, at.Endpoint().TokenURL, said.Keys} {
		if !Safe(u) {
			return nil, fmt.Errorf("the provider names an address without https: %q", u)
		}
	}
	f := &found{
		oauth:    oauth2.Config{ClientID: p.o.ClientID, ClientSecret: p.secret, Endpoint: at.Endpoint(), RedirectURL: p.o.URL + Callback, Scopes: p.o.Scopes},
		verifier: at.Verifier(&oidc.Config{ClientID: p.o.ClientID, Now: func() time.Time { return time.Now().Add(-skew) }}),
	}
	p.found.Store(f)
	return f, nil
}

// Safe reports whether nobody on the way can read or change what goes to an address: it has https, or is on this machine.
func Safe(text string) bool {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.User != nil {
		return false
	}
	name := u.Hostname()
	return u.Scheme == "https" || u.Scheme == "http" && (name == "localhost" || name == "127.0.0.1" || name == "::1")
}

// exchange makes the claims of a person of a code. Errors name no token; why is what the console is told.
func (p *provider) exchange(ctx context.Context, code string, of pending) (all claims, why string, err error) {
	f, err := p.find(ctx)
	if err != nil {
		return nil, unreachable, err
	}
	token, err := f.oauth.Exchange(oidc.ClientContext(ctx, client), code, oauth2.VerifierOption(of.Verifier))
	if err != nil {
		var refused *oauth2.RetrieveError
		if errors.As(err, &refused) { // its text has the whole answer
			if refused.Response.StatusCode >= 500 {
				return nil, unreachable, fmt.Errorf("the provider answers a code with status %d", refused.Response.StatusCode)
			}
			return nil, invalid, fmt.Errorf("the provider refuses the code with status %d, %.100q", refused.Response.StatusCode, refused.ErrorCode)
		}
		return nil, unreachable, err
	}
	raw, _ := token.Extra("id_token").(string)
	if raw == "" {
		return nil, invalid, errors.New("the provider has sent no ID token; the scope openid is needed")
	}
	id, err := f.verifier.Verify(ctx, raw)
	if err != nil {
		return nil, invalid, err
	}
	if subtle.ConstantTimeCompare([]byte(id.Nonce), []byte(of.Nonce)) != 1 {
		return nil, invalid, errors.New("the ID token is of another sign-in: its nonce differs")
	}
	err = id.Claims(&all)
	if err == nil && all["azp"] != nil && all["azp"] != p.o.ClientID {
		err = fmt.Errorf("the ID token was issued to another client: %.100q", all["azp"])
	}
	return all, invalid, err
}
