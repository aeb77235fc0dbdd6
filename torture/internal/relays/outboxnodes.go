package relays

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/bcc94042/instar/internal/wait"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/outbox"
	"github.com/bcc94042/instar/torture/internal/part"
	"github.com/bcc94042/instar/torture/internal/rig"
)

// shareholders are processes that relay one outbox together: each holds some of its shards.
type shareholders struct {
	*orders
	source string
	nodes  []string // names, as the leases have them
	times  map[string]part.Times
}

// lease is that of the relays here: the others wait a third of it for who is gone.
const lease = 6 * time.Second

// OutboxNodes lets each of two relays die and stand still in turn, first without a server, then as nodes attached to one
// NATS server, and in the long version in every mode and as three nodes of a cluster with three replicas.
func OutboxNodes(t *part.T) error {
	kinds := []struct {
		mode  outbox.Mode
		start func(*shareholders) error
		name  string
	}{{outbox.Log, (*shareholders).alone, "relays"}, {outbox.Log, (*shareholders).attached, "nodes"}}
	if t.Long {
		kinds = append(kinds, kinds[0])
		kinds[len(kinds)-1].mode = outbox.Claim
		for _, mode := range []outbox.Mode{outbox.Log, outbox.Claim} {
			kinds = append(kinds, kinds[0])
			last := &kinds[len(kinds)-1]
			last.mode, last.start, last.name = mode, (*shareholders).clustered, "cluster"
		}
	}
	for _, k := range kinds {
		o := &orders{T: t, mode: k.mode, profile: "interval", dir: t.Dir + "-" + string(k.mode) + "-" + k.name, kills: map[string]int{}}
		s := &shareholders{orders: o, source: "orders", times: map[string]part.Times{}}
		err := k.start(s)
		if err == nil {
			err = o.run(s.disturb)
		}
		o.End()
		if err != nil {
			return fmt.Errorf("%s, mode %s: %w", k.name, k.mode, err)
		}
		for _, what := range slices.Sorted(maps.Keys(s.times)) {
			t.Say("%s: %s: %s", k.name, what, s.times[what])
		}
	}
	return nil
}

// alone are two relays without a server.
func (s *shareholders) alone() error {
	s.relays, s.nodes = make([]*rig.Process, 2), []string{"r0", "r1"}
	s.start = func(i int) (*rig.Process, error) { return s.relay(i, "--lease", lease.String()) }
	return nil
}

// attached are two servers on one NATS server.
func (s *shareholders) attached() error {
	if err := s.startNATS(); err != nil {
		return err
	}
	s.relays = make([]*rig.Process, 2)
	var list []*rig.Instar
	for i := range s.relays {
		node := fmt.Sprint("node-", i+1)
		one, err := s.Instar(node, s.url, "--node", node, "--log-level", "info")
		if err != nil {
			return err
		}
		list, s.nodes = append(list, one), append(s.nodes, node)
	}
	s.start = func(i int) (*rig.Process, error) { return s.serve(list[i]) }
	return nil
}

// clustered are three servers whose NATS servers are a cluster: who kills one kills a replica with the relay.
func (s *shareholders) clustered() error {
	c, err := rig.NewCluster(s.Bin, s.dir, []string{"127.0.0.1", "127.0.0.1", "127.0.0.1"}, "--durability", "interval", "--log-level", "info")
	if err != nil {
		return err
	}
	s.url, s.relays = c.URLs(), make([]*rig.Process, len(c.Instars))
	for _, i := range c.Instars {
		s.nodes = append(s.nodes, i.Name)
	}
	s.start = func(i int) (*rig.Process, error) { return s.serve(c.Instars[i]) }
	return nil
}

// serve starts a server that relays the outbox.
func (s *shareholders) serve(i *rig.Instar) (*rig.Process, error) {
	config := i.Dir + ".yaml"
	if err := os.MkdirAll(filepath.Dir(config), 0o700); err != nil {
		return nil, err
	}
	text := fmt.Sprintf("outbox:\n  sources:\n    - name: %s\n      dsn: %q\n      lease: %s\n", s.source, s.dsn(), lease)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return nil, err
	}
	if !slices.Contains(i.Args, "--config") {
		i.Args = append(i.Args, "--config", config, "--postgres", "off")
	}
	err := i.Start("")
	return i.Process, err
}

// disturb kills each in turn, and lets each stand still for longer than its leases live. The others take its shards, and
// give it some when it is back.
func (s *shareholders) disturb() error {
	if err := s.shared("the first share", ""); err != nil {
		return err
	}
	for range s.Amount(1, 2) {
		for i := range s.relays {
			for _, step := range []func(int) error{s.kill, s.standStill} {
				if err := step(i); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (s *shareholders) kill(i int) error {
	wait.For(s.Ctx, s.Between(200*time.Millisecond, time.Second))
	s.relays[i].Kill()
	s.kills["relay killed"]++
	if err := s.shared("until the others had the shards of the dead", s.nodes[i]); err != nil {
		return err
	}
	s.supervise()
	return s.shared("until the one that came had its share", "")
}

func (s *shareholders) standStill(i int) error {
	wait.For(s.Ctx, s.Between(200*time.Millisecond, time.Second))
	s.relays[i].Signal(syscall.SIGSTOP)
	s.kills["relay stopped"]++
	err := s.shared("until the others had the shards of who stood still", s.nodes[i])
	wait.For(s.Ctx, s.Between(0, 2*time.Second))
	s.relays[i].Signal(syscall.SIGCONT)
	if err != nil {
		return err
	}
	return s.shared("until the one that goes on had its share", "")
}

// shared waits until every node but one has its share of the shards.
func (s *shareholders) shared(what, without string) error {
	began := time.Now()
	var have map[string]int
	err := rig.Until(s.Ctx, 90*time.Second, what, func() bool {
		have = s.holders()
		return s.fair(have, without)
	})
	if err != nil {
		return fmt.Errorf("%w (they hold %v)", err, have)
	}
	s.times[what] = append(s.times[what], time.Since(began))
	return nil
}

// fair says whether the nodes that are there hold all shards, as many each as the others.
func (s *shareholders) fair(have map[string]int, without string) bool {
	shards, nodes := 1, 0
	if s.mode == outbox.Log {
		shards = 4
	}
	for _, node := range s.nodes {
		if node != without {
			nodes++
		}
	}
	sum := 0
	for _, node := range s.nodes {
		n := have[node]
		if node == without && n > 0 || node != without && (n < shards/nodes || n > (shards+nodes-1)/nodes) {
			return false
		}
		sum += n
	}
	return sum == shards
}

// holders are how many shards each node has the lease of.
func (s *shareholders) holders() map[string]int {
	have := map[string]int{}
	r, err := rig.OpenReader(s.url)
	if err != nil {
		return have
	}
	defer r.Close()
	bucket := streams.Names{}.Bucket(streams.OwnersBucket)
	owners, err := r.JS().Stream(s.Ctx, "KV_"+bucket)
	if err != nil {
		return have
	}
	for shard := range 4 {
		m, err := owners.GetLastMsgForSubject(s.Ctx, fmt.Sprintf("$KV.%s.outbox.%s.%d", bucket, s.source, shard))
		if err == nil && len(m.Data) > 0 {
			have[string(m.Data)]++
		}
	}
	return have
}
