package platform

import (
	"encoding/json"

	"github.com/bcc94042/instar/api/problem"
	"github.com/bcc94042/instar/machines/database"
	machine "github.com/bcc94042/instar/machines/platform"
	"github.com/bcc94042/instar/server/tenants"
)

// brief is what the door needs of a stored session: the tenant that has it.
func brief(_ string, value []byte) (any, error) {
	e, err := machine.Machine.Decode(value)
	if err != nil {
		return nil, err
	}
	if d, ok := e.Data.(*machine.Data); ok {
		return d.Request.EnterpriseID, nil
	}
	return "", nil
}

// holding are the states in which a session has its tenant.
func holding() (states []string) {
	for _, s := range machine.Machine.States {
		if !s.Terminal {
			states = append(states, s.Name)
		}
	}
	return states
}

// asks reads a request: whose instance it is to be, and whether there is a server for its database.
func asks(databases *tenants.Databases) func(tenant string, body []byte) (string, error) {
	return func(tenant string, body []byte) (string, error) {
		var b machine.RequestBody
		if json.Unmarshal(body, &b) != nil || b.Validate() != nil {
			return "", nil // which the engine refuses
		}
		b, no := b.For(tenant)
		if no != nil {
			return "", problem.Invalid("body."+no.Fields[0].Field, no.Fields[0].Message)
		}
		if why := databases.Takes(&database.RequestBody{EnterpriseID: b.EnterpriseID, Region: b.Region, Spec: b.DBSpec}); why != "" {
			return "", problem.Invalid("body", why)
		}
		return b.EnterpriseID, nil
	}
}
