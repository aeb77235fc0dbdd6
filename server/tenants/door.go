package tenants

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/bcc94042/instar/api/problem"
	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/kv/index"
	"github.com/bcc94042/instar/machines"
	machine "github.com/bcc94042/instar/machines/database"
	"github.com/bcc94042/instar/providers/database/pg"
	"github.com/bcc94042/instar/server"
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

// AdmittedBucket has which session of each tenant was let in last. All nodes ask it, so that of two requests that come to two nodes at once one is the first.
const AdmittedBucket = "tenant_admitted"

// remembered is how long it has that: the index of each node has the session within that time.
const remembered = 10 * time.Second

// door refuses requests that no server takes, and a second session of a tenant: of any machine.
type door struct {
	next     func(publish.Command) error // of other machines
	back     func(publish.Command)       // the same for what was only asked about; nil is nothing
	takes    func(context.Context, *machine.RequestBody) error
	kinds    map[string]*Sessions // by machine; complete before the first request
	admitted *kv.Bucket[entrant]  // by tenant
}

// entrant is a session that was let in.
type entrant struct {
	Machine string `json:"machine"`
	Key     string `json:"key"`             // empty where nobody was: the last one was only asked about
	Version uint64 `json:"version"`         // that the index had of it then
	Again   bool   `json:"again,omitempty"` // it had been let in a moment before, too
}

func (e entrant) is(of, key string) bool { return e.Machine == of && e.Key == key }

func newDoor(ctx context.Context, h *server.Host, takes func(context.Context, *machine.RequestBody) error) (*door, error) {
	name := h.Deps.Names.Bucket(AdmittedBucket)
	if err := streams.EnsureBucket(ctx, h.Deps.JS, name, "Which session of a tenant was let in last", remembered, h.Replicas); err != nil {
		return nil, err
	}
	admitted, err := kv.Open(ctx, h.Deps.JS, name, kv.JSON[entrant]())
	return &door{takes: takes, kinds: map[string]*Sessions{}, admitted: admitted}, err
}

func (d *door) share(s Sessions) {
	for _, state := range s.Machine.States {
		if !state.Terminal {
			s.holding = append(s.holding, state.Name)
		}
	}
	d.kinds[s.Machine.Name] = &s
}

// asked is what a request for a session asks for: nothing where the engine refuses it. Other commands are not ours.
func (d *door) asked(cmd publish.Command) (asked *machine.RequestBody, no *machines.Refusal, ours bool) {
	kind := d.kinds[cmd.Machine]
	if kind == nil || cmd.Name != machine.CommandRequest || cmd.Key == "" {
		return nil, nil, false
	}
	_, tenant, _, err := streams.SplitKey(cmd.Key)
	if err != nil {
		return nil, nil, true
	}
	asked, no = kind.Asks(tenant, cmd.Body)
	return asked, no, true
}

func (d *door) admit(cmd publish.Command) error {
	asked, no, ours := d.asked(cmd)
	switch {
	case !ours && d.next != nil:
		return d.next(cmd)
	case no != nil:
		return problem.Invalid("body."+no.Fields[0].Field, no.Fields[0].Message)
	case asked == nil:
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if p := d.taken(ctx, asked); p != nil {
		return p
	}
	for _, k := range d.kinds {
		select {
		case <-k.Index.Ready():
		default:
			return problem.Unavailable("the sessions are still being read; this request stored nothing")
		}
	}
	if of, key, state := d.holder(asked.EnterpriseID, cmd.Machine, cmd.Key); key != "" {
		return second(asked.EnterpriseID, cmd.Key, of, key, state)
	}
	return d.enter(ctx, asked.EnterpriseID, cmd.Machine, cmd.Key)
}

// withdraw takes a session back that was let in and is not to be sent, so that another one need not wait for that. Where it fails, the others wait until it is not remembered any more.
func (d *door) withdraw(cmd publish.Command) {
	asked, _, ours := d.asked(cmd)
	if !ours && d.back != nil {
		d.back(cmd)
	}
	if asked == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if last, err := d.admitted.Get(ctx, asked.EnterpriseID); err == nil && last.Value.is(cmd.Machine, cmd.Key) && !last.Value.Again {
		_, _ = d.admitted.Put(ctx, asked.EnterpriseID, entrant{}, last.Revision) // no deletion: its marker would refuse the next one
	}
}

// second refuses a second session of a tenant that the session of a key of some machine has. Who asks learns nothing of one in another namespace but that.
func second(enterprise, asks, of, key, state string) error {
	held := fmt.Sprintf("session %s has the tenant %s and is %s", said(of, key), enterprise, state)
	own, _, _ := strings.Cut(asks, ".")
	if !strings.HasPrefix(key, own+".") {
		held = "another session has the tenant " + enterprise
	}
	return problem.New(machines.CodeExists, held+"; a tenant has one session at a time")
}

// taken is why no server takes a request, or nil.
func (d *door) taken(ctx context.Context, asked *machine.RequestBody) error {
	err := d.takes(ctx, asked)
	if err == nil {
		return nil
	}
	if again, _ := pg.Transient(err); again {
		return problem.Unavailable(err.Error() + "; this request stored nothing")
	}
	return problem.Invalid("body", err.Error())
}

// enter lets a session in, unless another one was a moment ago: no index may have that yet.
func (d *door) enter(ctx context.Context, enterprise, of, key string) error {
	e := entrant{Machine: of, Key: key}
	if item, known := d.kinds[of].Index.Get(key); known {
		e.Version = item.Version
		if slices.Contains(d.kinds[of].holding, item.State) { // by its leader it may have ended, and that end is not one of the life that begins here
			e.Version = math.MaxUint64
		}
	}
	for {
		last, err := d.admitted.Get(ctx, enterprise)
		e.Again = err == nil && last.Value.is(of, key)
		if err == nil && last.Value.Key != "" && !e.Again && !d.ended(last.Value) {
			return second(enterprise, key, last.Value.Machine, last.Value.Key, "being requested")
		}
		if err == nil || errors.Is(err, kv.ErrNotFound) {
			_, err = d.admitted.Put(ctx, enterprise, e, last.Revision)
		}
		if err == nil {
			return nil
		}
		if !errors.Is(err, kv.ErrConflict) {
			return problem.Unavailable("it cannot be seen whether another session was let in: " + err.Error() + "; this request stored nothing")
		}
	}
}

// ended reports whether a session that was let in has ended since. That [door.holder] has not found it says nothing of that: the index may have got it in between.
func (d *door) ended(e entrant) bool {
	kind := d.kinds[e.Machine]
	if kind == nil {
		return false
	}
	item, known := kind.Index.Get(e.Key)
	return known && item.Version > e.Version && !slices.Contains(kind.holding, item.State)
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

// holder is another session that has a tenant: one that has not ended, of any machine, in any namespace.
func (d *door) holder(enterprise, of, key string) (by, other, state string) {
	for name, item := range d.holders() {
		if tenant, _ := item.Value.(string); tenant == enterprise && (item.Key != key || name != of) {
			return name, item.Key, item.State
		}
	}
	return "", "", ""
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
