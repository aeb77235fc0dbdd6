package tenants

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/bcc94042/instar/machines"
	machine "github.com/bcc94042/instar/machines/database"
	"github.com/bcc94042/instar/providers/database"
	"github.com/bcc94042/instar/providers/database/admin"
	"github.com/bcc94042/instar/providers/database/pg"
	"github.com/bcc94042/instar/server"
	"github.com/bcc94042/instar/server/config"
	"github.com/bcc94042/instar/streams"
	records "github.com/bcc94042/instar/streams/audit"
)

// target is a server with what moves tenants there.
type target struct {
	config.TenantServer
	provider *database.Provider
}

// performer gives each task to the server that it is about.
type performer struct {
	servers   []*target
	catalogue *catalogue
	mirror    *mirror
	records   func(context.Context, records.Record) error // appends one to the audit
}

// planning is the effect that chooses a server.
var planning = machine.Stages[0].Effect

// Perform does one task.
func (p *performer) Perform(ctx context.Context, t machines.Task) machines.Result {
	var body machine.Task
	if err := json.Unmarshal(t.Data, &body); err != nil {
		return machines.Result{Failure: &machines.Failure{Code: "invalid", Message: fmt.Sprintf("cannot read the task %s: %v", t.Attempt, err)}}
	}
	s, revision, err := p.of(ctx, t.Effect, &body)
	if err != nil {
		return machines.Result{Failure: noServer(err)}
	}
	r := s.provider.Perform(ctx, t)
	if plan, ok := r.Data.(machine.Plan); ok && t.Effect == planning {
		plan.Server, plan.CatalogueRevision = s.Name, revision
		r.Data = plan
	}
	return r
}

func noServer(err error) *machines.Failure {
	f := &machines.Failure{Code: "no-server", Message: err.Error()}
	f.Retryable, f.RetryAfter = pg.Transient(err)
	return f
}

// of is the server of a session: for a plan the one that the catalogue has for it, at a revision; else that of its database, or of its plan. What was planned before there was a catalogue is where the configuration says. An undo
// of nothing needs no server, so that it takes any where that one is not there: the session ends in the shared database, which is the same for all.
func (p *performer) of(ctx context.Context, effect string, b *machine.Task) (s *target, revision uint64, err error) {
	switch name := b.Server; {
	case b.Database != nil:
		if s = p.having(b.Database); s == nil {
			err = without(b.Database)
		}
	case effect == planning:
		if name, revision, err = p.catalogue.place(ctx, &b.Request); err == nil {
			s, err = p.planned(name)
		}
	case name == "":
		if name, err = p.catalogue.among(p.catalogue.configured(), &b.Request); err == nil {
			s, err = p.planned(name)
		}
	default:
		s, err = p.planned(name)
	}
	if err != nil && effect == machine.EffectUndo && len(b.Actions) == 0 {
		return p.servers[0], 0, nil
	}
	return s, revision, err
}

func (p *performer) planned(name string) (*target, error) {
	if s := p.named(name); s != nil {
		return s, nil
	}
	return nil, pg.Refuse("no server of the configuration is %s, which the plan is for: put it back into tenants.servers", name)
}

func (p *performer) named(name string) *target {
	for _, s := range p.servers {
		if s.Name == name {
			return s
		}
	}
	return nil
}

// having is the server that has a database, or nil where the configuration lacks it.
func (p *performer) having(has *machine.Allocated) *target {
	name, _, _ := strings.Cut(has.DatabaseID, "/")
	return p.named(name)
}

func without(has *machine.Allocated) error {
	return pg.Refuse("no server of the configuration has the database %s: put its server back into tenants.servers", has.DatabaseID)
}

// Look finds how far a copy is.
func (p *performer) Look(ctx context.Context, e *machines.Entity, _ bool) (machines.Finding, error) {
	d, ok := e.Data.(*machine.Data)
	if !ok || e.State != machine.Copying || d.Phase != machine.Executing || d.Database == nil {
		return machines.Finding{Until: time.Now().Add(time.Second)}, nil
	}
	s := p.having(d.Database)
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

// dropped has the audit record that a database is gone which was put aside.
func (p *performer) dropped(ctx context.Context, a admin.Away) error {
	kind, key, other := strings.Cut(a.Session, "/")
	if !other {
		kind, key = machine.Machine.Name, a.Session
	}
	_, tenant, _, err := streams.SplitKey(key)
	if err != nil {
		return nil // nobody knows whose it was
	}
	return p.records(ctx, records.Record{
		Class: string(machines.ClassResource), EventID: "dropped-" + a.StoredAs, EventType: EventDropped, Timestamp: time.Now().UTC(), Actor: records.RecordActor{Type: records.Scheduler, ID: Role},
		Target: records.RecordTarget{Machine: kind, SessionID: key, TenantID: tenant, EnterpriseID: tenant}, Resource: &records.RecordResource{Type: machine.KindDatabase, ID: a.Name, Action: "deleted"},
		Result: records.RecordResult{Success: true}, Metadata: map[string]string{"storedAs": a.StoredAs},
	})
}

// EventDropped is the type of the record of a database that was dropped when its grace period was over. No session tells of it: it may have gone.
const EventDropped = "provisioning.db.dropped"

// tellAgain tells where all tenants are by what the shared database says: the bucket may have been restored from a backup.
func (p *performer) tellAgain(ctx context.Context, h *server.Host) (told bool) {
	err := p.mirror.sync(ctx, p)
	if err != nil && ctx.Err() == nil {
		h.Log.Warn("not all applications were told where their tenants are; trying again", "error", err)
	}
	return err == nil
}

// sweep drops the databases whose grace period is over.
func (p *performer) sweep(ctx context.Context, h *server.Host) {
	for _, s := range p.servers {
		gone, err := s.provider.Sweep(ctx)
		if err != nil && ctx.Err() == nil {
			h.Log.Warn("databases that were taken back are kept until the next sweep", "server", s.Name, "error", err)
		}
		for _, name := range gone {
			h.Log.Info("a database whose grace period is over is dropped", "server", s.Name, "database", name)
		}
	}
}
