package platform

import (
	"context"
	"slices"
	"strings"

	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/kv/index"
	"github.com/bcc94042/instar/machines"
	domains "github.com/bcc94042/instar/machines/domain"
	machine "github.com/bcc94042/instar/machines/platform"
	"github.com/bcc94042/instar/providers"
	"github.com/bcc94042/instar/providers/domain"
	"github.com/bcc94042/instar/providers/platform"
	"github.com/bcc94042/instar/server"
	front "github.com/bcc94042/instar/server/domains"
)

// sweep gives slugs free whose session is gone: a backup has the sessions and the table of different moments.
func sweep(ctx context.Context, h *server.Host, proxy *front.Front) {
	sessions := h.Indexes.Get(machine.Machine.Name)
	for host, row := range proxy.Rows(ctx) {
		key, ours := strings.CutPrefix(row.Owner, machine.Machine.Name+"/")
		switch {
		case !ours:
		case gone(sessions, key, row.Fence):
			if err := free(ctx, proxy, host, row); err != nil && ctx.Err() == nil {
				h.Log.Warn("a slug whose session is gone is kept until the next sweep", "domain", host, "session", key, "error", err)
			}
		}
	}
}

// over are the states of a session that has nothing any more.
var over = []string{machine.Retired, machine.RolledBack, machine.Cancelled}

// strays removes custom domains that sessions have taken back, and that were bound afterwards: a command that was not answered in time may be stored later, also when the session has begun a new life. The address that such a one leads to may
// be another tenant's next.
func strays(ctx context.Context, h *server.Host, b *bindings) {
	all, sessions := h.Indexes.Get(domains.Machine.Name), h.Indexes.Get(machine.Machine.Name)
	for _, ix := range []*index.Index{all, sessions} { // after a start, this is the sweep that there is for the next 10 minutes
		select {
		case <-ix.Ready():
		case <-ctx.Done():
			return
		}
	}
	q := index.Query{
		States: []string{domains.PendingDNS, domains.Verifying, domains.Issuing, domains.Active, domains.Failed, domains.Expired},
		Labels: []index.Selector{{Label: labelSession, Op: index.Exists}}, Limit: 1000,
	}
	for {
		page := all.List(q)
		for _, item := range page.Items {
			of := binder(item.Key, item.Labels)
			key := machines.Key(of.Namespace, of.Tenant, of.Session)
			if s, known := sessions.Get(key); !known || !slices.Contains(over, s.State) && lives(of.Life, s.Generation) {
				continue
			}
			if err := b.clear(ctx, item.Key); err != nil && ctx.Err() == nil {
				h.Log.Warn("a custom domain that its session has taken back is kept until the next sweep", "domain", item.Key, "session", key, "error", err)
			}
		}
		if q.After = page.Next; q.After == "" {
			return
		}
	}
}

// binder is the session that a domain is labelled with.
func binder(key string, labels map[string]string) platform.Binding {
	parts := strings.SplitN(key, ".", 3)
	return platform.Binding{Namespace: parts[0], Tenant: parts[1], Session: labels[labelSession], Life: life(labels)}
}

// clear removes a domain whose session says that it has removed it, or is another one by now.
func (b *bindings) clear(ctx context.Context, key string) error {
	e, _, err := b.read(ctx, key)
	if err != nil || e == nil {
		return err
	}
	of := binder(key, e.Labels)
	d, ok := e.Data.(*domains.Data)
	if !ok || of.Session == "" { // somebody has bound it by himself by now
		return nil
	}
	of.Host = d.Host
	return b.change(ctx, &of, func(at *bound) (name string, body any, err error) {
		if at.key != key || !at.there || !at.own || at.state == domains.Removing {
			return "", nil, nil
		}
		if left, err := b.takenBack(ctx, &of); err != nil || !left { // after the domain was read: a session that begins anew changes that, or waits until it has gone
			return "", nil, err
		}
		return domains.CommandRemove, nil, nil
	})
}

// takenBack reports whether a session has removed a domain with all that it had, or has begun a new life since it bound it. What the undo of its last life was told to skip, somebody may want to keep.
func (b *bindings) takenBack(ctx context.Context, of *platform.Binding) (bool, error) {
	key := machines.Key(of.Namespace, of.Tenant, of.Session)
	stored, err := b.stored(ctx, machine.Machine, key)
	if err != nil {
		return false, providers.Errorf(providers.Unavailable, "cannot read the session %s: %v", key, err)
	}
	if kv.Absent(stored) {
		return false, nil
	}
	e, err := machine.Machine.Decode(stored.Data)
	if err != nil {
		return false, providers.Errorf(providers.Invalid, "cannot read the session %s: %v", key, err)
	}
	if !lives(of.Life, e.Generation) {
		return of.Life < e.Generation, nil // else the session is one of before, as after a restore
	}
	d, ok := e.Data.(*machine.Data)
	return ok && slices.Contains(over, e.State) && d.Unbound() && d.Request.CustomDomain == of.Host, nil
}

// gone reports whether a session certainly has no slug any more. One that had it at a version which is newer than what is known of it has begun anew.
func gone(sessions *index.Index, key string, version uint64) bool {
	select {
	case <-sessions.Ready():
	default:
		return false // not known yet
	}
	item, known := sessions.Get(key)
	return known && item.Version >= version && slices.Contains(over, item.State) || !known && sessions.Lacks(key)
}

// free gives a slug free, unless a task has spoken since.
func free(ctx context.Context, t domain.Table, host string, seen domain.Row) error {
	return t.Change(ctx, host, func(r domain.Row) (domain.Row, error) {
		if r.Owner != seen.Owner || r.Fence != seen.Fence {
			return r, nil
		}
		return r.Free(r.Owner, r.Fence), nil
	})
}
