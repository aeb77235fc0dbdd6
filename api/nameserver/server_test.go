package nameserver_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/bcc94042/instar/api/discovery"
	"github.com/bcc94042/instar/api/nameserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// book is a catalog for tests.
type book struct {
	mu    sync.Mutex
	all   []discovery.Endpoint
	known map[string]bool
}

func (b *book) Find(q discovery.Query) discovery.Result {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := discovery.Result{Index: 4711, Known: b.known[q.Namespace+"/"+q.Service]}
	for _, e := range b.all {
		if e.Namespace != q.Namespace || e.Service != q.Service {
			continue
		}
		r.Known = true
		if e.State != "draining" || q.Draining {
			r.Endpoints = append(r.Endpoints, e)
		}
	}
	return r
}

func (b *book) Watch(string, string, uint64) <-chan struct{} { return nil }

func (b *book) Inhabited(namespace string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.ContainsFunc(b.all, func(e discovery.Endpoint) bool { return e.Namespace == namespace })
}

func web(id, address, zone string, weight int) discovery.Endpoint {
	return discovery.Endpoint{
		Namespace: "default", Service: "web", InstanceID: id, NodeAddress: address, Zone: zone, Weight: weight, State: "active.healthy",
		Payload: map[string]string{"id": id, "region": `eu\west`, "port.metrics": "9100"}, Version: "1.4.2", Tags: []string{"Blue"},
	}
}

type bundle struct {
	book  *book
	stale atomic.Int64
	addr  string
}

// setup starts a server on loopback.
func setup(t *testing.T, all ...discovery.Endpoint) *bundle {
	t.Helper()
	b := &bundle{book: &book{all: all, known: map[string]bool{"default/quiet": true}}}
	b.addr = run(t, &nameserver.Server{
		Address: "127.0.0.1:0", TTL: 5 * time.Second, Finder: b.book, Stale: func() time.Duration { return time.Duration(b.stale.Load()) },
		Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.53")},
	})
	return b
}

// run serves until the test is over.
func run(t *testing.T, s *nameserver.Server) string {
	t.Helper()
	started := make(chan string, 1)
	s.Started = func(a string) { started <- a }
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() { stop(); require.NoError(t, <-done) })
	select {
	case addr := <-started:
		return addr
	case err := <-done:
		t.Fatal(err)
		return ""
	}
}

// ask sends one question over the network.
func (b *bundle) ask(t *testing.T, network, name string, qtype uint16, change ...func(*dns.Msg)) *dns.Msg {
	t.Helper()
	m := new(dns.Msg).SetQuestion(name, qtype)
	for _, f := range change {
		f(m)
	}
	c := &dns.Client{Net: network, Timeout: 5 * time.Second}
	r, _, err := c.Exchange(m, b.addr)
	require.NoError(t, err)
	return r
}

// said are the records as text without their names and TTLs, sorted.
func said(records []dns.RR) []string {
	all := []string{}
	for _, rr := range records {
		if rr.Header().Rrtype != dns.TypeOPT {
			all = append(all, dns.TypeToString[rr.Header().Rrtype]+" "+strings.TrimPrefix(rr.String(), rr.Header().String()))
		}
	}
	slices.Sort(all)
	return all
}

func edns(size uint16) func(*dns.Msg) { return func(m *dns.Msg) { m.SetEdns0(size, false) } }

func some() []discovery.Endpoint {
	leaving, other := web("i4", "10.0.0.4:80", "a", 100), web("x1", "10.9.0.1:1000", "", 10)
	leaving.State, other.Namespace = "draining", "shop"
	named := web("i3", "host.example.com:8443", "b", 7)
	named.Tags, named.Version = []string{"green"}, "2"
	return []discovery.Endpoint{web("i1", "10.0.0.1:8080", "a", 100), web("i2", "[2001:db8::2]:8080", "b", 70000), named, leaving, other}
}

func TestNames(t *testing.T) {
	t.Parallel()
	b := setup(t, some()...)
	target := func(id string) string { return id + ".web.default.instar." }
	srv := []string{"SRV 0 100 8080 " + target("i1"), "SRV 0 65535 8080 " + target("i2"), "SRV 0 7 8443 host.example.com."}
	soa := []string{"SOA ns.dns.instar. hostmaster.instar. 4711 3600 600 86400 5"}
	none := []string{}
	cases := map[string]struct {
		qtype  uint16
		rcode  int
		answer []string
		ns     []string
		extra  []string
	}{
		"web.default.instar.":                     {dns.TypeA, 0, []string{"A 10.0.0.1"}, none, none},
		"web.instar.":                             {dns.TypeAAAA, 0, []string{"AAAA 2001:db8::2"}, none, none},
		"WeB.DEFault.inSTAR.":                     {dns.TypeSRV, 0, srv, none, []string{"A 10.0.0.1", "AAAA 2001:db8::2"}},
		"_web._tcp.web.instar.":                   {dns.TypeSRV, 0, srv, none, []string{"A 10.0.0.1", "AAAA 2001:db8::2"}},
		"_metrics._tcp.i1.web.default.instar.":    {dns.TypeSRV, 0, []string{"SRV 0 100 9100 " + target("i1")}, none, []string{"A 10.0.0.1"}},
		"_web._udp.web.default.instar.":           {dns.TypeSRV, 0, none, soa, none},
		"_web._tcp.web.default.instar.":           {dns.TypeA, 0, none, soa, none},
		"_tcp.web.default.instar.":                {dns.TypeA, 0, none, soa, none},
		"_tcp.web.instar.":                        {dns.TypeSRV, 0, none, soa, none},
		"blue.tag.web.default.instar.":            {dns.TypeAAAA, 0, []string{"AAAA 2001:db8::2"}, none, none},
		"_web._tcp.green.tag.web.default.instar.": {dns.TypeSRV, 0, []string{"SRV 0 7 8443 host.example.com."}, none, none},
		"red.tag.web.default.instar.":             {dns.TypeA, 0, none, soa, none},
		"tag.web.default.instar.":                 {dns.TypeA, 0, none, soa, none},
		"1.4.2.version.web.default.instar.":       {dns.TypeA, 0, []string{"A 10.0.0.1"}, none, none},
		"4.2.version.web.default.instar.":         {dns.TypeA, 0, none, soa, none},
		"b.zone.web.default.instar.":              {dns.TypeAAAA, 0, []string{"AAAA 2001:db8::2"}, none, none},
		"a.zone.web.default.instar.":              {dns.TypeAAAA, 0, none, soa, none},
		"c.zone.web.default.instar.":              {dns.TypeA, 0, []string{"A 10.0.0.1"}, none, none},
		"B.Zone.web.default.instar.":              {dns.TypeSRV, 0, []string{"SRV 0 65535 8080 " + target("i2"), "SRV 0 7 8443 host.example.com.", "SRV 1 100 8080 " + target("i1")}, none, []string{"A 10.0.0.1", "AAAA 2001:db8::2"}},
		"i1.web.default.instar.":                  {dns.TypeTXT, 0, []string{`TXT "id=i1" "port.metrics=9100" "region=eu\\west"`}, none, none},
		"i3.web.default.instar.":                  {dns.TypeA, 0, none, soa, none},
		"i4.web.default.instar.":                  {dns.TypeA, 0, []string{"A 10.0.0.4"}, none, none},
		"i9.web.default.instar.":                  {dns.TypeA, dns.RcodeNameError, none, soa, none},
		"web.shop.instar.":                        {dns.TypeSRV, 0, []string{"SRV 0 10 1000 x1.web.shop.instar."}, none, []string{"A 10.9.0.1"}},
		"shop.instar.":                            {dns.TypeA, 0, none, soa, none},
		"default.instar.":                         {dns.TypeTXT, 0, none, soa, none},
		"quiet.instar.":                           {dns.TypeA, 0, none, soa, none},
		"nobody.instar.":                          {dns.TypeA, dns.RcodeNameError, none, soa, none},
		"blue.tag.nobody.default.instar.":         {dns.TypeSRV, dns.RcodeNameError, none, soa, none},
		"a.b.web.default.instar.":                 {dns.TypeA, dns.RcodeNameError, none, soa, none},
		"we\\.b.default.instar.":                  {dns.TypeA, dns.RcodeNameError, none, soa, none},
		"instar.":                                 {dns.TypeSOA, 0, soa, none, none},
		"INSTAR.":                                 {dns.TypeNS, 0, []string{"NS ns.dns.instar."}, none, []string{"A 192.0.2.53"}},
		"ns.dns.instar.":                          {dns.TypeA, 0, []string{"A 192.0.2.53"}, none, none},
		"dns.instar.":                             {dns.TypeA, 0, none, soa, none},
		"example.com.":                            {dns.TypeA, dns.RcodeRefused, none, none, none},
		"notinstar.":                              {dns.TypeA, dns.RcodeRefused, none, none, none},
		".":                                       {dns.TypeNS, dns.RcodeRefused, none, none, none},
		"Web.instar.":                             {dns.TypeANY, 0, []string{`HINFO "RFC8482" ""`}, none, none},
		"nobody.default.instar.":                  {dns.TypeANY, dns.RcodeNameError, none, soa, none},
		"any.example.com.":                        {dns.TypeANY, dns.RcodeRefused, none, none, none},
	}
	for name, c := range cases {
		for _, network := range []string{"udp", "tcp"} {
			t.Run(name+"/"+dns.TypeToString[c.qtype]+"/"+network, func(t *testing.T) {
				t.Parallel()
				r := b.ask(t, network, name, c.qtype, edns(4096))
				require.Equal(t, dns.RcodeToString[c.rcode], dns.RcodeToString[r.Rcode], r)
				require.Equal(t, c.answer, said(r.Answer))
				require.Equal(t, c.ns, said(r.Ns))
				require.Equal(t, c.extra, said(r.Extra))
				require.False(t, r.RecursionAvailable || r.Truncated)
				require.Equal(t, c.rcode != dns.RcodeRefused, r.Authoritative)
				require.Equal(t, name, r.Question[0].Name)
				for _, rr := range r.Answer {
					require.Equal(t, name, rr.Header().Name, "the case of the question")
					require.Equal(t, uint32(5), rr.Header().Ttl)
				}
			})
		}
	}
}

func TestOddQuestions(t *testing.T) {
	t.Parallel()
	b := setup(t, some()...)
	rcode := func(change func(*dns.Msg)) string {
		return dns.RcodeToString[b.ask(t, "udp", "web.instar.", dns.TypeA, change).Rcode]
	}
	require.Equal(t, "REFUSED", rcode(func(m *dns.Msg) { m.Question[0].Qclass = dns.ClassCHAOS }))
	require.Equal(t, "REFUSED", rcode(func(m *dns.Msg) { m.Question[0].Qtype = dns.TypeAXFR }))
	require.Equal(t, "NOTIMP", rcode(func(m *dns.Msg) { m.Opcode = dns.OpcodeNotify }))
	require.Equal(t, "NOTIMP", rcode(func(m *dns.Msg) { m.Opcode = dns.OpcodeUpdate }))
	require.Equal(t, "FORMERR", rcode(func(m *dns.Msg) { m.Question = append(m.Question, m.Question[0]) }))
	require.Equal(t, "BADSIG", rcode(func(m *dns.Msg) { m.SetEdns0(1232, false); m.IsEdns0().SetVersion(1) }), "the name of 16, which is BADVERS, too")
	require.Nil(t, b.ask(t, "udp", "web.instar.", dns.TypeA).IsEdns0(), "no EDNS without being asked")
}

func TestSizes(t *testing.T) {
	t.Parallel()
	var all []discovery.Endpoint
	for i := range 1000 {
		all = append(all, web(fmt.Sprintf("i%d", i), fmt.Sprintf("10.0.%d.%d:80", i/250, i%250), "", 100))
	}
	b := setup(t, all...)
	for _, c := range []struct{ asked, most int }{{0, 512}, {100, 512}, {700, 700}, {4096, 1232}, {65535, 1232}} {
		for _, qtype := range []uint16{dns.TypeA, dns.TypeSRV, dns.TypeTXT} {
			r := b.ask(t, "udp", "web.instar.", qtype, func(m *dns.Msg) {
				if c.asked > 0 {
					m.SetEdns0(uint16(c.asked), false)
				}
			})
			r.Compress = true
			packed, err := r.Pack()
			require.NoError(t, err)
			require.LessOrEqual(t, len(packed), c.most)
			require.True(t, r.Truncated)
			require.NotEmpty(t, r.Answer)
		}
	}
	r := b.ask(t, "tcp", "web.instar.", dns.TypeA)
	require.False(t, r.Truncated)
	require.Len(t, r.Answer, 256)
}

// Missing glue is no reason to ask again over TCP.
func TestGlueIsDroppedQuietly(t *testing.T) {
	t.Parallel()
	var all []discovery.Endpoint
	for i := range 9 {
		all = append(all, web(fmt.Sprintf("i%d", i), fmt.Sprintf("10.0.0.%d:80", i), "", 100))
	}
	r := setup(t, all...).ask(t, "udp", "web.instar.", dns.TypeSRV)
	require.False(t, r.Truncated)
	require.Len(t, r.Answer, 9)
	require.Less(t, len(r.Extra), 9)
	require.NotEmpty(t, r.Extra)
}

func TestOrderFollowsTheWeight(t *testing.T) {
	t.Parallel()
	b := setup(t, web("i1", "10.0.0.1:1", "", 300), web("i2", "10.0.0.2:1", "", 100), web("i3", "10.0.0.3:1", "", 0))
	first := map[string]int{}
	const questions = 2000
	for range questions {
		r := b.ask(t, "udp", "web.instar.", dns.TypeA)
		require.Len(t, r.Answer, 2, "no weight, no traffic")
		first[r.Answer[0].(*dns.A).A.String()]++
	}
	require.InDelta(t, 0.75, float64(first["10.0.0.1"])/questions, 0.06)

	nothing := setup(t, web("i1", "10.0.0.1:1", "", 0))
	require.Len(t, nothing.ask(t, "udp", "web.instar.", dns.TypeA).Answer, 1, "better than nothing")
}

func TestStaleIsAnswered(t *testing.T) {
	t.Parallel()
	b := setup(t, some()...)
	b.stale.Store(int64(time.Second))
	r := b.ask(t, "udp", "web.instar.", dns.TypeA, edns(1232))
	require.Equal(t, []string{"A 10.0.0.1"}, said(r.Answer))
	require.Equal(t, uint32(30), r.Answer[0].Header().Ttl)
	require.Equal(t, dns.ExtendedErrorCodeStaleAnswer, r.IsEdns0().Option[0].(*dns.EDNS0_EDE).InfoCode)
	require.Equal(t, dns.RcodeServerFailure, b.ask(t, "udp", "nobody.instar.", dns.TypeA).Rcode, "it may have come since")
	r = b.ask(t, "udp", "quiet.instar.", dns.TypeA)
	require.Equal(t, dns.RcodeSuccess, r.Rcode)
	require.Equal(t, uint32(1), r.Ns[0].(*dns.SOA).Minttl, "that there is none is not remembered for long")

	b.stale.Store(int64(25 * time.Hour))
	r = b.ask(t, "udp", "web.instar.", dns.TypeA, edns(1232))
	require.Equal(t, dns.RcodeServerFailure, r.Rcode, "nobody can still mean that")
	require.Empty(t, r.Answer)
	require.Equal(t, dns.ExtendedErrorCodeNotReady, r.IsEdns0().Option[0].(*dns.EDNS0_EDE).InfoCode)
}

// What a delegation or a stub zone does: it asks who serves the domain, and where that is.
func TestDelegationLeadsHere(t *testing.T) {
	t.Parallel()
	addr := run(t, &nameserver.Server{Address: "127.0.0.1:0", Finder: &book{all: some()}})
	b := &bundle{addr: addr}
	r := b.ask(t, "udp", "instar.", dns.TypeNS)
	require.Equal(t, []string{"NS ns.dns.instar."}, said(r.Answer))
	require.Equal(t, []string{"A 127.0.0.1"}, said(r.Extra))
	require.Equal(t, []string{"A 127.0.0.1"}, said(b.ask(t, "udp", r.Answer[0].(*dns.NS).Ns, dns.TypeA).Answer))
	require.Empty(t, said(b.ask(t, "udp", "ns.dns.instar.", dns.TypeAAAA).Answer))
}

// One address cannot have all connections, and gives back those that end.
func TestConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	b := setup(t, some()...)
	closed := func(c net.Conn) bool {
		require.NoError(t, c.SetReadDeadline(time.Now().Add(200*time.Millisecond)))
		_, err := c.Read(make([]byte, 1))
		return !errors.Is(err, os.ErrDeadlineExceeded)
	}
	var open []net.Conn
	for range 64 {
		c, err := net.Dial("tcp", b.addr)
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		open = append(open, c)
	}
	more, err := net.Dial("tcp", b.addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = more.Close() })
	require.True(t, closed(more))
	require.False(t, closed(open[63]))
	require.Equal(t, []string{"A 10.0.0.1"}, said(b.ask(t, "udp", "web.instar.", dns.TypeA).Answer))
	for _, c := range open {
		require.NoError(t, c.Close())
	}
	require.Eventually(t, func() bool {
		_, _, err := (&dns.Client{Net: "tcp", Timeout: time.Second}).Exchange(new(dns.Msg).SetQuestion("web.instar.", dns.TypeA), b.addr)
		return err == nil
	}, 10*time.Second, 5*time.Millisecond)
}

// A resolver that keeps its connection sends all of its questions at once; each one is answered, in order.
func TestManyQuestionsOverOneConnection(t *testing.T) {
	t.Parallel()
	b := setup(t, some()...)
	conn, err := net.Dial("tcp", b.addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	const questions = 1000
	sent := make(chan error, 1)
	go func() {
		c := &dns.Conn{Conn: conn}
		for id := range questions {
			m := new(dns.Msg).SetQuestion("web.instar.", dns.TypeA)
			m.Id = uint16(id)
			if err := c.WriteMsg(m); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(30*time.Second)))
	c := &dns.Conn{Conn: conn}
	for id := range questions {
		m, err := c.ReadMsg()
		require.NoError(t, err, "answer %d", id)
		require.EqualValues(t, id, m.Id)
		require.Equal(t, []string{"A 10.0.0.1"}, said(m.Answer))
	}
	require.NoError(t, <-sent)
}

// Go's own resolver, which sets its own EDNS size and goes to TCP when it must.
func TestGoResolver(t *testing.T) {
	t.Parallel()
	all := some()
	for i := range 200 {
		e := web(fmt.Sprintf("m%d", i), fmt.Sprintf("10.1.0.%d:80", i), "", 100)
		e.Service = "many"
		all = append(all, e)
	}
	b := setup(t, all...)
	r := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, b.addr)
	}}
	ctx := context.Background()
	hosts, err := r.LookupHost(ctx, "web.default.instar.")
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"10.0.0.1", "2001:db8::2"}, hosts)
	_, records, err := r.LookupSRV(ctx, "web", "tcp", "a.zone.web.default.instar.")
	require.NoError(t, err)
	require.Equal(t, &net.SRV{Target: "i1.web.default.instar.", Port: 8080, Priority: 0, Weight: 100}, records[0])
	texts, err := r.LookupTXT(ctx, "i2.web.default.instar.")
	require.NoError(t, err)
	require.Equal(t, []string{`id=i2port.metrics=9100region=eu\west`}, texts)
	hosts, err = r.LookupHost(ctx, "many.instar.")
	require.NoError(t, err)
	require.Len(t, hosts, 200)
	_, err = r.LookupHost(ctx, "nobody.instar.")
	var gone *net.DNSError
	require.ErrorAs(t, err, &gone)
	require.True(t, gone.IsNotFound)
}

func TestBadFields(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	require.ErrorContains(t, (&nameserver.Server{}).Run(ctx), "Finder")
	require.ErrorContains(t, (&nameserver.Server{Finder: &book{}, TTL: time.Millisecond}).Run(ctx), "TTL")
	require.ErrorContains(t, (&nameserver.Server{Finder: &book{}, Domain: "."}).Run(ctx), "domain")
	require.ErrorContains(t, (&nameserver.Server{Finder: &book{}, Domain: "a..b"}).Run(ctx), "domain")
	b := setup(t)
	require.ErrorContains(t, (&nameserver.Server{Finder: &book{}, Address: b.addr}).Run(ctx), b.addr)
}
