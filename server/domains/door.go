package domains

import (
	"encoding/json"
	"fmt"

	"github.com/bcc94042/instar/api/problem"
	"github.com/bcc94042/instar/machines"
	machine "github.com/bcc94042/instar/machines/domain"
	"github.com/bcc94042/instar/streams/publish"
)

// door refuses names that cannot be bound before anything is stored. Two that come at once are told apart when they are verified.
type door struct {
	refuses func(host string) string
	owner   func(host string) string
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
	if owner := d.owner(b.Host); owner != "" && owner != cmd.Key {
		return problem.New(machines.CodeExists, fmt.Sprintf("%s is the domain %s already", b.Host, owner))
	}
	return nil
}
