package load

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/bcc94042/instar/internal/wait"
	"github.com/bcc94042/instar/torture/internal/check"
)

// Crowd is clients that ask all kinds of things of a number of entities.
type Crowd struct {
	Name     string
	Clients  int
	Entities int
	Bases    []string
	NATS     string // URL; empty: HTTP only
	Seed     uint64
	Think    time.Duration // at most, between two commands of a client
	Patience int           // seconds that an entity has to become ready; 0 is 3 to 8
	Journal  *Journal
	Via      http.RoundTripper // of servers that want more than a URL

	cancel  context.CancelFunc
	ending  chan struct{}
	running sync.WaitGroup
	conns   []*nats.Conn
}

// Start lets the clients go.
func (c *Crowd) Start(ctx context.Context) error {
	ctx, c.cancel = context.WithCancel(ctx)
	c.ending = make(chan struct{})
	for n := range c.Clients {
		cl := &Client{Name: fmt.Sprintf("%s%d", c.Name, n), Bases: c.Bases, Via: c.Via, Journal: c.Journal, Rand: rand.New(rand.NewPCG(c.Seed, uint64(n))), base: n}
		if c.NATS != "" {
			nc, err := nats.Connect(c.NATS, nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond), nats.ReconnectBufSize(-1), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
			if err != nil {
				return fmt.Errorf("a client cannot connect to NATS: %w", err)
			}
			cl.NC = nc
			c.conns = append(c.conns, nc)
		}
		c.running.Go(func() { c.client(ctx, cl) })
	}
	return nil
}

// Finish lets each client end when its command is answered, and gives up after a while. The answer that a client still
// lacks then is told by the checks.
func (c *Crowd) Finish(most time.Duration) {
	close(c.ending)
	timer := time.AfterFunc(most, c.cancel)
	defer timer.Stop()
	c.running.Wait()
	c.cancel()
	for _, nc := range c.conns {
		nc.Close()
	}
	c.conns = nil
}

func (c *Crowd) client(ctx context.Context, cl *Client) {
	for {
		select {
		case <-c.ending:
			return
		case <-ctx.Done():
			return
		default:
		}
		c.command(ctx, cl, fmt.Sprintf("e%d", cl.Rand.IntN(c.Entities)))
		if c.Think > 0 && !wait.For(ctx, time.Duration(cl.Rand.Int64N(int64(c.Think)))) {
			return
		}
	}
}

// command is one of all kinds.
func (c *Crowd) command(ctx context.Context, cl *Client, id string) {
	switch n := cl.Rand.IntN(100); {
	case n < 24:
		cl.Do(ctx, id, "create", map[string]any{"spec": cl.spec(), "policy": cl.policy(c.Patience), "labels": cl.labels()}, 0)
	case n < 36:
		cl.Do(ctx, id, "update", map[string]any{"spec": cl.spec()}, 0)
	case n < 44:
		cl.Do(ctx, id, "update", map[string]any{"spec": cl.spec(), "labels": cl.labels(), "supersede": true}, 0)
	case n < 64:
		cl.Do(ctx, id, "label", map[string]any{"labels": cl.labels()}, 0)
	case n < 72:
		cl.Do(ctx, id, "refresh", nil, 0)
	case n < 76:
		cl.Do(ctx, id, "rollback", nil, 0)
	case n < 84:
		cl.Do(ctx, id, "delete", nil, 0)
	case n < 85: // of a name that is not used again: what purge forgets stays in the gateway
		id = fmt.Sprintf("%s-gone%d", cl.Name, cl.n)
		cl.Do(ctx, id, "create", map[string]any{"spec": cl.spec(), "policy": cl.policy(c.Patience)}, 0)
		cl.purge(ctx, id)
	default:
		if v, err := cl.Get(ctx, id); err == nil {
			cl.Do(ctx, id, "label", map[string]any{"labels": cl.labels()}, v.Revision)
		}
	}
}

// purge is for administrators, who are not asked over NATS.
func (c *Client) purge(ctx context.Context, id string) {
	nc := c.NC
	c.NC = nil
	c.Do(ctx, id, "purge", map[string]any{"force": true}, 0)
	c.NC = nc
}

// spec is something that becomes ready, soon or late, or fails, or cannot be applied at all.
func (c *Client) spec() map[string]any {
	images := []string{"sim:ok?ready=20ms&observe=10ms", "sim:ok?ready=20ms&observe=10ms", "sim:ok?ready=300ms&observe=50ms", "sim:slow?ready=1s", "sim:fail?ready=100ms", "sim:never-ready", "nothing"}
	return map[string]any{"image": images[c.Rand.IntN(len(images))], "env": map[string]string{"N": fmt.Sprint(c.Rand.IntN(3))}}
}

func (c *Client) policy(patience int) map[string]any {
	if patience == 0 {
		patience = 3 + c.Rand.IntN(6)
	}
	p := map[string]any{"progressDeadlineSeconds": patience, "deleteDeadlineSeconds": 2 + c.Rand.IntN(3)}
	if c.Rand.IntN(3) == 0 {
		p["drift"] = "reapply"
	}
	return p
}

// labels are never the same twice.
func (c *Client) labels() map[string]string {
	return map[string]string{"by": fmt.Sprintf("%s-%d", c.Name, c.n+1)}
}

// Create makes entities that only time and the gateway move from then on.
func (c *Client) Create(ctx context.Context, id, image string, deadline time.Duration) check.Command {
	return c.Do(ctx, id, "create", map[string]any{"spec": map[string]any{"image": image}, "policy": map[string]any{"progressDeadlineSeconds": int(deadline / time.Second)}}, 0)
}
