package platform

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"
	"time"

	"github.com/bcc94042/instar/internal/wait"
	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/kv/index"
	"github.com/bcc94042/instar/machines"
	domains "github.com/bcc94042/instar/machines/domain"
	"github.com/bcc94042/instar/providers"
	"github.com/bcc94042/instar/providers/domain"
	"github.com/bcc94042/instar/providers/platform"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/publish"
)

// bindings are custom domains: entities of machines/domain, whose ids are made of the names. One is a session's that is labelled with it and its life, or has no label and was there when the session noted that
// it had made it, as earlier versions set none; what somebody else has bound is never touched.
type bindings struct {
	send func(ctx context.Context, c publish.Command) ([]byte, error)
	// stored is the value of an entity, as the leader of its bucket has it.
	stored func(ctx context.Context, m *machines.Machine, key string) (*streams.Message, error)
	// row says who has a name at the proxy, under whatever id.
	row func(ctx context.Context, host string) (domain.Row, error)
	// keys are those of a tenant's domains; false while they are not known.
	keys func(namespace, tenant string) ([]string, bool)
}

// The labels of a domain with the session, of the domain's tenant, that has bound it, and with the generation that this had: an id that is used again is another session.
const (
	labelSession = domains.OwnLabels + "session"
	labelLife    = domains.OwnLabels + "generation"
)

// life is the generation of the session that has bound a domain; 0 where that is not known.
func life(labels map[string]string) uint64 {
	n, _ := strconv.ParseUint(labels[labelLife], 10, 64) // 0 where there is none
	return n
}

// lives reports whether two generations are of one life, as far as they are known.
func lives(a, b uint64) bool { return a == b || a == 0 || b == 0 }

const longestID = 63

// id is a DNS label for a name. Where two could have the same one, it has a hash.
func id(host string) string {
	label := strings.ReplaceAll(host, ".", "-")
	if !strings.Contains(host, "-") && len(label) <= longestID {
		return label
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(host)) // never fails
	return fmt.Sprintf("%s-%08x", strings.TrimRight(label[:min(len(label), longestID-9)], "-"), h.Sum32())
}

// bound is what there is of a name; nothing where its domain was removed.
type bound struct {
	key, state string
	there, own bool
	before     bool // it is the session's, of an earlier life
	revision   uint64
	route      domains.Route
}

func (b *bindings) find(ctx context.Context, of *platform.Binding) (bound, error) {
	at := bound{key: machines.Key(of.Namespace, of.Tenant, id(of.Host))}
	e, revision, err := b.read(ctx, at.key)
	if err != nil || e == nil {
		return at, err
	}
	d, ok := e.Data.(*domains.Data)
	if ok {
		at.route = d.Route
	}
	label, since := e.Labels[labelSession], life(e.Labels)
	at.state, at.revision, at.there = e.State, revision, e.State != domains.Removed
	at.own = ok && d.Host == of.Host && !d.Detached && (label == of.Session && lives(since, of.Life) || label == "" && !e.CreatedAt.After(of.Made))
	at.before = label == of.Session && !lives(since, of.Life) && since < of.Life
	return at, nil
}

// read is the entity of a domain; nil where there never was one.
func (b *bindings) read(ctx context.Context, key string) (*machines.Entity, uint64, error) {
	stored, err := b.stored(ctx, domains.Machine, key)
	if err != nil {
		return nil, 0, providers.Errorf(providers.Unavailable, "cannot read the domain %s: %v", key, err)
	}
	if kv.Absent(stored) {
		return nil, 0, nil
	}
	e, err := domains.Machine.Decode(stored.Data)
	if err != nil {
		return nil, 0, providers.Errorf(providers.Invalid, "cannot read the domain %s: %v", key, err)
	}
	return &e, stored.Sequence, nil
}

// Leading looks at the domains of the tenant, and at what the proxies serve of them: they may be behind. Of several names it is one that stays, if there is one. What another tenant has bound to
// an address that is not its own is not asked for: nobody's release is held by that.
func (b *bindings) Leading(ctx context.Context, namespace, tenant, address string) (host string, removed bool, err error) {
	keys, known := b.keys(namespace, tenant)
	if !known {
		return "", false, providers.Errorf(providers.Unavailable, "it is not known yet what domains there are")
	}
	for _, key := range keys {
		name, leaves, err := b.leadsTo(ctx, key, address)
		if err != nil || name != "" && !leaves {
			return name, false, err
		}
		if name != "" {
			host, removed = name, true
		}
	}
	return host, removed, nil
}

// domainsOf is where the keys of a tenant's domains come from.
func domainsOf(ix *index.Index) func(namespace, tenant string) ([]string, bool) {
	return func(namespace, tenant string) (keys []string, known bool) {
		select {
		case <-ix.Ready():
		default:
			return nil, false
		}
		for q := (index.Query{Namespace: namespace, Parent: tenant}); ; {
			page := ix.List(q)
			for _, it := range page.Items {
				keys = append(keys, it.Key)
			}
			if q.After = page.Next; page.Next == "" {
				return keys, true
			}
		}
	}
}

// leadsTo is the name of a domain if that leads to an address, or is to, and whether it is being removed. One that was removed leads there as long as the proxies are behind.
func (b *bindings) leadsTo(ctx context.Context, key, address string) (host string, leaves bool, err error) {
	e, _, err := b.read(ctx, key)
	if err != nil || e == nil {
		return "", false, err
	}
	d, ok := e.Data.(*domains.Data)
	if !ok {
		return "", false, nil
	}
	leaves = e.State == domains.Removing || e.State == domains.Removed
	if !leaves && domain.Leads(&d.Route, address) {
		return d.Host, false, nil
	}
	r, err := b.row(ctx, d.Host)
	switch {
	case err != nil:
		return "", false, providers.Errorf(providers.Unavailable, "cannot read where %s leads: %v", d.Host, err)
	case r.Owner == key && domain.Leads(r.Route, address):
		return d.Host, leaves, nil
	}
	return "", false, nil
}

// leaves reports whether a domain is being removed, or there is none: what it had at the proxy is taken away, or swept.
func (b *bindings) leaves(ctx context.Context, key string) (bool, error) {
	if strings.Contains(key, "/") { // it is no domain's, but a session's
		return false, nil
	}
	e, _, err := b.read(ctx, key)
	return err == nil && (e == nil || e.State == domains.Removing || e.State == domains.Removed), err
}

// anothers says that a name is bound, and not by this session, or is just being removed.
func (at *bound) anothers(host string) error {
	switch {
	case at.state == domains.Removing:
		return providers.Errorf(providers.Unavailable, "the custom domain %s is being removed, as the domain %s", host, at.key)
	case at.before:
		return providers.Errorf(providers.Unavailable, "the custom domain %s is bound already, as the domain %s, by this session before it was requested anew: that is removed within 10 minutes", host, at.key)
	}
	return providers.Errorf(providers.Invalid, "the custom domain %s is bound already, as the domain %s, and not by this session: remove that first, or leave customDomain out and retarget it by hand", host, at.key)
}

// Check fails where the tenant has bound a name already, and not by this session, or is just removing it.
func (b *bindings) Check(ctx context.Context, of platform.Binding) error {
	at, err := b.find(ctx, &of)
	switch {
	case err != nil:
		return err
	case at.there && (!at.own || at.state == domains.Removing):
		return at.anothers(of.Host)
	case at.there:
		return nil
	}
	r, err := b.row(ctx, of.Host)
	if err != nil {
		return providers.Errorf(providers.Unavailable, "cannot read who has %s: %v", of.Host, err)
	}
	if r.Owner == "" || r.Owner == at.key {
		return nil
	}
	leaves, err := b.leaves(ctx, r.Owner)
	switch {
	case err != nil:
		return err
	case leaves:
		return providers.Errorf(providers.Unavailable, "the custom domain %s is being removed under another id", of.Host)
	case strings.HasPrefix(r.Owner, machines.Key(of.Namespace, of.Tenant, "")):
		at.key = r.Owner
		return at.anothers(of.Host)
	}
	return nil // another tenant's: whose a name is shows when it is verified
}

// Point binds a name, or sends its requests elsewhere. One that is removed, or on its way to it, stays so unless it is to be bound anew; one that the session has not bound stays as it is.
func (b *bindings) Point(ctx context.Context, to platform.Binding) (key string, err error) {
	err = b.change(ctx, &to, func(at *bound) (name string, body any, err error) {
		switch key = at.key; {
		case at.there && at.own && at.state != domains.Removing:
			return domains.CommandRetarget, domains.RetargetBody{Route: to.Route}, nil
		case !to.Anew:
			return "", nil, nil
		case at.there:
			return "", nil, at.anothers(to.Host)
		}
		labels := map[string]string{labelSession: to.Session}
		if to.Life != 0 {
			labels[labelLife] = strconv.FormatUint(to.Life, 10)
		}
		return domains.CommandBind, domains.BindBody{Host: to.Host, Route: to.Route, Labels: labels}, nil
	})
	return key, err
}

// Remove takes a name away that the session has bound, or its labels where the tenant keeps it.
func (b *bindings) Remove(ctx context.Context, of platform.Binding) error {
	return b.change(ctx, &of, func(at *bound) (name string, body any, err error) {
		switch {
		case !at.there || !at.own:
			return "", nil, nil
		case !of.Kept:
			return domains.CommandRemove, nil, nil
		case at.state == domains.Removing:
			return "", nil, nil
		}
		return domains.CommandRetarget, domains.RetargetBody{Route: at.route, Detach: true}, nil
	})
}

// tries bounds how often a domain may change between a look and the command that follows from it.
const tries = 10

// change sends the command that follows from what there is of a name, if that is so still; again where it is not.
func (b *bindings) change(ctx context.Context, of *platform.Binding, next func(*bound) (name string, body any, err error)) error {
	for left := tries; ; left-- {
		at, err := b.find(ctx, of)
		if err != nil {
			return err
		}
		name, body, err := next(&at)
		if err != nil || name == "" {
			return err
		}
		refused, err := b.ask(ctx, &at, name, body)
		switch {
		case err != nil || refused == nil:
			return err
		case left == 0 || refused.Code != machines.CodePrecondition && refused.Code != machines.CodeTransition:
			return providers.Errorf(providers.Unavailable, "cannot %s the domain %s now: %s", name, at.key, refused.Message)
		}
		if err := wait.Pause(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

// ask sends a command for the revision that was seen; a birth needs none, as it is refused where there is a domain.
func (b *bindings) ask(ctx context.Context, at *bound, name string, body any) (*machines.Refusal, error) {
	c := publish.Command{Machine: domains.Machine.Name, Key: at.key, Name: name, Actor: "provider"}
	if at.there {
		c.Expect = fmt.Sprint(at.revision)
	}
	var err error
	if body != nil {
		c.Body, err = json.Marshal(body)
	}
	var answer machines.Answer
	if err == nil {
		var raw []byte
		if raw, err = b.send(ctx, c); err == nil {
			err = json.Unmarshal(raw, &answer)
		}
	}
	if err != nil {
		return nil, providers.Errorf(providers.Unavailable, "cannot %s the domain %s: %v", name, at.key, err)
	}
	return answer.Refusal, nil
}
