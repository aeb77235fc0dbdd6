package model

// Conformance: the same random operations against the model and the embedded nats-server, through the same client, compared answer for answer. A run is many
// short sequences over few subjects, ids and consumers, so that things meet; each begins with streams of its own. The model goes first: it tells how many
// messages an operation delivers, which the server is then waited for. What is not determined is taken out of the answers (normal): times, and names that
// a server makes up. Sequences must be equal.
//
// The server does some things after it has answered: it counts what is pending for a consumer, and removes what it was told to. So an answer that only looks
// (info, names, reads) is asked for again for a while before it counts as different, and before a pull the consumer is looked at.

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
)

var (
	long = flag.Int("long", 1, "multiplies the operations of the conformance test")
	only = flag.Uint64("sequence", 0, "runs this sequence of the conformance test alone, and tells it")
)

// side is one of the two.
type side struct {
	name string
	nc   *nats.Conn
	in   chan *nats.Msg // what is delivered
	box  string         // to subjects that begin with this

	answers chan *nats.Msg // of the model
}

func newSide(t testing.TB, name string, s nats.InProcessConnProvider, o ...nats.Option) *side {
	t.Helper()
	nc, err := nats.Connect("", append(o, nats.InProcessServer(s), nats.Timeout(10*time.Second))...)
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	x := &side{name: name, nc: nc, in: make(chan *nats.Msg, 1<<16), box: "box."}
	_, err = nc.ChanSubscribe(x.box+">", x.in)
	require.NoError(t, err)
	x.answers = make(chan *nats.Msg, 16)
	_, err = nc.ChanSubscribe("answer.*", x.answers)
	require.NoError(t, err)
	for _, push := range []string{"push.c", "push.d"} {
		_, err = nc.ChanSubscribe(push, x.in)
		require.NoError(t, err)
	}
	require.NoError(t, nc.Flush())
	return x
}

// embeddedServer is the nats-server that the model is compared with.
func embeddedServer(t testing.TB) *server.Server {
	t.Helper()
	s, err := server.NewServer(&server.Options{DontListen: true, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true, ServerName: "model"})
	require.NoError(t, err)
	s.Start()
	require.True(t, s.ReadyForConnections(10*time.Second))
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	return s
}

// pair runs operations on both sides.
type pair struct {
	unled     bool // nobody has led a group of it, or answered, for too long: what differs counts for nothing
	t         testing.TB
	model     *side
	real      *side
	modelled  *Server
	servers   int      // of the other side; 0 is 1
	said      []string // of this sequence
	different string
}

func newPair(t testing.TB, late func() bool) *pair {
	t.Helper()
	m := New(Options{LateRoom: late})
	m.Auto(true)
	t.Cleanup(m.Close)
	return &pair{t: t, model: newSide(t, "model", m), real: newSide(t, "server", embeddedServer(t)), modelled: m}
}

func (p *pair) say(format string, args ...any) { p.said = append(p.said, fmt.Sprintf(format, args...)) }

// differ ends the sequence.
func (p *pair) differ(what, model, real string) bool {
	if model == real {
		return false
	}
	at := 0
	for at < min(len(model), len(real)) && model[at] == real[at] {
		at++
	}
	from := max(at-60, 0)
	p.different = fmt.Sprintf("%s\n  model:  …%.300s\n  server: …%.300s", what, model[from:], real[from:])
	return true
}

// ask sends a question to both and compares the answers. looks is that it changes nothing: the server may come to the answer later.
func (p *pair) ask(what string, m *nats.Msg, looks bool) (answer string) {
	if p.different != "" {
		return ""
	}
	p.say("%s %s %v %.300s", what, m.Subject, m.Header, m.Data)
	a, within := p.model.answer(m)
	b := p.real.request(m, within)
	for wait := 50 * time.Microsecond; looks && p.agreed(m.Subject, a) != p.agreed(m.Subject, b) && wait < time.Second; wait *= 2 {
		time.Sleep(wait)
		a, within = p.model.answer(m)
		b = p.real.request(m, within)
	}
	p.say("   %.600s", a)
	a, b = p.agreed(m.Subject, a), p.agreed(m.Subject, b)
	if p.differ(what, a, b) && p.servers > 1 && strings.Contains(b, nats.ErrTimeout.Error()) && *long == 1 { // on a busy machine they are late; -long is for a calm one, where what is not answered counts
		p.unled = true
	}
	return a
}

// agreed leaves out of an answer what several servers have not agreed about: where a new consumer stands, and whether one is counted that they refuse.
func (p *pair) agreed(subject, answer string) string {
	if p.servers <= 1 {
		return answer
	}
	if strings.Contains(subject, ".CONSUMER.CREATE.") {
		answer = replicating.ReplaceAllString(answer, "")
	}
	return counted.ReplaceAllString(answer, "")
}

var counted = regexp.MustCompile(`"consumer_count":\d+,`)

var replicating = regexp.MustCompile(`"(ack_floor|delivered)":{[^}]*},|"num_pending":\d+,`)

// answer is what the model answers at once, or never, and how long the server is to be waited for.
func (s *side) answer(m *nats.Msg) (string, time.Duration) {
	if err := s.nc.PublishMsg(&nats.Msg{Subject: m.Subject, Reply: "answer.1", Header: m.Header, Data: m.Data}); err != nil {
		return "error: " + err.Error(), 2 * time.Second
	}
	_ = s.nc.Flush()
	select {
	case r := <-s.answers:
		if len(r.Data) == 0 && r.Header.Get("Status") == "503" {
			return "error: " + nats.ErrNoResponders.Error(), 2 * time.Second
		}
		return normal(r), 2 * time.Second
	default:
		return "error: " + nats.ErrTimeout.Error(), 20 * time.Millisecond
	}
}

func (s *side) request(m *nats.Msg, within time.Duration) string {
	r, err := s.nc.RequestMsg(&nats.Msg{Subject: m.Subject, Header: m.Header, Data: m.Data}, within)
	if err != nil {
		return "error: " + err.Error()
	}
	return normal(r)
}

// send publishes without waiting for an answer of its own. to is where answers go, under the box; empty is nowhere.
func (p *pair) send(what, to string, model, real *nats.Msg) {
	if p.different != "" {
		return
	}
	p.say("%s %s %.200s", what, model.Subject, model.Data)
	for s, m := range map[*side]*nats.Msg{p.model: model, p.real: real} {
		reply := ""
		if to != "" {
			reply = s.box + to
		}
		if err := s.nc.PublishMsg(&nats.Msg{Subject: m.Subject, Reply: reply, Header: m.Header, Data: m.Data}); err != nil {
			p.t.Fatal(err)
		}
	}
	_ = p.model.nc.Flush()
}

// delivered is what an operation has caused to be delivered, on both sides.
type delivered struct{ model, real *nats.Msg }

// arrivals takes what is delivered, as many as the model delivers, and compares it.
func (p *pair) arrivals(what string) (all []delivered) {
	if p.different != "" {
		return nil
	}
	if err := p.model.nc.Flush(); err != nil {
		p.t.Fatal(err)
	}
	var model, real []*nats.Msg
	for len(p.model.in) > 0 {
		model = append(model, <-p.model.in)
	}
	for range model {
		real = append(real, p.real.next(time.Second))
	}
	byConsumer(model)
	byConsumer(real)
	for i, m := range model {
		p.say("   delivered %.300s", shown(m))
		a, b := shown(m), shown(real[i])
		if what == "publish" { // what is pending is counted before or after what the message has pushed out makes room
			a, b = ackLeft.ReplaceAllString(a, "$1.N"), ackLeft.ReplaceAllString(b, "$1.N")
		}
		if p.servers > 1 {
			a, b = ended.ReplaceAllString(a, "$1 the end"), ended.ReplaceAllString(b, "$1 the end")
		}
		if p.differ(what+", delivery", a, b) {
			return nil
		}
		all = append(all, delivered{m, real[i]})
	}
	return all
}

// ended is how a pull ends that has not got all that it wanted. On replicas, one that was given something before is told of a timeout or of the end of the stream, by whether the last
// delivery was known to them when the end was seen.
var ended = regexp.MustCompile(`^(\S+) reply  \{.*"Status":\["40[48]"\]\} $`)

// byConsumer orders deliveries by who has sent them; there is no order among several.
func byConsumer(all []*nats.Msg) {
	key := func(m *nats.Msg) string {
		if m == nil {
			return "~"
		}
		if t := strings.Split(m.Reply, "."); len(t) > 4 && t[0] == "$JS" {
			return t[2] + "." + t[3]
		}
		return m.Subject
	}
	slices.SortStableFunc(all, func(a, b *nats.Msg) int { return cmp.Compare(key(a), key(b)) })
}

// quiet compares whether something was delivered that the model did not deliver.
func (p *pair) quiet() {
	if p.different != "" {
		return
	}
	_ = p.real.nc.Flush()
	p.differ("nothing more is delivered", "nothing", shown(p.real.next(0)))
}

// next is what is delivered next, or nothing. That a leader leaves in order, which only several servers say to who waits, is left out: one of the model is gone.
func (s *side) next(within time.Duration) *nats.Msg {
	over := time.After(within)
	for {
		select {
		case m := <-s.in:
			if m.Header.Get("Description") != "Leadership Change" {
				return m
			}
			continue
		default:
		}
		select {
		case m := <-s.in:
			if m.Header.Get("Description") != "Leadership Change" {
				return m
			}
		case <-over:
			return nil
		}
	}
}

var ackTime = regexp.MustCompile(`(\$JS\.ACK\.[^.]+\.[^.]+\.\d+\.\d+\.\d+)\.\d+`)

var ackLeft = regexp.MustCompile(`(\$JS\.ACK\.[^.]+\.[^.]+\.\d+\.\d+\.\d+\.T)\.\d+`)

func shown(m *nats.Msg) string {
	if m == nil {
		return "nothing"
	}
	h, _ := json.Marshal(m.Header)
	reply := ackTime.ReplaceAllString(m.Reply, "$1.T")
	if strings.HasPrefix(reply, "$JS.FC.") {
		reply = reply[:strings.LastIndexByte(reply, '.')]
	}
	return fmt.Sprintf("%s reply %s %s %s", m.Subject, reply, clock.ReplaceAllString(ackTime.ReplaceAllString(string(h), "$1.T"), "TIME"), normalData(m.Data))
}

var clock = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)

// undetermined are fields that have a time, or something that was made up.
var undetermined = map[string]bool{"created": true, "ts": true, "first_ts": true, "last_ts": true, "time": true, "last_active": true, "pause_remaining": true, "id": true, "timestamp": true}

func normal(m *nats.Msg) string {
	if len(m.Header) > 0 {
		h, _ := json.Marshal(m.Header)
		return clock.ReplaceAllString(string(h), "TIME") + " " + normalData(m.Data)
	}
	return normalData(m.Data)
}

func normalData(data []byte) string {
	if len(data) == 0 || data[0] != '{' {
		return string(data)
	}
	var v any
	if json.Unmarshal(data, &v) != nil {
		return string(data)
	}
	b, _ := json.Marshal(strip(v))
	return string(b)
}

func strip(v any) any {
	switch v := v.(type) {
	case map[string]any:
		if v["messages"] == 0.0 { // the last time of a stream that begins later is now and then that of its creation
			v["last_ts"] = "*"
		}
		if v["messages"] == 0.0 && v["last_seq"] == 0.0 { // a file store that never had a message may say that 0 is deleted
			delete(v, "deleted")
			delete(v, "num_deleted")
		}
		delete(v, "cluster") // who leads what is left open
		for k, x := range v {
			if s, ok := x.(string); ok && k == "hdrs" { // in the order of a map
				raw, _ := base64.StdEncoding.DecodeString(s)
				lines := strings.Split(string(raw), "\r\n")
				slices.Sort(lines)
				v[k] = lines
				continue
			}
			if s, ok := x.(string); undetermined[k] && (!ok || s != "0001-01-01T00:00:00Z") {
				v[k] = "*"
				continue
			}
			v[k] = strip(x)
		}
	case []any:
		for i := range v {
			v[i] = strip(v[i])
		}
	}
	return v
}

// tries is how often a sequence is run that differs: a loop of the server that gets the processor later than usual sees what came meanwhile. So it is run alone then, and slower each time,
// and with other choices of what the server does beside each other.
const tries = 10

// lately says for each message of a try whether what it has pushed out makes room late: always in one, now and then in others.
func lately(n uint64, try int) func() bool {
	r := rand.New(rand.NewPCG(n, uint64(try)))
	return func() bool { return try == 1 || r.IntN(2) == 0 }
}

// alone runs a sequence, beside others or not.
func alone(others *sync.RWMutex, yes bool, run func() int) int {
	if yes {
		others.Lock()
		defer others.Unlock()
	} else {
		others.RLock()
		defer others.RUnlock()
	}
	return run()
}

// trying is how the sequences of a test are tried.
type trying struct {
	seed        uint64
	run         func(g *generator, try int) (operations int, unclear bool) // unclear: what differs, or does not, says nothing of the model
	late        func() bool                                                // then what is unclear is tried no more; nil is never
	done, again atomic.Uint64
}

// try runs a sequence until the sides are the same, each time on another pair. It returns the last one: nil where the sides differ to the end, or where another makes none.
func (s *trying) try(p *pair, n uint64, another func(late func() bool) *pair) *pair {
	for try := 1; p != nil; try++ {
		p.said, p.different, p.unled = nil, "", false
		g := &generator{p: p, r: rand.New(rand.NewPCG(s.seed, n)), n: n, rest: time.Duration(try-1) * 2 * time.Millisecond}
		operations, unclear := s.run(g, try)
		s.done.Add(uint64(operations))
		if *only > 0 {
			p.t.Log(strings.Join(p.said, "\n"))
		}
		switch {
		case p.different == "" && !unclear, unclear && (try == tries || s.late != nil && s.late()):
			return p
		case try == tries:
			p.t.Errorf("sequence %d of seed %d: %s\nafter\n%s", n, s.seed, p.different, strings.Join(last(p.said, 24), "\n"))
			return nil
		}
		s.again.Add(1)
		p.model.nc.Close()
		p.real.nc.Close() // or what waits is told that its consumer is gone
		p = another(lately(n, try))
	}
	return nil
}

// TestTheModelAnswersAsTheServer is the conformance test.
func TestTheModelAnswersAsTheServer(t *testing.T) {
	t.Parallel()
	sequences := uint64(2000 * *long)
	if testing.Short() || raced {
		sequences = 200
	}
	var next, different atomic.Uint64
	seed := uint64(1)
	if text := os.Getenv("SEED"); text != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		require.NoError(t, err)
		seed = n
	}
	began := time.Now()
	var workers sync.WaitGroup
	var others sync.RWMutex
	s := &trying{seed: seed, run: func(g *generator, try int) (int, bool) { return alone(&others, try > 1, g.run), false }}
	another := func(late func() bool) *pair { return newPair(t, late) }
	for range 4 {
		workers.Go(func() {
			p := another(nil)
			for {
				n := next.Add(1)
				if n > sequences || different.Load() > 5 || *only > 0 && n > 1 {
					return
				}
				n = cmp.Or(*only, n)
				if p = s.try(p, n, another); p == nil {
					different.Add(1)
					p = another(lately(n, tries))
				}
			}
		})
	}
	workers.Wait()
	t.Logf("%d operations in %d sequences, %d of them again, %s", s.done.Load(), min(next.Load()-1, sequences), s.again.Load(), time.Since(began).Round(time.Millisecond))
}

func last[T any](list []T, n int) []T { return list[max(len(list)-n, 0):] }
