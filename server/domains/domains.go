package domains

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"regexp"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/bcc94042/instar/api"
	"github.com/bcc94042/instar/api/admin"
	"github.com/bcc94042/instar/api/limits"
	"github.com/bcc94042/instar/internal/wait"
	"github.com/bcc94042/instar/kv/certificates"
	machine "github.com/bcc94042/instar/machines/domain"
	"github.com/bcc94042/instar/providers/domain"
	"github.com/bcc94042/instar/providers/domain/proxy"
	"github.com/bcc94042/instar/providers/guard"
	"github.com/bcc94042/instar/server"
	"github.com/bcc94042/instar/server/config"
	"github.com/bcc94042/instar/server/keyset"
	"github.com/bcc94042/instar/streams"
)

// Role is the name of the role that removes certificates which ended long ago, and gives names free whose domain is gone.
const Role = "domains"

// answerWithin is how long a target may take until it begins to answer.
const answerWithin = 2 * time.Minute

// lockLife is how long the lock on a name stands after the process that had it died in the middle of an order.
const lockLife = 15 * time.Second

// unrenewed is of domains and of whose names are served beside them.
var unrenewed = prometheus.GaugeOpts{Name: "instar_certificates_unrenewed", Help: "Names whose certificate this node could not renew when it was tried last."}

// Provider serves machines/domain where there is a proxy.
func Provider() server.Provider {
	return server.Provider{When: func(c config.Config) bool { return c.Domains.On() }, Open: open}
}

func open(ctx context.Context, h *server.Host) (server.Work, error) {
	c := h.Config.Domains
	secure, err := listen(h, c.HTTPS)
	if err != nil {
		return server.Work{}, fmt.Errorf("domains.https: %w", err)
	}
	h.OnStop("the listener of domains.https", func(context.Context) error { return closed(secure) })
	var clear *listener
	if c.HTTP != "" {
		if clear, err = listen(h, c.HTTP); err != nil {
			return server.Work{}, fmt.Errorf("domains.http: %w", err)
		}
		h.OnStop("the listener of domains.http", func(context.Context) error { return closed(clear) })
	}
	t, err := openTable(ctx, h)
	if err != nil {
		return server.Work{}, err
	}
	allow, deny, err := h.Config.Discovery.Probe.Networks()
	if err != nil {
		return server.Work{}, err
	}
	reach := guard.Guard{Deny: deny, Allow: allow, Only: c.Networks(), Own: h.Listening}
	reach.Elsewhere = reach.Only == nil && h.Config.Mode != config.Dev // what listens here is nobody's application, by whichever of its addresses
	held, err := newPools()
	if err != nil {
		return server.Work{}, err
	}
	here, anywhere := reaching(reach, runs(&h.Config.Platform))
	dialer := reach.Dialer()
	dialer.Control = func(network, address string, c syscall.RawConn) error {
		if to, err := netip.ParseAddrPort(address); err == nil {
			return here(to)
		}
		return reach.Control(network, address, c)
	}
	dialer.KeepAlive = 0 // a target that is gone without a word must not hold a request for ever
	px := proxy.New(proxy.Options{Log: h.Log, Dial: dialer.DialContext, AnswerWithin: answerWithin, Admit: held.admit})
	if err := h.Register(px); err != nil {
		return server.Work{}, err
	}
	points, resolvers := c.Lists()
	records := domain.Records{Resolver: resolver(resolvers), Points: points}
	certs, err := openCertificates(ctx, h, domain.CertificateOptions{Serves: px.Serves, Leads: records.Leads}, secure, clear)
	if err != nil {
		return server.Work{}, err
	}
	h.OnStop("certificates", func(context.Context) error { certs.Stop(); return nil })
	if err := h.Register(prometheus.NewGaugeFunc(unrenewed, func() float64 { return float64(certs.Troubled()) })); err != nil {
		return server.Work{}, err
	}
	h.Go(ctx, "the checks of targets", px.Run)
	h.Go(ctx, "the routes of domains", func(ctx context.Context) error {
		t.follow(ctx, px.Set, certs.Drop, h.Log)
		return nil
	})
	front := px.Server()
	front.TLSConfig = certs.TLS()
	Serve(ctx, h, limits.Listen(secure, held.secure, nil), t.synced, "the proxy for domains", front, drain)
	if clear != nil {
		challenges := px.Server()
		challenges.Handler = certs.Challenges(toHTTPS(px.Serves))
		Serve(ctx, h, limits.Listen(clear, held.clear, nil), t.synced, "the listener for challenges", challenges, drain)
	}
	h.Role(ctx, Role, func(ctx context.Context) error {
		for ctx.Err() == nil {
			err := errors.Join(t.orphans(ctx, h.Indexes.Get(machine.Machine.Name)), certs.Sweep(ctx))
			if err != nil && ctx.Err() == nil {
				h.Log.Warn("names and certificates that nobody needs are kept for another hour", "error", err)
			}
			wait.For(ctx, time.Hour)
		}
		return nil
	})
	h.Check(func() []admin.Check {
		select {
		case <-t.synced:
			return []admin.Check{{Name: "domains", OK: true}}
		default:
			return []admin.Check{{Name: "domains", Detail: "the routes of domains are still being read"}}
		}
	})
	refuses := func(host string) string { return cmp.Or(c.Refuses(host), h.Config.Platform.Refuses(host)) }
	d := &door{refuses: refuses, reaches: anywhere}
	h.API(func(o *api.Options) {
		d.next, o.Admit, o.Pools = o.Admit, d.admit, append(o.Pools, held.secure, held.clear, held.requests, held.site)
	})
	h.Say("Domains: the proxy is at %s. How names of tenants are bound: docs/domains.md", secure.Addr())
	p := &domain.Provider{Records: records, Table: t, Issuer: certs, Refuses: refuses}
	h.Share(&Front{table: t, Issuer: certs, Addr: secure.Addr().String(), Traffic: px.Traffic, Refuses: refuses, InFlight: px.InFlight})
	return server.Work{Performer: p, Looker: p}, nil
}

// openCertificates has the bucket of certificates, and what issues them. It fills o in by the configuration.
func openCertificates(ctx context.Context, h *server.Host, o domain.CertificateOptions, secure, clear *listener) (*domain.Certificates, error) {
	c := h.Config.Domains
	keys, err := keyset.Open("domains.keys", c.Keys, h.Config.Mode == config.Dev)
	if err != nil {
		return nil, err
	}
	bucket, err := makeBucket(ctx, h, CertificatesBucket, "Certificates of domain names, their private keys, accounts and locks, sealed")
	if err != nil {
		return nil, err
	}
	storage := certificates.New(h.Deps.JS, bucket, lockLife, keys)
	h.OnStop("the locks of certificates", storage.Close)
	if err := sameKeys(ctx, storage, c.Keys, bucket); err != nil {
		return nil, err
	}
	o.Storage, o.Directory, o.Email, o.TLSPort, o.Log = storage, c.ACME, c.Email, secure.port, h.Log
	if clear != nil {
		o.HTTPPort = clear.port
	}
	if c.DNS.Server != "" {
		if o.DNS, err = updates(c); err != nil {
			return nil, err
		}
	}
	if c.CA != "" {
		pem, err := os.ReadFile(c.CA)
		if err != nil {
			return nil, fmt.Errorf("domains.ca: %w", err)
		}
		o.Roots = x509.NewCertPool()
		if !o.Roots.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("domains.ca: %s has no certificate in PEM", c.CA)
		}
	}
	return domain.NewCertificates(o), nil
}

// sameKeys fails if what is stored was sealed with another keyset: whoever has lost it learns that from the server that does not start, not from names that are not served.
func sameKeys(ctx context.Context, s *certificates.Storage, file, bucket string) error {
	const mark = "keyset"
	_, err := s.Load(ctx, mark)
	if errors.Is(err, fs.ErrNotExist) {
		return s.Store(ctx, mark, []byte("sealed with the keyset of this installation"))
	}
	if err != nil {
		return fmt.Errorf("domains.keys: %s is not the keyset that certificates were sealed with; put that one back, or have all issued anew by removing what it has sealed (nats stream rm %s): %w", file, streams.BucketStream(bucket), err)
	}
	return nil
}

// keyForm is a TSIG key as BIND writes it: key "name" { algorithm hmac-sha256; secret "…"; };
var keyForm = regexp.MustCompile(`(?s)key\s+"?([A-Za-z0-9_.-]+)"?\s*\{\s*algorithm\s+"?([A-Za-z0-9-]+)"?\s*;\s*secret\s+"([A-Za-z0-9+/=]+)"\s*;\s*\}`)

// updates are those of the configuration's name server.
func updates(c config.Domains) (*domain.Updates, error) {
	text, err := os.ReadFile(c.DNS.Key)
	if err != nil {
		return nil, fmt.Errorf("domains.dns.key: %w", err)
	}
	key := keyForm.FindSubmatch(text)
	if key == nil {
		return nil, fmt.Errorf("domains.dns.key: %s has no key as tsig-keygen writes it: key \"name\" { algorithm hmac-sha256; secret \"…\"; };", c.DNS.Key)
	}
	_, resolvers := c.Lists()
	return &domain.Updates{Server: c.DNS.Server, Zones: c.Zones(), Name: string(key[1]), Algorithm: string(key[2]), Secret: string(key[3]), Resolvers: resolvers}, nil
}

// resolver asks name servers in turn, or those of the system when there are none.
func resolver(servers []string) *net.Resolver {
	if len(servers) == 0 {
		return net.DefaultResolver
	}
	var asked atomic.Uint32
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, network, servers[int(asked.Add(1)-1)%len(servers)])
	}}
}

// closed closes a listener that may have been closed by what served it.
func closed(l net.Listener) error {
	if err := l.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}
