package streams

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/nats-io/nats.go/jetstream"
)

// fewBehind is how many writes a replica may be behind that is spoken to: under load the last ones are always on their way.
const fewBehind = 64

// Behind are the streams of the plan of which the server holds a replica that is not current, each with the reason, sorted. Their
// leaders are asked, all at once: the server itself does not know what it has missed. One that does not answer before ctx ends
// is among them. What the server does not hold is not.
func (p Plan) Behind(ctx context.Context, js jetstream.JetStream, server string) []string {
	var mu sync.Mutex
	var behind []string
	var all sync.WaitGroup
	for _, c := range p.Configs() {
		all.Go(func() {
			why := ""
			if s, err := Led(ctx, js, c.Name); err != nil {
				why = "no leader answers"
			} else {
				why = replicaBehind(s.CachedInfo().Cluster, server)
			}
			if why != "" {
				mu.Lock()
				defer mu.Unlock()
				behind = append(behind, c.Name+": "+why)
			}
		})
	}
	all.Wait()
	slices.Sort(behind)
	return behind
}

func replicaBehind(c *jetstream.ClusterInfo, server string) string {
	if c == nil || c.Leader == server {
		return ""
	}
	for _, r := range c.Replicas {
		if r.Name != server || r.Current || !r.Offline && r.Lag > 0 && r.Lag <= fewBehind {
			continue
		}
		if r.Offline {
			return "its leader does not hear from it"
		}
		return fmt.Sprintf("%d writes behind", r.Lag)
	}
	return ""
}
