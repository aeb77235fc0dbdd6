package platform

import (
	"encoding/json"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/database"
	machine "github.com/bcc94042/instar/machines/platform"
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

// asks reads a request: the database of the instance that it is for.
func asks(tenant string, body []byte) (*database.RequestBody, *machines.Refusal) {
	var b machine.RequestBody
	if json.Unmarshal(body, &b) != nil || b.Validate() != nil {
		return nil, nil
	}
	b, no := b.For(tenant)
	return &database.RequestBody{EnterpriseID: b.EnterpriseID, Region: b.Region, Spec: b.DBSpec}, no
}
