package tenants

import (
	"encoding/json"
	"fmt"

	"github.com/bcc94042/instar/api/problem"
	"github.com/bcc94042/instar/kv/index"
	"github.com/bcc94042/instar/machines"
	machine "github.com/bcc94042/instar/machines/database"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/publish"
)

// door refuses requests that no server takes, and a second session of a tenant.
type door struct {
	sessions *index.Index
	takes    func(*machine.RequestBody) string
	next     func(publish.Command) error // of other machines
}

func (d *door) admit(cmd publish.Command) error {
	if cmd.Machine != machine.Machine.Name || cmd.Name != machine.CommandRequest || cmd.Key == "" {
		if d.next != nil {
			return d.next(cmd)
		}
		return nil
	}
	var b machine.RequestBody
	_, tenant, _, err := streams.SplitKey(cmd.Key)
	if err != nil || json.Unmarshal(cmd.Body, &b) != nil || b.Validate() != nil {
		return nil // which the engine refuses
	}
	b, refused := b.For(tenant)
	if refused != nil {
		return problem.Invalid("body."+refused.Fields[0].Field, refused.Fields[0].Message)
	}
	if why := d.takes(&b); why != "" {
		return problem.Invalid("body", why)
	}
	select {
	case <-d.sessions.Ready():
	default:
		return problem.Unavailable("the sessions are still being read; this request stored nothing")
	}
	if key, state := d.holder(b.EnterpriseID, cmd.Key); key != "" {
		return problem.New(machines.CodeExists, fmt.Sprintf("session %s has the tenant %s and is %s; a tenant has one session at a time", key, b.EnterpriseID, state))
	}
	return nil
}

// holder is another session that has a tenant: one that has not ended, in any namespace.
func (d *door) holder(enterprise, key string) (other, state string) {
	for q := (index.Query{States: machine.Holding(), Limit: 500}); ; {
		page := d.sessions.List(q)
		for _, item := range page.Items {
			if tenant, _ := item.Value.(string); tenant == enterprise && item.Key != key {
				return item.Key, item.State
			}
		}
		if q.After = page.Next; q.After == "" {
			return "", ""
		}
	}
}
