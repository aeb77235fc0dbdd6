package database

import (
	"context"

	machine "github.com/bcc94042/instar/machines/database"
	"github.com/bcc94042/instar/providers/database/catalog"
)

// known are the tables that an earlier attempt of mode offline has compared, with their rows: they are not compared again, so that a comparison which takes longer than an attempt ends at last. The fence has to have stood
// since: where it did not stand when it was raised again, as after a failover, everything is compared, as it is after a copy, which raises it. What is shared with others is, each time.
func (j *job) known(ctx context.Context) (map[string]int64, error) {
	if j.body.Request.Mode == machine.ModeSnapshot || j.online() {
		return nil, nil
	}
	known, err := j.mover.Known(ctx)
	for _, t := range j.kinds(catalog.Reference) {
		delete(known, t.String())
	}
	return known, err
}
