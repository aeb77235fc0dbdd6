package config

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"regexp"
	"strings"
)

// Domains are the proxy for domain names of tenants, and where its certificates come from. Without a listener for TLS there is no such machine.
type Domains struct {
	HTTPS     string `koanf:"https"` // listen address of the proxy
	HTTP      string `koanf:"http"`  // and of what answers challenges, and sends everything else to https; empty does not listen
	ACME      string `koanf:"acme"`  // URL of the certificate authority's directory
	Email     string `koanf:"email"`
	CA        string `koanf:"ca"`        // file with the roots of the certificate authority's own certificate; those of the system when empty
	Keys      string `koanf:"keys"`      // file with the keyset that private keys are sealed with; dev makes one that is not there
	Points    string `koanf:"points"`    // a name, or addresses, of the proxy, where bound names have to lead; empty does not check it
	Resolvers string `koanf:"resolvers"` // addresses of name servers that are asked; those of the system when empty
	Reserved  string `koanf:"reserved"`  // names that cannot be bound, nor what is below them

	Targets string `koanf:"targets"` // networks that targets may be in; empty is any but this host, and in dev any

	DNS DomainsDNS `koanf:"dns"`
}

// DomainsDNS is a name server that takes updates (RFC 2136): names in its zones are proven to the certificate authority by DNS-01, and need not be reached from outside.
type DomainsDNS struct {
	Server string `koanf:"server"` // host:port; empty is none
	Zones  string `koanf:"zones"`
	Key    string `koanf:"key"` // file with a TSIG key, as BIND's tsig-keygen writes it
}

// LetsEncrypt is the directory that is used when none is named.
const LetsEncrypt = "https://acme-v02.api.letsencrypt.org/directory"

// On reports whether there is a proxy.
func (d Domains) On() bool { return d.HTTPS != "" }

var pointForm = regexp.MustCompile(`^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z]([a-z0-9-]{0,61}[a-z0-9])?$`)

func (d Domains) validate(mode string) error {
	if !d.On() {
		if d.HTTP != "" {
			return errors.New("domains.http: it serves nothing without domains.https")
		}
		return nil
	}
	errs := []error{listener("domains.https", d.HTTPS)}
	if d.HTTP != "" {
		errs = append(errs, listener("domains.http", d.HTTP))
	}
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("domains."+format, args...))
		}
	}
	u, err := url.Parse(d.ACME)
	check(err == nil && u.Scheme == "https" && u.Host != "", "acme: %q is not an https URL of an ACME directory", d.ACME)
	check(d.Keys != "", "keys: needs the file with the keyset that private keys are sealed with; `instar tenant-keyset FILE` makes one")
	if _, err := os.Stat(d.Keys); d.Keys != "" && (mode != Dev || !errors.Is(err, os.ErrNotExist)) {
		errs = append(errs, readable("domains.keys", d.Keys))
	}
	errs = append(errs, readable("domains.ca", d.CA))
	names := 0
	for _, p := range parts(d.Points) {
		_, err := netip.ParseAddr(p)
		check(err == nil || pointForm.MatchString(p), "points: %q is neither a domain name nor an address", p)
		if err != nil {
			names++
		}
	}
	check(names == 0 || len(parts(d.Points)) == 1, "points: a name can be an alias of one other only: name either one name, or addresses")
	for _, r := range parts(d.Resolvers) {
		_, err := netip.ParseAddrPort(r)
		check(err == nil, "resolvers: %q is not address:port", r)
	}
	if d.DNS.Server != "" {
		errs = append(errs, listener("domains.dns.server", d.DNS.Server), readable("domains.dns.key", d.DNS.Key))
		check(d.DNS.Key != "", "dns.key: needs the file with the key that updates are signed with; tsig-keygen makes one")
		check(len(parts(d.DNS.Zones)) > 0, "dns.zones: needs the zones that the name server takes updates of")
	}
	for _, z := range parts(d.DNS.Zones) {
		check(d.DNS.Server != "" && pointForm.MatchString(z), "dns.zones: %q is not a domain name in lower case, or there is no dns.server", z)
	}
	for _, n := range parts(d.Targets) {
		_, err := netip.ParsePrefix(n)
		check(err == nil, "targets: %q is not a network such as 10.1.0.0/16", n)
	}
	for _, r := range parts(d.Reserved) {
		check(pointForm.MatchString(r), "reserved: %q is not a domain name in lower case", r)
	}
	return errors.Join(errs...)
}

// Networks are those that targets may be in; nil is any.
func (d Domains) Networks() (list []netip.Prefix) {
	for _, n := range parts(d.Targets) {
		list = append(list, netip.MustParsePrefix(n)) // was checked
	}
	return list
}

// Zones are the parts of DNS.Zones.
func (d Domains) Zones() []string { return parts(d.DNS.Zones) }

// Refuses is why a name cannot be bound, or empty.
func (d Domains) Refuses(host string) string {
	for _, r := range parts(d.Reserved) {
		if host == r || strings.HasSuffix(host, "."+r) {
			return fmt.Sprintf("%s is reserved: names below %s cannot be bound", host, r)
		}
	}
	return ""
}

// Lists are the parts of Points and of Resolvers.
func (d Domains) Lists() (points, resolvers []string) { return parts(d.Points), parts(d.Resolvers) }
