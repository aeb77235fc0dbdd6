package database

import (
	"context"
	"strings"

	machine "github.com/bcc94042/instar/machines/database"
	"github.com/bcc94042/instar/providers/database/catalog"
	"github.com/bcc94042/instar/providers/database/pg"
)

// texts are problems as they are told.
func texts(problems []catalog.Problem) (list []string) {
	for _, p := range problems {
		list = append(list, p.String())
	}
	return list
}

// ofInstance reports whether the task is a step of a session of another machine, whose tenant may have begun without rows, and has migrations of its own.
func (j *job) ofInstance() bool {
	return j.task.Machine != "" && j.task.Machine != machine.Machine.Name
}

// unmoved reports whether the tenant of an instance has begun without rows: only then may it have none.
func (j *job) unmoved() bool { return j.ofInstance() && j.body.Request.AllowEmpty }

// elsewhere refuses to go on to a database while the shared one says that the tenant is in it, or in another one.
func (j *job) elsewhere(ctx context.Context) error {
	if err := j.inside(ctx); err != nil {
		return err
	}
	return j.source.Elsewhere(ctx, j.name)
}

// misled refuses to copy to a database while applications may write in it: they were told of it, and the shared one has led the tenant back under no higher epoch, by hand or because a failover has lost the switch.
func (j *job) misled(ctx context.Context) error {
	now, err := j.source.Read(ctx)
	if err != nil {
		return err
	}
	last, err := j.lastTold(ctx)
	if err == nil && j.source.Leads(last) == j.name && last.Epoch >= now.Epoch {
		err = pg.Refuse("applications were told that the tenant %s is in %s, under epoch %d, and the shared database has %d: they may write there; lead them where the tenant's rows are, by its row in tenant_runtime with an epoch above %[3]d",
			j.body.Request.EnterpriseID, j.name, last.Epoch, now.Epoch)
	}
	return err
}

// movable refuses what the plan refuses, of tables that have come or changed since: they would be left behind, or, in a publication, keep all tenants from writing.
func (j *job) movable(ctx context.Context) error {
	reasons, err := j.unmovable(ctx)
	if err == nil && len(reasons) > 0 {
		err = pg.Refuse("%d things have come since the plan, or have changed, that keep the tenant from being moved: %s", len(reasons), strings.Join(reasons, "; "))
	}
	return err
}

// inside refuses to make a database, or to take one back, while the shared one says that the tenant is in it: the session is older than that, as after a backup of the store was restored.
func (j *job) inside(ctx context.Context) error {
	there, err := j.routed(ctx)
	if err == nil && there {
		err = pg.Refuse("the tenant %s is in this database already (%s): resolve as ready", j.body.Request.EnterpriseID, j.name)
	}
	return err
}

// routed reports whether the routing leads to the session's database.
func (j *job) routed(ctx context.Context) (bool, error) {
	named, err := j.source.Named(ctx)
	return named == j.name, err
}

// unmovable are the tables that cannot be moved in the mode of the session, and why.
func (j *job) unmovable(ctx context.Context) (reasons []string, err error) {
	reasons = texts(j.report.Refused(j.online()))
	if !j.online() {
		return reasons, nil
	}
	problems, err := j.link.CheckTables(ctx)
	return append(reasons, problems...), err
}
