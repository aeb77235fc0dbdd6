package domains

import (
	"encoding/json"
	"strings"

	"github.com/bcc94042/instar/api/problem"
	machine "github.com/bcc94042/instar/machines/domain"
	"github.com/bcc94042/instar/streams/publish"
)

// door refuses names that cannot be bound, and labels that only the server sets, before anything is stored. Whose a name is shows when it is verified: by its records, which nobody has to ask another tenant for.
type door struct {
	refuses func(host string) string
	next    func(publish.Command) error // of other machines
}

func (d *door) admit(cmd publish.Command) error {
	if cmd.Machine != machine.Machine.Name || cmd.Name != machine.CommandBind || cmd.Key == "" {
		if d.next != nil {
			return d.next(cmd)
		}
		return nil
	}
	var b machine.BindBody
	if json.Unmarshal(cmd.Body, &b) != nil || b.Validate() != nil {
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
	return nil
}
