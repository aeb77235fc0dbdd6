package domain

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/certmagic"
	"github.com/libdns/rfc2136"
	"github.com/mholt/acmez/v3/acme"
	"go.uber.org/zap"

	machine "github.com/bcc94042/instar/machines/domain"
	"github.com/bcc94042/instar/providers"
)

// CertificateOptions are what [NewCertificates] needs. All fields but Roots, HTTPPort and Email are needed.
type CertificateOptions struct {
	Storage   certmagic.Storage // and locks, that all nodes share
	Directory string            // URL of the certificate authority's ACME directory
	Email     string
	Roots     *x509.CertPool // of the certificate authority's own certificate; nil are those of the system
	HTTPPort  int            // where this node hears what comes to port 80 of the names; 0 hears nothing, so that only TLS-ALPN-01 proves them
	TLSPort   int            // and to port 443
	// Serves reports whether a name may have a certificate loaded by the first connection to it.
	Serves func(host string) bool
	// Leads is why a certificate authority would not find this server under a name, empty if it would; nil is not asked. See [Records.Leads].
	Leads func(ctx context.Context, host string) (problem string, err error)
	Log   *slog.Logger
	DNS   *Updates // for names that are proven by DNS-01; nil proves none so
}

// Updates are signed changes of a name server's zones (RFC 2136).
type Updates struct {
	Server    string // host:port
	Zones     []string
	Name      string   // of the TSIG key
	Algorithm string   // such as hmac-sha256
	Secret    string   // in base64
	Resolvers []string // host:port of the name servers that tell which zone a name is in, and whether a change is there; none are those of the system
}

// has reports whether a name is in one of the zones.
func (u *Updates) has(host string) bool {
	return u != nil && slices.ContainsFunc(u.Zones, func(z string) bool { return host == z || strings.HasSuffix(host, "."+z) })
}

// Certificates have certificates issued, and serve and renew them. They are safe for concurrent use.
type Certificates struct {
	cache            *certmagic.Cache
	managed, serving *certmagic.Config // certmagic issues nothing by itself for a configuration that loads on demand
	updated          *certmagic.Config // as managed, of names that are proven by DNS-01
	issuer           *certmagic.ACMEIssuer
	storage          certmagic.Storage
	updates          *Updates
	log              *slog.Logger
	leads            func(ctx context.Context, host string) (string, error)
	renewals         renewals
	asked            *asked
}

// NewCertificates starts them; Stop ends what they run in the background.
func NewCertificates(o CertificateOptions) *Certificates {
	c := &Certificates{storage: o.Storage, updates: o.DNS, log: o.Log, leads: o.Leads, asked: newAsked()}
	quiet := zap.NewNop() // what matters of it is an error here, or a state
	c.cache = certmagic.NewCache(certmagic.CacheOptions{GetConfigForCert: func(certmagic.Certificate) (*certmagic.Config, error) { return c.serving, nil }, Logger: quiet, Capacity: 10_000})
	base := certmagic.Config{Storage: o.Storage, Logger: quiet, DisableARI: true, OCSP: certmagic.OCSPConfig{DisableStapling: true}}
	c.managed = certmagic.New(c.cache, base)
	base.OnDemand = &certmagic.OnDemandConfig{DecisionFunc: func(_ context.Context, host string) error {
		if !o.Serves(host) {
			return fmt.Errorf("%s is not served here", host)
		}
		return nil
	}}
	base.Storage, base.DisableStorageCheck = &reading{Storage: o.Storage, now: time.Now, looked: map[string]time.Time{}}, true
	c.serving = certmagic.New(c.cache, base)
	acme := certmagic.ACMEIssuer{
		CA: o.Directory, TestCA: o.Directory, Email: o.Email, Agreed: true, TrustedRoots: o.Roots, AltHTTPPort: o.HTTPPort, AltTLSALPNPort: o.TLSPort, DisableHTTPChallenge: o.HTTPPort == 0, Logger: zap.New(c.asked),
	}
	c.issuer = certmagic.NewACMEIssuer(c.managed, acme)
	c.managed.Issuers, c.serving.Issuers = []certmagic.Issuer{silent{c.issuer}}, []certmagic.Issuer{loader{c.issuer}}
	if u := o.DNS; u != nil {
		acme.DNS01Solver = &certmagic.DNS01Solver{DNSManager: certmagic.DNSManager{
			DNSProvider: &rfc2136.Provider{KeyName: u.Name, KeyAlg: u.Algorithm, Key: u.Secret, Server: u.Server}, TTL: time.Minute, Resolvers: u.Resolvers, Logger: quiet,
		}}
		c.updated = certmagic.New(c.cache, certmagic.Config{Storage: o.Storage, Logger: quiet, DisableARI: true, OCSP: certmagic.OCSPConfig{DisableStapling: true}})
		c.updated.Issuers = []certmagic.Issuer{silent{certmagic.NewACMEIssuer(c.updated, acme)}}
	}
	return c
}

// silent is an issuer that asks nobody at the terminal for an address: certmagic takes whoever waits for a certificate for a person.
type silent struct{ *certmagic.ACMEIssuer }

// PreCheck is the issuer's, without questions.
func (s silent) PreCheck(ctx context.Context, names []string, _ bool) error {
	return s.ACMEIssuer.PreCheck(ctx, names, false)
}

// loader is an issuer that issues nothing: a handshake loads what is stored. Else everybody who knows a name could have certificates ordered for it, as often as he connects.
type loader struct{ *certmagic.ACMEIssuer }

// Issue refuses.
func (loader) Issue(context.Context, *x509.CertificateRequest) (*certmagic.IssuedCertificate, error) {
	return nil, certmagic.ErrNoRetry{Err: errors.New("certificates are issued by the machine, not by handshakes")}
}

// Stop ends what is done in the background.
func (c *Certificates) Stop() { c.cache.Stop() }

// TLS is the configuration of a listener: it knows the names that are served, and answers challenges.
func (c *Certificates) TLS() *tls.Config {
	t := c.serving.TLSConfig()
	t.NextProtos = append([]string{"h2", "http/1.1"}, t.NextProtos...)
	t.MinVersion = tls.VersionTLS12
	return t
}

// Challenges answers HTTP-01 challenges, and leaves other requests to next.
func (c *Certificates) Challenges(next http.Handler) http.Handler {
	return c.issuer.HTTPChallengeHandler(next)
}

// Obtain returns when there is a certificate that is not due for renewal. What was issued already is not issued again, and none is ordered for a name that
// leads elsewhere: that order would fail, and count.
func (c *Certificates) Obtain(ctx context.Context, host string) (machine.Certificate, error) {
	leaf, err := c.leaf(ctx, host)
	if err != nil {
		return machine.Certificate{}, err
	}
	if leaf == nil || !time.Now().Before(dueAt(leaf)) || !c.whole(ctx, host) {
		if leaf, err = c.order(ctx, host); err != nil {
			return machine.Certificate{}, err
		}
		c.cache.RemoveManaged([]certmagic.SubjectIssuer{{Subject: host}}) // the next handshake loads it; on other nodes within a minute
	}
	c.renewals.succeeded(host, leaf.NotAfter.Sub(leaf.NotBefore), time.Now())
	return about(leaf), nil
}

// order has a certificate issued, unless another node has one just then.
func (c *Certificates) order(ctx context.Context, host string) (*x509.Certificate, error) {
	by := c.managed
	if c.updates.has(host) {
		by = c.updated
	} else if c.leads != nil { // who proves it by DNS-01 is not looked for
		problem, err := c.leads(ctx, host)
		if err != nil {
			return nil, err
		}
		if problem != "" {
			return nil, providers.Errorf(providers.Unavailable, "no certificate for %s is ordered: %s", host, problem)
		}
	}
	begun := time.Now()
	err := by.ObtainCertSync(ctx, host)
	if err == nil {
		err = by.RenewCertSync(ctx, host, false)
	}
	if err != nil {
		return nil, refusal(host, err, c.asked.since(begun, time.Now()))
	}
	leaf, err := c.leaf(ctx, host)
	if err == nil && leaf == nil {
		err = providers.Errorf(providers.Internal, "the certificate of %s was issued, and is not stored", host)
	}
	return leaf, err
}

// Current is the certificate that is stored. Where its renewal is due, one is begun, if none is under way and the last one was long enough ago.
func (c *Certificates) Current(ctx context.Context, host string) (*machine.Certificate, time.Time, string, error) {
	leaf, err := c.leaf(ctx, host)
	if err != nil {
		return nil, time.Time{}, "", err
	}
	var due time.Time
	var have *machine.Certificate
	if leaf != nil {
		known := about(leaf)
		have, due = &known, dueAt(leaf)
	}
	if now := time.Now(); !now.Before(due) && c.renewals.begin(host, now) {
		go c.renew(host)
	}
	return have, due, c.renewals.trouble(host, time.Now()), nil
}

// Troubled is how many names have a certificate that this process could not renew when it was tried last. One for which it was not asked within a quarter of an hour is another process's by now.
func (c *Certificates) Troubled() int { return c.renewals.troubled(time.Now()) }

// dueAt is when a certificate is to be renewed: when a third of its life is left, as certmagic has it.
func dueAt(leaf *x509.Certificate) time.Time {
	life := leaf.NotAfter.Sub(leaf.NotBefore)
	return leaf.NotAfter.Add(-time.Duration(float64(life) * certmagic.DefaultRenewalWindowRatio))
}

// renewWithin bounds one renewal: a certificate authority that does not answer.
const renewWithin = 10 * time.Minute

func (c *Certificates) renew(host string) {
	ctx, cancel := context.WithTimeout(context.Background(), renewWithin)
	defer cancel()
	if _, err := c.Obtain(ctx, host); err != nil {
		c.log.Warn("a certificate is not renewed yet", "host", host, "error", err)
		c.renewals.failed(host, err.Error(), providers.Failure(err).RetryAfter, time.Now())
	}
}

// Forget removes the certificate of a name, and its key.
func (c *Certificates) Forget(ctx context.Context, host string) error {
	defer c.Drop(host) // not before it cannot be loaded again
	key := c.issuer.IssuerKey()
	for _, k := range []string{certmagic.StorageKeys.SiteCert(key, host), certmagic.StorageKeys.SitePrivateKey(key, host), certmagic.StorageKeys.SiteMeta(key, host)} {
		if err := c.storage.Delete(ctx, k); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("cannot forget the certificate of %s: %w", host, err)
		}
	}
	return nil
}

// Drop takes a name out of the memory of this node.
func (c *Certificates) Drop(host string) {
	c.cache.RemoveManaged([]certmagic.SubjectIssuer{{Subject: host}})
	c.renewals.forget(host)
}

// Sweep removes certificates that ended a week ago, of names that nobody has renewed.
func (c *Certificates) Sweep(ctx context.Context) error {
	return certmagic.CleanStorage(ctx, c.storage, certmagic.CleanStorageOptions{Logger: zap.NewNop(), OCSPStaples: true, ExpiredCerts: true, ExpiredCertGracePeriod: 7 * 24 * time.Hour})
}

// whole reports whether all is stored that serving a certificate needs besides it.
func (c *Certificates) whole(ctx context.Context, host string) bool {
	key := c.issuer.IssuerKey()
	return c.storage.Exists(ctx, certmagic.StorageKeys.SitePrivateKey(key, host)) && c.storage.Exists(ctx, certmagic.StorageKeys.SiteMeta(key, host))
}

// leaf is the stored certificate, or nil.
func (c *Certificates) leaf(ctx context.Context, host string) (*x509.Certificate, error) {
	raw, err := c.storage.Load(ctx, certmagic.StorageKeys.SiteCert(c.issuer.IssuerKey(), host))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, providers.Errorf(providers.Unavailable, "cannot read the certificate of %s: %v", host, err)
	}
	block, _ := pem.Decode(raw)
	if block == nil {
		return nil, providers.Errorf(providers.Internal, "the stored certificate of %s is not in PEM", host)
	}
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, providers.Errorf(providers.Internal, "the stored certificate of %s cannot be read: %v", host, err)
	}
	return leaf, nil
}

func about(leaf *x509.Certificate) machine.Certificate {
	return machine.Certificate{Issuer: leaf.Issuer.CommonName, Serial: fmt.Sprintf("%x", leaf.SerialNumber), NotBefore: leaf.NotBefore.UTC(), NotAfter: leaf.NotAfter.UTC()}
}

// CodeCertificate is the code of a failure that is the certificate authority's last word on a name.
const CodeCertificate = "CERTIFICATE_REFUSED"

// rateWait is how long a certificate authority is left alone that limits rates and does not say for how long.
const rateWait = 15 * time.Minute

// longest is how long a certificate authority is left alone at most, whatever it says: it is asked once more at least before a domain has waited for all of machine.IssueFor.
const longest = machine.IssueFor / 3

// refusal gives the errors of a certificate authority codes. wait is for how long it has asked to be left alone since the order began, which is heeded where this order was refused for that: what is said of one
// name is not to hold another one back.
func refusal(host string, err error, wait time.Duration) error {
	var p acme.Problem
	if !errors.As(err, &p) {
		return providers.Later(wait, "no certificate for %s: %v", host, err)
	}
	if p.Type != acme.ProblemTypeRateLimited && p.Status != http.StatusTooManyRequests && p.Status != http.StatusServiceUnavailable {
		wait = 0
	}
	switch p.Type {
	case acme.ProblemTypeRateLimited:
		return providers.Later(cmp.Or(max(wait, named(p.Detail, time.Now())), rateWait), "no certificate for %s: the certificate authority limits rates: %s", host, p.Detail)
	case acme.ProblemTypeRejectedIdentifier, acme.ProblemTypeUnsupportedIdentifier, acme.ProblemTypeCAA:
		return providers.Coded(CodeCertificate, "no certificate for %s: %s", host, p.Detail)
	}
	return providers.Later(wait, "no certificate for %s: %s (%s)", host, p.Detail, p.Type)
}

// named is the wait that Boulder names in its text ("retry after 2026-01-02 15:04:05 UTC"); 0 where there is none.
func named(detail string, now time.Time) time.Duration {
	_, rest, ok := strings.Cut(detail, "retry after ")
	if ok && len(rest) >= len(time.DateTime) {
		if at, err := time.Parse(time.DateTime, rest[:len(time.DateTime)]); err == nil && at.After(now) {
			return min(at.Sub(now), longest)
		}
	}
	return 0
}
