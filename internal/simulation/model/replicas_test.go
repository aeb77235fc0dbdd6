package model

// Conformance with three servers: what the program does to streams with replicas, on the model with replicas and on a cluster of nats-servers in this process, answer for answer. The
// operations are those of one server (generate_test.go) that replication may change: publishes under conditions, batches, schedules, reads by the leader, consumers with acks and what they
// deliver again, purges, and between them other leaders. Left out is what the program never does to such a stream, or what several servers leave open:
//
//   - Updates of streams and of consumers: they are answered before or after the leader has them.
//   - Requests of no form: the member that gets one refuses some by itself, and leaves others to the leader.
//   - Push consumers, policies of acks other than explicit, fast ingest, reads from replicas: the program has none of these on a stream with replicas.
//   - Consumers that are refused on a work queue: one that the leader refuses is in the way of the next one of its name or filters for a time.
//   - Resets of a consumer on a work queue to a sequence: the next leader of the stream takes out what lies before.
//   - The expected last id of a message, which replicas look at after they have agreed about it. On nats-server 2.15.2 the next publish was not answered, again and again, in one sequence.
//   - A leader that comes back: it has what it saved by itself after a purge, the others do not, and the model does not tell members apart.
//   - What the answer to a new consumer says of where it stands, since its servers have not agreed about it, and whether a pull ends with a timeout or the end of the stream (agreed, ended).
//
// A leader of the model is gone, with those of the consumers of its stream; so all of them are made to step down, and what they say in parting to those who wait is not compared.

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
)

// worlds are accounts of the cluster, each with streams of its own: so many sequences run beside each other, which wait most of the time.
const worlds = 8

// cluster starts three servers, which end with the test. Under the race detector they are so late that little can be compared.
func cluster(t testing.TB) []*server.Server {
	t.Helper()
	if raced {
		t.Skip("compared without the race detector")
	}
	accounts := ""
	for i := range worlds {
		accounts += fmt.Sprintf("W%d { jetstream: enabled, users: [{user: w%[1]d, password: w}] }\n", i)
	}
	var routes []string
	var ports []net.Listener
	for range 3 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		ports = append(ports, l)
		routes = append(routes, "nats://"+l.Addr().String())
	}
	var all []*server.Server
	for i, l := range ports {
		o := &server.Options{}
		require.NoError(t, o.ProcessConfigString("accounts {\n"+accounts+"}\n"))
		o.Host, o.Port, o.JetStream, o.StoreDir, o.NoSigs, o.NoLog, o.ServerName = "127.0.0.1", -1, true, t.TempDir(), true, true, fmt.Sprint("model-", i)
		o.Cluster = server.ClusterOpts{Name: "model", Host: "127.0.0.1", Port: l.Addr().(*net.TCPAddr).Port, NoAdvertise: true}
		o.Routes = server.RoutesFromStr(strings.Join(routes, ","))
		require.NoError(t, l.Close())
		s, err := server.NewServer(o)
		require.NoError(t, err)
		all = append(all, s)
		t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	}
	for _, s := range all {
		s.Start()
	}
	return all
}

// patience is how long a cluster may be without a leader. After it nothing is compared: that says something of the machine, and nothing of the model.
const patience = 30 * time.Second

// within asks again until ok, for as long as patience is.
func within(ok func() bool) bool {
	for end := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

// newReplicated is a pair whose other side is a world of the cluster, without streams; nil where the cluster has no leader.
func newReplicated(t testing.TB, all []*server.Server, world int, late func() bool) *pair {
	t.Helper()
	as := nats.UserInfo(fmt.Sprint("w", world), "w")
	nc, err := nats.Connect("", nats.InProcessServer(all[0]), as)
	require.NoError(t, err)
	defer nc.Close()
	cleaner := &side{nc: nc}
	if !within(func() bool {
		for _, name := range []string{"A", "B", "F"} {
			if a := cleaner.request(&nats.Msg{Subject: "$JS.API.STREAM.DELETE." + name}, 5*time.Second); !strings.Contains(a, "success") && !strings.Contains(a, "10059") {
				return false
			}
		}
		return true
	}) {
		return nil
	}
	m := New(Options{Replicas: 3, LateRoom: late})
	m.Auto(true)
	t.Cleanup(m.Close)
	return &pair{t: t, model: newSide(t, "model", m), real: newSide(t, "servers", all[0], as), modelled: m, servers: len(all)}
}

// leads asks who leads a group: a stream, or a consumer. Nobody is an empty name.
func (g *generator) leads(of string) string {
	var r struct{ Cluster struct{ Leader string } }
	m, err := g.p.real.nc.Request("$JS.API."+fmt.Sprintf(of, "INFO"), nil, time.Second)
	if err != nil || json.Unmarshal(m.Data, &r) != nil {
		return ""
	}
	return r.Cluster.Leader
}

// reach waits until the server that is asked knows where the leader of a group is: it is told so after who has made the group is.
func (g *generator) reach(of string) {
	if g.replicas <= 1 || g.p.different != "" {
		return
	}
	kind, name, _ := strings.Cut(of, ".%s.")
	m, refused := &nats.Msg{Subject: "$JS.API.CONSUMER.MSG.NEXT." + name, Data: []byte("{")}, "400"
	if kind == "STREAM" {
		at := slices.IndexFunc(g.streams, func(s *genStream) bool { return s.name == name })
		m, refused = &nats.Msg{Subject: g.streams[at].root + ".x", Header: nats.Header{"Nats-Expected-Stream": {"none"}}}, "10060"
	}
	if !within(func() bool { return strings.Contains(g.p.real.request(m, 50*time.Millisecond), refused) }) {
		g.over, g.p.unled = true, true
	}
}

// stepDown gives a stream another leader, and its consumers: for each one that has not led it before, since who comes back has what it saved by itself.
func (g *generator) stepDown() {
	s := g.stream()
	groups := []string{"STREAM.%s." + s.name}
	for _, c := range g.there(s) {
		groups = append(groups, "CONSUMER.%s."+s.name+"."+c)
	}
	if g.p.different != "" || slices.ContainsFunc(groups, func(of string) bool { return len(g.led[of]) > 1 }) {
		return
	}
	g.p.say("%s gets another leader", s.name)
	g.p.modelled.LoseLeader(s.name)
	g.p.modelled.Elect(s.name)
	for _, of := range groups {
		if !g.pass(of) {
			g.over = true
			return
		}
	}
	for _, of := range groups {
		g.reach(of)
		g.api(fmt.Sprintf(of, "INFO"), nil)
	}
}

// pass has a group led by a member that has not led it. It is false where none of these will: a busy machine may elect another one again and again.
func (g *generator) pass(of string) bool {
	led := append(g.led[of], g.leads(of))
	g.led[of] = led
	next := "model-0"
	for i := 0; slices.Contains(led, next); i++ {
		next = fmt.Sprint("model-", i)
	}
	request := &nats.Msg{Subject: "$JS.API." + fmt.Sprintf(of, "LEADER.STEPDOWN"), Data: fmt.Appendf(nil, `{"placement":{"preferred":%q}}`, next)}
	for end := time.Now().Add(15 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		switch l := g.leads(of); {
		case l == "":
		case slices.Contains(led, l):
			g.p.real.request(request, 5*time.Second)
		default:
			return true
		}
	}
	return false
}

// there are the consumers of a stream.
func (g *generator) there(s *genStream) []string {
	var r struct{ Consumers []string }
	m, err := g.p.model.nc.Request("$JS.API.CONSUMER.NAMES."+s.name, nil, time.Second)
	require.NoError(g.p.t, err)
	require.NoError(g.p.t, json.Unmarshal(m.Data, &r))
	return r.Consumers
}

// TestTheModelAnswersAsThreeServers is the conformance test of streams with replicas.
func TestTheModelAnswersAsThreeServers(t *testing.T) {
	t.Parallel()
	sequences := uint64(60 * *long) // of 200 operations
	if testing.Short() {
		sequences = 4
	}
	all := cluster(t)
	var next atomic.Uint64
	next.Store(max(*only, 1) - 1)
	began, until := time.Now(), time.Time{}
	if *long == 1 {
		until = began.Add(25 * time.Second)
	}
	s := &trying{seed: 3, run: func(g *generator, try int) (int, bool) {
		g.replicas, g.led = 3, map[string][]string{}
		if try == 1 {
			g.until = until // what is tried again is tried whole: else nothing that differs late would ever count
		}
		n := g.run()
		return n, g.p.unled || try > 1 && g.over
	}, late: func() bool { return !until.IsZero() && time.Now().After(until) }}
	var workers sync.WaitGroup
	for world := range worlds {
		another := func(late func() bool) *pair { return newReplicated(t, all, world, late) }
		workers.Go(func() {
			p := another(nil)
			for p != nil && !t.Failed() && (until.IsZero() || time.Now().Before(until)) {
				n := next.Add(1)
				if n > max(sequences, *only) || *only > 0 && n > *only {
					return
				}
				p = s.try(p, n, another)
			}
		})
	}
	workers.Wait()
	if s.done.Load() == 0 {
		t.Skip("the servers have agreed about no leader: nothing was compared")
	}
	t.Logf("%d operations in %d sequences, %d of them again, %s", s.done.Load(), next.Load(), s.again.Load(), time.Since(began).Round(time.Millisecond))
}

// replicatedFacts are what the model had wrong of streams with replicas.
var replicatedFacts = []struct {
	fact string
	run  func(f *facter)
}{
	{"replicas know what a new consumer skips, and not that it is as good as acked", func(f *facter) {
		f.stream("limits", nil)
		f.publish("f.x", nil)
		f.publish("f.y", nil)
		f.consumer(map[string]any{"deliver_policy": "new"})
	}},
	{"a consumer that finds nothing more tells its replicas up to where", func(f *facter) {
		f.stream("limits", nil)
		f.consumer(map[string]any{"filter_subject": "f.x"})
		f.publish("f.y", nil)
		f.publish("f.z", nil)
		f.pull(1, time.Hour)
		f.publish("f.y", nil)
	}},
	{"a new leader of a consumer from which nothing waits for an ack keeps its floor, which a reset goes back to", func(f *facter) {
		f.stream("limits", nil)
		f.publish("f.x", nil)
		f.consumer(map[string]any{"deliver_policy": "new"})
		f.lead()
		f.api("CONSUMER.RESET.F.c", nil)
		f.info()
	}},
	{"what a purge moves the floor of a consumer to is known to its leader, and to no other member", func(f *facter) {
		f.stream("limits", nil)
		f.consumer(nil)
		f.publish("f.x", nil)
		f.api("STREAM.PURGE.F", nil)
		f.info()
		f.lead()
		f.info()
	}},
	{"a purge of everything is one up to the last message, which leaves an empty stream in memory as it was", func(f *facter) {
		f.stream("limits", nil)
		f.api("STREAM.PURGE.F", map[string]any{})
		f.api("STREAM.INFO.F", nil)
	}},
	{"a command whose id was seen is told so before what it expects is checked", func(f *facter) {
		f.stream("limits", nil)
		h := nats.Header{"Nats-Msg-Id": {"1"}, "Nats-Expected-Last-Subject-Sequence": {"0"}}
		f.publish("f.x", h)
		f.publish("f.x", h)
	}},
}

// group is a generator that knows the stream of a facter, and where its leaders are.
func (f *facter) group() *generator {
	return &generator{p: f.p, replicas: f.p.servers, led: map[string][]string{}, r: rand.New(rand.NewPCG(0, 0)), streams: []*genStream{{name: "F", root: "f"}}}
}

// lead gives the stream and its consumer another leader.
func (f *facter) lead() { f.group().stepDown() }

func TestWhatTheModelHadWrongOfReplicas(t *testing.T) {
	t.Parallel()
	all := cluster(t)
	for _, c := range replicatedFacts {
		t.Run(c.fact, func(t *testing.T) {
			different, unled := "not tried", false
			for try := 0; try < tries && (different != "" || unled); try++ {
				f := &facter{p: newReplicated(t, all, 0, nil)}
				if f.p == nil {
					t.Skip("the servers have agreed about no leader")
				}
				c.run(f)
				f.p.quiet()
				different, unled = f.p.different, f.p.unled
				f.p.real.nc.Close()
			}
			if unled {
				t.Skip("the servers have agreed about no leader")
			}
			require.Empty(t, different)
		})
	}
}
