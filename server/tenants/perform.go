package tenants

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"strings"
	"time"

	"github.com/bcc94042/instar/machines"
	machine "github.com/bcc94042/instar/machines/database"
	"github.com/bcc94042/instar/providers/database"
	"github.com/bcc94042/instar/server"
	"github.com/bcc94042/instar/server/config"
)

// target is a server with what moves tenants there.
type target struct {
	config.TenantServer
	provider *database.Provider
}

// performer gives each task to the server that it is about.
type performer struct {
	servers []*target
	mirror  *mirror
}

// Perform does one task.
func (p *performer) Perform(ctx context.Context, t machines.Task) machines.Result {
	var body machine.Task
	if err := json.Unmarshal(t.Data, &body); err != nil {
		return machines.Result{Failure: &machines.Failure{Code: "invalid", Message: fmt.Sprintf("cannot read the task %s: %v", t.Attempt, err)}}
	}
	s := p.of(&body.Request, body.Database)
	if s == nil {
		return machines.Result{Failure: &machines.Failure{Code: "no-server", Message: p.without(&body.Request, body.Database)}}
	}
	return s.provider.Perform(ctx, t)
}

// of is the server of a session: that of its database, else the one among those that take it which the name of the tenant decides for.
func (p *performer) of(r *machine.RequestBody, has *machine.Allocated) (best *target) {
	if has != nil {
		name, _, _ := strings.Cut(has.DatabaseID, "/")
		for _, s := range p.servers {
			if s.Name == name {
				return s
			}
		}
		return nil
	}
	var most uint64
	for _, s := range p.servers {
		if !s.Takes(cmp.Or(r.Region, config.DefaultRegion), cmp.Or(r.Spec, config.DefaultSize)) {
			continue
		}
		h := fnv.New64a()
		fmt.Fprintf(h, "%s/%s", s.Name, r.EnterpriseID) // never fails
		if score := h.Sum64(); best == nil || score > most {
			best, most = s, score
		}
	}
	return best
}

// takes is why no server takes a request, or empty.
func (p *performer) takes(r *machine.RequestBody) string {
	if p.of(r, nil) != nil {
		return ""
	}
	return p.without(r, nil)
}

func (p *performer) without(r *machine.RequestBody, has *machine.Allocated) string {
	if has != nil {
		return fmt.Sprintf("no server of the configuration has the database %s: put its server back into tenants.servers", has.DatabaseID)
	}
	return fmt.Sprintf("no server of the configuration (tenants.servers) takes the region %s and the size %s", cmp.Or(r.Region, config.DefaultRegion), cmp.Or(r.Spec, config.DefaultSize))
}

// Look finds how far a copy is.
func (p *performer) Look(ctx context.Context, e *machines.Entity, _ bool) (machines.Finding, error) {
	d, ok := e.Data.(*machine.Data)
	if !ok || e.State != machine.Copying || d.Phase != machine.Executing {
		return machines.Finding{Until: time.Now().Add(time.Second)}, nil
	}
	s := p.of(&d.Request, d.Database)
	if s == nil {
		return machines.Finding{}, nil
	}
	return s.provider.Look(ctx, e)
}

// Watch tells nothing: a copy is polled.
func (p *performer) Watch(ctx context.Context, _ func(string)) error {
	<-ctx.Done()
	return nil
}

// sweep drops the databases whose grace period is over, and tells again where tenants are.
func (p *performer) sweep(ctx context.Context, h *server.Host) {
	if err := p.mirror.sync(ctx, p); err != nil && ctx.Err() == nil {
		h.Log.Warn("where tenants are is told again by the next sweep", "error", err)
	}
	for _, s := range p.servers {
		gone, err := s.provider.Sweep(ctx)
		if err != nil && ctx.Err() == nil {
			h.Log.Warn("databases that were taken back are kept until the next sweep", "server", s.Name, "error", err)
		}
		for _, name := range gone {
			h.Log.Info("a database that was taken back is dropped", "server", s.Name, "database", name)
		}
	}
}
