package platform

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/bcc94042/instar/internal/wait"
	"github.com/bcc94042/instar/machines"
	domains "github.com/bcc94042/instar/machines/domain"
	machine "github.com/bcc94042/instar/machines/platform"
	"github.com/bcc94042/instar/providers/platform"
	"github.com/bcc94042/instar/providers/platform/app"
	"github.com/bcc94042/instar/providers/platform/export"
	"github.com/bcc94042/instar/server"
	"github.com/bcc94042/instar/server/config"
	front "github.com/bcc94042/instar/server/domains"
	"github.com/bcc94042/instar/server/tenants"
)

// Role is the name of the role that gives slugs free whose session is gone, and removes domains that sessions have taken back.
const Role = "platform"

// RoleAudit is the name of the role that records in the audit what happens to sessions of this machine.
const RoleAudit = "audit-instances"

// Provider serves machines/platform where tenants have instances. It is opened after those of the machines database_provisioning and domain.
func Provider() server.Provider {
	return server.Provider{When: func(c config.Config) bool { return c.Platform.On() }, Decoder: func() func(string, []byte) (any, error) { return brief }, Open: open}
}

func open(ctx context.Context, h *server.Host) (server.Work, error) {
	databases, ok := server.Shared[*tenants.Databases](h)
	if !ok {
		return server.Work{}, errors.New("platform: the machine database_provisioning is not served, or comes later in the list of machines")
	}
	proxy, ok := server.Shared[*front.Front](h)
	if !ok {
		return server.Work{}, errors.New("platform: the machine domain is not served, or comes later in the list of machines")
	}
	nc, js, err := h.Connect("instances")
	if err != nil {
		return server.Work{}, err
	}
	c := h.Config.Platform
	id, err := installation(ctx, js, h.Deps.Names.Bucket(InstallationBucket), h.Replicas)
	if err != nil {
		return server.Work{}, err
	}
	apps, err := openApps(h, nc, id)
	if err != nil {
		return server.Work{}, err
	}
	if has, ok := apps.(app.Logging); ok && c.Logs {
		tell(ctx, h, nc, js, has)
	}
	buckets, err := openBuckets(h, js, id)
	if err != nil {
		return server.Work{}, err
	}
	names, direct := through(proxy.Addr), client(&http.Transport{}) // which has no proxy of the environment
	h.OnStop("the connections to the proxy", func(context.Context) error {
		names.CloseIdleConnections()
		direct.CloseIdleConnections()
		return nil
	})
	sizes := map[string]platform.Size{}
	for name, n := range c.Quotas() {
		of := c.Limits[name]
		sizes[name] = platform.Size{StorageBytes: n, Limits: app.Limits{Memory: of.Bytes(), Files: of.Files, Processes: of.Processes, CPU: of.Millis()}}
	}
	customs := &bindings{send: h.Deps.Commands.Ask, stored: h.Deps.Value, row: proxy.Row, keys: domainsOf(h.Indexes.Get(domains.Machine.Name))}
	p := &platform.Provider{
		Domain: c.Domain, Channels: c.Channels, Sizes: sizes, Env: c.Env, Health: domains.Health{Path: c.Health}, Readiness: c.Readiness,
		Table: proxy, Issuer: proxy.Issuer, Apps: apps, Storage: buckets, Databases: databases, Place: databases.Place,
		Domains: customs, Client: names, Direct: direct, Refuses: proxy.Refuses,
		Quota: quota(c.Quota, proxy.Owners), Approval: func(*machines.Task) bool { return c.Approval }, Traffic: func(host, address string) platform.Traffic {
			n := proxy.Traffic(host, address)
			return platform.Traffic{Requests: n.Asked, Errors: n.Failures, Hung: n.Hung}
		},
		InFlight: proxy.InFlight, Drain: c.Drain,
		Secrets: secrets(c.Storage.Tenants, databases.URL),
	}
	if p.Keys, err = openGateway(ctx, h, databases.Keys()); err != nil {
		return server.Work{}, err
	}
	if c.Export != "" {
		files := &export.Files{Dir: c.Export, Buckets: p.Storage}
		p.Export = exports(files, databases)
		p.Exportable = func(t *machines.Task, b *machine.Task) error { return files.Ready(exportName(t, b)) }
	}
	databases.Audit(ctx, h, RoleAudit, machine.Machine)
	databases.Share(tenants.Sessions{Machine: machine.Machine, Index: h.Indexes.Get(machine.Machine.Name), Asks: asks})
	h.Role(ctx, Role, func(ctx context.Context) error {
		for {
			sweep(ctx, h, proxy)
			strays(ctx, h, customs)
			if !wait.For(ctx, 10*time.Minute) {
				return nil
			}
		}
	})
	h.Say("Instances: tenants get names below %s. How they are provisioned: docs/platform.md", c.Domain)
	return server.Work{Performer: p, Looker: p}, nil
}

// through is a client that reaches every host by the proxy of this node, as long as that has a certificate which is of the name and good now. Who has issued the certificate is not asked: it is
// the authority of the configuration, which this host need not trust for anything else.
func through(proxy string) *http.Client {
	host, port, err := net.SplitHostPort(proxy)
	if ip := net.ParseIP(host); err == nil && ip != nil && ip.IsUnspecified() {
		proxy = net.JoinHostPort("127.0.0.1", port)
	}
	return client(&http.Transport{
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, proxy)
		},
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true, VerifyConnection: good},
		ForceAttemptHTTP2: true, TLSHandshakeTimeout: 10 * time.Second,
	})
}

// client follows no redirect, which may lead anywhere.
func client(t *http.Transport) *http.Client {
	t.IdleConnTimeout = time.Minute
	return &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// good refuses a certificate of another name, or of another time.
func good(s tls.ConnectionState) error {
	if len(s.PeerCertificates) == 0 {
		return errors.New("there is no certificate")
	}
	leaf := s.PeerCertificates[0]
	if now := time.Now(); now.Before(leaf.NotBefore) || now.After(leaf.NotAfter) {
		return x509.CertificateInvalidError{Cert: leaf, Reason: x509.Expired}
	}
	return leaf.VerifyHostname(s.ServerName)
}
