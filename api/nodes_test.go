package api_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/api"
	"github.com/bcc94042/instar/api/admin"
)

// nodes are nodes in memory.
type nodes struct {
	wanted []string
	err    error
}

func (n *nodes) List(context.Context) ([]admin.Node, error) {
	return []admin.Node{{Name: "one", State: "live", Want: "live", Partitions: []int{1, 2}, Roles: []string{"views"}, Self: true}}, n.err
}

func (n *nodes) Want(_ context.Context, name, state string) error {
	if name != "one" {
		return admin.ErrNoNode
	}
	n.wanted = append(n.wanted, state)
	return n.err
}

func TestNodes(t *testing.T) {
	all := &nodes{}
	b := setup(t, func(o *api.Options) {
		o.Nodes, o.NodeLeads = all, func() *admin.NodeLeads { return &admin.NodeLeads{Streams: 2, Consumers: 3} }
	})
	a := b.get("/v1/nodes")
	require.Equal(t, 200, a.StatusCode)
	require.JSONEq(t, `{"items":[{"name":"one","state":"live","want":"live","started":"0001-01-01T00:00:00Z","partitions":[1,2],"roles":["views"],"self":true}],
		"partitions":32,"leads":{"streams":2,"consumers":3,"meta":false}}`, string(a.body))
	for _, verb := range []string{"cordon", "uncordon", "drain"} {
		require.Equal(t, 202, b.post("/v1/nodes/one/"+verb, "").StatusCode)
	}
	require.Equal(t, []string{"cordoned", "live", "draining"}, all.wanted)
	b.post("/v1/nodes/two/drain", "").problem(t, 404, "not-found")
	b.post("/v1/nodes/No!/drain", "").problem(t, 422, "validation")
	b.token = "operate-token"
	b.post("/v1/nodes/one/drain", "").problem(t, 403, "forbidden")
	b.token = "tenant-token"
	b.post("/v1/nodes/one/drain", "").problem(t, 403, "forbidden")
	require.Len(t, all.wanted, 3)

	b.token, all.err = "admin-token", errors.New("secret")
	require.NotContains(t, string(b.get("/v1/nodes").body), "secret")
}

// What is refused because no turn came has changed nothing.
func TestANodeIsChangedInTurn(t *testing.T) {
	all := &nodes{}
	b := setup(t, func(o *api.Options) { o.Nodes, o.AnswerWithin = all, 100*time.Millisecond })
	leave := b.server.TakeReads("token boss")
	a := b.post("/v1/nodes/one/drain", "")
	require.Equal(t, 503, a.StatusCode)
	require.Contains(t, string(a.body), "nothing was done")
	require.Empty(t, all.wanted)
	leave()
	require.Equal(t, 202, b.post("/v1/nodes/one/drain", "").StatusCode)
	require.Equal(t, []string{"draining"}, all.wanted)
}

func TestWithoutNodesThereAreNoRoutes(t *testing.T) {
	b := setup(t)
	b.get("/v1/nodes").problem(t, 404, "not-found")
}
