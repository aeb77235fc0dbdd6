package domain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/bcc94042/instar/machines"
	machine "github.com/bcc94042/instar/machines/domain"
	"github.com/bcc94042/instar/providers"
)

// Row is what the table has of a name.
type Row struct {
	Owner string         `json:"owner,omitempty"` // key of the entity that has it; nobody when empty
	Fence uint64         `json:"fence"`           // version of the entity that wrote last
	Last  string         `json:"last,omitempty"`  // of a name that nobody has: who had it
	Route *machine.Route `json:"route,omitempty"` // nil serves nothing
}

// ErrTaken says that a name is another entity's.
var ErrTaken = errors.New("the name is another's")

// Table has who has a name, and where its requests go. An implementation writes at the revision that it has read, and asks change again when that has gone by.
type Table interface {
	// Change replaces the row of a name by what change makes of it, or fails with its error. A name without a row has the zero one.
	Change(ctx context.Context, host string, change func(Row) (Row, error)) error
	// Row is the row as the leader of the table has it.
	Row(ctx context.Context, host string) (Row, error)
}

// Issuer has certificates; [Certificates] is one.
type Issuer interface {
	// Obtain returns when there is a certificate that is not due for renewal.
	Obtain(ctx context.Context, host string) (machine.Certificate, error)
	// Current is the certificate that is stored, nil if there is none, and when it is due for renewal. A renewal that is due is begun, and its last failure told.
	Current(ctx context.Context, host string) (c *machine.Certificate, due time.Time, trouble string, err error)
	// Forget removes what is stored for a name.
	Forget(ctx context.Context, host string) error
}

// Provider serves machines/domain.
type Provider struct {
	Records Records
	Table   Table
	Issuer  Issuer
	// Refuses is why a name must not be bound, such as one below the platform's own; nil refuses none.
	Refuses func(host string) string
	Clock   func() time.Time // nil is time.Now
}

// The codes of failures that lead to failed.
const (
	CodeTaken   = "HOST_TAKEN"
	CodeRefused = "HOST_REFUSED"
)

func (p *Provider) now() time.Time {
	if p.Clock != nil {
		return p.Clock()
	}
	return time.Now()
}

// Perform does one task.
func (p *Provider) Perform(ctx context.Context, t machines.Task) machines.Result {
	var b machine.Task
	if err := json.Unmarshal(t.Data, &b); err != nil {
		return machines.Result{Failure: providers.Failure(providers.Errorf(providers.Invalid, "cannot read the task %s: %v", t.Attempt, err))}
	}
	data, err := p.perform(ctx, t, &b)
	if err == nil {
		return machines.Result{Data: data}
	}
	var f *failed
	if errors.As(err, &f) {
		return machines.Result{Failure: &f.Failure}
	}
	return machines.Result{Failure: providers.Failure(err)}
}

// failed is an error with a code of this machine's own.
type failed struct{ machines.Failure }

func (f *failed) Error() string { return f.Code + ": " + f.Message }

func (p *Provider) perform(ctx context.Context, t machines.Task, b *machine.Task) (any, error) {
	owner := t.Key()
	switch t.Effect {
	case machine.EffectVerify:
		return nil, p.verify(ctx, b, owner, t.Fence)
	case machine.EffectIssue:
		if err := p.check(ctx, b.Host, owner, t.Fence); err != nil {
			return nil, err
		}
		c, err := p.Issuer.Obtain(ctx, b.Host)
		if err != nil {
			return nil, err
		}
		return c, p.route(ctx, b, owner, t.Fence)
	case machine.EffectRoute:
		return nil, p.route(ctx, b, owner, t.Fence)
	case machine.EffectRemove:
		return nil, p.remove(ctx, b.Host, owner, t.Fence)
	}
	return nil, providers.Errorf(providers.Invalid, "there is no effect %s of a domain", t.Effect)
}

// verify looks at the records once more, and claims the name.
func (p *Provider) verify(ctx context.Context, b *machine.Task, owner string, fence uint64) error {
	if p.Refuses != nil {
		if why := p.Refuses(b.Host); why != "" {
			return &failed{machines.Failure{Code: CodeRefused, Message: why}}
		}
	}
	problem, err := p.Records.Problem(ctx, b.Host, b.Token)
	if err != nil {
		return err
	}
	if problem != "" {
		return &failed{machines.Failure{Code: machine.CodeRecords, Message: problem}}
	}
	return p.change(ctx, b.Host, owner, fence, func(r Row) (Row, error) {
		if r.Owner == owner {
			return Row{Owner: owner, Fence: fence, Route: r.Route}, nil
		}
		return Row{Owner: owner, Fence: fence}, nil
	})
}

func (p *Provider) route(ctx context.Context, b *machine.Task, owner string, fence uint64) error {
	return p.change(ctx, b.Host, owner, fence, func(r Row) (Row, error) {
		if r.Owner != owner {
			if b.Closed { // nothing of it is served
				return r, nil
			}
			return r, providers.Errorf(providers.Invalid, "%s is not claimed any more", b.Host)
		}
		if r.Route = &b.Route; b.Closed {
			r.Route = nil
		}
		r.Fence = fence
		return r, nil
	})
}

// remove forgets the certificate before it gives the name away: afterwards it may be another's.
func (p *Provider) remove(ctx context.Context, host, owner string, fence uint64) error {
	r, err := p.Table.Row(ctx, host)
	if err != nil {
		return unavailable(err)
	}
	if r.Owner != owner {
		return nil
	}
	if err := p.Issuer.Forget(ctx, host); err != nil {
		return unavailable(err)
	}
	return p.change(ctx, host, owner, fence, func(r Row) (Row, error) {
		if r.Owner != owner {
			return r, nil
		}
		return Row{Last: owner, Fence: fence}, nil
	})
}

// check fails if the name is another's, or a newer task has spoken.
func (p *Provider) check(ctx context.Context, host, owner string, fence uint64) error {
	r, err := p.Table.Row(ctx, host)
	if err != nil {
		return unavailable(err)
	}
	return admit(r, host, owner, fence)
}

func (p *Provider) change(ctx context.Context, host, owner string, fence uint64, change func(Row) (Row, error)) error {
	return unavailable(p.Table.Change(ctx, host, func(r Row) (Row, error) {
		if err := admit(r, host, owner, fence); err != nil {
			return r, err
		}
		return change(r)
	}))
}

// admit refuses a name that is another's, and a task that is older than what was done for the entity last.
func admit(r Row, host, owner string, fence uint64) error {
	switch {
	case r.Owner != "" && r.Owner != owner:
		return &failed{machines.Failure{Code: CodeTaken, Message: fmt.Sprintf("%s is the domain %s already", host, r.Owner)}}
	case (r.Owner == owner || r.Last == owner) && r.Fence > fence:
		return providers.Older(fence, r.Fence)
	}
	return nil
}

// unavailable gives errors of the store a code.
func unavailable(err error) error {
	var f *failed
	var e *providers.Error
	if err == nil || errors.As(err, &f) || errors.As(err, &e) {
		return err
	}
	return providers.Errorf(providers.Unavailable, "%v", err)
}

// Look finds whether records have come, and how the certificate of an active name is.
func (p *Provider) Look(ctx context.Context, e *machines.Entity, _ bool) (machines.Finding, error) {
	d, ok := e.Data.(*machine.Data)
	switch {
	case !ok:
		return machines.Finding{}, providers.Errorf(providers.Invalid, "entity %s has data of type %T", e.Key(), e.Data)
	case e.State == machine.PendingDNS:
		return p.lookForRecords(ctx, e, d)
	case e.State == machine.Active:
		return p.lookAtCertificate(ctx, d)
	}
	return machines.Finding{Until: p.now().Add(patience(0))}, nil
}

func (p *Provider) lookForRecords(ctx context.Context, e *machines.Entity, d *machine.Data) (machines.Finding, error) {
	problem, err := p.Records.Problem(ctx, d.Host, d.Token)
	if err != nil {
		return machines.Finding{}, err
	}
	b := machine.Records{Wanted: p.Records.Wanted(d.Host, d.Token), Problem: problem}
	if problem == "" {
		return machines.Finding{Input: machine.ReportFound, Data: b}, nil
	}
	f := machines.Finding{Until: p.now().Add(patience(p.now().Sub(e.Since)))}
	if problem != d.Problem || !slices.Equal(b.Wanted, d.Records) {
		f.Input, f.Data = machine.ReportMissing, b
	}
	return f, nil
}

// patience is the wait until the next look at records that are awaited for so long: a tenth of it, from two seconds to five minutes.
func patience(waited time.Duration) time.Duration {
	return min(max(waited/10, 2*time.Second), 5*time.Minute)
}

// glances is the time between two looks at a certificate with which nothing is to be done.
const glances = 10 * time.Minute

func (p *Provider) lookAtCertificate(ctx context.Context, d *machine.Data) (machines.Finding, error) {
	c, due, trouble, err := p.Issuer.Current(ctx, d.Host)
	if err != nil {
		return machines.Finding{}, unavailable(err)
	}
	now := p.now()
	switch {
	case c == nil && d.Certificate == nil, c != nil && !now.Before(c.NotAfter), c == nil && !now.Before(d.Certificate.NotAfter):
		return machines.Finding{Input: machine.ReportLapsed, Data: machine.Trouble{Message: trouble}}, nil
	case c != nil && (d.Certificate == nil || *c != *d.Certificate || trouble == "" && d.Problem != ""):
		return machines.Finding{Input: machine.ReportRenewed, Data: *c}, nil
	case trouble != "" && trouble != d.Problem:
		return machines.Finding{Input: machine.ReportUnrenewed, Data: machine.Trouble{Message: trouble}}, nil
	case c == nil, !now.Before(due): // it is being renewed
		return machines.Finding{}, nil
	}
	return machines.Finding{Until: now.Add(min(glances, due.Sub(now)))}, nil
}

// Watch tells nothing: records and certificates are looked at.
func (p *Provider) Watch(ctx context.Context, _ func(string)) error {
	<-ctx.Done()
	return nil
}
