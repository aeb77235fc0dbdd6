package database

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"math"
	"slices"

	machine "github.com/bcc94042/instar/machines/database"
	"github.com/bcc94042/instar/providers/database/catalog"
	"github.com/bcc94042/instar/providers/database/cutover"
	"github.com/bcc94042/instar/providers/database/mover"
	"github.com/bcc94042/instar/providers/database/online"
	"github.com/bcc94042/instar/providers/database/pg"
)

// How a tenant is compared while it writes (mode online). First everything is compared as it is. Rows that differ, or that were written since,
// are pending: they are compared again, round by round, until few are left, or those of a round are what was written since the one before, which
// no further round would change. Then the fence rises, and only those are compared once more.

const (
	fewPending = 1000  // rows that are compared under the fence in a moment
	mostNoted  = 20000 // changes that are read at a time
)

// pending are rows that are not known to be the same, by table.
type pending map[*catalog.Table]*mover.Keys

func (p pending) of(t *catalog.Table) *mover.Keys {
	if p[t] == nil {
		p[t] = &mover.Keys{Table: t}
	}
	return p[t]
}

func (p pending) add(list ...*mover.Keys) {
	for _, k := range list {
		p.of(k.Table).Merge(k)
	}
}

func (p pending) len() (n int) {
	for _, k := range p {
		n += k.Len()
	}
	return n
}

// in are those of some tables, in their order.
func (p pending) in(tables []*catalog.Table) (list []*mover.Keys) {
	for _, t := range tables {
		if p[t] != nil && p[t].Len() > 0 {
			list = append(list, p[t])
		}
	}
	return list
}

func (j *job) kinds(kinds ...catalog.Kind) (list []*catalog.Table) {
	for _, t := range j.report.Tables {
		for _, k := range kinds {
			if t.Kind == k {
				list = append(list, t)
			}
		}
	}
	return list
}

// alone does a comparison of mode online beside which no other run of the same attempt goes on. The fence of one that has ended with its process is lifted: the tenant writes while everything is compared.
// One that has ended well is not repeated: its report is lost, and the tenant waits behind its fence.
func (j *job) alone(ctx context.Context) (verified machine.Verified, err error) {
	run := rand.Text()
	result, ended, err := j.source.Compare(ctx, run, func() error {
		j.mover.Run = run
		return j.mover.Take(ctx)
	})
	if err == nil && result != "" {
		return verified, json.Unmarshal([]byte(result), &verified)
	}
	if err == nil && !ended {
		err = j.lift(ctx)
	}
	if err != nil {
		return verified, err
	}
	if verified, err = j.follow(ctx); err != nil {
		return verified, err
	}
	text, err := json.Marshal(verified)
	if err != nil {
		return verified, err
	}
	return verified, j.source.Compared(ctx, string(text))
}

// follow compares everything, and raises the fence when little is left to compare.
func (j *job) follow(ctx context.Context) (v machine.Verified, err error) {
	untold, err := j.link.Note(ctx, j.source.Hold) // which is there since the copy; where it was lost, everything is compared from here on
	if err != nil {
		return v, err
	}
	if _, err := j.whole(ctx, untold); err != nil { // so that little is left to do of it
		return v, err
	}
	j.mover.Tables = slices.DeleteFunc(slices.Clone(j.report.Tables), func(t *catalog.Table) bool { return slices.Contains(untold, t) })
	rows, open, err := j.narrow(ctx)
	if err != nil {
		return v, err
	}
	defer func() {
		if err != nil { // the tenant goes on writing where it is
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removal)
			defer cancel()
			err = errors.Join(err, j.lift(ctx))
		}
	}()
	if err := j.source.Fence(ctx, j.report.Tables); err != nil {
		return v, err
	}
	repaired, err := j.last(ctx, open)
	if err != nil {
		return v, err
	}
	shared, err := j.whole(ctx, untold)
	if err != nil {
		return v, err
	}
	j.mover.Tables = j.report.Tables
	if _, err := j.mover.Sequences(ctx); err != nil {
		return v, err
	}
	return machine.Verified{Tables: len(j.report.Tables), Rows: rows + shared.Rows, Repaired: repaired + len(shared.Discrepancies), Discrepancies: discrepancies(shared.Discrepancies), Fenced: cutover.Fenced(j.report.Tables)}, nil
}

// narrow compares until few rows are pending, or not many fewer than a round before: then it cannot do better while the tenant writes.
func (j *job) narrow(ctx context.Context) (rows int64, open pending, err error) {
	err = j.catchUp(ctx, pending{}) // everything is compared now
	if errors.Is(err, online.ErrTruncated) {
		err = j.anew(ctx)
	}
	if err != nil {
		return 0, nil, err
	}
	found, rows, err := j.mover.Differences(ctx)
	if err != nil {
		return 0, nil, err
	}
	open = pending{}
	open.add(found...)
	for before := math.MaxInt; ; {
		if err := j.catchUp(ctx, open); err != nil {
			return 0, nil, err
		}
		if now := open.len(); now <= fewPending || now > before/4*3 {
			return rows, open, nil
		}
		before = open.len()
		still, err := j.mover.Still(ctx, open.in(j.mover.Tables))
		if err != nil {
			return 0, nil, err
		}
		open = pending{}
		open.add(still...)
		if err := j.mover.Again(ctx, open.in(j.kinds(catalog.Reference, catalog.Child))); err != nil && pg.State(err) != pg.UniqueViolation {
			return 0, nil, err
		}
	}
}

// last compares what is pending under the fence, and copies again what differs.
func (j *job) last(ctx context.Context, open pending) (repaired int, err error) {
	if err := j.catchUp(ctx, open); err != nil {
		return 0, err
	}
	repaired, left, err := j.mover.Settle(ctx, open.in(j.mover.Tables))
	if err != nil {
		return 0, err
	}
	if len(left) > 0 {
		return 0, differing(left)
	}
	return repaired, nil
}

// whole compares tables as they are now, each at one moment, and copies again what differs: others write there, too, before and after.
func (j *job) whole(ctx context.Context, tables []*catalog.Table) (v mover.Verified, err error) {
	j.mover.Tables = tables
	if v, err = j.mover.Verify(ctx, true); err == nil {
		err = unequal(&v)
	}
	return v, err
}

// catchUp waits until the target has what was committed before, takes over what was written of children and of what is copied whole, which are not replicated, and makes
// all that was written pending. What it has not taken over, it reads again. What is committed meanwhile is for the next time: a tenant may write without a pause.
func (j *job) catchUp(ctx context.Context, open pending) error {
	mark, err := j.link.Mark(ctx)
	if err != nil {
		return err
	}
	for more := true; more; {
		noted, err := j.link.Touched(ctx, mark, mostNoted)
		if err != nil {
			return err
		}
		written, err := j.written(ctx, noted.Rows)
		if err != nil {
			return err
		}
		open.add(written.in(j.mover.Tables)...)
		// Where a row has taken a value that another had, both are read together, by the next round.
		if err := j.mover.Again(ctx, written.in(j.kinds(catalog.Reference, catalog.Child))); err != nil && pg.State(err) != pg.UniqueViolation {
			return err
		}
		if err := j.link.Forget(ctx, noted.Until, j.source.Hold); err != nil {
			return err
		}
		more = noted.More
	}
	return j.link.Arrived(ctx, mark)
}

// anew forgets what was told so far, which is for when everything is compared afterwards.
func (j *job) anew(ctx context.Context) error {
	mark, err := j.link.Mark(ctx)
	if err == nil {
		err = j.link.Forget(ctx, mark.At, j.source.Hold)
	}
	if err != nil {
		return err
	}
	return j.link.Arrived(ctx, mark)
}

// written are the rows that were written, and those that hang on one that came to the tenant or has left it.
func (j *job) written(ctx context.Context, noted []online.Touch) (pending, error) {
	written, moved := pending{}, pending{}
	for _, n := range noted {
		written.of(n.Table).Add(n.Key)
		if n.Moved {
			moved.of(n.Table).Add(n.Key)
		}
	}
	for _, t := range j.mover.Tables { // parents come before their children
		if moved[t] == nil {
			continue
		}
		below, err := j.mover.Below(ctx, moved[t], j.mover.Tables)
		if err != nil {
			return nil, err
		}
		written.add(below...)
		moved.add(below...)
	}
	return written, nil
}
