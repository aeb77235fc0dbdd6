package cluster

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"syscall"
	"time"

	"github.com/bcc94042/instar/internal/wait"
	"github.com/bcc94042/instar/torture/internal/check"
	"github.com/bcc94042/instar/torture/internal/engine"
	"github.com/bcc94042/instar/torture/internal/load"
	"github.com/bcc94042/instar/torture/internal/part"
	"github.com/bcc94042/instar/torture/internal/rig"
)

// trio is three nodes in a cluster, and clients of all of them.
type trio struct {
	*part.T
	*rig.Cluster
	journal *load.Journal
	crowd   *load.Crowd
	figures map[string]part.Times
}

// The aims: how long it may take until the others have taken a dead node's partitions.
const (
	aim        = 5 * time.Second
	aimLeaders = 10 * time.Second // when it led streams, whose elections take 2 to 4.5 s, and again where a vote is split
)

func newTrio(t *part.T, hosts []string, prepare func(*rig.Cluster)) (*trio, error) {
	c, err := rig.NewCluster(t.Bin, t.Dir, hosts, append([]string{"--durability", "interval"}, engine.Restless...)...)
	if err != nil {
		return nil, err
	}
	if prepare != nil {
		prepare(c)
	}
	x := &trio{T: t, Cluster: c, journal: &load.Journal{}, figures: map[string]part.Times{}}
	began := time.Now()
	for _, i := range c.Instars {
		t.OnEnd(func() {
			if i.Process != nil {
				i.Kill()
			}
		})
		if err := i.Start(""); err != nil {
			return nil, err
		}
	}
	if err := x.shared(60 * time.Second); err != nil {
		return nil, err
	}
	t.Say("the first start of three nodes took %s", part.Since(began))
	return x, nil
}

// load lets the clients go; they use the given nodes.
func (x *trio) load(nodes ...*rig.Instar) error {
	var bases []string
	for _, i := range nodes {
		bases = append(bases, "http://"+i.HTTP)
	}
	x.crowd = &load.Crowd{Name: "c", Clients: 8, Entities: 80, Bases: bases, NATS: (&rig.Cluster{Instars: nodes}).URLs(), Seed: x.Seed, Think: 40 * time.Millisecond, Patience: 20, Journal: x.journal}
	return x.crowd.Start(x.Ctx)
}

func (x *trio) shared(most time.Duration) error {
	if err := rig.Shared(x.Ctx, most, x.Instars); err != nil {
		for _, i := range x.Instars {
			x.Say("%s said last:\n%s", i.Name, i.Tail())
		}
		return err
	}
	return nil
}

// others waits until the other nodes have taken everything, and keeps the time that it took.
func (x *trio) others(what string, without *rig.Instar, most time.Duration) error {
	without.Away = true
	began := time.Now()
	if err := x.shared(most); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	x.figures[what] = append(x.figures[what], time.Since(began))
	return nil
}

// back starts a node, or lets it go on, and waits until it has its share again.
func (x *trio) back(what string, i *rig.Instar, start func() error) error {
	i.Away = false
	began := time.Now()
	if err := start(); err != nil {
		return err
	}
	if err := x.shared(60 * time.Second); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	x.figures[what] = append(x.figures[what], time.Since(began))
	return nil
}

func (x *trio) again(i *rig.Instar) func() error { return func() error { return i.Start("") } }

// Clustered does to three nodes what clusters suffer.
func Clustered(t *part.T) error {
	x, err := newTrio(t, []string{"127.0.0.1", "127.0.0.1", "127.0.0.1"}, nil)
	if err != nil {
		return err
	}
	if err := x.load(x.Instars...); err != nil {
		return err
	}
	for range t.Amount(1, 4) {
		for _, step := range []func() error{x.kill, x.killLeader, x.standStill, x.joinAndLeave, x.roll} {
			if !wait.For(t.Ctx, t.Between(time.Second, 2*time.Second)) {
				return t.Ctx.Err()
			}
			if err := step(); err != nil {
				return err
			}
		}
	}
	return x.finish()
}

// finish waits for the clients, judges, and tells the figures.
func (x *trio) finish() error {
	x.crowd.Finish(40 * time.Second)
	r, err := x.Reader(x.URLs())
	if err != nil {
		return err
	}
	err = x.SettleAndJudge(r, x.journal, 90*time.Second, func(h *check.History) { h.Late = 40 * time.Second })
	for _, what := range []string{"kill -9, until the others had all", "kill -9 of who leads most, until the others had all", "back from the dead, until it had its share", "stands still, until the others had all", "goes on, until it had its share", "a node joins, until it had its share", "a node leaves, until the others had all", "cut off, until the others had all", "whole again, until it had its share"} {
		if d := x.figures[what]; len(d) > 0 {
			x.Say("%s: %s", what, d)
		}
	}
	return err
}

// kill ends a node that leads the least.
func (x *trio) kill() error {
	least, _ := x.leaders()
	least.Kill()
	if err := x.others("kill -9, until the others had all", least, 40*time.Second); err != nil {
		return err
	}
	return x.back("back from the dead, until it had its share", least, x.again(least))
}

// killLeader ends the node whose NATS server leads the most.
func (x *trio) killLeader() error {
	_, most := x.leaders()
	most.Kill()
	if err := x.others("kill -9 of who leads most, until the others had all", most, 60*time.Second); err != nil {
		return err
	}
	return x.back("back from the dead, until it had its share", most, x.again(most))
}

// leaders are the nodes whose NATS servers lead the least and the most; who leads the cluster leads most.
func (x *trio) leaders() (least, most *rig.Instar) {
	low, high := 1<<30, -1
	for _, i := range x.Instars {
		_, n, meta := i.Nodes()
		if meta {
			n += 1000
		}
		if n < low {
			low, least = n, i
		}
		if n > high {
			high, most = n, i
		}
	}
	return least, most
}

// standStill stops a node, NATS server and all, for much longer than its key lives. It wakes up as a zombie.
func (x *trio) standStill() error {
	i := x.Instars[x.Rand.IntN(3)]
	began := time.Now()
	i.Signal(syscall.SIGSTOP)
	if err := x.others("stands still, until the others had all", i, 60*time.Second); err != nil {
		return err
	}
	wait.For(x.Ctx, time.Duration(x.Amount(10, 20))*time.Second-time.Since(began))
	return x.back("goes on, until it had its share", i, func() error { i.Signal(syscall.SIGCONT); return nil })
}

// joinAndLeave lets a fourth node, attached to the cluster, join under load and leave.
func (x *trio) joinAndLeave() error {
	i, err := x.Instar(fmt.Sprintf("four-%d", len(x.figures["a node joins, until it had its share"])), x.URLs(), append([]string{"--node", "node-4"}, engine.Restless...)...)
	if err != nil {
		return err
	}
	three := x.Instars
	x.Instars = append(three[:3:3], i)
	defer func() { x.Instars = three }()
	if err := x.back("a node joins, until it had its share", i, x.again(i)); err != nil {
		return err
	}
	wait.For(x.Ctx, x.Between(time.Second, 2*time.Second))
	began := time.Now()
	i.Signal(syscall.SIGTERM)
	if err := x.others("a node leaves, until the others had all", i, 20*time.Second); err != nil {
		return err
	}
	if err := i.Wait(x.Ctx, 20*time.Second); err != nil {
		return err
	}
	x.Say("the fourth node had left after %s", part.Since(began))
	return nil
}

// roll restarts one node after another, politely. Clients follow /readyz, as a load balancer does, and repeat under its
// key what was not answered: a command is not answered when the leader of its stream moves away with it in its hands.
func (x *trio) roll() error {
	ctx, cancel := context.WithCancel(x.Ctx)
	b := &balanced{nodes: x.Instars, seed: x.Rand.Uint64()}
	var clients sync.WaitGroup
	for n := range 4 {
		clients.Go(func() { b.client(ctx, n) })
	}
	began := time.Now()
	err := func() error {
		for _, i := range x.Instars {
			i.Signal(syscall.SIGTERM)
			if err := i.Wait(x.Ctx, 25*time.Second); err != nil {
				return err
			}
			if err := i.Start(""); err != nil {
				return err
			}
			if err := i.Ready(x.Ctx, 60*time.Second); err != nil {
				return err
			}
			if err := x.shared(30 * time.Second); err != nil {
				return err
			}
		}
		return nil
	}()
	cancel()
	clients.Wait()
	x.Say("a rolling restart took %s: %d commands behind a balancer, %d not answered at the first try, %d not at the second, the slowest try took %s", part.Since(began), b.sent, b.repeated, len(b.failed), b.slowest.Round(time.Millisecond))
	for i, f := range b.failed {
		if x.Violations++; i < 5 {
			x.Say("VIOLATION rolling: %s", f)
		}
	}
	return err
}

// balanced sends commands to nodes that say that they are ready.
type balanced struct {
	nodes []*rig.Instar
	seed  uint64 // of the ids, too: those of another restart must not come again

	mu       sync.Mutex
	sent     int
	repeated int      // not answered at the first try
	failed   []string // nor at the second
	slowest  time.Duration
}

func (b *balanced) client(ctx context.Context, n int) {
	c := &http.Client{Timeout: 15 * time.Second}
	r := rand.New(rand.NewPCG(uint64(n), b.seed))
	for step := 0; wait.For(ctx, 20*time.Millisecond); {
		i := b.nodes[r.IntN(len(b.nodes))]
		if status, _ := i.Readyz(); status != http.StatusOK {
			continue
		}
		command, body := "label", fmt.Sprintf(`{"labels":{"n":"%d"}}`, step)
		if step == 0 {
			command, body = "create", `{"spec":{"image":"sim:ok?ready=20ms&observe=10ms"}}`
		}
		key := fmt.Sprintf("rolled-%d-%d-%d", n, step, r.Uint64())
		said := b.try(c, i, n, command, body, key)
		again := said != ""
		if again {
			said = b.try(c, b.ready(ctx, r), n, command, body, key)
		}
		if said == "" {
			step++
		}
		b.mu.Lock()
		b.sent++
		if again {
			b.repeated++
		}
		if said != "" {
			b.failed = append(b.failed, fmt.Sprintf("%s of %s: %s", command, i.Name, said))
		}
		b.mu.Unlock()
	}
}

// ready is a node that says that it is.
func (b *balanced) ready(ctx context.Context, r *rand.Rand) *rig.Instar {
	for {
		i := b.nodes[r.IntN(len(b.nodes))]
		if status, _ := i.Readyz(); status == http.StatusOK || !wait.For(ctx, 20*time.Millisecond) {
			return i
		}
	}
}

// try sends a command once and gives what was said instead of an answer.
func (b *balanced) try(c *http.Client, i *rig.Instar, n int, command, body, key string) string {
	began := time.Now()
	defer func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.slowest = max(b.slowest, time.Since(began))
	}()
	req, err := http.NewRequest(http.MethodPost, fmt.Sprintf("http://%s/v1/services/rolled%d/%s", i.HTTP, n, command), bytes.NewBufferString(body))
	if err != nil {
		panic(err) // a wrong URL
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", key)
	res, err := c.Do(req)
	if err != nil {
		return err.Error()
	}
	_ = res.Body.Close()
	if res.StatusCode != http.StatusOK && res.StatusCode != http.StatusConflict { // that it exists is an answer, too
		return res.Status
	}
	return ""
}
