package cluster

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/kv/index"
	"github.com/bcc94042/instar/streams"
)

// NodeState is what a node does.
type NodeState string

// The states of a node.
const (
	NodeLive     NodeState = "live"     // takes its share
	NodeCordoned NodeState = "cordoned" // keeps what it has and takes nothing
	NodeDraining NodeState = "draining" // has given everything away, or does so, and serves the API only
)

// The keys of the bucket of owners; the leases of roles are there, too, under their names.
const (
	nodeKey      = "node."      // <name>: a node that lives
	partitionKey = "partition." // <nn>: who has a partition
	desiredKey   = "want."      // <name>: what an operator wants of a node; empty or absent is that it lives

	// PoisonKey begins the keys of notes about messages that may end a process: p<nn> of a partition, and <consumer>.<sequence> of a task.
	PoisonKey = "suspect."
)

// record is what a node says about itself. Others end it when it is not renewed.
type record struct {
	Name    string    `json:"name"`
	Nonce   string    `json:"nonce"` // of the process
	Started time.Time `json:"started"`
	Version string    `json:"version,omitempty"`
	HTTP    string    `json:"http,omitempty"`
	State   NodeState `json:"state"`
	Life    string    `json:"life,omitempty"` // without being renewed; see [kv.LifeOf]

	Offers map[string]int `json:"offers,omitempty"` // see [Node.Offer]
}

// claim says who has a partition. It lasts until it is given up or its holder is not alive any more.
type claim struct {
	Node  string    `json:"node"` // empty: nobody
	Nonce string    `json:"nonce,omitempty"`
	Since time.Time `json:"since"`

	revision uint64
}

func (c claim) of(r record) bool { return c.Node == r.Name && c.Nonce == r.Nonce }

// lastSeen is when a node's key was last seen to be renewed.
type lastSeen struct {
	kv.LastSeen
	gone bool // the bucket said that it has ended
}

// view is what the bucket says. It is made anew from the index whenever something changes; it may be behind, so
// nothing is taken without a check of the revision.
type view struct {
	nodes   map[string]record
	claims  [streams.Partitions]claim
	desired map[string]NodeState
	roles   map[string]string // role to node
}

// buildView reads the index, and returns up to which revision everything is in the view. seen is brought up to date: a node is
// left out once the bucket has said that it has ended.
func buildView(ix *index.Index, seen map[string]lastSeen, now time.Duration) (view, uint64) {
	page := ix.List(index.Query{Limit: 100_000})
	v := view{nodes: map[string]record{}, desired: map[string]NodeState{}, roles: map[string]string{}}
	for _, item := range page.Items {
		raw, _ := item.Value.([]byte) // what describeOwner keeps
		if name, ok := strings.CutPrefix(item.Key, nodeKey); ok {
			v.node(name, raw, item.Revision, seen, now)
		} else if number, ok := strings.CutPrefix(item.Key, partitionKey); ok {
			if p, err := strconv.Atoi(number); err == nil && p >= 0 && p < streams.Partitions {
				v.claims[p] = readClaim(raw, item.Revision)
			}
		} else if name, ok := strings.CutPrefix(item.Key, desiredKey); ok {
			v.desired[name] = NodeState(raw)
		} else if !strings.HasPrefix(item.Key, PoisonKey) {
			v.roles[item.Key] = string(raw)
		}
	}
	return v, page.Revision
}

func (v *view) node(name string, raw []byte, revision uint64, seen map[string]lastSeen, now time.Duration) {
	s := seen[name]
	if revision > s.Revision {
		s = lastSeen{LastSeen: kv.LastSeen{Revision: revision, At: now}}
		seen[name] = s
	}
	var r record
	if s.gone || json.Unmarshal(raw, &r) != nil || r.Name != name {
		return
	}
	v.nodes[name] = r
}

// alive reports whether the process that holds a claim is known to live.
func (v *view) alive(c claim) bool {
	r, ok := v.nodes[c.Node]
	return ok && r.Nonce == c.Nonce
}

// live are the names of the nodes that take their share, sorted.
func (v *view) live() []string {
	var names []string
	for name, r := range v.nodes {
		if r.State == NodeLive {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// readClaim takes a value that cannot be read for a free one: nobody can hold a partition by it.
func readClaim(raw []byte, revision uint64) claim {
	var c claim
	if json.Unmarshal(raw, &c) != nil {
		c = claim{}
	}
	c.revision = revision
	return c
}

// describe keeps the value as it is: leases of roles are no JSON.
func describe(_ string, value []byte) (index.Meta, error) { return index.Meta{Value: value}, nil }

func keyOf(partition int) string { return fmt.Sprintf("%s%02d", partitionKey, partition) }
