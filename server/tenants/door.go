package tenants

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/bcc94042/instar/api/problem"
	"github.com/bcc94042/instar/kv/index"
	"github.com/bcc94042/instar/machines"
	machine "github.com/bcc94042/instar/machines/database"
	"github.com/bcc94042/instar/providers/database/pg"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/publish"
)

// Sessions are those of a machine that gives tenants a database. What the index keeps of each is the tenant that has it ([Databases.Share]).
type Sessions struct {
	Machine *machines.Machine // of which a session has its tenant in all states but the ends
	Index   *index.Index
	// Asks reads the body of the machine's command request, for the tenant of the path: the database that is meant, or why it cannot be. A body that the engine refuses is nil.
	Asks func(tenant string, body []byte) (*machine.RequestBody, *machines.Refusal)

	holding []string
}

// remembered is how long the door knows what it has admitted: the index has it within that time.
const remembered = 10 * time.Second

// door refuses requests that no server takes, and a second session of a tenant: of any machine.
type door struct {
	next  func(publish.Command) error // of other machines
	takes func(context.Context, *machine.RequestBody) error
	kinds map[string]*Sessions // by machine; complete before the first request

	mu       sync.Mutex
	admitted map[string]entrant // by tenant
}

// entrant is a session that was let in.
type entrant struct {
	machine, key string
	version      uint64 // that the index had of it then
	until        time.Time
}

func newDoor(takes func(context.Context, *machine.RequestBody) error) *door {
	return &door{takes: takes, kinds: map[string]*Sessions{}, admitted: map[string]entrant{}}
}

func (d *door) share(s Sessions) {
	for _, state := range s.Machine.States {
		if !state.Terminal {
			s.holding = append(s.holding, state.Name)
		}
	}
	d.kinds[s.Machine.Name] = &s
}

func (d *door) admit(cmd publish.Command) error {
	kind := d.kinds[cmd.Machine]
	if kind == nil || cmd.Name != machine.CommandRequest || cmd.Key == "" {
		if d.next != nil {
			return d.next(cmd)
		}
		return nil
	}
	_, tenant, _, err := streams.SplitKey(cmd.Key)
	if err != nil {
		return nil // which the engine refuses
	}
	asked, no := kind.Asks(tenant, cmd.Body)
	switch {
	case no != nil:
		return problem.Invalid("body."+no.Fields[0].Field, no.Fields[0].Message)
	case asked == nil:
		return nil
	}
	if p := d.taken(asked); p != nil {
		return p
	}
	enterprise := asked.EnterpriseID
	for _, k := range d.kinds {
		select {
		case <-k.Index.Ready():
		default:
			return problem.Unavailable("the sessions are still being read; this request stored nothing")
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if key, state := d.holder(enterprise, cmd.Machine, cmd.Key); key != "" {
		return problem.New(machines.CodeExists, fmt.Sprintf("session %s has the tenant %s and is %s; a tenant has one session at a time", key, enterprise, state))
	}
	d.remember(enterprise, entrant{machine: cmd.Machine, key: cmd.Key, until: time.Now().Add(remembered)})
	return nil
}

// taken is why no server takes a request, or nil.
func (d *door) taken(asked *machine.RequestBody) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	err := d.takes(ctx, asked)
	if err == nil {
		return nil
	}
	if again, _ := pg.Transient(err); again {
		return problem.Unavailable(err.Error() + "; this request stored nothing")
	}
	return problem.Invalid("body", err.Error())
}

// remember notes who was let in, and forgets who was long ago.
func (d *door) remember(enterprise string, e entrant) {
	for name, old := range d.admitted {
		if !time.Now().Before(old.until) {
			delete(d.admitted, name)
		}
	}
	if item, known := d.kinds[e.machine].Index.Get(e.key); known {
		e.version = item.Version
	}
	d.admitted[enterprise] = e
}

// holders are all sessions that have a tenant, by their machines.
func (d *door) holders() iter.Seq2[string, index.Item] {
	return func(yield func(string, index.Item) bool) {
		for name, k := range d.kinds {
			for q := (index.Query{States: k.holding, Limit: 500}); ; {
				page := k.Index.List(q)
				for _, item := range page.Items {
					if !yield(name, item) {
						return
					}
				}
				if q.After = page.Next; q.After == "" {
					break
				}
			}
		}
	}
}

// holder is another session that has a tenant: one that has not ended, of any machine, in any namespace; or one that was let in just now.
func (d *door) holder(enterprise, of, key string) (other, state string) {
	for name, item := range d.holders() {
		if tenant, _ := item.Value.(string); tenant == enterprise && (item.Key != key || name != of) {
			return said(name, item.Key), item.State
		}
	}
	e, recent := d.admitted[enterprise]
	if !recent || e.key == key && e.machine == of || !time.Now().Before(e.until) {
		return "", ""
	}
	if item, known := d.kinds[e.machine].Index.Get(e.key); known && item.Version > e.version {
		return "", "" // it has ended since, or the index would have shown it
	}
	return said(e.machine, e.key), "being requested"
}

// said is a session as the answer names it: those of machines/database by their keys.
func said(name, key string) string {
	if name == machine.Machine.Name {
		return key
	}
	return name + " " + key
}

// asks reads a request of machines/database.
func asks(tenant string, body []byte) (*machine.RequestBody, *machines.Refusal) {
	var b machine.RequestBody
	if json.Unmarshal(body, &b) != nil || b.Validate() != nil {
		return nil, nil
	}
	b, no := b.For(tenant)
	return &b, no
}
