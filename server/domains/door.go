package domains

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/bcc94042/instar/api/problem"
	machine "github.com/bcc94042/instar/machines/domain"
	"github.com/bcc94042/instar/providers/guard"
	"github.com/bcc94042/instar/server/config"
	"github.com/bcc94042/instar/streams/publish"
)

// door refuses names that cannot be bound, labels that only the server sets, and targets that the proxy never connects to, before anything is stored. Whose a name is shows when it is
// verified: by its records, which nobody has to ask another tenant for. Where the name of a target leads shows with each connection.
type door struct {
	refuses func(host string) string
	reaches func(to netip.AddrPort) error
	next    func(publish.Command) error // of other machines
}

// reaching says why a node does not connect to an address: this one, and every one of a cluster. What is an address of this node, by any but the loopback, is another host to the others, so that the proxy of each
// judges it by itself, with each connection. Where releases run is meant, though it is this host.
func reaching(g guard.Guard, runs func(netip.AddrPort) bool) (here, anywhere func(to netip.AddrPort) error) {
	here = func(to netip.AddrPort) error {
		if runs(to) {
			return (&guard.Guard{Allow: g.Allow, Own: g.Own}).Admit(to)
		}
		return g.Admit(to)
	}
	shared := guard.Guard{Deny: g.Deny, Allow: g.Allow, Only: g.Only}
	return here, func(to netip.AddrPort) error {
		if a := to.Addr().Unmap(); a.IsLoopback() || a.IsUnspecified() || runs(to) {
			return here(to)
		}
		return shared.Admit(to)
	}
}

// runs reports whether an address is one of a release of an instance.
func runs(p *config.Platform) func(netip.AddrPort) bool {
	first, last := p.Range()
	host, err := netip.ParseAddr(p.Host)
	return func(at netip.AddrPort) bool {
		return p.On() && err == nil && at.Addr().Unmap() == host.Unmap() && int(at.Port()) >= first && int(at.Port()) <= last
	}
}

func (d *door) admit(cmd publish.Command) error {
	switch {
	case cmd.Machine == machine.Machine.Name && cmd.Key != "" && cmd.Name == machine.CommandBind:
		return d.bind(cmd.Body)
	case cmd.Machine == machine.Machine.Name && cmd.Key != "" && cmd.Name == machine.CommandRetarget:
		var b machine.RetargetBody
		if json.Unmarshal(cmd.Body, &b) != nil || b.Validate() != nil {
			return nil // which the engine refuses
		}
		return d.leads(&b.Route)
	case d.next != nil:
		return d.next(cmd)
	}
	return nil
}

func (d *door) bind(body []byte) error {
	var b machine.BindBody
	if json.Unmarshal(body, &b) != nil || b.Validate() != nil {
		return nil // which the engine refuses
	}
	if why := d.refuses(b.Host); why != "" {
		return problem.Invalid("body.host", why)
	}
	for key := range b.Labels {
		if strings.HasPrefix(key, machine.OwnLabels) {
			return problem.Invalid("body.labels."+key, "is a label that the server sets by itself: leave it out")
		}
	}
	return d.leads(&b.Route)
}

// leads refuses a route to where requests never go. Nothing is asked of a target that is being drained.
func (d *door) leads(r *machine.Route) error {
	drains := slices.ContainsFunc(r.Targets, func(t machine.Target) bool { return t.Weight > 0 }) // else all have the same share
	for i, t := range r.Targets {
		if drains && t.Weight == 0 {
			continue
		}
		to, err := netip.ParseAddrPort(t.Address)
		if err != nil { // it is a name
			continue
		}
		if err := d.reaches(to); err != nil {
			return problem.Invalid(fmt.Sprintf("body.route.targets[%d].address", i), err.Error())
		}
	}
	return nil
}
