package platform

import (
	"context"
	"strings"

	"github.com/bcc94042/instar/machines"
	machine "github.com/bcc94042/instar/machines/platform"
	"github.com/bcc94042/instar/providers"
	"github.com/bcc94042/instar/server/config"
)

// quota counts who has a name below the domain, which a session has from its first step until nothing of it is left, and the one that asks.
func quota(c config.PlatformQuota, owners func(context.Context) ([]string, error)) func(context.Context, *machines.Task) ([]machine.Quota, error) {
	return func(ctx context.Context, t *machines.Task) ([]machine.Quota, error) {
		in := c.Namespaces[t.Namespace]
		if c.Instances == 0 && in == 0 {
			return nil, nil
		}
		list, err := owners(ctx)
		if err != nil {
			return nil, providers.Errorf(providers.Unavailable, "cannot count the instances that there are: %v", err)
		}
		all, here := int64(1), int64(1)
		for _, owner := range list {
			key, ours := strings.CutPrefix(owner, machine.Machine.Name+"/")
			if !ours || key == t.Key() {
				continue
			}
			all++
			if strings.HasPrefix(key, t.Namespace+".") {
				here++
			}
		}
		var quotas []machine.Quota
		for _, q := range []machine.Quota{{Name: "instances", Used: all, Limit: int64(c.Instances)}, {Name: "instances in the namespace " + t.Namespace, Used: here, Limit: int64(in)}} {
			if q.Limit > 0 {
				quotas = append(quotas, q)
			}
		}
		return quotas, nil
	}
}
