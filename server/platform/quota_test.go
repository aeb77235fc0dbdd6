package platform

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines"
	machine "github.com/bcc94042/instar/machines/platform"
	"github.com/bcc94042/instar/server/config"
)

func TestQuotasCountWhoHasAName(t *testing.T) {
	t.Parallel()
	owners := func(context.Context) ([]string, error) {
		return []string{"instance_provisioning/default.acme.own", "instance_provisioning/default.other.own", "instance_provisioning/team.some.own", "default.acme.shop"}, nil
	}
	task := machines.Task{Namespace: "default", Parent: "acme", ID: "own"}
	of := func(c config.PlatformQuota, task machines.Task) []machine.Quota {
		list, err := quota(c, owners)(t.Context(), &task)
		require.NoError(t, err)
		return list
	}
	limits := config.PlatformQuota{Instances: 5, Namespaces: map[string]int{"default": 2, "else": 1}}
	require.Equal(t, []machine.Quota{{Name: "instances", Used: 3, Limit: 5}, {Name: "instances in the namespace default", Used: 2, Limit: 2}}, of(limits, task), "it has one already")
	task.Parent = "third"
	require.Equal(t, []machine.Quota{{Name: "instances", Used: 4, Limit: 5}, {Name: "instances in the namespace default", Used: 3, Limit: 2}}, of(limits, task))
	task.Namespace = "team"
	require.Equal(t, []machine.Quota{{Name: "instances", Used: 4, Limit: 5}}, of(limits, task))
	require.Empty(t, of(config.PlatformQuota{}, task))
	_, err := quota(limits, func(context.Context) ([]string, error) { return nil, errors.New("away") })(t.Context(), &task)
	require.ErrorContains(t, err, "away")
}
