package engine

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"

	"github.com/bcc94042/instar/torture/internal/check"
	"github.com/bcc94042/instar/torture/internal/load"
	"github.com/bcc94042/instar/torture/internal/part"
	"github.com/bcc94042/instar/torture/internal/rig"
)

// patient is a deadline that no run lives to see.
const patient = time.Hour

// Gateways has some services at a gateway that never answers, some at one that always fails, and some at one that answers when
// nobody waits any more, and sends every result of all of them again, under other ids. The others go on, deadlines hold, and
// what hangs can be deleted.
func Gateways(t *part.T) error {
	i, err := t.Serving("data", "", append([]string{"--durability", "interval"}, Restless...)...)
	if err != nil {
		return err
	}
	r, err := t.Reader(i.NATSURL())
	if err != nil {
		return err
	}
	var doubled atomic.Int64
	stop, err := again(r.NC(), &doubled)
	if err != nil {
		return err
	}
	journal := &load.Journal{}
	crowd := &load.Crowd{Name: "c", Clients: 4, Entities: 20, Bases: []string{"http://" + i.HTTP}, NATS: i.NATSURL(), Seed: t.Seed, Think: 100 * time.Millisecond, Journal: journal}
	if err := crowd.Start(t.Ctx); err != nil {
		return err
	}
	g := &stuck{T: t, client: &load.Client{Name: "g", Bases: []string{"http://" + i.HTTP}, Journal: journal, Rand: rand.New(rand.NewPCG(t.Seed, 4))}, deadlines: map[string]time.Duration{}}
	err = g.all()
	crowd.Finish(30 * time.Second)
	stop()
	if err != nil {
		return err
	}
	// What hangs holds its place until the time of its effect, a minute, is over.
	err = t.SettleAndJudge(r, journal, 2*time.Minute, func(h *check.History) {
		h.Deadlines = g.deadlines
	})
	t.Say("%d results were sent again", doubled.Load())
	return err
}

// again sends every result again, twice, under ids that the stream has not seen, until stop.
func again(nc *nats.Conn, count *atomic.Int64) (stop func(), err error) {
	const mark = "/twice-"
	var late sync.WaitGroup
	sub, err := nc.Subscribe("instar.cmd."+check.Machine+".>", func(m *nats.Msg) {
		id := m.Header.Get(nats.MsgIdHdr)
		switch command := m.Subject[strings.LastIndexByte(m.Subject, '.')+1:]; {
		case strings.Contains(id, mark):
			return
		case command != "applied" && command != "failed" && command != "delete-accepted":
			return
		}
		tokens := strings.Split(m.Subject, ".")
		for n := range 2 {
			late.Go(func() {
				time.Sleep(time.Duration(n) * time.Second)
				twice := &nats.Msg{Subject: m.Subject, Data: m.Data, Header: nats.Header{}}
				for k, v := range m.Header {
					twice.Header[k] = v
				}
				twice.Header[nats.MsgIdHdr] = []string{tokens[2] + "/" + tokens[3] + "." + tokens[4] + mark + nuid.Next()}
				if nc.PublishMsg(twice) == nil {
					count.Add(1)
				}
			})
		}
	})
	if err != nil {
		return nil, err
	}
	return func() { _ = sub.Unsubscribe(); late.Wait() }, nil
}

// stuck is services at gateways that are no good.
type stuck struct {
	*part.T
	client    *load.Client
	deadlines map[string]time.Duration // that must be noticed
}

func (g *stuck) all() error {
	for n := range 4 {
		g.client.Create(g.Ctx, fmt.Sprint("hangs-", n), "sim:ok?answer=1h", 8*time.Second)
		g.client.Create(g.Ctx, fmt.Sprint("fails-", n), "sim:down", 8*time.Second)
		g.deadlines[load.Key(fmt.Sprint("hangs-", n))] = 8 * time.Second
		g.deadlines[load.Key(fmt.Sprint("fails-", n))] = 8 * time.Second
		g.client.Create(g.Ctx, fmt.Sprint("late-", n), "sim:ok?answer=5s", patient)
		g.client.Create(g.Ctx, fmt.Sprint("later-", n), "sim:ok?answer=12s", 8*time.Second)
	}
	for n := range 2 {
		g.client.Create(g.Ctx, fmt.Sprint("taken-", n), "sim:ok?answer=1h", patient)
	}
	if err := g.goOn("others", 30*time.Second); err != nil {
		return err
	}
	for n := range 2 { // cancelled while the gateway has it
		g.client.Do(g.Ctx, fmt.Sprint("taken-", n), "delete", nil, 0)
		if err := g.becomes(fmt.Sprint("taken-", n), "DELETED", 30*time.Second); err != nil {
			return err
		}
	}
	for n := range 4 {
		for _, kind := range []string{"late-", "later-"} { // the second one failed by its deadline, and is mended when it converges
			if err := g.becomes(fmt.Sprint(kind, n), "READY", time.Minute); err != nil {
				return err
			}
		}
	}
	if !g.Long {
		return nil
	}
	for n := range 20 { // more than are done at once: those behind them wait until the time of an effect is over
		g.client.Create(g.Ctx, fmt.Sprint("many-", n), "sim:ok?answer=1h", 5*time.Second)
		g.deadlines[load.Key(fmt.Sprint("many-", n))] = 5 * time.Second
	}
	return g.goOn("behind many", 3*time.Minute)
}

// goOn makes services at a gateway that is well.
func (g *stuck) goOn(name string, most time.Duration) error {
	began := time.Now()
	id := strings.ReplaceAll(name, " ", "-")
	for n := range 5 {
		g.client.Create(g.Ctx, fmt.Sprint(id, "-", n), "sim:ok", patient)
	}
	for n := range 5 {
		if err := g.becomes(fmt.Sprint(id, "-", n), "READY", most); err != nil {
			return err
		}
	}
	g.Say("%s: beside gateways that hang, five services were ready in %s", name, part.Since(began))
	return nil
}

func (g *stuck) becomes(id, state string, most time.Duration) error {
	var v load.View
	err := rig.Until(g.Ctx, most, id+" is "+state, func() (ok bool) {
		v, _ = g.client.Get(g.Ctx, id) // asked again
		return v.State == state
	})
	if err != nil && g.Ctx.Err() == nil {
		g.Violations++
		g.Say("VIOLATION gateways: %v, but %s", err, v.State)
		return nil
	}
	return err
}
