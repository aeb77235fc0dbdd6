package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/bcc94042/instar/api/admin"
	"github.com/bcc94042/instar/consumers/cluster"
	"github.com/bcc94042/instar/internal/wait"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/embedded"
)

// The roles: what one node at a time does for all of them.
const (
	RoleGateway = "gateway" // effects, and looks at the world
	roleViews   = "views"
)

// remembered is how many processes a data directory remembers. It takes more than that to start so many within the life of a key.
const remembered = 64

// incarnate chooses the nonce of this process and finds those of the ones before it, which have ended: the directory is
// locked. It is more than the last one that matters, as that may have been killed before it entered under its nonce. In a copy
// of a directory there is none before it, and the original may live.
func incarnate(dir string, lock *os.File) (nonce string, before []string, err error) {
	info, err := lock.Stat()
	if err != nil {
		return "", nil, fmt.Errorf("cannot look at the data directory: %w", err)
	}
	place := "0"
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		place = fmt.Sprintf("%d:%d", st.Dev, st.Ino)
	}
	path := filepath.Join(dir, "nonce")
	raw, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", nil, fmt.Errorf("cannot read the nonces of the node: %w", err)
	}
	nonce = nuid.Next()
	lines := nonce + " " + place + "\n"
	for line := range strings.Lines(string(raw)) { // the last process first
		if old, at, ok := strings.Cut(strings.TrimSpace(line), " "); ok && at == place && len(before) < remembered {
			before = append(before, old)
			lines += old + " " + place + "\n"
		}
	}
	err = os.WriteFile(path+".new", []byte(lines), 0o600)
	if err == nil {
		err = os.Rename(path+".new", path) // whoever is killed here leaves the one or the other
	}
	if err != nil && !embedded.IsFull(err) { // on a full disk the next start waits for the life of this one's key
		return "", nil, fmt.Errorf("cannot write the nonce of the node: %w", err)
	}
	return nonce, before, nil
}

// ensure brings the streams about. In a cluster it waits for the other members until the process is told to stop.
func (a *app) ensure(ctx context.Context, nc *nats.Conn, js jetstream.JetStream, plan streams.Plan) ([]streams.Difference, error) {
	if !a.cfg.Cluster.On() {
		ready, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		return streams.Ensure(ready, js, plan)
	}
	ready, cancel := a.untilStopped(ctx)
	defer cancel()
	return streams.AwaitCluster(ready, nc, js, plan, a.log)
}

// untilStopped ends when the process is told to stop.
func (a *app) untilStopped(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-a.stopped:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// told reports whether the process was told to stop.
func (a *app) told() bool {
	select {
	case <-a.stopped:
		return true
	default:
		return false
	}
}

// startNode makes this process one of the nodes. It takes its share as soon as the engine runs.
func (a *app) startNode(context.Context) error {
	nc, js, err := a.connect("node") // of its own: what keeps a node alive must not wait behind its work
	if err != nil {
		return err
	}
	appender, _, err := a.writers(nc, a.deps.Names)
	if err != nil {
		return err
	}
	a.member = &cluster.Node{
		JS: js, Names: a.deps.Names, Appender: appender, Name: a.node, Nonce: a.nonce, Before: a.before, Version: a.opts.Build.Filled().Version, Life: a.life(), Log: a.log,
	}
	owned := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "instar_partitions_owned", Help: "Partitions that this node owns."}, func() float64 {
		return float64(a.member.Status().Owned)
	})
	stalled := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "instar_partitions_stalled", Help: "Partitions of this node that make no progress."}, func() float64 {
		if a.engine == nil {
			return 0
		}
		return float64(a.engine.Stalled())
	})
	skew := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "instar_clock_skew_seconds", Help: "Lower bound of how far the NATS server's clock is ahead of this machine's."}, func() float64 {
		return a.member.Skew().Seconds()
	})
	for _, c := range []prometheus.Collector{owned, stalled, skew} {
		if err := a.registry.Register(c); err != nil {
			return fmt.Errorf("cannot register metrics: %w", err)
		}
	}
	return nil
}

// aloneFor is the life of what a node renews when its NATS server is its own and no member of a cluster: then nobody
// waits to take its partitions, and a machine that has too much to do for a while should not make it give them up.
const aloneFor = 15 * time.Second

// life is how long this node is believed to live without a sign of it; 0 is the default.
func (a *app) life() time.Duration {
	if a.server != nil && !a.cfg.Cluster.On() {
		return aloneFor
	}
	return 0
}

func (a *app) roleOf(name string) *cluster.Role {
	return &cluster.Role{JS: a.member.JS, Names: a.deps.Names, Name: name, Node: a.node, Life: a.life(), Eligible: a.member.Eligible, Log: a.log}
}

// role runs parts for as long as this node holds the lease of the role.
func (a *app) role(ctx context.Context, name string, parts []func(context.Context) error) {
	o := a.roleOf(name)
	a.goes(ctx, "the role "+name, func(ctx context.Context) error {
		return o.Run(ctx, func(ctx context.Context) error { return together(ctx, parts) })
	})
}

// leave gives everything to the other nodes before anything is stopped, so that commands are answered all the while. A
// node that is alone has nobody to give it to.
func (a *app) leave(ctx context.Context) {
	if a.member == nil || a.member.Status().Nodes < 2 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 8*time.Second)
	defer cancel()
	began := time.Now()
	if err := a.member.Leave(ctx); err != nil {
		a.log.Warn("not all partitions were handed over; other nodes take them in a few seconds", "error", err)
		return
	}
	a.log.Info("all partitions were handed over", "took", time.Since(began).Round(time.Millisecond))
}

// nodeChecks tell how this node stands among the others.
func (a *app) nodeChecks() []admin.Check {
	s, live := a.member.Status(), a.engine.Live()
	node := admin.Check{Name: "node", OK: s.Member, Detail: fmt.Sprintf("%s is %s, one of %d", a.node, s.State, s.Nodes)}
	if !s.Member {
		node.Detail = a.node + " could not renew its key in time"
	}
	part := admin.Check{Name: "partitions", OK: s.Member && live >= s.Due, Detail: fmt.Sprintf("%d of %d take commands here", live, streams.Partitions)}
	if live < s.Due {
		part.Detail += fmt.Sprintf("; %d should", s.Due)
	}
	if stalled := a.engine.Stalled(); stalled > 0 {
		part.OK, part.Detail = false, part.Detail+fmt.Sprintf("; %d make no progress", stalled)
	}
	values := admin.Check{Name: "values", OK: true, Detail: "fit their events"}
	if n := a.engine.Reconciled(); n > 0 {
		values.Warn, values.Detail = true, fmt.Sprintf("%d did not fit their events since the start: their events entity.reconciled tell what was lost", n)
	}
	checks := []admin.Check{node, part, values, clockCheck(a.member.Skew())}
	if a.replicas != nil {
		checks = append(checks, a.replicas.check())
	}
	return checks
}

// clockCheck tells whether this machine and the NATS server have the same time. Nothing depends on that for its safety.
func clockCheck(skew time.Duration) admin.Check {
	c := admin.Check{Name: "clock", OK: true, Detail: "within " + cluster.MaxSkew.String() + " of the NATS server's"}
	if skew.Abs() > cluster.MaxSkew {
		c.Warn, c.Detail = true, fmt.Sprintf("the NATS server's is %s ahead of this machine's: deadlines, ages and times of events are off by as much", skew.Round(time.Millisecond))
	}
	return c
}

// replicas is whether what this member holds of the streams is current. A member that has just come back, or was cut off, lacks
// what was written meanwhile: should another one fail now, there is no majority that has it.
type replicas struct {
	plan   func(...*machines.Machine) streams.Plan
	js     jetstream.JetStream
	server string
	held   func() (map[string]uint64, error) // of that server, see [embedded.Server.Held]

	mu     sync.Mutex
	behind []string
	asked  bool
}

// run looks again and again, more often while something is behind.
func (r *replicas) run(ctx context.Context) error {
	for {
		every := 2 * time.Second
		if !r.look(ctx) {
			every = 250 * time.Millisecond
		}
		if !wait.For(ctx, every) {
			return nil
		}
	}
}

func (r *replicas) look(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	behind := r.plan().Behind(ctx, r.js, r.server, r.held)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.behind, r.asked = behind, true
	return len(behind) == 0
}

func (r *replicas) check() admin.Check {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := admin.Check{Name: "replicas", OK: r.asked && len(r.behind) == 0, Detail: "current"}
	switch {
	case !r.asked:
		c.Detail = "not known yet"
	case len(r.behind) > 0:
		c.Detail = fmt.Sprintf("%d streams are not current; %s", len(r.behind), r.behind[0])
	}
	return c
}

// startReplicas looks after the replicas of a member, on a connection of its own: others may wait behind their work.
func (a *app) startReplicas(ctx context.Context) error {
	if !a.cfg.Cluster.On() {
		return nil
	}
	_, js, err := a.connect("replicas")
	if err != nil {
		return err
	}
	a.replicas = &replicas{plan: a.plan, js: js, server: a.node, held: a.server.Held}
	a.goes(ctx, "the look at the replicas", a.replicas.run)
	return nil
}

// leads counts what this node's NATS server leads; it is not told of servers that are not ours.
func (a *app) leads() *admin.NodeLeads {
	if a.server == nil {
		return nil
	}
	streams, consumers, meta, err := a.server.Leads()
	if err != nil {
		return nil
	}
	return &admin.NodeLeads{Streams: streams, Consumers: consumers, Meta: meta}
}

// nodes shows the nodes to the API.
type nodes struct{ *cluster.Node }

func (n nodes) List(context.Context) ([]admin.Node, error) {
	list := []admin.Node{}
	for _, i := range n.Nodes() {
		list = append(list, admin.Node{
			Name: i.Name, State: string(i.State), Want: string(i.Desired), Started: i.Started, Version: i.Version, URL: i.HTTP, Partitions: i.Partitions, Roles: i.Roles, Self: i.Name == n.Name,
		})
	}
	return list, nil
}

func (n nodes) Want(ctx context.Context, name, state string) error {
	err := n.Node.SetDesired(ctx, name, cluster.NodeState(state))
	if errors.Is(err, cluster.ErrNoNode) {
		return fmt.Errorf("%w: %w", admin.ErrNoNode, err)
	}
	return err
}
