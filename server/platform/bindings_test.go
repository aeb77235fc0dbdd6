package platform

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines"
	domains "github.com/bcc94042/instar/machines/domain"
	machine "github.com/bcc94042/instar/machines/platform"
	"github.com/bcc94042/instar/machines/session"
	"github.com/bcc94042/instar/providers"
	"github.com/bcc94042/instar/providers/domain"
	"github.com/bcc94042/instar/providers/platform"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/publish"
)

// engine decides about commands to domains as the real one does, and removes at once where nothing else is said.
type engine struct {
	t      *testing.T
	all    map[string]machines.Entity
	at     uint64   // revision of all
	sent   []string // by the bindings
	owner  string   // of shop.example.com at the proxy
	route  *domains.Route
	stays  bool   // what is removed is so for long
	before func() // the next command of the bindings is decided about
}

func (e *engine) stored(_ context.Context, m *machines.Machine, key string) (*streams.Message, error) {
	has, ok := e.all[m.Name+"/"+key]
	if m == domains.Machine {
		has, ok = e.all[key]
	}
	if !ok {
		return nil, nil
	}
	raw, err := json.Marshal(has)
	require.NoError(e.t, err)
	return &streams.Message{Sequence: e.at, Data: raw}, nil
}

func (e *engine) keys(namespace, tenant string) ([]string, bool) {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(e.all)), func(key string) bool { return !strings.HasPrefix(key, machines.Key(namespace, tenant, "")) }), true
}

func (e *engine) send(_ context.Context, c publish.Command) ([]byte, error) {
	e.sent = append(e.sent, c.Name)
	if e.before != nil {
		e.before()
		e.before = nil
	}
	var a machines.Answer
	if expected, ok := streams.ParseExpected(c.Expect); c.Expect != "" && (!ok || !expected.Holds(e.at)) {
		a.Refusal = &machines.Refusal{Code: machines.CodePrecondition, Message: "it is not at that revision any more"}
	} else {
		a.Refusal = e.does(c.Key, c.Name, c.Body)
	}
	return json.Marshal(a)
}

func (e *engine) does(key, command string, body []byte) *machines.Refusal {
	e.t.Helper()
	has, ok := e.all[key]
	if parts := strings.Split(key, "."); !ok {
		has = domains.Machine.New(parts[0], parts[1], parts[2])
	}
	e.at++
	next, out, err := domains.Machine.Step(has, machines.Input{Command: command, Body: json.RawMessage(body), Seq: e.at, ID: "command", Time: time.Now().UTC()})
	var refused *machines.Refusal
	if errors.As(err, &refused) {
		return refused
	}
	require.NoError(e.t, err)
	e.all[key] = next
	for _, m := range out.Messages {
		var t machines.Task
		if e.stays || m.Kind != machines.KindEffect || json.Unmarshal(m.Body, &t) != nil || t.Effect != domains.EffectRemove {
			continue
		}
		report, err := json.Marshal(machines.Report{Attempt: t.Attempt})
		require.NoError(e.t, err)
		require.Nil(e.t, e.does(key, domains.ReportRemoved, report))
	}
	return nil
}

// did are the commands of the bindings since it was asked last.
func (e *engine) did() []string {
	defer func() { e.sent = nil }()
	return e.sent
}

const shop = "default.acme.shop-example-com"

func start(t *testing.T) (*engine, *bindings) {
	t.Helper()
	e := &engine{t: t, all: map[string]machines.Entity{}}
	return e, &bindings{send: e.send, stored: e.stored, row: func(context.Context, string) (domain.Row, error) {
		return domain.Row{Owner: e.owner, Route: e.route}, nil
	}, keys: e.keys}
}

func leadingTo(address string) domains.Route {
	return domains.Route{Targets: []domains.Target{{Address: address}}}
}

func (e *engine) leads() string { return e.all[shop].Data.(*domains.Data).Route.Targets[0].Address }

func of(session string) platform.Binding {
	return platform.Binding{Namespace: "default", Tenant: "acme", Session: session, Host: "shop.example.com", Route: leadingTo("10.0.0.1:80")}
}

func TestASessionBindsLeadsAndRemovesItsOwnDomain(t *testing.T) {
	t.Parallel()
	e, b := start(t)
	to := of("own")
	require.NoError(t, b.Check(t.Context(), to))
	key, err := b.Point(t.Context(), to)
	require.NoError(t, err)
	require.Equal(t, shop, key)
	require.NoError(t, b.Remove(t.Context(), to))
	require.Empty(t, e.did(), "an upgrade binds nothing, and there is nothing to remove")

	to.Anew, to.Life = true, 3
	_, err = b.Point(t.Context(), to)
	require.NoError(t, err)
	require.Equal(t, []string{domains.CommandBind}, e.did())
	require.Equal(t, map[string]string{labelSession: "own", labelLife: "3"}, e.all[shop].Labels)
	require.NoError(t, b.Check(t.Context(), to))
	to.Route = leadingTo("10.0.0.2:80")
	_, err = b.Point(t.Context(), to)
	require.NoError(t, err, "an attempt before this one has bound it")
	to.Route, to.Anew = leadingTo("10.0.0.3:80"), false
	_, err = b.Point(t.Context(), to)
	require.NoError(t, err)
	require.Equal(t, []string{domains.CommandRetarget, domains.CommandRetarget}, e.did())
	require.Equal(t, "10.0.0.3:80", e.leads())

	require.NoError(t, b.Remove(t.Context(), to))
	require.Equal(t, domains.Removed, e.all[shop].State)
	require.NoError(t, b.Remove(t.Context(), to))
	_, err = b.Point(t.Context(), to)
	require.NoError(t, err)
	require.Equal(t, []string{domains.CommandRemove}, e.did(), "what is removed does not come back")
	to.Anew = true
	_, err = b.Point(t.Context(), to)
	require.NoError(t, err)
	require.Equal(t, []string{domains.CommandBind}, e.did())
}

// A domain that the tenant, or another session, has bound under the same id is live, perhaps for long: a session that fails must not take it down.
func TestADomainOfSomebodyElseIsNotTouched(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"of the tenant":       `{"host":"shop.example.com","route":{"targets":[{"address":"10.0.0.9:80"}]}}`,
		"of another session":  `{"host":"shop.example.com","route":{"targets":[{"address":"10.0.0.9:80"}]},"labels":{"instar/session":"other"}}`,
		"under another name":  `{"host":"shop-example.com","route":{"targets":[{"address":"10.0.0.9:80"}]},"labels":{"instar/session":"own"}}`,
		"of the same id only": `{"host":"shop.example-com.net","route":{"targets":[{"address":"10.0.0.9:80"}]}}`,
	} {
		e, b := start(t)
		require.Nil(t, e.does(shop, domains.CommandBind, []byte(body)), name)
		to := of("own")
		err := b.Check(t.Context(), to)
		require.True(t, providers.IsInvalid(err), "%s: %v", name, err)
		require.ErrorContains(t, err, "shop.example.com is bound already, as the domain "+shop, name)
		_, err = b.Point(t.Context(), to)
		require.NoError(t, err, name)
		require.NoError(t, b.Remove(t.Context(), to), name)
		to.Anew = true
		_, err = b.Point(t.Context(), to)
		require.True(t, providers.IsInvalid(err), "%s: %v", name, err)
		require.Empty(t, e.did(), name)
		require.Equal(t, domains.PendingDNS, e.all[shop].State, name)
		require.Equal(t, "10.0.0.9:80", e.leads(), name)
	}
}

const unlabelled = `{"host":"shop.example.com","route":{"targets":[{"address":"10.0.0.9:80"}]}}`

// Earlier versions bound domains without a label: what the session has noted as made is its own, and what somebody has bound after it is not.
func TestADomainWithoutALabelIsTheSessionsThatHasMadeIt(t *testing.T) {
	t.Parallel()
	e, b := start(t)
	to := of("own")
	require.Nil(t, e.does(shop, domains.CommandBind, []byte(unlabelled)))
	to.Made = time.Now()
	require.NoError(t, b.Check(t.Context(), to))
	_, err := b.Point(t.Context(), to)
	require.NoError(t, err)
	require.Equal(t, "10.0.0.1:80", e.leads())
	require.NoError(t, b.Remove(t.Context(), to))
	require.Equal(t, []string{domains.CommandRetarget, domains.CommandRemove}, e.did())

	require.Nil(t, e.does(shop, domains.CommandBind, []byte(unlabelled)))
	_, err = b.Point(t.Context(), to)
	require.NoError(t, err)
	require.NoError(t, b.Remove(t.Context(), to))
	require.Empty(t, e.did(), "the tenant has bound it anew")
	require.Equal(t, "10.0.0.9:80", e.leads())
}

// A name may be bound under an id that is not made of it. One that another tenant has goes over to whoever proves that it is his.
func TestANameThatIsHadUnderAnotherIDIsRefused(t *testing.T) {
	t.Parallel()
	e, b := start(t)
	e.owner = shop
	require.NoError(t, b.Check(t.Context(), of("own")))
	for owner, says := range map[string]string{
		"default.acme.mine": "is bound already, as the domain default.acme.mine", "default.other.shop": "", "default.acme-2.shop": "",
	} {
		e.owner = owner
		require.Nil(t, e.does(owner, domains.CommandBind, []byte(unlabelled)))
		err := b.Check(t.Context(), of("own"))
		if says == "" {
			require.NoError(t, err, owner)
		} else {
			require.True(t, providers.IsInvalid(err), "%v", err)
			require.ErrorContains(t, err, says)
		}
		leaves, err := b.leaves(t.Context(), owner)
		require.NoError(t, err)
		require.False(t, leaves)
	}
	e.owner = "instance_provisioning/default.other.own"
	require.NoError(t, b.Check(t.Context(), of("own")))
}

// What is being removed is free soon.
func TestADomainThatIsBeingRemovedIsWaitedFor(t *testing.T) {
	t.Parallel()
	for key, to := range map[string]platform.Binding{shop: of("own"), "default.acme.mine": of("own")} {
		e, b := start(t)
		to.Anew, e.stays = true, true
		require.Nil(t, e.does(key, domains.CommandBind, []byte(unlabelled)))
		require.Nil(t, e.does(key, domains.CommandRemove, nil))
		require.Equal(t, domains.Removing, e.all[key].State)
		e.owner = key
		err := b.Check(t.Context(), to)
		require.True(t, providers.IsUnavailable(err), "%s: %v", key, err)
		leaves, err := b.leaves(t.Context(), key)
		require.NoError(t, err)
		require.True(t, leaves)
		if key == shop {
			_, err = b.Point(t.Context(), to)
			require.True(t, providers.IsUnavailable(err), "%v", err)
		}
	}
}

// Between a look and the command that follows from it, the tenant has removed the domain of the session, and bound it by itself.
func TestADomainThatChangesHandsIsNotTouched(t *testing.T) {
	t.Parallel()
	for name, do := range map[string]func(*bindings) error{
		"point":  func(b *bindings) error { _, err := b.Point(t.Context(), of("own")); return err },
		"remove": func(b *bindings) error { return b.Remove(t.Context(), of("own")) },
	} {
		e, b := start(t)
		to := of("own")
		to.Anew = true
		_, err := b.Point(t.Context(), to)
		require.NoError(t, err, name)
		e.before = func() {
			require.Nil(t, e.does(shop, domains.CommandRemove, nil), name)
			require.Nil(t, e.does(shop, domains.CommandBind, []byte(`{"host":"shop.example.com","route":{"targets":[{"address":"10.0.0.9:80"}]}}`)), name)
		}
		require.NoError(t, do(b), name)
		require.Equal(t, domains.PendingDNS, e.all[shop].State, name)
		require.Equal(t, "10.0.0.9:80", e.leads(), name)
	}
}

// A bind that was not answered may be stored when its session has taken back all that it has made, or has begun anew since. What an undo has skipped, or the tenant has bound since, stays.
func TestADomainThatItsSessionHasTakenBackIsCleared(t *testing.T) {
	t.Parallel()
	done := machine.Data{Request: machine.RequestBody{CustomDomain: "shop.example.com"}}
	done.Undone = []session.ActionResult{{Action: "cancel_domain_binding", Done: true}, {Action: "remove_route", Done: true}}
	left, other, anew := done, done, done
	left.Undone, other.Request.CustomDomain, anew.Undone = done.Undone[1:], "www.example.com", nil
	for name, c := range map[string]struct {
		state  string
		life   uint64 // of the session by now; that of the domain is 2
		data   *machine.Data
		before func(e *engine)
		clears bool
	}{
		"cancelled":              {state: machine.Cancelled, life: 2, data: &done, clears: true},
		"rolled back":            {state: machine.RolledBack, life: 2, data: &done, clears: true},
		"closed":                 {state: machine.Retired, life: 2, data: &done, clears: true},
		"live":                   {state: machine.ConfiguringDomain, life: 2, data: &anew},
		"requested anew":         {state: machine.Requested, life: 3, data: &anew, clears: true},
		"another, and over":      {state: machine.Cancelled, life: 3, data: &anew, clears: true},
		"another, with no host":  {state: machine.Ready, life: 3, data: &machine.Data{}, clears: true},
		"restored from before":   {state: machine.Ready, life: 1, data: &anew},
		"over in an older store": {state: machine.RolledBack, life: 1, data: &done},
		"skipped":                {state: machine.RolledBack, life: 2, data: &left},
		"of other name":          {state: machine.RolledBack, life: 2, data: &other},
		"looked at meanwhile": {state: machine.Cancelled, life: 2, data: &done, clears: true, before: func(e *engine) {
			require.Nil(t, e.does(shop, domains.ReportMissing, []byte(`{"data":{"problem":"there is no record"}}`)))
		}},
		"bound by the tenant meanwhile": {state: machine.Cancelled, life: 2, data: &done, before: func(e *engine) {
			require.Nil(t, e.does(shop, domains.CommandRemove, nil))
			require.Nil(t, e.does(shop, domains.CommandBind, []byte(unlabelled)))
		}},
		"gone": {},
	} {
		e, b := start(t)
		to := of("own")
		to.Anew, to.Life = true, 2
		_, err := b.Point(t.Context(), to)
		require.NoError(t, err, name)
		if c.data != nil {
			s := machine.Machine.New("default", "acme", "own")
			s.State, s.Data, s.Generation = c.state, c.data, c.life
			e.all[machine.Machine.Name+"/default.acme.own"] = s
		}
		if c.before != nil {
			e.before = func() { c.before(e) }
		}
		require.NoError(t, b.clear(t.Context(), shop), name)
		require.Equal(t, c.clears, e.all[shop].State == domains.Removed, name)
	}
	e, b := start(t)
	require.Nil(t, e.does(shop, domains.CommandBind, []byte(unlabelled)))
	require.NoError(t, b.clear(t.Context(), shop))
	require.Empty(t, e.did(), "the tenant had bound it anew when the sweep came to it")
}

// A session does not wait for a domain of its life before, whose records may never come, nor takes it over: it is removed, and bound anew.
func TestADomainOfAnEarlierLifeIsWaitedFor(t *testing.T) {
	t.Parallel()
	e, b := start(t)
	to := of("own")
	to.Anew, to.Life = true, 1
	_, err := b.Point(t.Context(), to)
	require.NoError(t, err)
	e.did()
	to.Life, to.Route = 2, leadingTo("10.0.0.2:80")
	err = b.Check(t.Context(), to)
	require.True(t, providers.IsUnavailable(err), "%v", err)
	_, err = b.Point(t.Context(), to)
	require.True(t, providers.IsUnavailable(err), "%v", err)
	require.NoError(t, b.Remove(t.Context(), to))
	require.Empty(t, e.did())
	require.Equal(t, "10.0.0.1:80", e.leads())
	require.Nil(t, e.does(shop, domains.CommandRemove, nil))
	_, err = b.Point(t.Context(), to)
	require.NoError(t, err)
	require.Equal(t, "10.0.0.2:80", e.leads())
	to.Life = 1 // a task of the life before that comes late
	require.NoError(t, b.Remove(t.Context(), to))
	require.Equal(t, []string{domains.CommandBind}, e.did())
}

// The console begins the form of bind with what the domain had.
func TestADomainThatTheTenantBindsAgainIsTheTenants(t *testing.T) {
	t.Parallel()
	e, b := start(t)
	to := of("own")
	to.Anew, to.Life = true, 1
	_, err := b.Point(t.Context(), to)
	require.NoError(t, err)
	require.NoError(t, b.Remove(t.Context(), to))
	again, err := json.Marshal(domains.BindBody{Host: to.Host, Route: leadingTo("10.0.0.9:80"), Labels: e.all[shop].Labels})
	require.NoError(t, err)
	require.Nil(t, e.does(shop, domains.CommandBind, again))
	e.did()
	to.Anew = false
	_, err = b.Point(t.Context(), to)
	require.NoError(t, err)
	require.NoError(t, b.Remove(t.Context(), to))
	require.Empty(t, e.did())
	require.Equal(t, "10.0.0.9:80", e.leads())
}

// An undo was told to keep it, and the tenant has led it to a server of its own: no later life of the session takes it down, or leads it elsewhere.
func TestADomainThatTheTenantKeepsIsTheTenants(t *testing.T) {
	t.Parallel()
	e, b := start(t)
	to := of("own")
	to.Anew, to.Life = true, 1
	_, err := b.Point(t.Context(), to)
	require.NoError(t, err)
	retarget, err := json.Marshal(domains.RetargetBody{Route: leadingTo("10.0.0.9:80")})
	require.NoError(t, err)
	require.Nil(t, e.does(shop, domains.CommandRetarget, retarget))
	to.Kept = true
	for range 2 { // as the task may come again
		require.NoError(t, b.Remove(t.Context(), to))
	}
	require.Equal(t, []string{domains.CommandBind, domains.CommandRetarget}, e.did())
	require.Empty(t, e.all[shop].Labels)
	s := machine.Machine.New("default", "acme", "own")
	s.State, s.Data, s.Generation = machine.Requested, &machine.Data{Request: machine.RequestBody{DryRun: true}}, 2
	e.all[machine.Machine.Name+"/default.acme.own"] = s
	require.NoError(t, b.clear(t.Context(), shop))
	to.Anew, to.Life, to.Kept = false, 2, false
	_, err = b.Point(t.Context(), to)
	require.NoError(t, err)
	require.NoError(t, b.Remove(t.Context(), to))
	require.Empty(t, e.did())
	require.Equal(t, domains.PendingDNS, e.all[shop].State)
	require.Equal(t, "10.0.0.9:80", e.leads())
	err = b.Check(t.Context(), to)
	require.True(t, providers.IsInvalid(err), "%v", err)
	require.ErrorContains(t, err, "remove that first")
}

// So is one that the tenant takes from its session while that lives, also one that has no label, as an earlier version had bound it.
func TestADetachedDomainIsTheTenants(t *testing.T) {
	t.Parallel()
	for _, body := range []string{"", unlabelled} {
		e, b := start(t)
		to := of("own")
		to.Anew, to.Life = true, 1
		if body != "" {
			require.Nil(t, e.does(shop, domains.CommandBind, []byte(body)))
		} else {
			_, err := b.Point(t.Context(), to)
			require.NoError(t, err)
		}
		to.Anew, to.Made = false, time.Now().Add(time.Hour) // the ledger has it later than it was bound
		own := e.all[shop].Data.(*domains.Data).Route
		detach, err := json.Marshal(domains.RetargetBody{Route: own, Detach: true})
		require.NoError(t, err)
		require.Nil(t, e.does(shop, domains.CommandRetarget, detach))
		e.did()
		to.Route = leadingTo("10.0.0.2:80")
		_, err = b.Point(t.Context(), to)
		require.NoError(t, err)
		require.NoError(t, b.Remove(t.Context(), to))
		require.Empty(t, e.did())
		require.Equal(t, own, e.all[shop].Data.(*domains.Data).Route)
	}
}

func TestADomainHasAnIDOfItsName(t *testing.T) {
	t.Parallel()
	require.Equal(t, "shop-example-com", id("shop.example.com"))
	long := strings.Repeat("a", 60) + ".example.com"
	seen := map[string]bool{}
	for _, host := range []string{"shop.example.com", "shop-example.com", "shop.example-com", long, "b." + long, "c." + long} {
		label := id(host)
		require.True(t, machines.IsLabel(label), label)
		require.False(t, seen[label], host)
		require.Equal(t, label, id(host))
		seen[label] = true
	}
}

// What leads to a release, or will once it is proven, is told whoever of the tenant has bound it; another tenant's is that one's own fault.
func TestWhatLeadsToAReleaseIsFound(t *testing.T) {
	t.Parallel()
	e, b := start(t)
	bind := func(key, host, address string) {
		body, err := json.Marshal(domains.BindBody{Host: host, Route: leadingTo(address)})
		require.NoError(t, err)
		require.Nil(t, e.does(key, domains.CommandBind, body))
	}
	leading := func(address string, says ...any) {
		host, removed, err := b.Leading(t.Context(), "default", "acme", address)
		require.NoError(t, err)
		require.Equal(t, says, []any{host, removed}, address)
	}
	bind("default.other.shop", "other.example.com", "127.0.0.1:20001")
	leading("127.0.0.1:20001", "", false)
	bind("default.acme.mine", "mine.example.com", "localhost:20001")
	leading("127.0.0.1:20001", "mine.example.com", false)
	leading("127.0.0.1:20002", "", false)
	require.Nil(t, e.does("default.acme.mine", domains.CommandRemove, nil))
	require.Equal(t, domains.Removed, e.all["default.acme.mine"].State)
	leading("127.0.0.1:20001", "", false)

	bind(shop, "shop.example.com", "127.0.0.1:20002") // the proxies do not know it yet
	before := leadingTo("127.0.0.1:20001")
	e.owner, e.route, e.stays = shop, &before, true
	leading("127.0.0.1:20001", "shop.example.com", false)
	leading("127.0.0.1:20002", "shop.example.com", false)
	require.Nil(t, e.does(shop, domains.CommandRemove, nil))
	leading("127.0.0.1:20001", "shop.example.com", true)
	leading("127.0.0.1:20002", "", false)
	e.owner, e.route = "", nil
	leading("127.0.0.1:20001", "", false)
}
