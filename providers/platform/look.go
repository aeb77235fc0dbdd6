package platform

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/database"
	machine "github.com/bcc94042/instar/machines/platform"
	"github.com/bcc94042/instar/machines/session"
	"github.com/bcc94042/instar/providers"
	"github.com/bcc94042/instar/providers/domain"
	"github.com/bcc94042/instar/providers/platform/app"
)

// Look finds how far a copy or a deployment is, and how the certificate of the primary domain is while the tenant is served. What a deployment is at is news when it differs from what was told last.
func (p *Provider) Look(ctx context.Context, e *machines.Entity, polled bool) (machines.Finding, error) {
	d, ok := e.Data.(*machine.Data)
	later := machines.Finding{Until: time.Now().Add(time.Second)}
	switch {
	case !ok:
		return machines.Finding{}, providers.Errorf(providers.Invalid, "entity %s has data of type %T", e.Key(), e.Data)
	case e.State == machine.Ready, e.State == machine.Withdrawing:
		return p.lookAtCertificate(ctx, e, d)
	case d.Phase != session.Executing && e.State == machine.Upgrading: // it may wait for days
		return p.lookAtCertificate(ctx, e, d)
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
		if e.State == machine.Upgrading { // whose shares may be watched for hours
			return p.lookAtCertificate(ctx, e, d)
		}
		return later, nil
	}
	at, err := p.Apps.Look(ctx, e.Namespace, name)
	if providers.IsNotFound(err) {
		return later, nil
	}
	known := p.known(ctx, d.Request.EnterpriseID, d.Name(), d.Database)
	if err != nil {
		return machines.Finding{}, app.RedactError(err, known, nil)
	}
	status := name + ": " + app.Redact(at.Status, app.Words(slices.Collect(maps.Values(known))...))
	if before, _ := p.told.Swap(e.Key(), status); before == status {
		return later, nil
	}
	b := machine.Rollout{Status: status, Replicas: 1}
	if at.Ready {
		b.Ready = 1
	}
	return machines.Finding{Input: machine.ReportRollout, Data: b}, nil
}

// glances is the time between two looks at a certificate that cannot be read, or is not this session's to renew.
const glances = 10 * time.Minute

// lookAtCertificate has the certificate of the primary domain renewed where it is due, and finds what became of it. A name that is not this session's, or leads nowhere, has none to renew.
func (p *Provider) lookAtCertificate(ctx context.Context, e *machines.Entity, d *machine.Data) (machines.Finding, error) {
	now := time.Now()
	r, err := p.Table.Row(ctx, d.PrimaryDomain)
	if err != nil {
		return machines.Finding{}, unavailable(err)
	}
	if r.Owner != owner(e.Key()) || r.Route == nil {
		return machines.Finding{Until: now.Add(glances)}, nil
	}
	c, due, trouble, err := p.Issuer.Current(ctx, d.PrimaryDomain)
	if err != nil && providers.IsUnavailable(err) {
		return machines.Finding{}, err
	}
	seen := domain.Seen{Has: c, Due: due, Trouble: trouble}
	if err != nil {
		seen = domain.Seen{Due: now.Add(glances), Trouble: providers.Failure(err).Message}
	}
	serial := ""
	if d.Certificate != nil {
		serial = d.Certificate.Serial
	}
	switch news, until := seen.Beside(serial, d.Problem, now); news {
	case domain.Renewed:
		return machines.Finding{Input: machine.ReportRenewed, Data: machine.Certificate{Issuer: c.Issuer, Serial: c.Serial, NotAfter: c.NotAfter}}, nil
	case domain.Unrenewed:
		return machines.Finding{Input: machine.ReportUnrenewed, Data: machine.Trouble{Message: seen.Trouble}}, nil
	default:
		return machines.Finding{Until: until}, nil
	}
}

// owner is who has the names of a session.
func owner(key string) string { return machine.Machine.Name + "/" + key }

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
