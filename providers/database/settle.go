package database

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	machine "github.com/bcc94042/instar/machines/database"
	"github.com/bcc94042/instar/providers/database/catalog"
	"github.com/bcc94042/instar/providers/database/cutover"
	"github.com/bcc94042/instar/providers/database/mover"
	"github.com/bcc94042/instar/providers/database/pg"
)

// errShut: a tenant that stays in its own database could not be let in again. The undo is repeated, and does not end before.
var errShut = errors.New("the tenant is kept out of its own database")

// settle closes a tenant's own database to it and sees to what it has written there since the switch: it copies that back, or says what there is and lets the tenant in again.
// Where the routing leads back already, that was done, unless it is older than the switch: the source lacks that then, and what of the tenant's is there may be older than what was moved.
func (j *job) settle(ctx context.Context) error {
	now, err := j.source.Read(ctx)
	if err != nil {
		return err
	}
	if now.DatabaseName != j.name {
		return j.led(now)
	}
	if j.unreached != nil {
		return j.unseen(ctx)
	}
	if err := j.source.KeepsOut(ctx, true); err != nil { // before it is so
		return err
	}
	if err := j.Server.Shut(ctx, j.spec); err != nil {
		return errors.Join(err, j.admit(ctx))
	}
	if err := j.bringBack(ctx); err != nil {
		return errors.Join(err, j.admit(ctx))
	}
	return nil
}

// led refuses to take a routing for one that leads back which is older than the switch.
func (j *job) led(now cutover.Runtime) error {
	if now.Epoch >= j.body.Epoch {
		return nil
	}
	return pg.Refuse("the shared database has epoch %d of the tenant %s, and had %d, as after a failover to a standby that lacked it: it cannot be told what the tenant has written since the switch; write its row in tenant_runtime again, with epoch %[3]d, or discardWrites leaves its database behind",
		now.Epoch, j.body.Request.EnterpriseID, j.body.Epoch)
}

// unseen is why it is not known what the tenant has written. Where an earlier try, or an earlier undo, has shut it out, it still is.
func (j *job) unseen(ctx context.Context) error {
	shut, err := j.source.KeptOut(ctx)
	if err != nil {
		return err
	}
	if shut {
		return fmt.Errorf("%w: %w", errShut, j.unreached)
	}
	return fmt.Errorf("it cannot be seen what the tenant has written: %w", j.unreached)
}

func (j *job) admit(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	err := j.Server.Admit(ctx, j.spec)
	if err == nil {
		err = j.source.KeepsOut(ctx, false)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errShut, err)
	}
	return nil
}

func (j *job) bringBack(ctx context.Context) error {
	if err := j.everybodys(ctx); err != nil {
		return err
	}
	j.mover.Tables = j.kinds(catalog.Tenant, catalog.Child)
	found, _, err := j.mover.Differences(ctx)
	if err != nil || len(found) == 0 {
		return err
	}
	if j.body.Writes != machine.KeepWrites {
		return pg.Refuse("the tenant has written since the switch: %s; keepWrites copies that back, discardWrites leaves it behind", told(found))
	}
	if err := j.source.Fence(ctx, j.report.Tables); err != nil { // which lets this one through
		return err
	}
	return j.mover.Back(ctx, found, func(tx pgx.Tx) error { return j.source.Through(ctx, tx) })
}

// everybodys refuses to bring back what the tenant has in tables that are copied whole, and the shared database has not: others read them there, too. What only that has was added since.
func (j *job) everybodys(ctx context.Context) error {
	j.mover.Tables = j.kinds(catalog.Reference)
	found, _, err := j.mover.Differences(ctx)
	if err == nil {
		found, err = j.mover.Targets(ctx, found)
	}
	if err != nil || len(found) == 0 {
		return err
	}
	return pg.Refuse("tables that all tenants share are not the same since the switch: %s; bring them into line by hand in one of the two databases, or discardWrites leaves that behind", told(found))
}

// told says how many rows of which tables there are.
func told(found []*mover.Keys) string {
	list := make([]string, len(found))
	for i, k := range found {
		list[i] = fmt.Sprintf("%d rows of %s", k.Len(), k.Table)
	}
	return strings.Join(list, ", ")
}
