package rig

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"
)

// Cluster is servers whose NATS servers are members of one JetStream cluster.
type Cluster struct{ Instars []*Instar }

// NewCluster picks ports for a member on each of the hosts, with its data below dir.
func NewCluster(bin, dir string, hosts []string, args ...string) (*Cluster, error) {
	c := &Cluster{}
	var routes, listens []string
	at := func(host string) (string, error) {
		addr, err := Port()
		if err != nil {
			return "", err
		}
		_, port, err := net.SplitHostPort(addr)
		return net.JoinHostPort(host, port), err
	}
	for i, host := range hosts {
		m := &Instar{Bin: bin, Dir: fmt.Sprintf("%s-node-%d", dir, i+1), Name: fmt.Sprintf("node-%d", i+1)}
		var listen string
		for _, addr := range []*string{&m.HTTP, &m.NATS, &listen} {
			var err error
			if *addr, err = at(host); err != nil {
				return nil, err
			}
		}
		listens, routes = append(listens, listen), append(routes, "nats://"+listen)
		c.Instars = append(c.Instars, m)
	}
	for i, m := range c.Instars {
		m.Args = append([]string{"--node", m.Name, "--cluster", "torture", "--cluster-listen", listens[i], "--cluster-routes", strings.Join(routes, ",")}, args...)
	}
	return c, nil
}

// URLs are where clients of NATS connect, with commas between them.
func (c *Cluster) URLs() string {
	var list []string
	for _, m := range c.Instars {
		list = append(list, m.NATSURL())
	}
	return strings.Join(list, ",")
}

// Node is a node as the API shows it.
type Node struct {
	Name       string   `json:"name"`
	State      string   `json:"state"`
	Partitions []int    `json:"partitions"`
	Roles      []string `json:"roles"`
}

// Nodes are the nodes that this one knows, and what its own NATS server leads; nil says that it does not answer.
func (i *Instar) Nodes() (nodes []Node, leads int, meta bool) {
	r, err := quick.Get("http://" + i.HTTP + "/v1/nodes")
	if err != nil {
		return nil, 0, false
	}
	defer r.Body.Close()
	var list struct {
		Items []Node
		Leads struct {
			Streams, Consumers int
			Meta               bool
		}
	}
	if r.StatusCode != http.StatusOK || json.NewDecoder(r.Body).Decode(&list) != nil {
		return nil, 0, false
	}
	return list.Items, list.Leads.Streams + list.Leads.Consumers, list.Leads.Meta
}

// Takes is how many partitions it says that it takes the commands of; it is -1 when it does not answer.
func (i *Instar) Takes() int {
	_, checks := i.Readyz()
	var n int
	if _, err := fmt.Sscanf(checks["partitions"].Detail, "%d of", &n); err != nil {
		return -1
	}
	return n
}

// Parked is how many values of a machine the node cannot read.
func (i *Instar) Parked(ctx context.Context, machine string) (int, error) {
	var counts struct{ Parked int }
	err := Until(ctx, 10*time.Second, i.Name+" counts what there is", func() bool {
		r, err := quick.Get("http://" + i.HTTP + "/v1/machines/" + machine + "/counts")
		if err != nil {
			return false
		}
		defer r.Body.Close()
		return r.StatusCode == http.StatusOK && json.NewDecoder(r.Body).Decode(&counts) == nil
	})
	return counts.Parked, err
}

// Shared waits until the running ones among the servers take the commands of all partitions, and each of them of some.
func Shared(ctx context.Context, most time.Duration, all []*Instar) error {
	var takes []int
	err := Until(ctx, most, "the running nodes share all partitions", func() bool {
		takes = takes[:0]
		sum := 0
		for _, i := range all {
			if i.Process == nil || !i.Running() || i.Away {
				continue
			}
			n := i.Takes()
			takes = append(takes, n)
			if n <= 0 {
				return false
			}
			sum += n
		}
		return sum == 32
	})
	if err != nil {
		return fmt.Errorf("%w (they take %v)", err, takes)
	}
	return nil
}
