package nameserver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"strings"
	"time"

	"github.com/miekg/dns"

	"github.com/bcc94042/instar/api/discovery"
	"github.com/bcc94042/instar/api/limits"
)

// Server is a name server. Its fields are not changed once it runs.
type Server struct {
	Address   string           // host:port to listen on, UDP and TCP; port 0 chooses one for both
	Domain    string           // "instar." by default
	Namespace string           // of names that give none; "default" by default
	TTL       time.Duration    // of answers, whole seconds; 0 says that nothing may be cached
	Finder    discovery.Finder // needed
	// Stale says for how long the catalog may be behind, 0 while it is not; nil is never.
	Stale func() time.Duration
	// Addresses are those of ns.dns.<domain>, to which delegations and stub zones lead. By default it is the one that is
	// listened on, or those of the host when that is all of them.
	Addresses []netip.Addr
	Started   func(addr string) // called once both sockets listen; optional
	Log       *slog.Logger      // of panics; nil discards
	Pool      *limits.Pool      // of connections of TCP; nil makes one of [DefaultConnections]
}

const (
	maxTTL      = time.Hour
	staleTTL    = 30 // seconds, of what is answered while the catalog may be behind (RFC 8767, 4)
	absentTTL   = 1  // seconds, at most, of what is not there meanwhile: it may have come since
	maxStale    = 24 * time.Hour
	maxUDP      = 1232 // bytes that pass every path unfragmented; nobody is sent more by a forged question
	idleTimeout = 8 * time.Second
	stopTimeout = 2 * time.Second
	portTries   = 20
)

// Run answers until ctx ends, then returns nil once the questions under way are answered (2 s at most). It fails at once
// if a field is wrong or the address is taken.
func (s *Server) Run(ctx context.Context) error {
	h, err := s.handler()
	if err != nil {
		return err
	}
	pool := s.Pool
	if pool == nil {
		pool = limits.NewPool("dns-connections", DefaultConnections)
	}
	packets, conns, err := listen(ctx, s.Address, pool)
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("cannot listen for DNS on %s: %w: a port below 1024 takes the capability CAP_NET_BIND_SERVICE (docs/operations.md, systemd)", s.Address, err)
	}
	if err != nil {
		return fmt.Errorf("cannot listen for DNS on %s: %w", s.Address, err)
	}
	if len(h.addresses) == 0 {
		h.addresses = reachable(conns.Addr())
	}
	servers := []*dns.Server{
		{PacketConn: packets, Handler: h, UDPSize: dns.MinMsgSize * 2, ReadTimeout: idleTimeout},
		{Listener: conns, Handler: h, ReadTimeout: idleTimeout, IdleTimeout: func() time.Duration { return idleTimeout }, MaxTCPQueries: -1},
	}
	failed := make(chan error, len(servers))
	up := make(chan struct{}, len(servers))
	for _, one := range servers {
		one.NotifyStartedFunc = func() { up <- struct{}{} }
		go func() { failed <- one.ActivateAndServe() }()
	}
	for range servers {
		<-up
	}
	if s.Started != nil {
		s.Started(conns.Addr().String())
	}
	running := len(servers)
	select {
	case <-ctx.Done():
	case err = <-failed:
		err = fmt.Errorf("DNS on %s stopped: %w", conns.Addr(), orEnded(err))
		running--
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	for _, one := range servers {
		_ = one.ShutdownContext(stop) // says only that it has stopped already, or that somebody's question outlasted the timeout
	}
	for range running {
		<-failed
	}
	return err
}

func orEnded(err error) error {
	if err == nil {
		return errors.New("the socket was closed")
	}
	return err
}

// handler checks the fields and makes the handler.
func (s *Server) handler() (*handler, error) {
	h := &handler{domain: s.Domain, namespace: s.Namespace, finder: s.Finder, stale: s.Stale, addresses: s.Addresses, log: s.Log}
	if h.domain == "" {
		h.domain = "instar."
	}
	h.domain = strings.ToLower(dns.Fqdn(h.domain))
	if h.namespace == "" {
		h.namespace = "default"
	}
	if h.stale == nil {
		h.stale = func() time.Duration { return 0 }
	}
	if _, ok := dns.IsDomainName(h.domain); !ok || dns.CountLabel(h.domain) == 0 || strings.ContainsAny(h.domain, `\ `) {
		return nil, fmt.Errorf("the DNS domain %q is not a domain name; use one such as \"instar.\" or \"service.example.com.\"", s.Domain)
	}
	if s.TTL < 0 || s.TTL > maxTTL || s.TTL%time.Second != 0 {
		return nil, fmt.Errorf("the DNS TTL %s is not a number of whole seconds from 0s to %s", s.TTL, maxTTL)
	}
	if s.Finder == nil {
		return nil, errors.New("a name server needs a Finder")
	}
	h.ttl = uint32(s.TTL / time.Second)
	h.depth = dns.CountLabel(h.domain)
	return h, nil
}
