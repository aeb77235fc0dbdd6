package model

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// generator makes the operations of one sequence.
type generator struct {
	p *pair
	r *rand.Rand
	n uint64

	rest time.Duration // between operations

	replicas int                 // of each stream; 3 leaves out what several servers leave open
	led      map[string][]string // who has led each stream and consumer until then
	until    time.Time           // no operation begins after that; zero is no bound
	over     bool                // it ends here

	streams   []*genStream
	unacked   []delivered
	consumers []string
	boxes     int
	batches   int
}

type genStream struct {
	name, root string
	config     map[string]any
	subjects   []string
}

func one[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// run is a sequence; it returns how many operations it had.
func (g *generator) run() int {
	g.create("A", fmt.Sprintf("a%d", g.n)) // what a sequence before has sent without waiting does not come into it
	if g.r.IntN(3) == 0 {
		g.create("B", fmt.Sprintf("b%d", g.n))
	}
	n, most := 2, 100
	if g.replicas > 1 { // whose streams take longer to make
		most = 200
	}
	for ; n < most && g.p.different == "" && !g.over && (g.until.IsZero() || time.Now().Before(g.until)); n++ {
		g.operation()
		time.Sleep(g.rest)
	}
	g.p.quiet()
	for _, s := range g.streams {
		g.api("STREAM.DELETE."+s.name, nil)
	}
	return n
}

func (g *generator) stream() *genStream { return one(g.r, g.streams...) }

func (g *generator) subject(s *genStream) string {
	return s.root + "." + one(g.r, "x", "y", "x.1", "x.2", "y.1")
}

func (g *generator) filter(s *genStream) string {
	return s.root + "." + one(g.r, "x", "y", "x.1", "x.*", "*", ">", "x.>", "*.1", "y.1", "z")
}

// configuration of a stream, with settings that have a meaning together, mostly.
func (g *generator) configuration(name, root string) map[string]any {
	r := g.r
	c := map[string]any{"name": name, "subjects": []string{root + ".>"}, "retention": one(r, "limits", "limits", "workqueue"), "storage": one(r, "memory", "memory", "file"), "discard": "old", "max_consumers": -1, "max_msgs": -1, "max_bytes": -1, "num_replicas": 1}
	set := func(of int, key string, value any) {
		if r.IntN(of) == 0 {
			c[key] = value
		}
	}
	set(3, "max_msgs_per_subject", one(r, 1, 1, 2))
	set(4, "max_msgs", one(r, 3, 6))
	set(8, "max_bytes", one(r, 600, 1200)) // a message that pushes itself out is counted by the server before or after that
	set(4, "discard", "new")
	set(8, "discard_new_per_subject", true)
	set(2, "allow_rollup_hdrs", true)
	set(8, "deny_delete", true)
	set(12, "deny_purge", true)
	set(2, "allow_atomic", true)
	set(2, "allow_batched", true)
	set(3, "allow_msg_schedules", true)
	set(2, "allow_msg_ttl", true)
	set(3, "allow_direct", true)
	set(6, "max_msg_size", 120)
	set(6, "duplicate_window", int64(time.Hour))
	set(10, "first_seq", 10)
	set(12, "no_ack", true)
	set(12, "max_age", int64(time.Hour))
	set(12, "description", "text")
	if g.replicas > 1 {
		c["num_replicas"] = g.replicas
		for _, k := range []string{"no_ack", "allow_direct", "allow_batched"} {
			delete(c, k)
		}
	}
	set(5, "republish", map[string]any{"src": root + ".>", "dest": "box.again." + root + ".>"})
	if r.IntN(4) == 0 {
		c["subject_transform"] = map[string]any{"src": root + ".x.*", "dest": root + ".in.{{partition(3,1)}}.{{wildcard(1)}}"}
	}
	return c
}

func (g *generator) create(name, root string) {
	c := g.configuration(name, root)
	answer := g.api("STREAM.CREATE."+name, c)
	if !strings.Contains(answer, `"error"`) {
		g.streams = append(g.streams, &genStream{name: name, root: root, config: c, subjects: []string{root + ".>"}})
		g.reach("STREAM.%s." + name)
	} else if len(g.streams) == 0 && g.p.different == "" {
		g.create(name, root)
	}
}

func (g *generator) api(verb string, body any) string {
	var data []byte
	if body != nil {
		data, _ = json.Marshal(body)
	}
	looks := strings.Contains(verb, "INFO") || strings.Contains(verb, "NAMES") || strings.Contains(verb, "LIST") || strings.Contains(verb, "MSG.GET") || strings.Contains(verb, "DIRECT")
	answer := g.p.ask("api", &nats.Msg{Subject: "$JS.API." + verb, Data: data}, looks)
	if !looks {
		g.taken(g.p.arrivals("after " + verb))
	}
	return answer
}

// taken notes deliveries that may be acked.
func (g *generator) taken(all []delivered) {
	for _, d := range all {
		if d.real != nil && strings.HasPrefix(d.model.Reply, "$JS.ACK.") {
			g.unacked = append(g.unacked, d)
		}
	}
}

func (g *generator) operation() {
	type weighted struct {
		n  int
		do func()
	}
	all := []weighted{
		{30, g.publish},
		{6, g.batch},
		{5, g.fast},
		{5, g.schedule},
		{6, g.purge},
		{6, g.read},
		{3, g.deleteMsg},
		{6, g.streamInfo},
		{2, g.updateStream},
		{2, g.lists},
		{6, g.createConsumer},
		{14, g.pull},
		{14, g.ack},
		{4, g.consumerInfo},
		{2, g.resetConsumer},
		{1, g.deleteConsumer},
		{1, g.nonsense},
		{1, g.recreate},
		{1, g.pause},
	}
	if g.replicas > 1 {
		all = []weighted{
			{30, g.publish},
			{8, g.batch},
			{6, g.schedule},
			{6, g.purge},
			{6, g.read},
			{3, g.deleteMsg},
			{6, g.streamInfo},
			{4, g.createConsumer},
			{14, g.pull},
			{14, g.ack},
			{4, g.consumerInfo},
			{2, g.resetConsumer},
			{1, g.deleteConsumer},
			{1, g.stepDown},
		}
	}
	sum := 0
	for _, w := range all {
		sum += w.n
	}
	x := g.r.IntN(sum)
	for _, w := range all {
		if x -= w.n; x < 0 {
			w.do()
			return
		}
	}
}

// sequence is one that may be right.
func (g *generator) sequence() string {
	return strconv.Itoa(g.r.IntN(12))
}

func (g *generator) headers(s *genStream) nats.Header {
	r := g.r
	h := nats.Header{}
	set := func(of int, key, value string) {
		if r.IntN(of) == 0 {
			h[key] = []string{value}
		}
	}
	set(4, "Nats-Msg-Id", one(r, "1", "2", "3"))
	set(12, "Nats-Expected-Last-Sequence", g.sequence())
	set(5, "Nats-Expected-Last-Subject-Sequence", one(r, "0", g.sequence(), g.sequence()))
	if h["Nats-Expected-Last-Subject-Sequence"] != nil || r.IntN(40) == 0 {
		set(2, "Nats-Expected-Last-Subject-Sequence-Subject", g.filter(s))
	}
	set(30, "Nats-Expected-Last-Msg-Id", one(r, "1", "2"))
	if g.replicas > 1 {
		delete(h, "Nats-Expected-Last-Msg-Id")
	}
	set(30, "Nats-Expected-Stream", one(r, "A", "B"))
	set(12, "Nats-TTL", one(r, "1h", "3600", "never", "500ms", "x", "0"))
	set(12, "Nats-Rollup", one(r, "sub", "sub", "all", "x", "SUB"))
	set(60, "Nats-Schedule-Next", one(r, "purge", "x"))
	set(60, "Nats-Scheduler", s.root+".s."+one(r, "1", "2"))
	set(80, "Nats-Stream-Source", "X 1")
	set(80, "Nats-Incr", "1")
	set(6, "Other", "text")
	return h
}

func (g *generator) body() []byte {
	return []byte(strings.Repeat("b", one(g.r, 0, 1, 5, 5, 5, 100, 200)))
}

func (g *generator) publish() {
	s := g.stream()
	m := &nats.Msg{Subject: g.subject(s), Header: g.headers(s), Data: g.body()}
	g.put(s, m)
}

// put publishes, and takes what is delivered because of it.
func (g *generator) put(s *genStream, m *nats.Msg) {
	if s.config["no_ack"] == true {
		g.p.send("publish", "ack", m, m)
		_ = g.p.real.nc.Flush()
		g.api("STREAM.INFO."+s.name, nil) // until it has come
	} else {
		g.p.ask("publish", m, false)
	}
	g.taken(g.p.arrivals("publish"))
}

func (g *generator) batch() {
	s := g.stream()
	g.batches++
	id := fmt.Sprintf("%d-%d", g.n, g.batches)
	n := 1 + g.r.IntN(4)
	for i := 1; i <= n && g.p.different == ""; i++ {
		m := &nats.Msg{Subject: g.subject(s), Header: g.headers(s), Data: g.body()}
		m.Header["Nats-Batch-Id"], m.Header["Nats-Batch-Sequence"] = []string{id}, []string{strconv.Itoa(i)}
		if g.r.IntN(40) == 0 {
			m.Header["Nats-Batch-Sequence"] = []string{one(g.r, "7", "x", "", "1")}
		}
		if i == n && g.r.IntN(12) > 0 {
			m.Header["Nats-Batch-Commit"] = []string{one(g.r, "1", "1", "1", "1", "eob", "x")}
		}
		g.put(s, m)
	}
}

// fast is a batch of fast ingest, with what may go wrong in one.
func (g *generator) fast() {
	s := g.stream()
	g.batches++
	r := g.r
	id, gap, flow := fmt.Sprintf("%d-%d", g.n, g.batches), one(r, "fail", "fail", "fail", "x"), one(r, "500", "2", "0")
	n := 1 + r.IntN(5)
	for i := 1; i <= n && g.p.different == ""; i++ {
		m := &nats.Msg{Subject: g.subject(s), Header: g.headers(s), Data: g.body()}
		if r.IntN(2) == 0 {
			m.Header = nats.Header{}
		}
		delete(m.Header, "Nats-Expected-Last-Msg-Id")   // with which a batch stands still
		delete(m.Header, "Nats-Expected-Last-Sequence") // which is compared with what an earlier batch has left behind
		op, at := "1", i
		if i == 1 {
			op = "0"
		}
		if i == n {
			op = one(r, "2", "2", "3", "1")
		}
		switch r.IntN(20) {
		case 0:
			at = one(r, 1, 3, 7)
		case 1:
			op = one(r, "4", "9", "x")
		}
		g.p.send("fast", fmt.Sprintf("f.%s.%s.%s.%d.%s.$FI", id, flow, gap, at, op), m, m)
		_ = g.p.real.nc.Flush()
		g.taken(g.p.arrivals("publish"))
		g.api("STREAM.INFO."+s.name, nil) // until it has come
	}
}

func (g *generator) schedule() {
	s := g.stream()
	h := g.headers(s)
	r := g.r
	h["Nats-Schedule"] = []string{one(r, "@at 2100-01-01T00:00:00Z", "@at 2100-01-01T00:00:00Z", "@at 2100-01-01T00:00:00.5+02:00", "@at x", "x")}
	if r.IntN(10) > 0 {
		h["Nats-Schedule-Target"] = []string{one(r, s.root+".due.1", s.root+".due.1", s.root+".x", s.root+".*", "other", s.root+".s.1")}
	}
	if r.IntN(6) == 0 {
		h["Nats-Schedule-TTL"] = []string{one(r, "1h", "x")}
	}
	if r.IntN(6) == 0 {
		h["Nats-Schedule-Rollup"] = []string{one(r, "sub", "all")}
	}
	if r.IntN(10) == 0 {
		h["Nats-Schedule-Source"] = []string{one(r, s.root+".x", "other", s.root+".due.1")}
	}
	m := &nats.Msg{Subject: s.root + ".s." + one(r, "1", "2"), Header: h, Data: g.body()}
	if r.IntN(4) == 0 { // cancel
		m = &nats.Msg{Subject: g.subject(s), Header: nats.Header{"Nats-Schedule-Next": {"purge"}, "Nats-Scheduler": {s.root + one(r, ".s.1", ".s.2", ".x", ".nothing")}}}
	}
	g.put(s, m)
}

func (g *generator) purge() {
	s := g.stream()
	r := g.r
	var body any
	switch r.IntN(8) {
	case 0:
	case 1:
		body = map[string]any{"seq": r.IntN(14)}
		if s.config["storage"] == "file" { // where nothing is left below the sequence nor above, the server (2.15.2) says that the stream begins where it did, with deleted messages; the program never does it
			body = nil
		}
	case 2:
		body = map[string]any{"keep": r.IntN(4)}
	case 3:
		body = map[string]any{"seq": r.IntN(14), "keep": r.IntN(4)}
	case 4:
		body = map[string]any{"filter": g.filter(s), "keep": r.IntN(3)}
	case 5, 6:
		body = map[string]any{"filter": g.filter(s), "seq": r.IntN(14)}
	case 7:
		body = map[string]any{"filter": g.filter(s)}
	}
	g.api("STREAM.PURGE."+s.name, body)
}

func (g *generator) read() {
	s := g.stream()
	r := g.r
	body := one(r,
		map[string]any{"last_by_subj": g.filter(s)}, map[string]any{"last_by_subj": g.subject(s)}, map[string]any{"seq": r.IntN(14)}, map[string]any{"seq": r.IntN(14), "next_by_subj": g.filter(s)},
		map[string]any{"next_by_subj": g.filter(s)}, map[string]any{}, map[string]any{"seq": 1, "last_by_subj": "x"}, map[string]any{"last_by_subj": g.filter(s), "no_hdr": true}, map[string]any{"unknown": 1})
	switch way := r.IntN(4); {
	case g.replicas > 1:
		g.api("STREAM.MSG.GET."+s.name, body)
	case way == 0:
		g.api("DIRECT.GET."+s.name, body)
	case way == 1:
		g.api("DIRECT.GET."+s.name+"."+g.filter(s), nil)
	default:
		g.api("STREAM.MSG.GET."+s.name, body)
	}
}

func (g *generator) deleteMsg() {
	g.api("STREAM.MSG.DELETE."+g.stream().name, map[string]any{"seq": g.r.IntN(14), "no_erase": g.r.IntN(2) == 0})
}

func (g *generator) streamInfo() {
	s := g.stream()
	body := map[string]any{}
	if g.r.IntN(2) == 0 {
		body["deleted_details"] = true
	}
	if g.r.IntN(2) == 0 {
		body["subjects_filter"] = g.filter(s)
		body["offset"] = one(g.r, 0, 0, 0, 1, 5)
	}
	g.api("STREAM.INFO."+s.name, body)
}

func (g *generator) updateStream() {
	s := g.stream()
	c := map[string]any{}
	for k, v := range s.config {
		c[k] = v
	}
	other := g.configuration(s.name, s.root)
	for range 1 + g.r.IntN(2) {
		k := one(g.r, "max_msgs", "max_msgs_per_subject", "discard", "max_bytes", "allow_rollup_hdrs", "deny_delete", "allow_msg_ttl", "allow_direct", "duplicate_window", "description", "storage", "retention", "max_msg_size")
		if v, ok := other[k]; ok {
			c[k] = v
		} else {
			delete(c, k)
		}
	}
	if answer := g.api("STREAM.UPDATE."+s.name, c); !strings.Contains(answer, `"error"`) {
		s.config = c
	}
}

func (g *generator) lists() {
	s := g.stream()
	switch g.r.IntN(6) {
	case 0:
		g.api("STREAM.NAMES", map[string]any{"subject": g.filter(s)})
	case 1:
		g.api("STREAM.NAMES", map[string]any{"offset": g.r.IntN(3)})
	case 2:
		g.api("STREAM.LIST", map[string]any{})
	case 3:
		g.api("CONSUMER.NAMES."+s.name, map[string]any{})
	case 4:
		g.api("CONSUMER.LIST."+s.name, map[string]any{})
	case 5:
		g.api("STREAM.INFO.NONE", nil)
	}
}

func (g *generator) createConsumer() {
	s := g.stream()
	r := g.r
	name := one(r, "c", "d")
	c := map[string]any{"durable_name": name, "name": name, "ack_policy": one(r, "explicit", "explicit", "explicit", "all", "none"), "deliver_policy": "all", "replay_policy": "instant"}
	set := func(of int, key string, value any) {
		if r.IntN(of) == 0 {
			c[key] = value
		}
	}
	switch r.IntN(3) {
	case 0:
		c["filter_subject"] = g.filter(s)
	case 1:
		c["filter_subjects"] = one(r, []string{g.filter(s), g.filter(s)}, []string{g.filter(s)})
	}
	switch r.IntN(8) {
	case 0:
		c["deliver_policy"] = "new"
	case 1:
		c["deliver_policy"] = "last"
	case 2:
		c["deliver_policy"] = "last_per_subject"
	case 3:
		c["deliver_policy"], c["opt_start_seq"] = "by_start_sequence", r.IntN(14)
	case 4:
		c["deliver_policy"], c["opt_start_time"] = "by_start_time", one(r, "2000-01-01T00:00:00Z", "2090-01-01T00:00:00Z")
	}
	c["ack_wait"] = int64(time.Hour)
	set(6, "max_deliver", one(r, 1, 2))
	set(4, "max_ack_pending", one(r, 1, 2))
	set(6, "headers_only", true)
	set(8, "max_waiting", 2)
	set(10, "max_batch", 2)
	set(8, "description", one(r, "one", "two"))
	set(8, "inactive_threshold", int64(time.Hour))
	set(10, "mem_storage", true)
	if r.IntN(4) == 0 {
		c["deliver_subject"] = one(r, "push."+name, "push."+name, "push."+name, "box.push."+name)
		set(2, "flow_control", true)
		set(2, "idle_heartbeat", int64(time.Hour))
		delete(c, "max_batch")
	}
	if r.IntN(10) == 0 {
		c["backoff"] = []int64{int64(time.Hour), 2 * int64(time.Hour)}
	}
	body := map[string]any{"stream_name": s.name, "config": c, "action": one(r, "", "", "create", "update")}
	if g.replicas > 1 {
		c["ack_policy"], body["action"] = "explicit", "create"
		for _, k := range []string{"deliver_subject", "flow_control", "idle_heartbeat", "mem_storage", "inactive_threshold"} {
			delete(c, k)
		}
		queue := s.config["retention"] == "workqueue"
		if queue {
			c["deliver_policy"] = "all"
			delete(c, "opt_start_seq")
			delete(c, "opt_start_time")
		}
		for _, other := range g.there(s) {
			if other == name || queue {
				g.api("CONSUMER.DELETE."+s.name+"."+other, nil)
				delete(g.led, "CONSUMER.%s."+s.name+"."+other)
			}
		}
	}
	verb := "CONSUMER.CREATE." + s.name + "." + name
	if f, ok := c["filter_subject"].(string); ok {
		verb += "." + f
	}
	if r.IntN(12) == 0 {
		verb = "CONSUMER.DURABLE.CREATE." + s.name + "." + name
	}
	answer := g.api(verb, body)
	if !strings.Contains(answer, `"error"`) {
		g.consumers = append(g.consumers, s.name+"."+name)
		g.reach("CONSUMER.%s." + s.name + "." + name)
		g.settle(s.name + "." + name)
	}
}

func (g *generator) consumer() string {
	if len(g.consumers) == 0 {
		return "A.c"
	}
	return one(g.r, g.consumers...)
}

func (g *generator) pull() {
	c := g.consumer()
	r := g.r
	g.api("CONSUMER.INFO."+c, nil) // until the server has counted
	g.boxes++
	body := map[string]any{"batch": 1 + r.IntN(4), "no_wait": true}
	if r.IntN(6) == 0 {
		body["max_bytes"] = one(r, 10, 120, 200, 1000)
	}
	if r.IntN(10) == 0 {
		body = map[string]any{"batch": 1 + r.IntN(3), "expires": int64(time.Hour)} // it waits for what comes
	}
	if r.IntN(30) == 0 {
		body["idle_heartbeat"] = int64(time.Hour)
	}
	data, _ := json.Marshal(body)
	m := &nats.Msg{Subject: "$JS.API.CONSUMER.MSG.NEXT." + c, Data: data}
	if r.IntN(12) == 0 {
		m.Data = []byte(one(r, "", "2", "x", "{"))
	}
	g.p.send("pull", "pull."+strconv.Itoa(g.boxes), m, m)
	got := g.p.arrivals("pull")
	g.taken(got)
	if len(got) == 0 || got[len(got)-1].model.Header.Get("Status") == "" { // it may wait, and be served by two goroutines of the server one after the other
		g.settle(c)
	}
}

func (g *generator) ack() {
	if len(g.unacked) == 0 {
		g.pull()
		return
	}
	i := g.r.IntN(len(g.unacked))
	d := g.unacked[i]
	if g.r.IntN(8) > 0 {
		g.unacked = append(g.unacked[:i], g.unacked[i+1:]...)
	}
	body := []byte(one(g.r, "", "+ACK", "+ACK", "+ACK", "-NAK", "-NAK", "+WPI", "+TERM", "+TERM why", `-NAK {"delay": 3600000000000}`, "+NXT", `+NXT {"batch":2,"no_wait":true}`, "x"))
	if g.p.different != "" {
		return
	}
	next := strings.HasPrefix(string(body), "+NXT")
	if next || g.r.IntN(12) == 0 {
		if next {
			g.api("CONSUMER.INFO."+strings.Join(strings.Split(d.model.Reply, ".")[2:4], "."), nil)
		}
		g.boxes++
		to := ""
		if next {
			to = "pull." + strconv.Itoa(g.boxes)
		}
		g.p.send("ack "+string(body), to, &nats.Msg{Subject: d.model.Reply, Data: body}, &nats.Msg{Subject: d.real.Reply, Data: body})
		g.taken(g.p.arrivals("ack"))
		g.api("CONSUMER.INFO."+strings.Join(strings.Split(d.model.Reply, ".")[2:4], "."), nil)
		return
	}
	g.p.say("ack %s %s", d.model.Reply, body)
	a, within := g.p.model.answer(&nats.Msg{Subject: d.model.Reply, Data: body})
	b := g.p.real.request(&nats.Msg{Subject: d.real.Reply, Data: body}, within)
	g.p.differ("ack "+string(body), a, b)
	g.taken(g.p.arrivals("ack"))
}

func (g *generator) consumerInfo() { g.api("CONSUMER.INFO."+g.consumer(), nil) }

func (g *generator) resetConsumer() {
	var body any
	c := g.consumer()
	g.api("CONSUMER.INFO."+c, nil)
	info := g.api("STREAM.INFO."+c[:1], nil)
	if g.replicas > 1 && strings.Contains(info, `"retention":"workqueue"`) {
		info = "" // it would give up what lies before, and when, is left to the next leader
	}
	if _, rest, ok := strings.Cut(info, `"last_seq":`); ok && g.r.IntN(2) == 0 {
		end, _, _ := strings.Cut(rest, ",")
		last, _ := strconv.Atoi(end)
		body = map[string]any{"seq": g.r.IntN(last + 2)}
	}
	g.api("CONSUMER.RESET."+c, body)
	g.settle(c)
}

// settle waits until the loop of a consumer has come to its end.
func (g *generator) settle(c string) {
	if g.p.different == "" {
		g.api("CONSUMER.INFO."+c, nil)
		time.Sleep(500 * time.Microsecond)
	}
}

func (g *generator) deleteConsumer() { g.api("CONSUMER.DELETE."+g.consumer(), nil) }

func (g *generator) pause() {
	g.api("CONSUMER.PAUSE."+g.consumer(), map[string]any{"pause_until": one(g.r, "2100-01-01T00:00:00Z", "0001-01-01T00:00:00Z", "2000-01-01T00:00:00Z")})
}

func (g *generator) nonsense() {
	s := g.stream()
	g.api(one(g.r, "STREAM.CREATE."+s.name, "STREAM.UPDATE.NONE", "STREAM.X", "X", "STREAM.PURGE.NONE", "STREAM.DELETE.NONE", "CONSUMER.CREATE."+s.name+".e", "CONSUMER.INFO."+s.name+".none", "CONSUMER.DELETE."+s.name+".none",
		"CONSUMER.MSG.NEXT."+s.name+".none", "STREAM.MSG.GET.NONE", "STREAM.MSG.DELETE."+s.name, "DIRECT.GET.NONE"), one[any](g.r, nil, map[string]any{}, map[string]any{"x": 1}, []int{1}, "text", s.config))
}

func (g *generator) recreate() {
	s := g.stream()
	// What was refused without an answer may still be on its way, and fit the new one; and the server finds messages of the old one again in a stream in
	// files that is made at once.
	if s.config["no_ack"] == true || s.config["storage"] == "file" {
		return
	}
	g.api("STREAM.DELETE."+s.name, nil)
	g.api("STREAM.CREATE."+s.name, s.config)
	g.consumers, g.unacked = nil, nil
}
