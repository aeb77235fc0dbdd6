package config

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"time"

	"github.com/bcc94042/instar/machines"
)

var dnsDomain = regexp.MustCompile(`^([A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?\.)*[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?\.?$`)

// Discovery is how instances are found and probed.
type Discovery struct {
	DNS       string        `koanf:"dns"`       // address of the name server; empty has none
	DNSDomain string        `koanf:"dnsDomain"` // of its names
	DNSTTL    time.Duration `koanf:"dnsTTL"`    // of its answers, whole seconds
	// DNSAddresses are what a delegation leads to; by default the one that is listened on, or those of the host.
	DNSAddresses []string `koanf:"dnsAddresses"`
	XDS          string   `koanf:"xds"`        // address of the endpoint discovery service for Envoy; empty has none
	XDSTLS       TLS      `koanf:"xdsTLS"`     // of that listener; with the authority, clients prove who they are
	Namespaces   string   `koanf:"namespaces"` // that DNS and xDS show, with commas between them; empty and * are all
	Scripts      bool     `koanf:"scripts"`    // checks of the type script may run programs on this node
	Probe        Probe    `koanf:"probe"`
}

// Probe says where checks may go: what Allow holds is allowed although it would be refused, and what Deny holds is
// refused in any case.
type Probe struct {
	Allow []string `koanf:"allow"`
	Deny  []string `koanf:"deny"`
	// AnyRequest lets checks send other methods than GET and HEAD, headers but Host, and bodies.
	AnyRequest bool `koanf:"anyRequest"`
	// Match lets checks look for an expression in what is answered.
	Match bool `koanf:"match"`
}

// Shown are those namespaces; nil are all.
func (d Discovery) Shown() []string {
	list := parts(d.Namespaces)
	if slices.Contains(list, AllNamespaces) {
		return nil
	}
	return list
}

// exposed refuses to show all namespaces to others than those on this machine unless that is said: neither DNS nor xDS has a
// word for who may see which.
func (d Discovery) exposed() error {
	var errs []error
	for _, door := range []struct{ key, addr string }{{"discovery.dns", d.DNS}, {"discovery.xds", d.XDS}} {
		if door.addr != "" && !Loopback(door.addr) && d.Namespaces == "" {
			errs = append(errs, fmt.Errorf("%s: %s can be reached from other machines: list the namespaces that they may see in discovery.namespaces; * is all", door.key, door.addr))
		}
	}
	return errors.Join(errs...)
}

func (d Discovery) validate() error {
	var errs []error
	for _, namespace := range d.Shown() {
		if !machines.IsLabel(namespace) {
			errs = append(errs, fmt.Errorf("discovery.namespaces: %q is neither a DNS label nor *", namespace))
		}
	}
	if d.DNS != "" {
		errs = append(errs, listener("discovery.dns", d.DNS))
	}
	if d.XDS != "" {
		errs = append(errs, listener("discovery.xds", d.XDS))
	}
	if !dnsDomain.MatchString(d.DNSDomain) || len(d.DNSDomain) > 190 { // names stand before it
		errs = append(errs, fmt.Errorf("discovery.dnsDomain: %q is not a domain such as instar or service.example.com", d.DNSDomain))
	}
	if d.DNSTTL < 0 || d.DNSTTL > time.Hour || d.DNSTTL%time.Second != 0 {
		errs = append(errs, fmt.Errorf("discovery.dnsTTL: %s is not a number of whole seconds from 0s to 1h", d.DNSTTL))
	}
	for _, text := range d.DNSAddresses {
		if ip, err := netip.ParseAddr(text); err != nil || ip.IsUnspecified() || ip.Zone() != "" {
			errs = append(errs, fmt.Errorf("discovery.dnsAddresses: %q is not an address such as 192.0.2.53", text))
		}
	}
	if d.XDS == "" && d.XDSTLS != (TLS{}) {
		errs = append(errs, errors.New("discovery.xdsTLS is for discovery.xds, which is not set"))
	}
	if d.XDSTLS.CA != "" && d.XDSTLS.Cert == "" {
		errs = append(errs, errors.New("discovery.xdsTLS: who asks clients for certificates needs ca, cert and key"))
	}
	errs = append(errs, pair("discovery.xdsTLS", KeyPair{Cert: d.XDSTLS.Cert, Key: d.XDSTLS.Key}), readable("discovery.xdsTLS.ca", d.XDSTLS.CA))
	for key, list := range map[string][]string{"discovery.probe.allow": d.Probe.Allow, "discovery.probe.deny": d.Probe.Deny} {
		if _, err := Prefixes(list); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", key, err))
		}
	}
	return errors.Join(errs...)
}

// Networks are what Allow and Deny hold.
func (p Probe) Networks() (allow, deny []netip.Prefix, err error) {
	if allow, err = Prefixes(p.Allow); err != nil {
		return nil, nil, fmt.Errorf("discovery.probe.allow: %w", err)
	}
	if deny, err = Prefixes(p.Deny); err != nil {
		return nil, nil, fmt.Errorf("discovery.probe.deny: %w", err)
	}
	return allow, deny, nil
}

// Prefixes reads networks; an address is a network of one.
func Prefixes(list []string) ([]netip.Prefix, error) {
	var all []netip.Prefix
	for _, text := range list {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			addr, err := netip.ParseAddr(text)
			if err != nil {
				return nil, fmt.Errorf("%q is no network such as 10.0.0.0/8", text)
			}
			p = netip.PrefixFrom(addr, addr.BitLen())
		}
		all = append(all, p.Masked())
	}
	return all, nil
}
