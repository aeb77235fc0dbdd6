package admin

import (
	"context"
	"errors"
	"net/http"
	"reflect"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/bcc94042/instar/api/auth"
	"github.com/bcc94042/instar/api/problem"
	"github.com/bcc94042/instar/api/rest"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
)

// Nodes are the processes that share the work.
type Nodes interface {
	// List returns the nodes that live, by name.
	List(ctx context.Context) ([]Node, error)
	// Want makes a node "live", "cordoned" or "draining", now and after a restart, or returns an error that is [ErrNoNode].
	Want(ctx context.Context, name, state string) error
}

// ErrNoNode says that there is no node of that name.
var ErrNoNode = errors.New("there is no such node")

// Node is one process that shares the work, as the one that answers sees it.
type Node struct {
	Name       string    `json:"name"`
	State      string    `json:"state" enum:"live,cordoned,draining" doc:"live: owns its share of the partitions. cordoned: keeps its partitions, takes no new ones. draining: hands over all partitions and serves only the API"`
	Want       string    `json:"want" enum:"live,cordoned,draining" doc:"Desired state, set by an operator"`
	Started    time.Time `json:"started"`
	Version    string    `json:"version,omitempty"`
	URL        string    `json:"url,omitempty" doc:"URL of the node's API"`
	Partitions []int     `json:"partitions" doc:"Partitions that the node owns"`
	Roles      []string  `json:"roles" doc:"Cluster-wide roles that the node holds"`
	Self       bool      `json:"self,omitempty" doc:"This node answered the request"`
}

// NodeLeads counts what the NATS server of a node leads.
type NodeLeads struct {
	Streams   int  `json:"streams"`
	Consumers int  `json:"consumers"`
	Meta      bool `json:"meta" doc:"It is the leader of the metadata group"`
}

// NodeList are the nodes.
type NodeList struct {
	Items      []Node     `json:"items"`
	Partitions int        `json:"partitions" doc:"Total number of partitions"`
	Leads      *NodeLeads `json:"leads,omitempty" doc:"Raft leaderships of the answering node's embedded NATS server"`
}

// wishes are the last part of the path, and the state that is wanted.
var wishes = []struct{ verb, state, doc string }{
	{"cordon", "cordoned", "Let a node keep what it has and take nothing"},
	{"uncordon", "live", "Let a node take its share again"},
	{"drain", "draining", "Move everything away from a node, which then serves the API only"},
}

func (s *Service) nodeRoutes(r *rest.Router) []*rest.Route {
	if s.o.Nodes == nil {
		return nil
	}
	tags := []string{"nodes"}
	routes := []*rest.Route{{Role: auth.Read, Serve: s.listNodes, Op: huma.Operation{
		OperationID: "list-nodes", Method: http.MethodGet, Path: "/v1/nodes", Tags: tags, Summary: "List nodes", Errors: []int{503},
		Responses: map[string]*huma.Response{"200": {Description: "Live nodes", Content: r.BodyOf(reflect.TypeFor[NodeList]())}},
	}}}
	for _, w := range wishes {
		routes = append(routes, &rest.Route{Role: auth.Admin, Serve: func(q *rest.Request) error { return s.wantNode(q, w.state) }, Op: huma.Operation{
			OperationID: w.verb + "-node", Method: http.MethodPost, Path: "/v1/nodes/{name}/" + w.verb, Tags: tags, Summary: w.doc, Errors: []int{404, 503},
			Description: "The desired state is stored and survives restarts; the node follows within a second.",
			Responses:   map[string]*huma.Response{"202": {Description: "The nodes at the time of the answer", Content: r.BodyOf(reflect.TypeFor[NodeList]())}},
		}})
	}
	return routes
}

func (s *Service) listNodes(q *rest.Request) error {
	if p := q.Who.OfAll("the nodes"); p != nil {
		return p
	}
	return s.nodeList(q, http.StatusOK, func() error { return nil })
}

// nodeList answers with the nodes after a change, which is made in the same turn: a turn that does not come changes nothing.
func (s *Service) nodeList(q *rest.Request, status int, change func() error) error {
	var list []Node
	if err := q.InTurn(func() (err error) {
		if err := change(); err != nil {
			return err
		}
		list, err = s.o.Nodes.List(q.Context())
		return err
	}); err != nil {
		return err
	}
	out := NodeList{Items: list, Partitions: streams.Partitions}
	if s.o.NodeLeads != nil {
		out.Leads = s.o.NodeLeads()
	}
	return q.JSON(status, out)
}

func (s *Service) wantNode(q *rest.Request, state string) error {
	if p := q.Who.OfAll("the nodes"); p != nil {
		return p
	}
	if _, err := q.Body(nil); err != nil {
		return err
	}
	name := q.PathValue("name")
	return s.nodeList(q, http.StatusAccepted, func() error {
		err := s.o.Nodes.Want(q.Context(), name, state)
		if errors.Is(err, ErrNoNode) {
			return problem.New(machines.CodeNotFound, "there is no node "+name)
		}
		if err == nil {
			s.rest.Log.Info("changing a node", "request", q.Id, "actor", q.Who.Name, "node", name, "wanted", state)
		}
		return err
	})
}
