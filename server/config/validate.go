package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/embedded"
)

var tokenHash = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

// Validate tells everything that is wrong, not only the first thing. Nothing is listened on or written by it.
func (c Config) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	oneOf := func(key, value string, allowed ...string) {
		check(slices.Contains(allowed, value), "%s: %q is none of %s", key, value, strings.Join(allowed, ", "))
	}
	check(c.Data != "", "data: needs a directory")
	oneOf("durability", c.Durability, string(embedded.Fsync), string(embedded.Interval), string(embedded.OS))
	oneOf("gateway", c.Gateway, GatewayProcess, GatewayKnative, GatewaySimulated, GatewayExternal)
	oneOf("log.level", c.Log.Level, "debug", "info", "warn", "error")
	oneOf("log.format", c.Log.Format, "text", "json")
	check(c.IdempotencyWindow >= streams.CommandWindow, "idempotencyWindow: %s is less than %s", c.IdempotencyWindow, streams.CommandWindow)
	check(c.Observe.Every >= time.Second, "observe.every: %s is less than 1s", c.Observe.Every)
	check(c.Observe.ReadyStale >= 0, "observe.readyStale: %s is negative", c.Observe.ReadyStale)
	check(c.Index.EndedFor >= 0, "index.endedFor: %s is negative", c.Index.EndedFor)
	check(c.Effects.Concurrency >= 1 && c.Effects.Concurrency <= 1024, "effects.concurrency: %d is not between 1 and 1024", c.Effects.Concurrency)
	check(c.Node == "" || machines.IsLabel(c.Node), "node: %q is no name of lower-case letters, digits and inner hyphens", c.Node)
	errs = append(errs, c.Store.validate(c.NATS), c.HTTP.validate(), c.UI.validate(), c.NATS.validate(), c.Cluster.validate(c.NATS), c.Auth.validate(), c.Gateways.Process.validate(), c.Gateways.Knative.validate(), c.Outbox.validate(), c.Tasks.validate(), c.Tenants.validate(c.Mode), c.Domains.validate(c.Mode), c.Platform.validate(&c), c.Discovery.validate(), c.Limits.validate(), c.HTTP.validateTimeouts(), c.validateEnded())
	if errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil }); len(errs) == 0 {
		return errors.Join(c.exposed(), c.Discovery.exposed()) // only the addresses are known to be well formed now
	}
	return errors.Join(errs...)
}

// What a store, and a stream that only tells, needs at least.
const (
	leastStore   = 16 << 20
	leastTelling = 2 << 20
)

func (s Store) validate(n NATS) error {
	var errs []error
	for key, text := range map[string]string{"store.max": s.Max, "store.events": s.Events, "store.deadLetters": s.DeadLetters} {
		if _, err := humanize.ParseBytes(text); err != nil && text != "" {
			errs = append(errs, fmt.Errorf("%s: %q is not a size such as 10GiB", key, text))
		}
	}
	most, events, dead := s.Sizes()
	tell, letters := streams.Plan{Store: most, Events: events, DeadLetters: dead}.Bounds() // what is not set has its share
	switch {
	case len(errs) > 0:
	case most > 0 && n.Attached():
		errs = append(errs, errors.New("store.max is of the embedded server: a server that is attached has limits of its own"))
	case most > 0 && most < leastStore:
		errs = append(errs, fmt.Errorf("store.max: %s is less than 16MiB", s.Max))
	case most > 0 && tell+letters > most/10*9:
		errs = append(errs, fmt.Errorf("store.events and store.deadLetters: %s and %s are more than nine tenths of store.max, %s: entities need room, too", humanize.IBytes(uint64(tell)), humanize.IBytes(uint64(letters)), s.Max))
	case events > 0 && events < leastTelling || dead > 0 && dead < leastTelling:
		errs = append(errs, errors.New("store.events and store.deadLetters: less than 2MiB has no room for a large message"))
	}
	return errors.Join(errs...)
}

func (h HTTP) validate() error {
	var errs []error
	for _, name := range h.AllowedHosts() {
		if strings.ContainsAny(name, "/: ") {
			errs = append(errs, fmt.Errorf("http.hosts: %q is not a name or an address without its port", name))
		}
	}
	return errors.Join(append(errs, listener("http.listen", h.Listen), pair("http.tls", h.TLS))...)
}

func (n NATS) validate() error {
	errs := []error{pair("nats.tls", KeyPair{Cert: n.TLS.Cert, Key: n.TLS.Key})}
	if n.Replicas != 1 && n.Replicas != 3 {
		errs = append(errs, fmt.Errorf("nats.replicas: %d is neither 1 nor 3", n.Replicas))
	}
	if !machines.IsLabel(n.Prefix) {
		errs = append(errs, fmt.Errorf("nats.prefix: %q is not one lower-case token", n.Prefix))
	}
	if n.Context != "" && (n.URL != "" || n.Creds != "" || n.TLS != TLS{}) {
		errs = append(errs, errors.New("nats.context has all that it takes to connect: leave out nats.url, nats.creds and nats.tls"))
	}
	if n.Write != "" && (!natsContextName.MatchString(n.Write) || n.Attached() || n.Listen == "" || n.TLS != TLS{}) {
		errs = append(errs, errors.New("nats.writeContext: needs a name of letters, digits, dots, dashes and underscores, and an embedded server that listens without TLS: of others `nats context add` knows more"))
	}
	if n.Attached() {
		if len(n.Users) > 0 {
			errs = append(errs, errors.New("nats.users: the server at nats.url has its own users; remove one of the two"))
		}
		return errors.Join(append(errs, readable("nats.creds", n.Creds), readable("nats.tls.ca", n.TLS.CA))...)
	}
	if n.Listen != "" {
		errs = append(errs, listener("nats.listen", n.Listen))
	}
	if n.Replicas == 3 {
		errs = append(errs, errors.New("nats.replicas: the embedded server is a single one; 3 needs nats.url"))
	}
	if n.Creds != "" || n.TLS.CA != "" {
		errs = append(errs, errors.New("nats.creds and nats.tls.ca are for nats.url, which is not set"))
	}
	seen := map[string]bool{}
	for i, u := range n.Users {
		err := u.Check(streams.Names{Prefix: n.Prefix})
		if seen[u.Name] && err == nil {
			err = errors.New("needs a name of its own")
		}
		if seen[u.Name] = true; err != nil {
			errs = append(errs, fmt.Errorf("nats.users[%d]: %w", i, err))
		}
	}
	return errors.Join(errs...)
}

func (a Auth) validate() error {
	var errs []error
	seen := map[string]bool{}
	for i, t := range a.Tokens {
		at := fmt.Sprintf("auth.tokens[%d]", i)
		if t.Name == "" || seen[t.Name] {
			errs = append(errs, fmt.Errorf("%s.name: needs a name of its own", at))
		}
		seen[t.Name] = true
		if !tokenHash.MatchString(t.Hash) {
			errs = append(errs, fmt.Errorf("%s.hash: needs sha256: and 64 hex digits; instar token makes token and hash", at))
		}
		errs = append(errs, access(at, t.Role, t.Namespace))
		if err := embedded.CheckRate(t.Rate, t.Burst); err != nil {
			errs = append(errs, fmt.Errorf("%s.rate: %w", at, err))
		}
	}
	return errors.Join(append(errs, a.OIDC.validate(len(a.Tokens) > 0))...)
}

// access checks what somebody may do, and where.
func access(at, role, namespace string) (err error) {
	if !slices.Contains([]string{RoleRead, RoleOperate, RoleAdmin}, role) {
		err = fmt.Errorf("%s.role: %q is none of read, operate, admin", at, role)
	}
	if namespace != AllNamespaces && !machines.IsLabel(namespace) {
		err = errors.Join(err, fmt.Errorf("%s.namespace: %q is neither a DNS label nor *", at, namespace))
	}
	return err
}

func (p Process) validate() error {
	var errs []error
	if _, err := netip.ParseAddr(p.Host); err != nil {
		errs = append(errs, fmt.Errorf("gateways.process.host: %q is not an IP address", p.Host))
	}
	for name, t := range p.Templates {
		at := "gateways.process.templates." + name
		if len(t.Command) == 0 || t.Command[0] == "" {
			errs = append(errs, fmt.Errorf("%s.command: needs a program", at))
		}
		if !slices.Contains([]string{"", "shared", "fd", "port"}, t.Socket) {
			errs = append(errs, fmt.Errorf("%s.socket: %q is none of shared, fd, port", at, t.Socket))
		}
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(errs...)
}

// exposed refuses listeners that strangers can reach and nothing protects.
func (c Config) exposed() error {
	if c.Insecure {
		return nil
	}
	var errs []error
	refuse := func(key, addr string, protected bool, with string) {
		if !Loopback(addr) && !protected {
			errs = append(errs, fmt.Errorf("%s: %s can be reached from other machines: set %s, or --insecure if that is meant", key, addr, with))
		}
	}
	refuse("http.listen", c.HTTP.Listen, len(c.Auth.Tokens) > 0 && c.HTTP.TLS.Cert != "", "auth.tokens and http.tls")
	if c.Cluster.On() {
		refuse("cluster.listen", c.Cluster.Listen, c.Cluster.Password != "" && c.Cluster.TLS.Cert != "", "cluster.user, cluster.password and cluster.tls")
	}
	if c.NATS.Listen != "" && !c.NATS.Attached() {
		refuse("nats.listen", c.NATS.Listen, len(c.NATS.Users) > 0 && c.NATS.TLS.Cert != "", "nats.users and nats.tls")
	}
	if s := c.Platform.Storage; c.Platform.On() && s.Kind == StorageJetStream && s.Listen != "" {
		refuse("platform.storage.listen", s.Listen, c.HTTP.TLS.Cert != "", "http.tls, with which it is served then")
	}
	if addr := c.Discovery.DNS; addr != "" { // the protocol asks nobody who they are
		refuse("discovery.dns", addr, false, "a loopback address")
	}
	if addr := c.Discovery.XDS; addr != "" {
		refuse("discovery.xds", addr, c.Discovery.XDSTLS.CA != "", "discovery.xdsTLS with ca, so that clients prove who they are, or a loopback address")
	}
	return errors.Join(errs...)
}

// pair checks that certificate and key come together and can be read.
func pair(key string, t KeyPair) error {
	if (t.Cert == "") != (t.Key == "") {
		return fmt.Errorf("%s: cert and key belong together, and one is missing", key)
	}
	return errors.Join(readable(key+".cert", t.Cert), readable(key+".key", t.Key))
}

func readable(key, path string) error {
	if path == "" {
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	return f.Close()
}

func listener(key, addr string) error {
	_, port, err := net.SplitHostPort(addr)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	if err != nil {
		return fmt.Errorf("%s: %q is not host:port", key, addr)
	}
	return nil
}

// Loopback reports whether only this machine can reach the address. Names other than localhost may be anything.
func Loopback(addr string) bool {
	host, _, _ := net.SplitHostPort(addr) // checked before
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}
