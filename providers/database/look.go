package database

import (
	"context"
	"time"

	"github.com/bcc94042/instar/machines"
	machine "github.com/bcc94042/instar/machines/database"
	"github.com/bcc94042/instar/providers/database/mover"
	"github.com/bcc94042/instar/providers/database/pg"
)

// lookEvery is the time between two reports of progress.
const lookEvery = 2 * time.Second

// Look finds how far the copy of a session is, from what its target has recorded. It is news when ranges were copied since the last report; a copy that stands is
// none, so that the idle limit tells of it.
func (p *Provider) Look(ctx context.Context, e *machines.Entity) (machines.Finding, error) {
	d, ok := e.Data.(*machine.Data)
	if !ok || d.Database == nil {
		return machines.Finding{}, nil
	}
	if next := d.LastProgressAt.Add(lookEvery); time.Now().Before(next) {
		return machines.Finding{Until: next}, nil
	}
	at, _, err := mover.Look(ctx, p.Server.Address(d.Database.Name, ""), sessionOf(e.Machine, e.Key()))
	if pg.NotSetUp(err) { // the copy has not begun
		return machines.Finding{Until: time.Now().Add(time.Second)}, nil
	}
	if err != nil {
		return machines.Finding{}, err
	}
	seen := machine.Progress{Table: at.Table, Rows: at.Rows, Total: at.Total, Bytes: at.Bytes, Rate: at.Rate, ETA: at.ETA.Seconds()}
	if d.Progress != nil && seen.Rows == d.Progress.Rows && seen.Bytes == d.Progress.Bytes || d.Progress == nil && seen.Rows == 0 {
		return machines.Finding{Until: time.Now().Add(time.Second)}, nil
	}
	return machines.Finding{Input: machine.ReportProgressed, Data: seen}, nil
}

// Sweep drops the databases whose grace period is over, and returns their names.
func (p *Provider) Sweep(ctx context.Context) ([]string, error) {
	gone, err := p.Server.Sweep(ctx, time.Now())
	if pg.NotSetUp(err) { // nothing was made there yet
		return nil, nil
	}
	return gone, err
}
