package platform

import (
	"context"
	"time"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/database"
	machine "github.com/bcc94042/instar/machines/platform"
	"github.com/bcc94042/instar/machines/session"
	"github.com/bcc94042/instar/providers"
)

// Look finds how far a copy or a deployment is. That of a deployment is news when it differs from what was told last.
func (p *Provider) Look(ctx context.Context, e *machines.Entity, polled bool) (machines.Finding, error) {
	d, ok := e.Data.(*machine.Data)
	later := machines.Finding{Until: time.Now().Add(time.Second)}
	switch {
	case !ok:
		return machines.Finding{}, providers.Errorf(providers.Invalid, "entity %s has data of type %T", e.Key(), e.Data)
	case d.Phase != session.Executing:
		return later, nil
	case e.State == machine.Copying:
		as := *e
		as.Data = &database.Data{Request: database.RequestBody{EnterpriseID: d.Request.EnterpriseID, Mode: d.Request.Mode}, Course: d.Course, Database: d.Database, Progress: d.Progress}
		return p.Databases.Look(ctx, &as, polled)
	}
	name := deploying(d)
	if name == "" {
		p.told.Delete(e.Key())
		return later, nil
	}
	at, err := p.Apps.Look(ctx, e.Namespace, name)
	if providers.IsNotFound(err) {
		return later, nil
	}
	if err != nil {
		return machines.Finding{}, err
	}
	status := name + ": " + at.Status
	if before, _ := p.told.Swap(e.Key(), status); before == status {
		return later, nil
	}
	b := machine.Rollout{Status: status, Replicas: 1}
	if at.Ready {
		b.Ready = 1
	}
	return machines.Finding{Input: machine.ReportRollout, Data: b}, nil
}

// deploying is the name of the release that is in the ledger and not made yet.
func deploying(d *machine.Data) string {
	for _, e := range d.Ledger {
		if e.Kind == machine.KindApp && e.State == session.Intended {
			return e.Name
		}
	}
	return ""
}

// Watch tells nothing: copies and deployments are polled.
func (p *Provider) Watch(ctx context.Context, _ func(string)) error {
	<-ctx.Done()
	return nil
}
