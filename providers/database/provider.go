package database

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/bcc94042/instar/machines"
	machine "github.com/bcc94042/instar/machines/database"
	"github.com/bcc94042/instar/providers/database/admin"
	"github.com/bcc94042/instar/providers/database/catalog"
	"github.com/bcc94042/instar/providers/database/cutover"
	"github.com/bcc94042/instar/providers/database/mover"
	"github.com/bcc94042/instar/providers/database/online"
	"github.com/bcc94042/instar/providers/database/pg"
	"github.com/bcc94042/instar/providers/database/schema"
	"github.com/bcc94042/instar/providers/database/secret"
)

// Provider moves tenants from one shared database to one server. Its fields are set before its first use.
type Provider struct {
	Source     pg.Address // of a role that may make triggers and publications
	From       string     // the address of the source for the target, in mode online; that of Source when empty
	Server     *admin.Server
	Catalogue  catalog.Catalogue
	Migrations schema.Set
	Keys       *secret.Keys

	RangeRows, Parallel int           // of the mover
	Rate                int64         // bytes per second of one copy; 0 does not limit it
	Grace               time.Duration // until what was undone is dropped; 0 is 7 days
	RowsPerSecond       float64       // for the estimate of a plan; 0 is 100,000
	Patience            time.Duration // see [online.Link]

	// Told is called when the routing of a tenant has changed, and returns when those who resolve it know, or a [*BehindError], or an [*UnheardError]. Nil tells nobody.
	Told func(ctx context.Context, r Route) error
	// Last is what was told last of a tenant: the zero value when nothing was. Nil where nobody is told.
	Last func(ctx context.Context, enterprise string) (cutover.Runtime, error)

	told memory
	idle pg.Idle
}

// BehindError says that a higher epoch of a tenant was told than its source has, as after that has failed over to a standby which lacked it. Whoever resolves the tenant would not follow.
type BehindError struct{ Epoch int64 }

func (e *BehindError) Error() string {
	return fmt.Sprintf("epoch %d was told already, and the shared database is behind it", e.Epoch)
}

// UnheardError says that a route was told and stored, and that some who resolve the tenant live and have not acknowledged it. They may do so later.
type UnheardError struct {
	Enterprise string
	Epoch      int64
	Resolvers  []string // by tenant and name
}

func (e *UnheardError) Error() string {
	few := e.Resolvers[:min(len(e.Resolvers), 3)]
	return fmt.Sprintf("%d resolvers of tenant %s have not acknowledged epoch %d, such as %s", len(e.Resolvers), e.Enterprise, e.Epoch, strings.Join(few, ", "))
}

func (e *UnheardError) Unwrap() error { return &pg.LaterError{Message: e.Error()} }

// Route is where a tenant's data is, and the sealed credentials for it, which a shared database has none of.
type Route struct {
	cutover.Runtime
	Enterprise  string
	Credentials string
}

// job is one task with what it needs. Source and Server are those of the provider, with connections that are kept until it is done.
type job struct {
	*Provider
	Source pg.Address
	Server *admin.Server

	task   *machines.Task
	body   machine.Task
	name   string // of the database and its role
	spec   admin.Spec
	source *cutover.Source
	report *catalog.Report
	mover  *mover.Mover
	link   *online.Link

	unreached error    // why an undo goes on without the target
	entered   int64    // the epoch under which a tenant was let in
	stays     bool     // the fence, as the tenant is closed
	behind    []string // what the target has that is not compared, and is left there
}

// Perform does one task.
func (p *Provider) Perform(ctx context.Context, t machines.Task) machines.Result {
	data, err := p.perform(ctx, &t)
	if err != nil {
		return machines.Result{Failure: failure(t.Effect, err)}
	}
	return machines.Result{Data: data}
}

// failure says what went wrong under the code of the state.
func failure(effect string, err error) *machines.Failure {
	f := &machines.Failure{Code: map[string]string{machine.EffectUndo: "UNDO_FAILED", machine.EffectHalt: "HALT_FAILED", machine.EffectRotate: "ROTATION_FAILED", machine.ActionCheck: "ALREADY_SWITCHED"}[effect], Message: pg.Discreet(err.Error())}
	for _, g := range machine.Stages {
		if g.Effect == effect {
			f.Code = g.Code
		}
	}
	f.Retryable, f.RetryAfter = pg.Transient(err)
	if errors.Is(err, errShut) {
		f.Code, f.Retryable = machine.CodeShut, true
	}
	var unequal *unequalError
	if errors.As(err, &unequal) {
		f.Details = unequal.details()
	}
	var unfenced *cutover.UnfencedError
	if errors.As(err, &unfenced) {
		f.Code = machine.CodeUnfenced
	}
	var obsolete *pg.ObsoleteError
	if errors.As(err, &obsolete) {
		f.Fence = obsolete.Seen
	}
	return f
}

func (p *Provider) perform(ctx context.Context, t *machines.Task) (any, error) {
	j := &job{Provider: p, task: t}
	if err := json.Unmarshal(t.Data, &j.body); err != nil {
		return nil, pg.Refuse("cannot read the task %s: %v", t.Attempt, err)
	}
	kept := &pg.Kept{Idle: &p.idle}
	defer kept.Close()
	source := kept
	if t.Effect == "switch" { // the source may be another server than the one that was compared, where its address leads by now
		source = &pg.Kept{}
		defer source.Close()
	}
	if err := j.open(ctx, kept, source); err != nil {
		return nil, err
	}
	switch t.Effect {
	case "plan":
		return j.plan(ctx)
	case "allocate":
		return j.allocate(ctx)
	case "migrate":
		return j.migrate(ctx)
	case "copy":
		return j.copy(ctx)
	case "verify":
		return j.verify(ctx)
	case "switch":
		return j.switchOver(ctx)
	case machine.EffectUndo:
		return j.undo(ctx)
	case machine.EffectRotate:
		return j.rotate(ctx)
	case machine.EffectHalt:
		return nil, j.halt(ctx)
	case machine.ActionCheck: // no effect of the machine, but a question of those that give tenants more than a database
		return nil, j.elsewhere(ctx)
	}
	return nil, pg.Refuse("no provider of databases performs the effect %q", t.Effect)
}

// sessionOf is the name of a session in the databases. That of another machine than machines/database has the name of it before its key: two of one key are two sessions.
func sessionOf(kind, key string) string {
	if kind == machine.Machine.Name || kind == "" {
		return key
	}
	return kind + "/" + key
}

// open reads the catalogue and makes the parts of one task.
func (j *job) open(ctx context.Context, kept, source *pg.Kept) (err error) {
	enterprise, session := j.body.Request.EnterpriseID, sessionOf(j.task.Machine, j.task.Key())
	if j.name, err = pg.DatabaseName(enterprise); err != nil {
		return err
	}
	server, name := *j.Provider.Server, pg.AttemptName(j.task.Fence, session)
	server.Kept = kept
	j.Server, j.Source = &server, pg.Address{DSN: j.Provider.Source.DSN, Database: j.Provider.Source.Database, Name: name, Kept: source}
	j.spec = admin.Spec{Name: j.name, Session: session, Fence: j.task.Fence}
	j.source = &cutover.Source{Address: j.Source, Enterprise: enterprise, Server: j.Server.Name, Session: session, Attempt: j.task.Fence}
	if j.report, err = j.inspect(ctx); err != nil {
		return err
	}
	target := j.Server.Address(j.name, name)
	j.mover = &mover.Mover{
		Source: j.Source, Target: target, Session: session, Fence: j.task.Fence, Enterprise: enterprise, Tables: j.report.Tables,
		RangeRows: j.RangeRows, Parallel: j.Parallel, Rate: j.Rate,
	}
	j.link = &online.Link{Source: j.Source, From: j.From, Target: target, Session: session, Enterprise: enterprise, Tables: j.report.Tables, Patience: j.Patience}
	return nil
}

// inspect reads the catalogue; a switch needs none of it, and the tenant waits for that, nor does the check of the routing.
func (j *job) inspect(ctx context.Context) (*catalog.Report, error) {
	if j.task.Effect == "switch" || j.task.Effect == machine.ActionCheck {
		return &catalog.Report{}, nil
	}
	conn, err := pg.Connect(ctx, j.Source)
	if err != nil {
		return nil, fmt.Errorf("source: %w", err)
	}
	defer pg.Close(conn)
	c := j.Catalogue
	c.Tables = map[string]catalog.Rule{"tenant_runtime": {Kind: catalog.Skip}}
	var there bool
	if err := conn.QueryRow(ctx, `select to_regclass('public.tenant_runtime') is not null`).Scan(&there); err != nil {
		return nil, err
	}
	if !there || len(c.Schemas) > 0 && !slices.Contains(c.Schemas, "public") {
		delete(c.Tables, "tenant_runtime")
	}
	maps.Copy(c.Tables, j.Catalogue.Tables)
	return catalog.Inspect(ctx, conn, c)
}

func (j *job) online() bool { return j.body.Request.Mode == machine.ModeOnline }

// take makes this attempt the current one, in the target and in the source.
func (j *job) take(ctx context.Context) error {
	if err := j.mover.Take(ctx); err != nil {
		return err
	}
	return j.source.Take(ctx)
}

func (j *job) halt(ctx context.Context) error {
	if j.body.Database == nil {
		return nil
	}
	if err := j.take(ctx); err != nil || !j.online() {
		return err
	}
	if err := j.link.Unnote(ctx, j.source.Hold); err != nil { // nobody reads it until somebody sends resume
		return err
	}
	there, err := j.routed(ctx)
	if err != nil || there { // then the session is older than its switch
		return err
	}
	return j.lift(ctx) // the attempt that has raised the fence may not do that any more
}
