package domains

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"

	"github.com/bcc94042/instar/api/problem"
	machine "github.com/bcc94042/instar/machines/domain"
	"github.com/bcc94042/instar/streams/publish"
)

// door refuses names that cannot be bound, labels that only the server sets, and targets that the proxy never connects to, before anything is stored. Whose a name is shows when it is
// verified: by its records, which nobody has to ask another tenant for. Where the name of a target leads shows with each connection.
type door struct {
	refuses func(host string) string
	reaches func(to netip.AddrPort) error
	next    func(publish.Command) error // of other machines
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

// leads refuses a route to where requests never go.
func (d *door) leads(r *machine.Route) error {
	for i, t := range r.Targets {
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
