package database

import (
	"context"
	"fmt"
	"slices"
	"strings"

	machine "github.com/bcc94042/instar/machines/database"
	"github.com/bcc94042/instar/providers/database/admin"
	"github.com/bcc94042/instar/providers/database/catalog"
	"github.com/bcc94042/instar/providers/database/pg"
)

// plan names everything that cannot be moved, or counts what will be. A target that nothing could be made on fails it, too.
func (j *job) plan(ctx context.Context) (any, error) {
	reasons := texts(j.report.Refused(j.online()))
	if j.online() {
		problems, err := j.link.Check(ctx)
		if err != nil {
			return nil, err
		}
		target, err := j.link.CheckTarget(ctx, j.Server.Address("", j.Source.Name))
		if err != nil {
			return nil, err
		}
		reasons = slices.Concat(reasons, problems, target)
	}
	runtime, err := j.source.CheckRuntime(ctx)
	if err != nil {
		return nil, err
	}
	lacks, err := j.lacking(ctx)
	if err != nil {
		return nil, err
	}
	reasons = slices.Concat(reasons, runtime, lacks)
	if len(reasons) > 0 {
		return nil, pg.Refuse("%d things keep the tenant from being moved: %s", len(reasons), strings.Join(reasons, "; "))
	}
	if err := j.source.Elsewhere(ctx, j.name); err != nil {
		return nil, err
	}
	rows, err := j.mover.Estimate(ctx)
	if err != nil {
		return nil, err
	}
	if !j.body.Request.AllowEmpty && !j.hasRows(rows) {
		return nil, pg.Refuse("no table has a row of the tenant %s: its name may be misspelt; if it is new, request it with allowEmpty", j.body.Request.EnterpriseID)
	}
	plan := machine.Plan{Rows: rows, Notes: j.report.Notes}
	if j.online() && (j.Rate > 0 || j.Parallel > 0) {
		plan.Notes = append(slices.Clone(plan.Notes), "in mode online Postgres makes the initial copy of tables with the tenant's column: tenants.rate and tenants.parallel are not for it")
	}
	status, err := j.source.Status(ctx)
	if err != nil {
		return nil, err
	}
	if status != "" && status != "active" {
		plan.Notes = append(slices.Clone(plan.Notes), fmt.Sprintf("its status in tenant_runtime is %s: the switch makes it active, as a tenant in a database of its own is closed otherwise; an undo gives it back, unless it was changed meanwhile", status))
	}
	for _, g := range machine.Stages[1:] {
		plan.Steps = append(plan.Steps, g.State)
	}
	for _, n := range rows {
		plan.Total += n
	}
	rate := j.RowsPerSecond
	if rate <= 0 {
		rate = 100_000
	}
	plan.Seconds = float64(plan.Total) / rate
	plan.Resources, err = j.resources()
	return plan, err
}

// lacking says what the roles of both servers lack, so that nothing is begun, and the tenant fenced, that could not be ended.
func (j *job) lacking(ctx context.Context) (list []string, err error) {
	target, err := j.Server.Check(ctx, j.online())
	if err != nil {
		return nil, err
	}
	if len(target) > 0 {
		list = append(list, fmt.Sprintf("the role of server %s lacks: %s", j.Server.Name, strings.Join(target, ", ")))
	}
	shared, err := j.source.Check(ctx, j.report.Tables, j.online())
	if len(shared) > 0 {
		list = append(list, "the role of the shared database lacks: "+strings.Join(shared, ", "))
	}
	return list, err
}

// hasRows reports whether a table that is not copied whole has rows.
func (j *job) hasRows(rows map[string]int64) bool {
	return slices.ContainsFunc(j.report.Tables, func(t *catalog.Table) bool { return t.Kind != catalog.Reference && rows[t.String()] > 0 })
}

// resources are what the session will make, by the names that it will have.
func (j *job) resources() (list []machine.Resource, err error) {
	hash, err := j.Migrations.Hash()
	if err != nil {
		return nil, err
	}
	const shared = "shared database"
	server := "server " + j.Server.Name
	add := func(kind, on string, names ...string) {
		for _, name := range names {
			list = append(list, machine.Resource{Kind: kind, Name: name, On: on})
		}
	}
	add("template", server, admin.TemplateName(hash))
	add("database", server, j.name)
	add("role", server, j.name)
	if j.online() {
		add("slot", shared, j.link.Names()...)
		add("publication", shared, j.link.Names()...)
		add("subscription", server, j.link.Name())
	}
	if j.body.Request.Mode != machine.ModeSnapshot {
		for _, t := range j.kinds(catalog.Tenant, catalog.Child) {
			add("trigger", t.String(), j.source.Triggers())
		}
	}
	add(machine.KindRuntime, shared, "public.tenant_runtime, "+j.body.Request.EnterpriseID)
	add("quarantine", server, admin.Aside(j.spec))
	return list, nil
}
