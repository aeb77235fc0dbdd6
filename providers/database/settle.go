package database

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
// Where the routing leads back already, that was done if this session has noted it, see [job.led].
func (j *job) settle(ctx context.Context) error {
	now, err := j.source.Read(ctx)
	if err != nil {
		return j.stillShut(ctx, err)
	}
	if j.source.Leads(now) != j.name {
		return j.led(ctx, now)
	}
	if j.unreached != nil {
		return j.unseen(ctx)
	}
	if err := j.source.KeepsOut(ctx, true); err != nil { // before it is so
		return j.stillShut(ctx, err)
	}
	if err := j.Server.Shut(ctx, j.spec); err != nil {
		return errors.Join(err, j.reopen(ctx))
	}
	if err := j.broughtBack(ctx); err != nil {
		return err
	}
	if err := j.source.Settle(ctx, j.behind); err != nil { // it is compared once more
		return j.stillShut(ctx, err)
	}
	return nil
}

// broughtBack is [job.bringBack], and lets the tenant in again where that has failed, also by a panic. A refusal tells what would be left behind, before anybody follows its advice.
func (j *job) broughtBack(ctx context.Context) (err error) {
	failed := true
	defer func() {
		if failed {
			err = errors.Join(err, j.admit(ctx))
		}
	}()
	err = j.bringBack(ctx)
	failed = err != nil && !errors.Is(err, errShut)
	if refused := (*pg.RefusedError)(nil); errors.As(err, &refused) && len(j.behind) > 0 {
		err = pg.Refuse("%s; what is not compared would be left behind: %s", err, strings.Join(j.behind, ", "))
	}
	return err
}

// reopen lets the tenant in again where it may be kept out: nobody is of what is not there, or not this session's.
func (j *job) reopen(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	err := j.admit(ctx)
	if refused := (*pg.RefusedError)(nil); !errors.As(err, &refused) {
		return err
	}
	return j.source.KeepsOut(ctx, false)
}

// led refuses a routing that leads elsewhere, or back although this session has not seen to what the tenant has written: the source may lack the switch, as after a failover, or somebody has written the row by hand. An earlier
// try may have shut the tenant out before the routing was lost, and the note of that with it: the tenant is let in again.
func (j *job) led(ctx context.Context, now cutover.Runtime) error {
	had, err := j.had(ctx)
	settled, switched, behind, unknown := j.source.Settled(ctx)
	if err = errors.Join(err, unknown); err != nil {
		return j.stillShut(ctx, err)
	}
	tried, done := machine.Switch(j.body.Ledger)
	err = j.source.Foreign(now, j.name)
	switch unsaid := "it cannot be told what the tenant has written there"; {
	case err != nil:
	case had > now.Epoch:
		err = pg.Refuse("the shared database has epoch %d of the tenant %s, and had %d, as after a failover to a standby that lacked it: it cannot be told what the tenant has written since the switch; write its row in tenant_runtime again, with epoch %[3]d, or discardWrites leaves its database behind",
			now.Epoch, j.body.Request.EnterpriseID, had)
	case settled, tried && !done && !switched && had == 0: // the switch has failed before it was done
		j.behind = behind
		return nil
	case had == 0 && !switched: // it was switched by hand
		err = pg.Refuse("the routing does not lead the tenant %s to %s, and it is not known under which epoch it did: %s; write its row in tenant_runtime again, or discardWrites leaves its database behind", j.body.Request.EnterpriseID, j.name, unsaid)
	default:
		err = pg.Refuse("the routing leads the tenant %s to %s no more, and this session has not led it back: %s; write its row in tenant_runtime again, as it was, or discardWrites leaves its database behind", j.body.Request.EnterpriseID, j.name, unsaid)
	}
	if j.unreached != nil {
		return j.stillShut(ctx, err)
	}
	return errors.Join(err, j.reopen(ctx))
}

// had is the epoch under which the tenant was sent to the session's database: what the session knows, or what applications were told last. 0 is not known.
func (j *job) had(ctx context.Context) (int64, error) {
	last, err := j.lastTold(ctx)
	if err != nil {
		return 0, err
	}
	if j.source.Leads(last) != j.name {
		last.Epoch = 0
	}
	return max(j.body.Epoch, last.Epoch), nil
}

// lastTold is what applications were told last: the zero value where nobody is told.
func (j *job) lastTold(ctx context.Context) (last cutover.Runtime, err error) {
	if j.Last == nil {
		return last, nil
	}
	if last, err = j.Last(ctx, j.body.Request.EnterpriseID); err != nil {
		err = fmt.Errorf("it cannot be seen where applications were told that the tenant is: %w", err)
	}
	return last, err
}

// unseen is why it is not known what the tenant has written.
func (j *job) unseen(ctx context.Context) error {
	return j.stillShut(ctx, fmt.Errorf("it cannot be seen what the tenant has written: %w", j.unreached))
}

// stillShut is an error that ends a try before it has let anybody in. Where an earlier try, or an earlier undo, has shut the tenant out, it still is, and so it may be where that cannot be asked.
func (j *job) stillShut(ctx context.Context, err error) error {
	shut, unknown := j.source.KeptOut(ctx)
	if pg.NotSetUp(unknown) { // nothing was noted there
		unknown = nil
	}
	if shut || unknown != nil {
		return fmt.Errorf("%w: %w", errShut, errors.Join(err, unknown))
	}
	return err
}

// letIn tells applications where the tenant is. Once the switch was tried, an undo of this session may have shut it out of its database: it lets the tenant in there first, where the routing leads to it. It does
// not go by what was noted: the source may have lost that with a failover. A resolver that lives and does not acknowledge holds nothing back: somebody has said that all is well, and the fence lets nobody write.
func (j *job) letIn(ctx context.Context) error {
	now, err := j.source.Read(ctx)
	if err != nil && !pg.NotSetUp(err) {
		return j.stillShut(ctx, err)
	}
	there := err == nil && j.source.Leads(now) == j.name
	if tried, _ := machine.Switch(j.body.Ledger); tried {
		if !there {
			return pg.Refuse("the routing in the source does not lead the tenant %s to %s: write its row in tenant_runtime again and resolve as ready, or roll back, or resolve as rolled_back", j.body.Request.EnterpriseID, j.name)
		}
		if err := j.admit(ctx); err != nil {
			return err
		}
	} else if err := j.source.Unsettle(ctx); err != nil && !pg.NotSetUp(err) { // it was led there by hand: what an earlier life has noted is not about that
		return j.stillShut(ctx, err)
	}
	if err := j.enterable(ctx, now); err != nil {
		return err
	}
	if there && now.Epoch == 0 { // it was written by hand, and nobody would follow it
		if err := j.source.Setup(ctx); err != nil {
			return err
		}
		if _, err := j.source.Renew(ctx, 0); err != nil {
			return err
		}
	}
	now, err = j.announce(ctx)
	var unheard *UnheardError
	if errors.As(err, &unheard) || pg.NotSetUp(err) {
		err = nil
	}
	if there {
		j.entered = now.Epoch
	}
	return err
}

// enterable refuses to tell applications of a database that they would have no credentials for: those that they have they would lose.
func (j *job) enterable(ctx context.Context, now cutover.Runtime) error {
	if j.Told == nil || now.DatabaseName == "" {
		return nil
	}
	sealed, err := j.sealed(ctx, now)
	if err == nil && sealed == "" {
		err = pg.Refuse("the routing in the source leads the tenant %s to %s (%s), and server %s has no credentials for that: correct its row in tenant_runtime, or resolve when the server answers, or resolve as rolled_back",
			j.body.Request.EnterpriseID, now.DatabaseName, now.DatabaseID, j.Server.Name)
	}
	return err
}

// admit lets the tenant in, whatever was noted.
func (j *job) admit(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	err := j.Server.Admit(ctx, j.spec)
	if err == nil {
		if err = j.source.KeepsOut(ctx, false); pg.NotSetUp(err) { // nothing was noted there
			err = nil
		}
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errShut, err)
	}
	return nil
}

// unseenTables refuses to leave behind the rows of tables that both databases have and that are not compared, as nobody has said whose they are, or what told it has gone since the switch. What only the tenant's database has, and may have got
// by a migration, it names. Columns that an instance's own migrations have made refuse nothing, nor does anything of one that has begun without rows.
func (j *job) unseenTables(ctx context.Context) error {
	own := catalog.Own{Enterprise: j.body.Request.EnterpriseID, Catalogue: j.Catalogue, Report: j.report}
	var err error
	if own.Conn, err = pg.Connect(ctx, j.mover.Target); err != nil {
		return fmt.Errorf("target: %w", err)
	}
	defer pg.Close(own.Conn)
	if !j.unmoved() {
		if own.Shared, err = pg.Connect(ctx, j.Source); err != nil {
			return fmt.Errorf("source: %w", err)
		}
		defer pg.Close(own.Shared)
	}
	found, err := own.Beyond(ctx)
	if more := len(found.Behind) - mostTold; more > 0 {
		found.Behind = append(found.Behind[:mostTold], fmt.Sprintf("%d more", more))
	}
	j.behind = found.Behind
	unseen := found.Uncompared
	if !j.ofInstance() {
		unseen = append(unseen, found.Columns...)
	}
	if err != nil || j.unmoved() || len(unseen) == 0 {
		return err
	}
	return pg.Refuse("it cannot be seen what the tenant has written since the switch: %s; bring the shared database into line (a column, a key, a foreign key), give a table that both have a kind, or another one (tenants.tables), or discardWrites leaves all that was written behind", strings.Join(texts(unseen), "; "))
}

// comparable are the tables of some kinds that have a key to compare them by; those that have none were refused, or have no rows in the tenant's database.
func (j *job) comparable(kinds ...catalog.Kind) []*catalog.Table {
	return slices.DeleteFunc(j.kinds(kinds...), func(t *catalog.Table) bool { return len(t.Key) == 0 })
}

func (j *job) bringBack(ctx context.Context) error {
	j.mover.Apart = j.unmoved()
	if err := j.unseenTables(ctx); err != nil {
		return err
	}
	apart, err := j.everybodys(ctx)
	if err != nil {
		return err
	}
	j.mover.Tables = j.comparable(catalog.Tenant, catalog.Child)
	found, _, err := j.mover.Differences(ctx)
	if err != nil || len(found) == 0 {
		return err
	}
	if j.body.Writes != machine.KeepWrites {
		return pg.Refuse("the tenant has written since the switch: %s; keepWrites copies that back, discardWrites leaves it behind", told(found))
	}
	if len(apart) > 0 {
		return pg.Refuse("tables that all tenants share are not the same in both databases: %s; what the tenant has written may refer to them: bring them into line by hand, or discardWrites leaves that behind", told(apart))
	}
	if err := j.source.Fence(ctx, j.report.Tables); err != nil { // which lets this one through
		return err
	}
	err = j.mover.Back(ctx, found, func(tx pgx.Tx) error { return j.source.Through(ctx, tx) })
	if j.unmoved() && errors.Is(err, mover.ErrUnknown) {
		// The next try finds the rows on both sides, as long as the tenant changes none. They would not be told from those that were never moved.
		err = fmt.Errorf("%w: %w", errShut, err)
	}
	return err
}

// everybodys refuses to bring back what the tenant has in tables that are copied whole, and the shared database has not: others read them there, too. What only that has was added since. Where nothing was
// moved they never were the same: what is apart is told, and is in the way of rows that may refer to it.
func (j *job) everybodys(ctx context.Context) (apart []*mover.Keys, err error) {
	j.mover.Tables = j.comparable(catalog.Reference)
	found, _, err := j.mover.Differences(ctx)
	if err == nil {
		found, err = j.mover.Targets(ctx, found)
	}
	if err != nil || len(found) == 0 {
		return nil, err
	}
	if !j.unmoved() {
		return nil, pg.Refuse("tables that all tenants share are not the same since the switch: %s; bring them into line by hand in one of the two databases, or discardWrites leaves that behind", told(found))
	}
	for _, k := range found {
		j.behind = append(j.behind, fmt.Sprintf("%d rows of %s", k.Len(), k.Table))
	}
	return found, nil
}

// told says how many rows of which tables there are.
func told(found []*mover.Keys) string {
	list := make([]string, len(found))
	for i, k := range found {
		list[i] = fmt.Sprintf("%d rows of %s", k.Len(), k.Table)
	}
	return strings.Join(list, ", ")
}
