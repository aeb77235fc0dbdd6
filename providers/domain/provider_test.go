package domain_test

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines"
	machine "github.com/bcc94042/instar/machines/domain"
	"github.com/bcc94042/instar/providers"
	"github.com/bcc94042/instar/providers/domain"
)

// names are DNS records.
type names struct {
	texts map[string][]string
	hosts map[string][]string
	err   error // of every question
}

func (n *names) LookupTXT(_ context.Context, name string) ([]string, error) {
	if n.err != nil {
		return nil, n.err
	}
	if t, ok := n.texts[name]; ok {
		return t, nil
	}
	return nil, &net.DNSError{IsNotFound: true}
}

func (n *names) LookupNetIP(_ context.Context, _, host string) (list []netip.Addr, err error) {
	if n.err != nil {
		return nil, n.err
	}
	for _, a := range n.hosts[host] {
		list = append(list, netip.MustParseAddr(a))
	}
	if list == nil {
		return nil, &net.DNSError{IsNotFound: true}
	}
	return list, nil
}

func TestProblemsOfRecords(t *testing.T) {
	t.Parallel()
	proof := machine.Proof("a.example.com", "token")
	good := map[string][]string{proof.Name + ".": {"v=spf1", proof.Value}}
	for want, x := range map[string]struct {
		names  names
		points []string
	}{
		"":                                  {names{texts: good}, nil},
		"_instar.a.example.com has no TXT":  {names{}, nil},
		"no TXT record of _instar":          {names{texts: map[string][]string{proof.Name + ".": {"instar-domain=other"}}}, nil},
		"the name servers of _instar":       {names{err: &net.DNSError{IsTimeout: true}}, nil},
		"a.example.com leads nowhere":       {names{texts: good}, []string{"192.0.2.1"}},
		"a.example.com leads to 192.0.2.9,": {names{texts: good, hosts: map[string][]string{"a.example.com.": {"192.0.2.9", "192.0.2.1"}}}, []string{"192.0.2.1"}},
		"the proxy's own name":              {names{texts: good, hosts: map[string][]string{"a.example.com.": {"192.0.2.1"}}}, []string{"proxy.example.net"}},
	} {
		r := domain.Records{Resolver: &x.names, Points: x.points}
		got, err := r.Problem(t.Context(), "a.example.com", "token")
		require.NoError(t, err)
		if want == "" {
			require.Empty(t, got)
		}
		require.Contains(t, got, want)
	}
	leads := names{texts: good, hosts: map[string][]string{"a.example.com.": {"192.0.2.1", "::ffff:192.0.2.2"}, "proxy.example.net.": {"192.0.2.2", "192.0.2.1"}}}
	r := domain.Records{Resolver: &leads, Points: []string{"proxy.example.net"}}
	got, err := r.Problem(t.Context(), "a.example.com", "token")
	require.NoError(t, err)
	require.Empty(t, got)
	require.Equal(t, []machine.Record{proof, {Name: "a.example.com", Type: "CNAME", Value: "proxy.example.net"}}, r.Wanted("a.example.com", "token"))
	r.Points = []string{"192.0.2.1", "2001:db8::1"}
	require.Equal(t, []machine.Record{proof, {Name: "a.example.com", Type: "A", Value: "192.0.2.1"}, {Name: "a.example.com", Type: "AAAA", Value: "2001:db8::1"}}, r.Wanted("a.example.com", "token"))

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = r.Problem(ended, "a.example.com", "token")
	require.ErrorIs(t, err, context.Canceled, "what was not asked is no problem of the name")
}

// rows is a table in memory.
type rows struct {
	mu  sync.Mutex
	all map[string]domain.Row
	err error
}

func (r *rows) Row(_ context.Context, host string) (domain.Row, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.all[host], r.err
}

func (r *rows) Change(_ context.Context, host string, change func(domain.Row) (domain.Row, error)) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil {
		return r.err
	}
	next, err := change(r.all[host])
	if err == nil {
		r.all[host] = next
	}
	return err
}

// authority issues certificates.
type authority struct {
	have    map[string]machine.Certificate
	due     time.Time
	trouble string
	err     error
	during  func() // while one is issued
}

func (a *authority) Obtain(_ context.Context, host string) (machine.Certificate, error) {
	if a.during != nil {
		a.during()
	}
	if a.err == nil {
		a.have[host] = machine.Certificate{Serial: "1"}
	}
	return a.have[host], a.err
}

func (a *authority) Current(_ context.Context, host string) (*machine.Certificate, time.Time, string, error) {
	if c, ok := a.have[host]; ok {
		return &c, a.due, a.trouble, a.err
	}
	return nil, a.due, a.trouble, a.err
}

func (a *authority) Forget(_ context.Context, host string) error {
	delete(a.have, host)
	return a.err
}

type world struct {
	t     *testing.T
	names names
	rows  rows
	ca    authority
	p     *domain.Provider
	now   time.Time

	namespace, token string
}

const host = "a.example.com"

var route = machine.Route{Targets: []machine.Target{{Address: "10.0.0.7:80", Weight: 1}}}

func setup(t *testing.T) *world {
	proof := machine.Proof(host, "token")
	w := &world{t: t, names: names{texts: map[string][]string{proof.Name + ".": {proof.Value}}}, rows: rows{all: map[string]domain.Row{}}, ca: authority{have: map[string]machine.Certificate{}}, now: time.Now().UTC().Truncate(time.Second), namespace: "default", token: "token"}
	w.p = &domain.Provider{Records: domain.Records{Resolver: &w.names}, Table: &w.rows, Issuer: &w.ca, Clock: func() time.Time { return w.now }}
	return w
}

func (w *world) perform(id, effect string, fence uint64, task machine.Task) *machines.Failure {
	w.t.Helper()
	task.Host, task.Token = host, w.token
	data, err := json.Marshal(task)
	require.NoError(w.t, err)
	return w.p.Perform(w.t.Context(), machines.Task{Namespace: w.namespace, Parent: "acme", ID: id, Effect: effect, Fence: fence, Data: data}).Failure
}

func TestANameIsOfOneEntityUntilItIsRemoved(t *testing.T) {
	t.Parallel()
	w := setup(t)
	require.Nil(t, w.perform("a", "verify", 3, machine.Task{Route: route}))
	require.Equal(t, domain.Row{Owner: "default.acme.a", Token: "token", Fence: 3}, w.rows.all[host], "claimed, and not served yet")
	f := w.perform("b", "verify", 3, machine.Task{Route: route})
	require.Equal(t, domain.CodeTaken, f.Code)
	require.Contains(t, f.Message, "default.acme.a")
	require.False(t, f.Retryable)
	w.namespace = "other"
	require.NotContains(t, w.perform("b", "verify", 3, machine.Task{Route: route}).Message, "acme", "who has it is no business of another namespace")
	w.namespace = "default"

	require.Nil(t, w.perform("a", "issue", 4, machine.Task{Route: route}))
	require.Nil(t, w.rows.all[host].Route, "the targets may be others by now: route has those that are meant then")
	require.Nil(t, w.perform("a", "route", 4, machine.Task{Route: route}))
	require.Equal(t, domain.Row{Owner: "default.acme.a", Token: "token", Fence: 4, Route: &route}, w.rows.all[host])
	require.Equal(t, domain.CodeTaken, w.perform("b", "issue", 9, machine.Task{Route: route}).Code)
	require.Nil(t, w.perform("b", "remove", 9, machine.Task{}), "it has nothing to give back")
	require.Contains(t, w.ca.have, host, "the certificate is that of the other one")
	require.Nil(t, w.perform("a", "verify", 5, machine.Task{}))
	require.Equal(t, &route, w.rows.all[host].Route, "what is served goes on while it is verified anew")

	require.Nil(t, w.perform("a", "route", 6, machine.Task{Route: route, Closed: true}))
	require.Nil(t, w.rows.all[host].Route)
	require.Nil(t, w.perform("a", "remove", 7, machine.Task{}))
	require.Empty(t, w.ca.have)
	require.Equal(t, domain.Row{Past: []domain.Past{{Owner: "default.acme.b", Fence: 9}, {Owner: "default.acme.a", Fence: 7}}}, w.rows.all[host])
	require.Nil(t, w.perform("c", "verify", 3, machine.Task{Route: route}), "it is anybody's now, whatever the versions")
}

func TestOldTasksChangeNothing(t *testing.T) {
	t.Parallel()
	w := setup(t)
	require.Nil(t, w.perform("a", "verify", 3, machine.Task{Route: route}))
	w.ca.during = func() { require.Nil(t, w.perform("a", "remove", 5, machine.Task{})) } // while an order is under way
	require.Nil(t, w.perform("a", "issue", 4, machine.Task{Route: route}))
	require.Nil(t, w.rows.all[host].Route, "a name that was removed is not served by what had begun before")
	w.ca.during = nil
	for _, effect := range []string{"verify", "issue", "route"} {
		require.Equal(t, "fenced", w.perform("a", effect, 4, machine.Task{Route: route}).Code, effect)
	}
	require.Equal(t, domain.Row{Past: []domain.Past{{Owner: "default.acme.a", Fence: 5}}}, w.rows.all[host])

	w = setup(t)
	require.Nil(t, w.perform("a", "remove", 5, machine.Task{}), "it never had the name")
	require.Equal(t, "fenced", w.perform("a", "verify", 4, machine.Task{}).Code, "and a verification that was under way does not claim it")
	require.Nil(t, w.perform("b", "verify", 2, machine.Task{}))
	require.Nil(t, w.perform("b", "remove", 3, machine.Task{}))
	require.Equal(t, "fenced", w.perform("a", "verify", 4, machine.Task{}).Code, "nor after another one had it")
}

// A certificate may come when its domain has failed, as that had waited for long enough: its name is not served then, as nobody would renew it. Nor is one that nobody has, or another one.
func TestWhatIsClosedIsNotServedByACertificateThatComesLate(t *testing.T) {
	t.Parallel()
	for what, row := range map[string]domain.Row{
		"its own":       {Owner: "default.acme.a", Token: "token", Fence: 4, Route: &route},
		"nobody's":      {},
		"another one's": {Owner: "default.acme.b", Fence: 2},
	} {
		w := setup(t)
		w.ca.during = func() {
			w.rows.all[host] = row
			require.Nil(t, w.perform("a", "route", 5, machine.Task{Route: route, Closed: true}), what)
		}
		require.Nil(t, w.perform("a", "issue", 4, machine.Task{Route: route}), what)
		require.NotNil(t, w.perform("a", "route", 4, machine.Task{Route: route}), what)
		require.Nil(t, w.rows.all[host].Route, what)
	}
	w := setup(t)
	require.Nil(t, w.perform("a", "remove", 9, machine.Task{}))
	require.Nil(t, w.perform("a", "route", 5, machine.Task{Route: route, Closed: true}))
	require.Equal(t, "fenced", w.perform("a", "route", 7, machine.Task{Route: route}).Code, "what is older forgets nothing")
}

// A name that an entity of another machine has is bound by nobody, whatever the records say.
func TestANameOfAnotherMachineIsNotTakenAway(t *testing.T) {
	t.Parallel()
	w := setup(t)
	row := domain.Row{Owner: "instance_provisioning/default.acme.a", Fence: 3, Route: &route}
	require.False(t, row.OfDomain())
	w.rows.all[host] = row
	require.Equal(t, domain.CodeTaken, w.perform("a", "verify", 9, machine.Task{}).Code)
	require.Nil(t, w.perform("a", "remove", 9, machine.Task{}))
	row.Past = []domain.Past{{Owner: "default.acme.a", Fence: 9}}
	require.Equal(t, row, w.rows.all[host])
}

// A name belongs to whoever can write its records: he takes the proof of the one before away, and puts his own there.
func TestANameGoesToWhoProvesItWhenTheProofOfItsOwnerIsGone(t *testing.T) {
	t.Parallel()
	w := setup(t)
	require.Nil(t, w.perform("a", "verify", 3, machine.Task{}))
	require.Nil(t, w.perform("a", "route", 4, machine.Task{Route: route}))
	proof := machine.Proof(host, "token")
	w.token = "another"
	w.names.texts[proof.Name+"."] = []string{proof.Value, machine.Proof(host, w.token).Value}
	require.Equal(t, domain.CodeTaken, w.perform("b", "verify", 1, machine.Task{}).Code, "both proofs are there")
	w.names.texts[proof.Name+"."] = []string{machine.Proof(host, w.token).Value}
	require.Nil(t, w.perform("b", "verify", 2, machine.Task{}))
	r := w.rows.all[host]
	require.Equal(t, "default.acme.b", r.Owner)
	require.Nil(t, r.Route, "nothing of the owner before is served")
	f := w.look(machine.Active, w.now, machine.Data{Certificate: &machine.Certificate{}})
	require.Equal(t, machine.ReportTaken, f.Input)
	require.Equal(t, domain.CodeTaken, w.perform("a", "route", 9, machine.Task{Route: route}).Code)
}

// Routes that were lost, as by a restore of another moment, are told again.
func TestLostRoutesAreToldAgain(t *testing.T) {
	t.Parallel()
	w := setup(t)
	require.Equal(t, machine.ReportUnrouted, w.look(machine.Active, w.now, machine.Data{}).Input)
	require.Nil(t, w.perform("a", "route", 7, machine.Task{Route: route}))
	known := domain.Row{Owner: "default.acme.a", Token: "token", Fence: 7, Route: &route}
	require.Equal(t, known, w.rows.all[host])
	c := machine.Certificate{NotAfter: w.now.Add(time.Hour)}
	w.ca.have[host], w.ca.due = c, w.now.Add(time.Minute)
	require.Empty(t, w.look(machine.Active, w.now, machine.Data{Certificate: &c}).Input)

	other := known
	other.Route = &machine.Route{Targets: []machine.Target{{Address: "10.0.0.6:80", Weight: 1}}}
	w.rows.all[host] = other
	require.Equal(t, machine.ReportUnrouted, w.look(machine.Active, w.now, machine.Data{Certificate: &c}).Input, "requests go where they went once")
	other = known
	other.Token = "before"
	w.rows.all[host] = other
	require.Equal(t, machine.ReportUnrouted, w.look(machine.Active, w.now, machine.Data{Certificate: &c}).Input, "the proof is that of an earlier life")
}

func TestFailures(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.names.texts = nil
	f := w.perform("a", "verify", 1, machine.Task{})
	require.Equal(t, machine.CodeRecords, f.Code)
	w.p.Refuses = func(string) string { return "it is reserved" }
	require.Equal(t, domain.CodeRefused, w.perform("a", "verify", 1, machine.Task{}).Code)
	w.ca.err = providers.Coded(domain.CodeCertificate, "the authority does not issue for it")
	require.Equal(t, &machines.Failure{Code: domain.CodeCertificate, Message: "the authority does not issue for it"}, w.perform("a", "issue", 1, machine.Task{Route: route}), "so that issuing is failed, and not tried again")
	w.rows.err = errors.New("no leader")
	for _, effect := range []string{"issue", "route", "remove"} {
		f := w.perform("a", effect, 1, machine.Task{Route: route})
		require.Equal(t, "unavailable", f.Code, effect)
		require.True(t, f.Retryable)
	}
	require.Equal(t, "invalid", w.perform("a", "paint", 1, machine.Task{}).Code)
	require.Equal(t, "invalid", w.p.Perform(t.Context(), machines.Task{Effect: "verify", Data: []byte("[")}).Failure.Code)
}

func (w *world) look(state string, since time.Time, d machine.Data) machines.Finding {
	w.t.Helper()
	d.Host, d.Token, d.Route = host, "token", route
	f, err := w.p.Look(w.t.Context(), &machines.Entity{Namespace: "default", Parent: "acme", ID: "a", State: state, Since: since, Data: &d}, true)
	require.NoError(w.t, err)
	return f
}

func TestRecordsAreAwaitedWithPatience(t *testing.T) {
	t.Parallel()
	w := setup(t)
	f := w.look(machine.PendingDNS, w.now, machine.Data{})
	require.Equal(t, machine.ReportFound, f.Input)
	w.names.texts = nil
	f = w.look(machine.PendingDNS, w.now, machine.Data{})
	require.Equal(t, machine.ReportMissing, f.Input)
	b, _ := f.Data.(machine.Records)
	known := machine.Data{Records: b.Wanted, Problem: b.Problem}
	for waited, wait := range map[time.Duration]time.Duration{0: 2 * time.Second, time.Minute: 6 * time.Second, time.Hour: 5 * time.Minute, 100 * time.Hour: 5 * time.Minute} {
		f = w.look(machine.PendingDNS, w.now.Add(-waited), known)
		require.Empty(t, f.Input, "nothing new")
		require.Equal(t, w.now.Add(wait), f.Until, "after %s", waited)
	}
}

func TestCertificatesAreLookedAt(t *testing.T) {
	t.Parallel()
	w := setup(t)
	now := w.now
	c := machine.Certificate{Serial: "1", NotBefore: now, NotAfter: now.Add(90 * time.Minute)}
	w.ca.have[host], w.ca.due = c, now.Add(time.Hour)
	w.rows.all[host] = domain.Row{Owner: "default.acme.a", Token: "token", Route: &route}
	require.Equal(t, now.Add(10*time.Minute), w.look(machine.Active, now, machine.Data{Certificate: &c}).Until)
	require.Equal(t, machine.ReportRenewed, w.look(machine.Active, now, machine.Data{Certificate: &machine.Certificate{Serial: "0", NotAfter: now}}).Input)
	require.Equal(t, machine.ReportRenewed, w.look(machine.Active, now, machine.Data{Certificate: &c, Problem: "it cannot be read"}).Input, "it is in order again")
	w.ca.due = now
	f := w.look(machine.Active, now, machine.Data{Certificate: &c, Problem: "no answer"})
	require.Empty(t, f.Input, "a process that has just started knows of no trouble")
	require.Equal(t, now.Add(15*time.Second), f.Until)
	w.ca.trouble = "no answer"
	require.Equal(t, machine.ReportUnrenewed, w.look(machine.Active, now, machine.Data{Certificate: &c}).Input)
	require.Empty(t, w.look(machine.Active, now, machine.Data{Certificate: &c, Problem: "no answer"}).Input, "known")
	w.now = now.Add(90 * time.Minute)
	w.ca.trouble = ""
	require.Empty(t, w.look(machine.Active, now, machine.Data{Certificate: &c, Problem: "no answer"}), "its renewal has just begun, as after a stop of days")
	w.ca.trouble = "no answer"
	f = w.look(machine.Active, now, machine.Data{Certificate: &c, Problem: "no answer"})
	require.Equal(t, machine.ReportLapsed, f.Input)
	require.Equal(t, machine.Trouble{Message: "no answer"}, f.Data)
	w.now = now
	delete(w.ca.have, host)
	require.Empty(t, w.look(machine.Active, now, machine.Data{Certificate: &c, Problem: "no answer"}).Input, "somebody has removed it; it is issued anew")
	w.now = now.Add(91 * time.Minute)
	require.Equal(t, machine.ReportLapsed, w.look(machine.Active, now, machine.Data{Certificate: &c}).Input)
	w.ca.err = errors.New("no leader")
	_, err := w.p.Look(t.Context(), &machines.Entity{Namespace: "default", Parent: "acme", ID: "a", State: machine.Active, Data: &machine.Data{Host: host, Token: "token", Route: route}}, true)
	require.ErrorContains(t, err, "no leader")
}
