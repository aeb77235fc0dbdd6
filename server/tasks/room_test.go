package tasks

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/consumers/cluster"
	"github.com/bcc94042/instar/server"
)

// While nodes are upgraded one after the other, one that does not say how much it does counts for what it does: nothing, unless it performs effects.
func TestRoomIsThatOfTheNodesThatDoTasks(t *testing.T) {
	t.Parallel()
	does := func(much int, roles ...string) cluster.NodeInfo {
		return cluster.NodeInfo{Roles: roles, Offers: map[string]int{offered: much}}
	}
	before := func(roles ...string) cluster.NodeInfo { return cluster.NodeInfo{Roles: roles} }
	for what, c := range map[string]struct {
		nodes []cluster.NodeInfo
		sum   int
		known bool
	}{
		"all say it":           {[]cluster.NodeInfo{does(4, server.RoleGateway), does(2)}, 6, true},
		"all are drained":      {[]cluster.NodeInfo{does(0), does(0)}, 0, true},
		"one does none":        {[]cluster.NodeInfo{does(4, server.RoleGateway), before(Role)}, 4, true},
		"one does all it gets": {[]cluster.NodeInfo{does(4), before(server.RoleGateway)}, 0, false},
		"none is known":        {nil, 0, false},
	} {
		sum, known := room(c.nodes)
		require.Equal(t, c.known, known, what)
		require.Equal(t, c.sum, sum, what)
	}
}
