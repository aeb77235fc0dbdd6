package main

import (
	"errors"
	"fmt"
	"net/netip"
)

// Discovery is how instances are found and probed.
type Discovery struct {
	DNS     string `koanf:"dns"`     // address of the name server; empty has none
	XDS     string `koanf:"xds"`     // address of the endpoint discovery service for Envoy; empty has none
	Scripts bool   `koanf:"scripts"` // checks of the type script may run programs on this node
	Probe   Probe  `koanf:"probe"`
}

// Probe says where checks may go: what Allow holds is allowed although it would be refused, and what Deny holds is
// refused in any case.
type Probe struct {
	Allow []string `koanf:"allow"`
	Deny  []string `koanf:"deny"`
}

func (d Discovery) validate() error {
	var errs []error
	if d.DNS != "" {
		errs = append(errs, listener("discovery.dns", d.DNS))
	}
	if d.XDS != "" {
		errs = append(errs, listener("discovery.xds", d.XDS))
	}
	for key, list := range map[string][]string{"discovery.probe.allow": d.Probe.Allow, "discovery.probe.deny": d.Probe.Deny} {
		if _, err := prefixes(list); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", key, err))
		}
	}
	return errors.Join(errs...)
}

// prefixes reads networks; an address is a network of one.
func prefixes(list []string) ([]netip.Prefix, error) {
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
