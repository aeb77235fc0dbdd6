package domain

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/bcc94042/instar/machines"
	machine "github.com/bcc94042/instar/machines/domain"
	"github.com/bcc94042/instar/providers"
)

// Row is what the table has of a name.
type Row struct {
	Owner string         `json:"owner,omitempty"` // key of the entity that has it, behind the name of its machine and a slash if that is not machines/domain; nobody when empty
	Token string         `json:"token,omitempty"` // by which the owner has proven it
	Fence uint64         `json:"fence,omitempty"` // version of the owner that wrote last
	Route *machine.Route `json:"route,omitempty"` // nil serves nothing
	Past  []Past         `json:"past,omitempty"`  // who has given it back, or given it up, latest last
}

// Past is an entity that has no claim any more, and the version at which it had none: what is older must not claim again.
type Past struct {
	Owner string `json:"owner"`
	Fence uint64 `json:"fence"`
}

// mostPast is how many of them are remembered: tasks that are older than so many changes of hands are over.
const mostPast = 16

// Free is the row without its owner, and with the entity among those that have no claim. One that had none at a later version keeps that.
func (r Row) Free(owner string, fence uint64) Row {
	past := slices.DeleteFunc(slices.Clone(r.Past), func(p Past) bool {
		if p.Owner == owner {
			fence = max(fence, p.Fence)
		}
		return p.Owner == owner
	})
	past = append(past, Past{owner, fence})
	if len(past) > mostPast {
		past = past[len(past)-mostPast:]
	}
	if r.Owner == owner {
		return Row{Past: past}
	}
	r.Past = past
	return r
}

// OfDomain reports whether an entity of machines/domain has the name.
func (r Row) OfDomain() bool { return r.Owner != "" && !strings.Contains(r.Owner, "/") }

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
	return machines.Result{Failure: providers.Failure(err)}
}

func (p *Provider) perform(ctx context.Context, t machines.Task, b *machine.Task) (any, error) {
	owner := t.Key()
	switch t.Effect {
	case machine.EffectVerify:
		return nil, p.verify(ctx, b, owner, t.Fence)
	case machine.EffectIssue:
		if err := p.check(ctx, b.Host, owner, t.Fence); err != nil {
			return nil, err
		}
		return p.Issuer.Obtain(ctx, b.Host)
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
			return providers.Coded(CodeRefused, "%s", why)
		}
	}
	problem, err := p.Records.Problem(ctx, b.Host, b.Token)
	if err != nil {
		return err
	}
	if problem != "" {
		return providers.Coded(machine.CodeRecords, "%s", problem)
	}
	before, err := p.Table.Row(ctx, b.Host)
	if err != nil {
		return unavailable(err)
	}
	if before.OfDomain() && before.Owner != owner && p.Records.Lacks(ctx, b.Host, before.Token) { // whoever can write its records has taken the proof away
		err := p.Table.Change(ctx, b.Host, func(r Row) (Row, error) {
			if r.Owner == before.Owner && r.Token == before.Token {
				return r.Free(r.Owner, r.Fence), nil
			}
			return r, nil
		})
		if err != nil {
			return unavailable(err)
		}
	}
	return p.change(ctx, b.Host, owner, fence, func(r Row) (Row, error) {
		if r.Owner != owner {
			r.Route = nil
		}
		r.Owner, r.Token, r.Fence = owner, b.Token, fence
		return r, nil
	})
}

// route tells where the requests of a name go. A name that nobody has is claimed again: its row was lost. Where it is to be closed and the entity does not have it, nothing of it is served, and no
// task of before may claim it.
func (p *Provider) route(ctx context.Context, b *machine.Task, owner string, fence uint64) error {
	return unavailable(p.Table.Change(ctx, b.Host, func(r Row) (Row, error) {
		if b.Closed && r.Owner != owner {
			return r.Free(owner, fence), nil
		}
		if err := admit(r, b.Host, owner, fence); err != nil {
			return r, err
		}
		if r.Route = &b.Route; b.Closed {
			r.Route = nil
		}
		r.Owner, r.Token, r.Fence = owner, b.Token, fence
		return r, nil
	}))
}

// remove closes the name, forgets its certificate, and gives it back: afterwards it may be another's. Where the entity does not have it, no task of before may claim it.
func (p *Provider) remove(ctx context.Context, host, owner string, fence uint64) error {
	had := false
	err := p.Table.Change(ctx, host, func(r Row) (Row, error) {
		if had = r.Owner == owner; !had {
			return r.Free(owner, fence), nil
		}
		if r.Fence > fence {
			return r, providers.Older(fence, r.Fence)
		}
		r.Route, r.Fence = nil, fence
		return r, nil
	})
	if err != nil || !had {
		return unavailable(err)
	}
	if err := p.Issuer.Forget(ctx, host); err != nil {
		return unavailable(err)
	}
	return unavailable(p.Table.Change(ctx, host, func(r Row) (Row, error) { return r.Free(owner, fence), nil }))
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
	if r.Owner != "" && r.Owner != owner {
		return taken(r, host, owner)
	}
	if r.Owner == owner && r.Fence > fence {
		return providers.Older(fence, r.Fence)
	}
	for _, past := range r.Past {
		if past.Owner == owner && past.Fence > fence {
			return providers.Older(fence, past.Fence)
		}
	}
	return nil
}

// taken says that a name is another's; who that is only within a namespace.
func taken(r Row, host, owner string) *providers.CodedError {
	namespace, _, _ := strings.Cut(owner, ".")
	by := "bound elsewhere"
	if strings.HasPrefix(r.Owner, namespace+".") {
		by = "the domain " + r.Owner
	}
	return providers.Coded(CodeTaken, "%s is %s already, whose proof is in its DNS records", host, by)
}

// unavailable gives errors of the store a code.
func unavailable(err error) error {
	var f *providers.CodedError
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
		return p.lookAtService(ctx, e, d)
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

// lookAtService finds whether an active name is served, and how its certificate is.
func (p *Provider) lookAtService(ctx context.Context, e *machines.Entity, d *machine.Data) (machines.Finding, error) {
	r, err := p.Table.Row(ctx, d.Host)
	if err != nil {
		return machines.Finding{}, unavailable(err)
	}
	switch routing := e.Effects[machine.EffectRoute].ID != ""; {
	case r.Owner != "" && r.Owner != e.Key():
		return machines.Finding{Input: machine.ReportTaken, Data: taken(r, d.Host, e.Key()).Failure}, nil
	case !routing && (r.Route == nil || r.Token != d.Token || !reflect.DeepEqual(*r.Route, d.Route)): // as after a restore of another moment, or when the proxy could not be told
		return machines.Finding{Input: machine.ReportUnrouted}, nil
	}
	c, due, trouble, err := p.Issuer.Current(ctx, d.Host)
	if err != nil {
		return p.unread(d, err)
	}
	now := p.now()
	over := c == nil && d.Certificate == nil || c != nil && !now.Before(c.NotAfter) || c == nil && !now.Before(d.Certificate.NotAfter)
	switch {
	case over && trouble == "": // its renewal has begun: after a stop of days that is seen first
		return machines.Finding{}, nil
	case over:
		return machines.Finding{Input: machine.ReportLapsed, Data: machine.Trouble{Message: trouble}}, nil
	}
	serial := ""
	if d.Certificate != nil {
		serial = d.Certificate.Serial
	}
	seen := Seen{c, due, trouble}
	switch news, until := seen.Beside(serial, d.Problem, now); news {
	case Renewed:
		return machines.Finding{Input: machine.ReportRenewed, Data: *c}, nil
	case Unrenewed:
		return machines.Finding{Input: machine.ReportUnrenewed, Data: machine.Trouble{Message: trouble}}, nil
	default:
		return machines.Finding{Until: until}, nil
	}
}

// unread is for a certificate that cannot be read now: that is told where it does not pass, and ends the name with the certificate that is known.
func (p *Provider) unread(d *machine.Data, err error) (machines.Finding, error) {
	if providers.IsUnavailable(err) || d.Certificate == nil {
		return machines.Finding{}, unavailable(err)
	}
	t := machine.Trouble{Message: providers.Failure(err).Message}
	switch {
	case !p.now().Before(d.Certificate.NotAfter):
		return machines.Finding{Input: machine.ReportLapsed, Data: t}, nil
	case t.Message != d.Problem:
		return machines.Finding{Input: machine.ReportUnrenewed, Data: t}, nil
	}
	return machines.Finding{Until: p.now().Add(glances)}, nil
}

// Watch tells nothing: records and certificates are looked at.
func (p *Provider) Watch(ctx context.Context, _ func(string)) error {
	<-ctx.Done()
	return nil
}
