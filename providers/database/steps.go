package database

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	machine "github.com/bcc94042/instar/machines/database"
	"github.com/bcc94042/instar/providers/database/catalog"
	"github.com/bcc94042/instar/providers/database/cutover"
	"github.com/bcc94042/instar/providers/database/pg"
	"github.com/bcc94042/instar/providers/database/secret"
)

func (j *job) allocate(ctx context.Context) (any, error) {
	if err := j.Server.Setup(ctx); err != nil {
		return nil, err
	}
	if err := j.source.Setup(ctx); err != nil {
		return nil, err
	}
	if err := j.source.Take(ctx); err != nil { // another session may have the tenant
		return nil, err
	}
	if err := j.source.Unsettle(ctx); err != nil { // that was of an earlier life
		return nil, err
	}
	if err := j.elsewhere(ctx); err != nil {
		return nil, err
	}
	if err := j.misled(ctx); err != nil {
		return nil, err
	}
	hash, err := j.Migrations.Hash()
	if err != nil {
		return nil, err
	}
	j.spec.Template, err = j.Server.Template(ctx, hash, func(ctx context.Context, a pg.Address) error { return j.Migrations.Apply(ctx, a, nil) })
	if err != nil {
		return nil, err
	}
	if err := j.Server.Create(ctx, j.spec); err != nil {
		return nil, err
	}
	a := machine.Allocated{DatabaseID: j.Server.Name + "/" + j.name, Name: j.name}
	if a.Host, err = j.Server.Public(); err != nil {
		return nil, err
	}
	if a.Credentials, err = j.Server.Role(ctx, j.spec, j.credentials); err != nil {
		return nil, err
	}
	return a, j.try(ctx, a.Credentials)
}

// try goes the way that the application will be told: at the switch, and before anything is done to the tenant for a way that leads nowhere.
func (j *job) try(ctx context.Context, sealed string) error {
	c, err := j.Keys.Unseal(sealed, j.body.Request.EnterpriseID, j.name)
	if err != nil {
		return err
	}
	return j.Server.Try(ctx, j.name, c)
}

// credentials are new ones, also sealed.
func (j *job) credentials() (secret.Credentials, string, error) {
	c := secret.New(j.name)
	sealed, err := j.Keys.Seal(c, j.body.Request.EnterpriseID, j.name)
	return c, sealed, err
}

// rotate gives the role a new password, and tells it under a new epoch.
func (j *job) rotate(ctx context.Context) (any, error) {
	if err := j.Server.Setup(ctx); err != nil {
		return nil, err
	}
	there, err := j.routed(ctx)
	if err != nil {
		return nil, err
	}
	if !there { // after a failover the source may lack the switch, and telling that would lead applications back to old rows
		return nil, pg.Refuse("the routing in the source does not lead the tenant %s to %s: restore its row in tenant_runtime, or revert", j.body.Request.EnterpriseID, j.name)
	}
	if err := j.source.Overtake(ctx); err != nil {
		return nil, err
	}
	sealed, err := j.Server.Role(ctx, j.spec, j.credentials)
	if err != nil {
		return nil, err
	}
	now, err := j.source.Renew(ctx, 0)
	if err != nil {
		return nil, err
	}
	epoch, err := j.tell(ctx, now, sealed)
	return machine.Rotated{Credentials: sealed, Epoch: epoch}, err
}

func (j *job) migrate(ctx context.Context) (any, error) {
	address := j.Server.Address(j.name, "instar migrate")
	if err := j.Migrations.Apply(ctx, address, nil); err != nil {
		return nil, err
	}
	list, err := j.Migrations.Applied(ctx, address)
	if err != nil {
		return nil, err
	}
	var m machine.Migrated
	for _, a := range list {
		m.Applied = append(m.Applied, a.Name)
	}
	schemas := j.Catalogue.Schemas
	if len(schemas) == 0 {
		schemas = []string{"public"}
	}
	if err := j.Server.Grant(ctx, j.name, j.name, schemas); err != nil {
		return nil, err
	}
	if j.ofInstance() { // an upgrade of one is not held against the shared database: its copy looks
		return m, nil
	}
	return m, j.fits(ctx)
}

// fits refuses a database that lacks what the rows of the shared one need, before the tenant is kept out of anything: also of what that has got since the migrations were applied.
func (j *job) fits(ctx context.Context) error {
	conn, err := pg.Connect(ctx, j.mover.Target)
	if err != nil {
		return fmt.Errorf("target: %w", err)
	}
	defer pg.Close(conn)
	problems, err := catalog.Unlike(ctx, conn, j.Catalogue, j.report.Tables)
	if err == nil && len(problems) == 0 {
		problems, err = j.broken(ctx, conn)
	}
	if err != nil || len(problems) == 0 {
		return err
	}
	return pg.Refuse("%d things of the shared database do not fit into what the migrations make: %s", len(problems), strings.Join(texts(problems), "; "))
}

// broken are demands of the target that rows of the tenant break.
func (j *job) broken(ctx context.Context, target *pgx.Conn) ([]catalog.Problem, error) {
	source, err := pg.Connect(ctx, j.Source)
	if err != nil {
		return nil, fmt.Errorf("source: %w", err)
	}
	defer pg.Close(source)
	return catalog.Broken(ctx, source, target, j.report.Tables, j.body.Request.EnterpriseID)
}

// quiet removes the slot that notes which rows are written after a step that has failed: nobody knows when the next one comes, and it keeps the log of the source until then.
// Without it the next comparison is of everything, as it is anyway. That of a newer attempt stays.
func (j *job) quiet(ctx context.Context, failed *error) {
	if *failed == nil || !j.online() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removal)
	defer cancel()
	var obsolete *pg.ObsoleteError
	var held *pg.HeldError
	if err := j.link.Unnote(ctx, j.source.Hold); err != nil && !errors.As(err, &obsolete) && !errors.As(err, &held) { // a newer attempt sees to it, or halt
		*failed = fmt.Errorf("%w; the slot that notes what is written may be left: %s", *failed, err.Error())
	}
}

func (j *job) copy(ctx context.Context) (_ any, err error) {
	defer j.quiet(ctx, &err)
	if err := j.take(ctx); err != nil {
		return nil, err
	}
	if err := j.elsewhere(ctx); err != nil {
		return nil, err
	}
	if err := j.mover.Doubt(ctx); err != nil { // what was compared in an earlier life of the session: the tenant may have written since, and the fence that is raised here does not tell
		return nil, err
	}
	if err := j.movable(ctx); err != nil {
		return nil, err
	}
	if err := j.fits(ctx); err != nil {
		return nil, err
	}
	if err := j.fence(ctx); err != nil {
		return nil, err
	}
	if err := j.mover.Prepare(ctx); err != nil {
		return nil, err
	}
	if j.online() {
		if err := j.replicate(ctx); err != nil {
			return nil, err
		}
		rest := []*catalog.Table{}
		for _, t := range j.report.Tables {
			if t.Kind != catalog.Tenant {
				rest = append(rest, t)
			}
		}
		j.mover.Tables = rest
	}
	p, err := j.mover.Copy(ctx)
	if err == nil && j.online() { // Postgres has copied the others
		var rows int64
		rows, err = j.mover.Has(ctx, j.kinds(catalog.Tenant))
		p.Rows += rows
		p.Total = max(p.Total, p.Rows) // more may have been written since they were counted
	}
	return machine.Progress{Table: p.Table, Rows: p.Rows, Total: p.Total, Bytes: p.Bytes, Rate: p.Rate}, err
}

// fence stops the tenant's writers in mode offline: before the copy, and again before the comparison, as a source that has failed over since may lack the fence.
func (j *job) fence(ctx context.Context) error {
	if j.body.Request.Mode == machine.ModeSnapshot || j.online() {
		return nil
	}
	return j.source.Fence(ctx, j.report.Tables)
}

// replicate returns when the initial copies are done and the target has caught up.
func (j *job) replicate(ctx context.Context) error {
	if _, err := j.link.Note(ctx, j.source.Hold); err != nil {
		return err
	}
	for _, do := range []func(context.Context) error{j.link.Publish, j.link.Slot, j.link.Subscribe} {
		if err := do(ctx); err != nil {
			return err
		}
	}
	if err := j.link.AwaitCopy(ctx); err != nil {
		return err
	}
	return j.link.CatchUp(ctx)
}

func (j *job) verify(ctx context.Context) (_ any, err error) {
	defer j.quiet(ctx, &err)
	if err := j.take(ctx); err != nil {
		return nil, err
	}
	if err := j.elsewhere(ctx); err != nil {
		return nil, err
	}
	if err := j.movable(ctx); err != nil {
		return nil, err
	}
	if !j.online() { // which compares everything
		j.source.Lost = func(ctx context.Context, _ string) error { return j.mover.Doubt(ctx) }
	}
	if err := j.fence(ctx); err != nil {
		return nil, err
	}
	known, err := j.known(ctx)
	if err != nil {
		return nil, err
	}
	j.mover.Fenced = j.body.Request.Mode != machine.ModeSnapshot // mode online reads this way what it compares whole
	if j.online() {
		return j.alone(ctx)
	}
	j.mover.Tables = slices.DeleteFunc(slices.Clone(j.report.Tables), func(t *catalog.Table) bool { _, same := known[t.String()]; return same })
	v, err := j.mover.Verify(ctx, true)
	if err != nil {
		return nil, err
	}
	if err := unequal(&v); err != nil {
		return nil, err
	}
	for _, rows := range known {
		v.Tables, v.Rows = v.Tables+1, v.Rows+rows
	}
	j.mover.Tables = j.report.Tables
	if _, err := j.mover.Sequences(ctx); err != nil {
		return nil, err
	}
	done := machine.Verified{Tables: v.Tables, Rows: v.Rows, Repaired: len(v.Discrepancies), Discrepancies: discrepancies(v.Discrepancies)}
	if j.body.Request.Mode != machine.ModeSnapshot {
		done.Fenced = cutover.Fenced(j.report.Tables)
	}
	return done, nil
}

// removal is how long a switch tries to end the replication, and a comparison that has failed to lift its fence.
const removal = 30 * time.Second

// switchOver proves the way in that the application will take, points the routing there, and ends the replication. The tenant waits meanwhile, so it connects no more than it has to.
func (j *job) switchOver(ctx context.Context) (_ any, err error) {
	defer j.quiet(ctx, &err)
	if j.body.Database == nil {
		return nil, pg.Refuse("no database was allocated")
	}
	if err := j.proven(ctx); err != nil {
		return nil, err
	}
	now, err := j.source.KeepAndSwitch(ctx, cutover.Runtime{
		IsolationMode: cutover.Dedicated, DatabaseID: j.body.Database.DatabaseID, DatabaseHost: j.body.Database.Host, DatabaseName: j.name, Status: "active",
	}, j.body.Fenced)
	if err != nil {
		return nil, err
	}
	epoch, err := j.tell(ctx, now, j.body.Database.Credentials)
	if err != nil {
		return nil, err
	}
	if j.online() { // nothing comes through it any more: the fence stands; the tenant does not wait for its end
		ctx, cancel := context.WithTimeout(ctx, removal)
		defer cancel()
		_ = j.link.Remove(ctx) // the tenant is where it is to be; what is left is removed by the undo, or by Sweep
	}
	return machine.Switched{Epoch: epoch}, nil
}

// proven takes the target for this attempt, and goes the way that the application will be told, side by side: a connection takes longer than what is asked through it. In the source the switch itself takes
// the tenant; the connection for that is made beside them, and ends what an earlier try to switch may hold there.
func (j *job) proven(ctx context.Context) error {
	var beside errgroup.Group
	beside.Go(func() error { return j.try(ctx, j.body.Database.Credentials) })
	beside.Go(func() error { return j.source.Overtake(ctx) })
	err := j.mover.Take(ctx)
	if tried := beside.Wait(); err == nil {
		err = tried
	}
	return err
}

// tell tells where the tenant is, and returns under which epoch: the source is raised above those that were told before it failed over.
func (j *job) tell(ctx context.Context, r cutover.Runtime, sealed string) (epoch int64, err error) {
	for j.Told != nil {
		var behind *BehindError
		if err = j.Told(ctx, Route{Enterprise: j.body.Request.EnterpriseID, Runtime: r, Credentials: sealed}); !errors.As(err, &behind) {
			break
		}
		if r, err = j.source.Renew(ctx, behind.Epoch); err != nil {
			break
		}
	}
	return r.Epoch, err
}

// announce tells where the tenant is by what the shared database says, and returns that, with the epoch under which it was told.
func (j *job) announce(ctx context.Context) (cutover.Runtime, error) {
	now, err := j.source.Read(ctx)
	if err != nil {
		return now, err
	}
	sealed, err := j.sealed(ctx, now)
	if err != nil {
		return now, err
	}
	now.Epoch, err = j.tell(ctx, now, sealed)
	return now, err
}

// sealed are the credentials for the database that the shared one names, or "" where the session's server has none, or does not answer. Somebody may have rotated them since this session knew them.
func (j *job) sealed(ctx context.Context, now cutover.Runtime) (string, error) {
	server, _, named := strings.Cut(now.DatabaseID, "/")
	if now.DatabaseName == "" || j.unreached != nil || named && server != j.Server.Name {
		return "", nil
	}
	list, err := j.Server.Sealed(ctx)
	if pg.NotSetUp(err) {
		err = nil
	}
	return list[now.DatabaseName], err
}
