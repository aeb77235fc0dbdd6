package model

// Conformance in time: ack waits, delays, windows, lives, schedules and the ends of pulls and of consumers that nobody uses. Both servers run in one bubble, so
// hours cost nothing. What the server does at a time of its own within a quarter of a second, or a second, is looked at after that.

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats-server/v2/server/ats"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
)

func TestTheModelKeepsTimeAsTheServer(t *testing.T) {
	ats.Register() // its clock would belong to a bubble
	t.Cleanup(ats.Unregister)
	for n := range 40 {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				p := newPair(t, nil)
				g := &timed{p: p, r: rand.New(rand.NewPCG(7, uint64(n)))}
				g.run()
				require.Empty(t, p.different, "after\n%s", strings.Join(last(p.said, 30), "\n"))
			})
		})
	}
}

// timed makes operations that time has a part in.
type timed struct {
	p       *pair
	r       *rand.Rand
	unacked []delivered
	boxes   int
}

func (g *timed) api(verb string, body any, looks bool) string {
	var data []byte
	if body != nil {
		data, _ = json.Marshal(body)
	}
	return g.p.ask("api", &nats.Msg{Subject: "$JS.API." + verb, Data: data}, looks)
}

func (g *timed) run() {
	r := g.r
	storage := one(r, "memory", "file")
	g.api("STREAM.CREATE.L", map[string]any{
		"name": "L", "subjects": []string{"l.>"}, "retention": "limits", "storage": storage, "discard": "old", "max_consumers": -1, "max_msgs": -1, "max_bytes": -1, "num_replicas": 1,
		"allow_msg_ttl": true, "allow_msg_schedules": true, "allow_rollup_hdrs": true, "allow_atomic": true, "duplicate_window": int64(time.Minute),
	}, false)
	g.api("STREAM.CREATE.Q", map[string]any{
		"name": "Q", "subjects": []string{"q.>"}, "retention": "workqueue", "storage": storage, "discard": "old", "max_consumers": -1, "max_msgs": -1, "max_bytes": -1, "num_replicas": 1,
		"allow_msg_schedules": true, "allow_rollup_hdrs": true, "duplicate_window": int64(10 * time.Second),
	}, false)
	for _, s := range []string{"L", "Q"} {
		c := map[string]any{"durable_name": "c", "name": "c", "ack_policy": "explicit", "deliver_policy": "all", "replay_policy": "instant", "ack_wait": int64(30 * time.Second), "filter_subject": strings.ToLower(s) + ".x"}
		g.api("CONSUMER.CREATE."+s+".c."+strings.ToLower(s)+".x", map[string]any{"stream_name": s, "config": c}, false)
	}
	for range 60 {
		if g.p.different != "" {
			return
		}
		g.operation()
		g.settle()
	}
}

func (g *timed) settle() {
	synctest.Wait()
	g.unacked = append(g.unacked, g.p.arrivals("time")...)
	g.p.quiet()
}

func (g *timed) operation() {
	r := g.r
	s := one(r, "L", "Q")
	root := strings.ToLower(s)
	switch r.IntN(11) {
	case 0, 1, 2:
		h := nats.Header{}
		if r.IntN(2) == 0 {
			h["Nats-Msg-Id"] = []string{one(r, "1", "2", "3")}
		}
		if s == "L" && r.IntN(3) == 0 {
			h["Nats-TTL"] = []string{one(r, "5s", "30s", "1h")}
		}
		g.p.ask("publish", &nats.Msg{Subject: root + "." + one(r, "x", "y"), Header: h, Data: []byte("b")}, false)
	case 3:
		at := time.Now().Add(time.Duration(r.IntN(60))*time.Second + 300*time.Millisecond).UTC().Format(time.RFC3339Nano)
		h := nats.Header{"Nats-Schedule": {"@at " + at}, "Nats-Schedule-Target": {root + ".x"}}
		if r.IntN(3) == 0 {
			h["Nats-Schedule-Rollup"] = []string{"sub"}
		}
		g.p.ask("publish", &nats.Msg{Subject: root + ".s." + one(r, "1", "2"), Header: h, Data: []byte("s")}, false)
	case 4, 5:
		g.boxes++
		body := map[string]any{"batch": 1 + r.IntN(3), "expires": int64(one(r, 2, 20, 100)) * int64(time.Second)}
		if r.IntN(3) == 0 {
			body["idle_heartbeat"] = int64(time.Second)
		}
		data, _ := json.Marshal(body)
		m := &nats.Msg{Subject: "$JS.API.CONSUMER.MSG.NEXT." + s + ".c", Data: data}
		g.p.send("pull", fmt.Sprint("pull.", g.boxes), m, m)
	case 6, 7:
		g.ack()
	case 8:
		g.api("STREAM.INFO."+s, map[string]any{"subjects_filter": ">", "deleted_details": true}, true)
		g.api("CONSUMER.INFO."+s+".c", nil, true)
	default:
		d := time.Duration(one(r, 1, 3, 11, 31, 61, 600)) * time.Second
		g.p.say("%s pass", d)
		time.Sleep(d + 777*time.Millisecond)
	}
}

func (g *timed) ack() {
	for len(g.unacked) > 0 {
		d := g.unacked[0]
		g.unacked = g.unacked[1:]
		if !strings.HasPrefix(d.model.Reply, "$JS.ACK.") {
			continue
		}
		body := []byte(one(g.r, "+ACK", "-NAK", "+WPI", "+TERM", `-NAK {"delay": 15000000000}`))
		g.p.say("ack %s %s", d.model.Reply, body)
		g.p.send("ack", "", &nats.Msg{Subject: d.model.Reply, Data: body}, &nats.Msg{Subject: d.real.Reply, Data: body})
		return
	}
}
